//! One run: chaos, then health, and then everything must come to rest.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use seriatim::{
    metrics::Metrics,
    store::{GroupStore, Layout, Start, Store},
};
use seriatim_checker::{Evidence, Rules, Violation, judge};
use tokio::time::Instant;

use crate::{
    coverage::Coverage,
    nemesis,
    plan::{GROUP, Plan},
    producer,
    world::World,
};

/// How long everything may take to come to rest once nothing goes wrong any more.
const REST_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub struct Outcome {
    pub violations: Vec<Violation>,
    pub coverage: Coverage,
    /// Calls that were executed, messages, blows and handlers.
    pub steps: u64,
    pub simulated: Duration,
    /// Of all that happened: equal in two runs of one seed.
    pub digest: u64,
    pub evidence: Evidence,
}

/// Runs a seed, from nothing to rest.
pub fn run(seed: u64, plan: Plan, metrics: Arc<Metrics>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O needs nothing");
    runtime.block_on(simulate(seed, plan, metrics))
}

async fn simulate(seed: u64, plan: Plan, metrics: Arc<Metrics>) -> Outcome {
    let began = Instant::now();
    let world = World::new(seed, plan, metrics);
    world.coverage().word(match world.plan.layout {
        Layout::Entry => "layout entry",
        Layout::Batch => "layout batch",
    });
    // Made before anybody comes, so that all agree on it.
    world.server.store.open(&world.spec()).await.expect("it is new");
    if world.plan.workers > 0 {
        // What is trimmed before there is a group is nobody's loss.
        let group = nemesis::group();
        let registered = world.server.store.register(&group, world.plan.partitions, Start::Beginning).await;
        registered.expect("it is new");
    }
    if let Some(losing) = world.plan.losing {
        world.server.keep_copies();
        tokio::spawn(nemesis::catch_up(world.clone(), losing));
    }
    (0..world.plan.sidecars).for_each(|place| drop(nemesis::start_sidecar(&world, place)));
    (0..world.plan.workers).for_each(|place| drop(nemesis::start_worker(&world, place)));
    let mut producers = producer::start(&world);
    nemesis::strike(world.clone()).await;
    nemesis::heal(&world).await;
    let until = Instant::now() + REST_WITHIN;
    let leftovers = loop {
        tokio::time::sleep(LOOK_EVERY).await;
        while producers.try_join_next().is_some() {}
        nemesis::attend(&world).await;
        let leftovers = leftovers(&world, producers.len());
        if leftovers.is_empty() || Instant::now() >= until {
            break leftovers;
        }
    };
    let evidence = Evidence {
        sent: std::mem::take(&mut world.sent.lock().unwrap()),
        entries: world.server.take_log(),
        runs: std::mem::take(&mut world.runs.lock().unwrap()),
        leftovers,
    };
    let rules = Rules {
        first_sequence: world.plan.policy.first.get(),
        is_final: true,
        has_workers: world.plan.workers > 0,
        suspended: true,
        gap_wait_min: world.plan.gap_wait_min,
        given_up: std::mem::take(&mut world.given_up.lock().unwrap()),
    };
    // Whoever serves knows the world, and is known to it.
    world.sidecars.lock().unwrap().clear();
    let executed = world.server.executed.load(std::sync::atomic::Ordering::Relaxed);
    Outcome {
        violations: judge(&evidence, &rules),
        steps: executed + world.places(),
        simulated: began.elapsed(),
        digest: digest(&evidence, executed),
        coverage: world.coverage().clone(),
        evidence,
    }
}

/// What is not at rest.
fn leftovers(world: &World, producers: usize) -> Vec<String> {
    let mut left = Vec::new();
    if producers > 0 {
        left.push(format!("{producers} events are not answered"));
    }
    let store = &world.server.store;
    for partition in world.partitions() {
        let measure = store.measure(&partition).now_or_never().expect("at once").expect("it is open");
        if measure.parked > 0 || measure.gaps > 0 {
            left.push(format!("{partition}: {} parked, {} gaps", measure.parked, measure.gaps));
        }
        if world.plan.workers == 0 {
            continue;
        }
        let floor = store.floor(&partition).now_or_never().expect("at once").expect("it is open");
        let (floor, last) =
            (floor.map(|floor| floor.id).unwrap_or_default(), world.server.last_of(&partition));
        if floor < last {
            left.push(format!("{partition}: done up to {floor}, there is {last}"));
        }
        let heads = store.heads(&partition, GROUP).now_or_never().expect("at once").unwrap_or_default();
        for (entity, head) in heads {
            left.push(format!("{partition}: {entity:?} is held: {head}"));
        }
    }
    left
}

fn digest(evidence: &Evidence, executed: u64) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    executed.hash(&mut hasher);
    format!("{evidence:?}").hash(&mut hasher);
    hasher.finish()
}
