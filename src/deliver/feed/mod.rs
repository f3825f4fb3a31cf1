//! One leased partition: entries in, deliveries out, answers in, commits out.
//!
//! A machine without I/O: time, entries, points and the outcome of commits are handed in.
//! Its driver reads where it has room, delivers what it starts once the commit that says so
//! is in the store, and commits again what came of it.
//!
//! - [`read`](Feed::read) puts entries through the reorder buffer, which is `order/`;
//! - `dispatch` starts one task of an entity at a time, fair across entities;
//! - `hold` keeps what failed, and what comes behind it, in the store;
//! - `commit` gathers what is to be written.
//!
//! **What is done**: an event is unfinished from its reading until it was acknowledged, was
//! found to be known, or is held. The floor lies below the first entry of which any event is
//! unfinished: entries are read whole, and whoever takes over reads from the floor on.

mod commit;
mod describe;
mod dispatch;
mod hold;
mod reading;
#[cfg(test)]
mod tests;
mod wish;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

pub use self::dispatch::{Answer, Started};
use self::{commit::Staged, hold::Hold};
use super::{
    retry::RetryPolicy,
    task::{Content, Task},
};
use crate::{
    order::{Entity, Epoch, Partition, Policy, Sequence},
    random::Random,
    store::{EventId, Head, Leased, Point, StreamId},
};

/// How much one partition may have in hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedLimits {
    /// Events that are read and not done.
    pub window_entries: usize,
    pub window_bytes: u64,
    /// Events that an entry may hold, as long as nothing else is known.
    pub entry_events: usize,
    /// Events of held entities; beyond that nothing is read until there are fewer.
    pub held_max: u64,
    /// How often an event may be the only one that runs when its worker ends.
    pub crashes_max: u32,
    /// A handler that takes longer counts as failed.
    pub handler_max_ms: u64,
    /// Entities of which it is remembered where they are, though nothing of them is in hand.
    pub idle_max: usize,
}

/// What somebody may want to count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub started: u64,
    pub acked: u64,
    pub nacked: u64,
    /// Deliveries of held events.
    pub retried: u64,
    /// Entities that became dead letters.
    pub died: u64,
    /// Events that were done already.
    pub known: u64,
    /// Events that cannot be read.
    pub malformed: u64,
    /// Gaps that were found here, not by a sidecar.
    pub gaps: u64,
    /// Sequences that they cover.
    pub missed: u64,
    /// Handlers that took too long.
    pub overdue: u64,
}

/// What is in hand of one entity.
#[derive(Clone, Debug, Default)]
struct Line {
    queue: VecDeque<Task>,
    /// A delivery is out.
    busy: bool,
    /// Of those in the queue so many are not in order.
    out_of_turn: usize,
    /// How far it is acknowledged.
    point: Option<(Epoch, Sequence)>,
}

impl Line {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.busy
    }
}

#[derive(Clone, Debug)]
struct Out {
    entity: Entity,
    task: Task,
    since: u64,
    /// The number of a held event.
    held: Option<u64>,
    /// It runs alone: how often it was suspected, this time included.
    crashes: Option<u32>,
    is_abandoned: bool,
}

#[derive(Clone)]
pub struct Feed {
    term: u64,
    policy: Policy,
    limits: FeedLimits,
    retry: RetryPolicy,
    random: Random,
    lanes: Partition<Content>,
    /// What time it is for the lanes: when the stream was last known to be read to its end, because
    /// what is missing may stand in what was not read yet.
    seen_at: u64,
    /// Read up to here.
    position: StreamId,
    unfinished: BTreeMap<EventId, u64>,
    unfinished_bytes: u64,
    /// As many events as entries are expected to hold at most: reads are bounded by it.
    widest: usize,
    /// Done above the floor, and covered by no point.
    loose: BTreeSet<EventId>,
    lines: HashMap<Entity, Line>,
    /// Entities with something to deliver and nothing out, in turn.
    ready: VecDeque<Entity>,
    out: BTreeMap<u64, Out>,
    /// Of those so many will never be answered.
    abandoned: usize,
    /// A suspect is out, and runs alone.
    is_alone: bool,
    next_tag: u64,
    /// What ran when a worker ended, and has not been done since.
    suspects: BTreeMap<EventId, u32>,
    holds: BTreeMap<Entity, Hold>,
    /// Heads that wait for an answer to what is being handled.
    deferred: HashMap<Entity, Head>,
    /// Points of entities of which only held events were seen: what is looked up may be older.
    lineless: HashMap<Entity, Point>,
    /// As of the last tick: entities, those of them that are dead, events.
    held: (usize, usize, u64),
    /// Something held may be wanted.
    look_at_holds: bool,
    staged: Staged,
    /// Counts a person's decisions that were seen.
    asked: u64,
    commits: u64,
    /// The store's clock and ours at the same moment.
    store_clock: (u64, u64),
    tally: Tally,
    /// The first warnings since they were last taken.
    warnings: Vec<String>,
}

