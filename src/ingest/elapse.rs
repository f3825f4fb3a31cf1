//! Time for one partition: looks at what is due, tick after tick.
//!
//! Every sidecar does this for every partition of its topics, so that it does not matter
//! which of them die; the store lets a look that comes too soon after another return at
//! once. Looks of one sidecar take turns, and after one that found work the turn passes on
//! only after a pause, so that publishers keep most of the store's time however many gaps
//! end at once.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Semaphore, watch};

use super::Ports;
use crate::{
    metrics::TopicMetrics,
    order::TICK_MS,
    random::Random,
    store::{Elapsed, PartitionId},
};

/// Looks of this sidecar at the same time.
pub(super) const LOOKS_AT_ONCE: usize = 1;
/// The pause after a look that found work, in times of what the look took.
const PAUSE_FACTOR: u32 = 2;

pub(super) struct Ticker {
    pub id: PartitionId,
    pub ports: Ports,
    pub metrics: Arc<TopicMetrics>,
    pub random: Random,
    pub elapse_max: usize,
    /// Shared by all partitions of the sidecar.
    pub turns: Arc<Semaphore>,
}

impl Ticker {
    pub async fn run(mut self, mut closing: watch::Receiver<bool>) {
        let mut pause = Duration::from_millis(self.random.below(TICK_MS));
        loop {
            tokio::select! {
                () = self.ports.clock.sleep(pause) => {}
                _ = closing.wait_for(|closing| *closing) => return,
            }
            pause = self.look().await;
        }
    }

    /// One look; returns how long to wait until the next.
    async fn look(&mut self) -> Duration {
        let turn = self.turns.clone().acquire_owned().await.expect("it is never closed");
        let begun = self.ports.clock.now();
        let elapsed = self.ports.store.elapse(&self.id, self.elapse_max).await;
        let took = self.ports.clock.now().saturating_sub(begun);
        match elapsed {
            Ok(elapsed) => {
                self.note(&elapsed, took);
                if elapsed.lanes > 0 {
                    self.ports.clock.sleep(took * PAUSE_FACTOR).await;
                }
                drop(turn);
                if elapsed.more { Duration::ZERO } else { self.tick() }
            }
            Err(error) => {
                self.ports.metrics.count_store_error(error.class());
                self.tick()
            }
        }
    }

    /// A tick, less up to a fifth: sidecars that started together drift apart.
    fn tick(&mut self) -> Duration {
        Duration::from_millis(TICK_MS - self.random.below(TICK_MS / 5))
    }

    fn note(&self, elapsed: &Elapsed, took: Duration) {
        if !elapsed.ran {
            return;
        }
        self.metrics.elapse_seconds.observe(took.as_secs_f64());
        self.metrics.elapse_lanes.observe(elapsed.lanes as f64);
        self.metrics.drained.inc_by(elapsed.drained);
        self.metrics.after_terminal.inc_by(elapsed.after_terminal);
        self.metrics.note(&elapsed.notes);
        self.metrics.set_degraded(self.id.index, elapsed.degraded);
    }
}
