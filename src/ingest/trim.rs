//! Trims the streams of one topic's partitions, about once a second, and says when one of
//! them is full.
//!
//! Every sidecar does this for every partition of its topics, busy or idle, so that it does
//! not matter which of them die; the store lets a call that comes too soon after another
//! return at once. The calls of a round travel a few at a time and remove little each; where there
//! is more, calls follow one at a time, with a pause after each, so that publishers keep
//! most of the store's time.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::{Ports, closing::Closing};
use crate::{
    metrics::TopicMetrics,
    random::Random,
    store::{PartitionId, Trimmed},
};

const TRIM_EVERY: Duration = Duration::from_secs(1);
/// Calls that travel together, for as long as publishers may wait, and the entries that each of them may remove.
const TRIMS_AT_ONCE: usize = 4;
const TOGETHER_MAX: usize = 200;
/// Entries that a call may remove that travels alone: 0.1 ms of Redis's time for small ones,
/// 11 ms for entries of 200 KB.
const ALONE_MAX: usize = 1_000;
/// The pause after a call that removed something, in times of what the call took.
const PAUSE_FACTOR: u32 = 2;

pub(super) struct Trimmer {
    partitions: Vec<PartitionId>,
    ports: Ports,
    metrics: Arc<TopicMetrics>,
    random: Random,
    /// Shared with those who look at the time.
    turns: Arc<Semaphore>,
    /// What was last heard of each partition.
    seen: Vec<Trimmed>,
}

impl Trimmer {
    pub fn new(
        partitions: Vec<PartitionId>,
        ports: Ports,
        metrics: Arc<TopicMetrics>,
        random: Random,
        turns: Arc<Semaphore>,
    ) -> Self {
        let seen = vec![Trimmed::default(); partitions.len()];
        Trimmer { partitions, ports, metrics, random, turns, seen }
    }

    pub async fn run(mut self, closing: Closing) {
        tokio::select! {
            biased;
            () = self.trim_on() => {}
            () = closing.begun() => {}
        }
    }

    async fn trim_on(&mut self) {
        loop {
            // Less up to a fifth: sidecars that started together drift apart.
            let millis = TRIM_EVERY.as_millis() as u64;
            let wait = Duration::from_millis(millis - self.random.below(millis / 5));
            self.ports.clock.sleep(wait).await;
            let busy = self.trim_all().await;
            self.go_on(busy).await;
        }
    }

    /// A short call for every partition; returns those in which there is more to remove.
    async fn trim_all(&mut self) -> Vec<usize> {
        let mut busy = Vec::new();
        let all: Vec<usize> = (0..self.partitions.len()).collect();
        for together in all.chunks(TRIMS_AT_ONCE) {
            busy.extend(self.trim(together, TOGETHER_MAX).await);
        }
        busy
    }

    /// One partition after the other until there is no more, or it is time for all again.
    async fn go_on(&mut self, mut busy: Vec<usize>) {
        let end = self.ports.clock.now() + TRIM_EVERY;
        while !busy.is_empty() {
            let mut still_busy = Vec::new();
            for at in busy {
                if self.ports.clock.now() >= end {
                    return;
                }
                still_busy.extend(self.trim(&[at], ALONE_MAX).await);
            }
            busy = still_busy;
        }
    }

    /// Trims these partitions together; returns those in which there is more to remove.
    async fn trim(&mut self, together: &[usize], count: usize) -> Vec<usize> {
        let turn = self.turns.clone().acquire_owned().await.expect("it is never closed");
        let begun = self.ports.clock.now();
        let store = &self.ports.store;
        let calls = together.iter().map(|at| store.trim(&self.partitions[*at], count));
        let answers = join_all(calls).await;
        let took = self.ports.clock.now().saturating_sub(begun);
        let (mut busy, mut found_work) = (Vec::new(), false);
        for (at, answer) in together.iter().zip(answers) {
            match answer {
                Ok(trimmed) => {
                    found_work |= trimmed.events + trimmed.late > 0;
                    if trimmed.more {
                        busy.push(*at);
                    }
                    self.note(*at, trimmed);
                }
                Err(error) => self.ports.metrics.count_store_error(error.class()),
            }
        }
        self.metrics.set_entries(&self.seen);
        if found_work {
            self.ports.clock.sleep(took * PAUSE_FACTOR).await;
        }
        drop(turn);
        busy
    }

    fn note(&mut self, at: usize, trimmed: Trimmed) {
        self.metrics.count_trimmed(trimmed.events, trimmed.late);
        let before = std::mem::replace(&mut self.seen[at], trimmed);
        say(&self.partitions[at], &before, &self.seen[at]);
    }
}

/// One line when something changes: a line a second would bury everything else.
fn say(partition: &PartitionId, before: &Trimmed, now: &Trimmed) {
    let entries = now.entries;
    match (before.full, now.full, &now.floor) {
        (false, true, Some(floor)) => warn!(
            %partition,
            entries,
            group = floor.group,
            floor = %floor.id,
            "this partition is full (entries_max): publishing to it is refused until this group has done \
             more; see `seriatim group list`"
        ),
        (false, true, None) => warn!(
            %partition,
            entries,
            "this partition is full (entries_max): publishing to it is refused until enough is trimmed"
        ),
        (true, false, _) => info!(%partition, entries, "this partition is no longer full"),
        (true, true, _) | (false, false, _) => {}
    }
    let late = now.late_entries;
    match (before.late_full, now.late_full) {
        (false, true) => warn!(
            %partition,
            late,
            "the late stream of this partition is full (late_max) of young entries: late events are refused; \
             read it, then trim it, or raise late_max or lower late_retain_ms"
        ),
        (true, false) => info!(%partition, late, "the late stream of this partition is no longer full"),
        (true, true) | (false, false) => {}
    }
}
