//! Time for the partitions of one topic: looks at what is due, tick after tick.
//!
//! Every sidecar does this for every partition of its topics, so that it does not matter
//! which of them die; the store lets a look that comes too soon after another return at
//! once. The looks of a tick travel a few at a time, which costs an idle sidecar next to nothing
//! and lets publishers' calls in between; a partition in which much is due is then looked at
//! alone, with a pause after each look, so that publishers keep most of the store's time however
//! many gaps end at once.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::{Ports, closing::Closing};
use crate::{
    metrics::TopicMetrics,
    order::TICK_MS,
    random::Random,
    store::{Elapsed, PartitionId},
};

/// Looks that travel together: so long all publishers wait, while nothing is due some 40 us of Redis's time for each.
const LOOKS_AT_ONCE: usize = 4;
/// More of them where there are so many partitions that it would take more rounds than this, each of which waits for an
/// answer: all must be looked at while the partition clocks still go on.
const ROUNDS_MAX: usize = 16;
/// Of the lanes that a look may touch, how many times fewer a short one may.
const SHORTER: usize = 64;
/// Topics of a sidecar that look at the same time.
pub(super) const TOPICS_AT_ONCE: usize = 1;
/// The pause after a look that found work, in times of what the look took.
const PAUSE_FACTOR: u32 = 2;

pub(super) struct Ticker {
    pub partitions: Vec<PartitionId>,
    pub ports: Ports,
    pub metrics: Arc<TopicMetrics>,
    pub random: Random,
    pub elapse_max: usize,
    /// Shared by all topics of the sidecar.
    pub turns: Arc<Semaphore>,
}

impl Ticker {
    pub async fn run(mut self, closing: Closing) {
        tokio::select! {
            biased;
            () = self.tick_on() => {}
            () = closing.begun() => {}
        }
    }

    async fn tick_on(&mut self) {
        loop {
            let wait = self.tick();
            self.ports.clock.sleep(wait).await;
            let busy = self.look_at_all().await;
            self.go_on(busy).await;
        }
    }

    /// A tick, less up to a fifth: sidecars that started together drift apart.
    fn tick(&mut self) -> Duration {
        Duration::from_millis(TICK_MS - self.random.below(TICK_MS / 5))
    }

    /// A short look at every partition; returns those in which more is due.
    async fn look_at_all(&self) -> Vec<PartitionId> {
        let lanes_max = self.elapse_max.div_ceil(SHORTER);
        let mut busy = Vec::new();
        let at_once = self.partitions.len().div_ceil(ROUNDS_MAX).max(LOOKS_AT_ONCE);
        for together in self.partitions.chunks(at_once) {
            let _turn = self.turns.acquire().await.expect("it is never closed");
            let begun = self.ports.clock.now();
            let looks = together.iter().map(|id| async move { (id, self.look(id, lanes_max).await) });
            let looked = join_all(looks).await;
            let found_work = looked.iter().any(|(_, elapsed)| elapsed.lanes > 0);
            busy.extend(looked.into_iter().filter(|(_, elapsed)| elapsed.more).map(|(id, _)| id.clone()));
            self.pause_after(begun, found_work).await;
        }
        busy
    }

    /// Looks at partitions in turn until nothing more is due in them, or a tick has passed
    /// and all want to be looked at again. It begins anywhere, so that none is always last.
    async fn go_on(&mut self, mut busy: Vec<PartitionId>) {
        let end = self.ports.clock.now() + Duration::from_millis(TICK_MS);
        if !busy.is_empty() {
            let first = self.random.below(busy.len() as u64);
            busy.rotate_left(usize::try_from(first).expect("it is an index"));
        }
        while !busy.is_empty() {
            let mut still_busy = Vec::new();
            for id in busy {
                if self.ports.clock.now() >= end {
                    return;
                }
                let _turn = self.turns.acquire().await.expect("it is never closed");
                let begun = self.ports.clock.now();
                let elapsed = self.look(&id, self.elapse_max).await;
                if elapsed.more {
                    still_busy.push(id);
                }
                self.pause_after(begun, elapsed.lanes > 0).await;
            }
            busy = still_busy;
        }
    }

    async fn pause_after(&self, begun: Duration, found_work: bool) {
        if found_work {
            let took = self.ports.clock.now().saturating_sub(begun);
            self.ports.clock.sleep(took * PAUSE_FACTOR).await;
        }
    }

    async fn look(&self, id: &PartitionId, lanes_max: usize) -> Elapsed {
        let begun = self.ports.clock.now();
        match self.ports.store.elapse(id, lanes_max).await {
            Ok(elapsed) => {
                self.note(id, &elapsed, self.ports.clock.now().saturating_sub(begun));
                elapsed
            }
            Err(error) => {
                self.ports.metrics.count_store_error(error.class());
                Elapsed::default()
            }
        }
    }

    fn note(&self, id: &PartitionId, elapsed: &Elapsed, took: Duration) {
        if !elapsed.ran {
            return;
        }
        self.metrics.elapse_seconds.observe(took.as_secs_f64());
        self.metrics.elapse_lanes.observe(elapsed.lanes as f64);
        self.metrics.drained.inc_by(elapsed.drained);
        self.metrics.after_terminal.inc_by(elapsed.after_terminal);
        self.metrics.note(&elapsed.notes);
        self.metrics.set_degraded(id.index, elapsed.degraded);
    }
}