/// A reader that is further behind than this counts the time all the same: it may never catch up, and
/// no entity must wait for ever.
const BEHIND_MAX_MS: u64 = 60_000;
/// Warnings that are kept until somebody takes them.
const WARNINGS_MAX: usize = 16;
/// A gap of more than so many events is worth a warning.
const LARGE_GAP: u64 = 100;

impl Feed {
    pub fn new(
        leased: &Leased,
        policy: Policy,
        limits: FeedLimits,
        retry: RetryPolicy,
        random: Random,
        now: u64,
    ) -> Self {
        let mut lanes = Partition::new(now);
        // Nothing was read yet.
        lanes.set_stays(true);
        Feed {
            term: leased.term,
            policy,
            widest: limits.entry_events,
            limits,
            retry,
            random,
            lanes,
            seen_at: now,
            position: leased.floor,
            unfinished: BTreeMap::new(),
            unfinished_bytes: 0,
            loose: leased.loose.iter().copied().collect(),
            lines: HashMap::new(),
            ready: VecDeque::new(),
            out: BTreeMap::new(),
            abandoned: 0,
            is_alone: false,
            next_tag: 1,
            suspects: leased.running.iter().map(|running| (running.id, running.crashes)).collect(),
            holds: BTreeMap::new(),
            deferred: HashMap::new(),
            lineless: HashMap::new(),
            held: (0, 0, 0),
            look_at_holds: true,
            staged: Staged::default(),
            asked: leased.asked,
            commits: 0,
            store_clock: (leased.now_ms, now),
            tally: Tally::default(),
            warnings: Vec::new(),
        }
    }

    pub fn term(&self) -> u64 {
        self.term
    }

    /// Is everything that was read done?
    pub fn is_idle(&self) -> bool {
        self.unfinished.is_empty() && self.holds.is_empty()
    }

    /// Read up to here.
    pub fn position(&self) -> StreamId {
        self.position
    }

    /// Events that were read and are not done.
    pub fn in_hand(&self) -> usize {
        self.unfinished.len()
    }

    /// How many events more may be read.
    pub fn room(&self) -> usize {
        let is_full = self.unfinished_bytes >= self.limits.window_bytes || self.is_held_full();
        let in_hand = self.unfinished.len() + self.loose.len();
        if is_full { 0 } else { self.limits.window_entries.saturating_sub(in_hand) }
    }

    /// How many entries to ask for who wants so many events at most, if entries are as wide as
    /// those before: at least one, unless nothing is wanted.
    pub fn entries_of(&self, events: usize) -> usize {
        (events / self.widest).max(usize::from(events > 0))
    }

    /// Deliveries that are out, and that somebody will answer.
    pub fn running(&self) -> usize {
        self.out.len() - self.abandoned
    }

    /// A person's decisions that were seen, counted.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Entities that are held, and how many of them are dead, as of the last tick.
    pub fn held(&self) -> (usize, usize) {
        (self.held.0, self.held.1)
    }

    pub fn is_degraded(&self) -> bool {
        self.lanes.is_degraded()
    }

    /// Everything up to here is done.
    pub fn floor(&self) -> StreamId {
        self.unfinished.first_key_value().map_or(self.position, |(id, _)| before(id.entry))
    }

    pub fn take_tally(&mut self) -> Tally {
        std::mem::take(&mut self.tally)
    }

    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    fn warn(&mut self, warning: impl FnOnce() -> String) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning());
        }
    }

    /// What the store's clock says by now.
    fn store_now(&self, now: u64) -> u64 {
        let (store, ours) = self.store_clock;
        store + now.saturating_sub(ours)
    }

    /// The task's event needs nobody any more: its point, or being held, covers it, or it is
    /// noted by itself.
    fn finish(&mut self, task: &Task) {
        let Some(id) = task.id else { return };
        self.finish_event(id);
        if !task.moves {
            self.loose.insert(id);
        }
    }

    fn finish_event(&mut self, id: EventId) {
        self.suspects.remove(&id);
        if let Some(bytes) = self.unfinished.remove(&id) {
            self.unfinished_bytes -= bytes;
            self.staged.changed = true;
        }
    }
}

/// The id just below.
fn before(id: StreamId) -> StreamId {
    match (id.milliseconds, id.counter) {
        (0, 0) => id,
        (milliseconds, 0) => StreamId { milliseconds: milliseconds - 1, counter: u64::MAX },
        (milliseconds, counter) => StreamId { milliseconds, counter: counter - 1 },
    }
}
