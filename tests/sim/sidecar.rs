//! A simulated sidecar: the real ingest behind the real ports.

use std::{sync::Arc, time::Duration};

use seriatim::{
    clock::Clock,
    ingest::{Ingest, Options, Ports},
    operate::{Pace, Reconciled, reconcile},
    store::Store,
};

use crate::{link::Link, process::Process, world::World};

/// How long one that ends waits for what is under way.
const DRAIN: Duration = Duration::from_millis(800);

#[derive(Clone)]
pub struct Sidecar {
    pub process: Process,
    pub ingest: Arc<Ingest>,
}

/// Starts one in this place; it serves once the store has answered.
pub async fn serve(world: Arc<World>, place: usize, process: Process) {
    let link = Link { world: world.clone(), process: process.clone() };
    let store: Arc<dyn Store> = Arc::new(link);
    while store.open(&world.spec()).await.is_err() {
        process.sleep(Duration::from_millis(100)).await;
    }
    let options = Options {
        batch_events: 8,
        batch_bytes: 1 << 20,
        in_flight_events: 64,
        in_flight_bytes: 1 << 20,
        store_wait: Duration::from_millis(900),
        elapse_max: 2,
    };
    let clock: Arc<dyn Clock> = Arc::new(process.clone());
    let ports = Ports { store: store.clone(), clock: clock.clone(), metrics: world.metrics.clone() };
    let (ingest, mut tasks) = Ingest::start(vec![world.spec()], options, ports, world.random());
    tokio::spawn(reconciling(world.clone(), store, clock));
    let sidecar = Sidecar { process: process.clone(), ingest: ingest.clone() };
    world.sidecars.lock().unwrap()[place] = Some(sidecar);
    process.leaving().await;
    ingest.close();
    // What was submitted is answered, within bounds.
    let _ = tokio::time::timeout(DRAIN, async { while tasks.join_next().await.is_some() {} }).await;
    process.kill();
}

/// Looks for lost work, and retires what is old.
async fn reconciling(world: Arc<World>, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
    let pace = Pace { repairs: true, count: 2, pause: Duration::from_millis(5) };
    loop {
        clock.sleep(Duration::from_millis(700)).await;
        for partition in world.partitions() {
            let _ = reconcile(&*store, &partition, pace, &*clock, &mut Reconciled::default()).await;
        }
    }
}
