//! One leased partition, and what is under way for it.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use crate::{
    deliver::{
        consumer::{ConsumerCounts, Fenced},
        feed::{Feed, Started},
    },
    order::Entity,
    store::{Point, Read, RetiredPoints},
};

pub type Confirm = oneshot::Sender<Result<(), Fenced>>;

pub struct Slot {
    pub feed: Feed,
    pub is_committing: bool,
    pub is_reading: bool,
    pub read_at: u64,
    /// What is being taken in reaches to the end of the stream, as it was then.
    pub ends_at: Option<u64>,
    /// Reading failed, and is tried again after a pause: others need not hurry for it.
    pub is_pausing: bool,
    /// Points of what was read are being looked up.
    pub is_looking_up: bool,
    /// All that is in the stream was taken in, as far as is known.
    pub is_caught_up: bool,
    pub is_giving_back: bool,
    pub committed_at: u64,
    /// Deliveries were handed out or answered since a commit was last thought of.
    pub is_moving: bool,
    gathered: u32,
    /// Handed out once the next commit is in the store.
    pub starting: Vec<Started>,
    /// Told once the next commit is in the store.
    pub confirming: Vec<Confirm>,
    /// The same of the commit that is under way.
    pub started: Vec<Started>,
    pub confirmed: Vec<Confirm>,
    /// When points were last swept, and what was found to be forgotten.
    pub swept_at: u64,
    pub retired: RetiredPoints,
    pub is_sweeping: bool,
    ticked_at: u64,
}

/// How often time passes for a feed; its lanes look no more often anyway.
const TICK_MS: u64 = 50;
/// How often handlers get their turn before what is new is written.
const GATHER_MAX: u32 = 8;

impl Slot {
    pub fn new(feed: Feed, now: u64) -> Self {
        Slot {
            feed,
            is_committing: false,
            is_reading: false,
            read_at: 0,
            ends_at: None,
            is_pausing: false,
            is_looking_up: false,
            is_caught_up: false,
            is_giving_back: false,
            committed_at: now,
            is_moving: false,
            gathered: 0,
            starting: Vec::new(),
            confirming: Vec::new(),
            started: Vec::new(),
            confirmed: Vec::new(),
            swept_at: now,
            retired: RetiredPoints::default(),
            is_sweeping: false,
            ticked_at: now,
        }
    }

    /// Notes whether what is being taken in is all that there is.
    pub fn note_end(&mut self, is_end: bool) {
        self.is_caught_up = false;
        self.ends_at = is_end.then_some(self.read_at);
    }

    /// Takes in what was read.
    pub fn take_in(&mut self, reads: Vec<Read>, points: Vec<(Entity, Option<Point>)>) {
        self.feed.read(reads, points);
        match self.ends_at.take() {
            Some(at) => {
                self.is_caught_up = true;
                self.feed.seen_to_end(at);
            }
            None => self.feed.fall_behind(),
        }
        self.is_reading = false;
    }

    pub fn tick(&mut self, now: u64) {
        if now >= self.ticked_at + TICK_MS {
            self.ticked_at = now;
            self.feed.tick(now);
        }
    }

    /// Should it wait for more answers before it is written? Few large commits cost less than
    /// many small ones, and handlers that are quick answer at the next turn.
    pub fn gathers(&mut self) -> bool {
        let is_moving = std::mem::replace(&mut self.is_moving, false) && self.feed.running() > 0;
        let gathers = is_moving && self.gathered < GATHER_MAX;
        self.gathered = if gathers { self.gathered + 1 } else { 0 };
        gathers
    }

    /// Tells everybody who waits; returns how many answers came to nothing.
    pub fn lose(self) -> u64 {
        let waiting = self.confirming.into_iter().chain(self.confirmed);
        let mut told = 0;
        for confirm in waiting {
            let _ = confirm.send(Err(Fenced));
            told += 1;
        }
        told
    }

    pub fn count(&mut self, counts: &ConsumerCounts) {
        let tally = self.feed.take_tally();
        let add = |counter: &AtomicU64, more: u64| {
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        };
        add(&counts.delivered, tally.started);
        add(&counts.acked, tally.acked);
        add(&counts.nacked, tally.nacked);
        add(&counts.retried, tally.retried);
        add(&counts.died, tally.died);
        add(&counts.gaps, tally.gaps);
        add(&counts.malformed, tally.malformed);
    }
}
