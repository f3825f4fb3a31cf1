//! Producers: shuffled events of many short lives, each event through any of the sidecars.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use seriatim::{
    client::{Producer, ProducerOptions},
    grpc::pb,
};
use tokio::{sync::Semaphore, task::JoinSet};

use super::ledger::{Ledger, entity_name};
use crate::{
    producer::{event, is_success},
    sidecar::BOUND,
    support::Random,
};

/// Events of an entity, and entities whose events are sent at the same time.
const EVENTS: u64 = 5;
const ENTITIES: u64 = 50;
const ROUND: u64 = EVENTS * ENTITIES;
/// Published and not answered, at most.
const WINDOW: usize = 512;
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What was missed of the pace is made up for, but for no more than this.
const BEHIND_MAX: Duration = Duration::from_secs(1);

/// How fast it goes, and whether it goes on.
pub struct Load {
    /// Events a second; as many as go without it.
    pub rate: Mutex<Option<f64>>,
    pub stop: AtomicBool,
    /// Rounds whose entities are judged together.
    pub rounds_of_window: u64,
    /// Published and not handled, at most: workers that are behind are waited for.
    pub backlog_max: u64,
}

impl Load {
    fn window_of(&self, round: u64) -> u64 {
        round / self.rounds_of_window
    }

    /// Waits until it is time for the next round.
    async fn pace(&self, due: &mut Instant, ledger: &Ledger) {
        let rate = *self.rate.lock().unwrap();
        if let Some(rate) = rate {
            tokio::time::sleep_until((*due).into()).await;
            *due = (*due + Duration::from_secs_f64(ROUND as f64 / rate)).max(Instant::now() - BEHIND_MAX);
        } else {
            *due = Instant::now();
        }
        let is_behind = || ledger.backlog() > self.backlog_max;
        while is_behind() && !self.stop.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// One round: events of some entities, shuffled. The last of each ends its entity.
pub fn round(window: u64, number: u64, random: &mut Random) -> Vec<pb::Event> {
    let last = |sequence| sequence + 1 == EVENTS;
    let of_entity = |n: u64| {
        let entity = entity_name(window, number, n);
        (0..EVENTS).map(move |sequence| pb::Event { terminal: last(sequence), ..event(&entity, sequence) })
    };
    let mut events: Vec<_> = (0..ENTITIES).flat_map(of_entity).collect();
    random.shuffle(&mut events);
    events
}

/// Publishes through the sidecars at these sockets until it is stopped and all is answered.
pub async fn publish(sockets: Vec<PathBuf>, ledger: Arc<Ledger>, load: Arc<Load>, seed: u64) {
    let start = |socket: &PathBuf| {
        let options = ProducerOptions { give_up_after: 2 * BOUND, ..ProducerOptions::default() };
        Producer::start(&format!("unix:{}", socket.display()), super::TOPIC, options)
    };
    let producers: Vec<Producer> = sockets.iter().map(start).collect();
    let (mut random, mut number, mut due) = (Random::new(seed), 0, Instant::now());
    let (mut open, room) = (JoinSet::new(), Arc::new(Semaphore::new(WINDOW)));
    while !load.stop.load(Ordering::Relaxed) {
        let window = load.window_of(number);
        for event in round(window, number, &mut random) {
            let permit = room.clone().acquire_owned().await.expect("it is not closed");
            let place = ledger.begin(&event.entity, event.sequence.unwrap());
            let answer = random.pick(&producers).publish_when_room(event).await;
            let ledger = ledger.clone();
            open.spawn(async move {
                let result = answer.await.expect("the sidecar comes back");
                assert!(is_success(result.verdict()), "{result:?}");
                ledger.accepted(place);
                drop(permit);
            });
        }
        number += 1;
        if load.window_of(number) != window {
            ledger.close(window);
        }
        while let Some(answered) = open.try_join_next() {
            answered.unwrap();
        }
        load.pace(&mut due, &ledger).await;
    }
    ledger.close(load.window_of(number));
    while let Some(answered) = open.join_next().await {
        answered.unwrap();
    }
}
