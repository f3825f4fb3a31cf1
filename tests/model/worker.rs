//! One worker of the lease model: the real book and the real feed, and what the driver around
//! them (`deliver/worker.rs`) has under way.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
};

use seriatim::{
    deliver::{
        feed::{Feed, FeedLimits, Started},
        lease::LeaseBook,
        retry::RetryPolicy,
    },
    order::{Entity, Epoch, Order, Policy, Sequence},
    random::Random,
    store::{Commit, Committed, Entry, LeaseSeen, Leased, Read, StreamId},
};

/// How long a lease may be silent, in ticks.
pub const LEASE: u64 = 1;

/// The partition that all is about.
pub const PARTITION: u32 = 0;

pub fn id(number: u8) -> StreamId {
    StreamId { milliseconds: number.into(), counter: 0 }
}

/// An entry of the stream: its entity and sequence. Its id is its place, from 1 on.
pub type Line = (&'static str, u8);

pub fn read(number: u8, (entity, sequence): Line) -> Read {
    let entry = Entry {
        id: id(number).into(),
        entity: entity.to_owned(),
        epoch: Epoch::new(0).expect("it is small"),
        sequence: Sequence::new(sequence.into()).expect("it is small"),
        kind: "step".to_owned(),
        order: Order::Strict,
        attrs: "{}".to_owned(),
        data: Default::default(),
    };
    Read { id: id(number).into(), entry: Ok(entry) }
}

#[derive(Clone, Debug)]
pub struct Worker {
    pub name: String,
    pub book: LeaseBook,
    pub phase: Phase,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a state has two of them")]
pub enum Phase {
    Free,
    /// It wants the lease as it saw it.
    Taking {
        seen: LeaseSeen,
    },
    /// The store has answered; the answer is under way.
    Taken {
        leased: Option<Leased>,
    },
    Holding(Slot),
}

#[derive(Clone)]
pub struct Slot {
    pub feed: Arc<Feed>,
    pub term: u64,
    /// The commit that is under way, with what it says was started.
    pub commit: Option<Sent>,
    /// Handlers that run: tag, place of the entry.
    pub running: Vec<(u64, u8)>,
    pub is_giving_back: bool,
    text: String,
}

#[derive(Clone, Debug)]
pub struct Sent {
    pub commit: Commit,
    pub started: Vec<(u64, u8)>,
    pub reply: Option<Committed>,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.text)
    }
}

impl Slot {
    pub fn new(leased: &Leased, crashes_max: u32) -> Self {
        let limits = FeedLimits {
            window_entries: 100,
            window_bytes: 1 << 20,
            entry_events: 1,
            held_max: 100,
            crashes_max,
            handler_max_ms: u64::MAX,
            idle_max: 100,
        };
        let feed =
            Feed::new(leased, Policy::default(), limits, RetryPolicy::default(), Random::from_seed(1), 0);
        let (term, text) = (leased.term, String::new());
        Slot { feed: Arc::new(feed), term, commit: None, running: Vec::new(), is_giving_back: false, text }
    }

    /// Says anew what it is like.
    pub fn restate(&mut self) {
        let Slot { feed, commit, running, is_giving_back, .. } = &*self;
        self.text = format!("{}{commit:?}{running:?}{is_giving_back}", feed.describe());
    }

    /// Changes the feed, which others may share.
    pub fn with_feed<T>(&mut self, act: impl FnOnce(&mut Feed) -> T) -> T {
        act(Arc::make_mut(&mut self.feed))
    }

    pub fn send(&mut self, started: Vec<Started>) {
        let mut commit = self.with_feed(Feed::commit);
        // Lists that are sets: their order says nothing.
        commit.points.sort_by(|one, other| one.0.cmp(&other.0));
        commit.running.sort_by_key(|running| running.id);
        let started = started.iter().map(|one| (one.tag, place(one))).collect();
        self.commit = Some(Sent { commit, started, reply: None });
    }
}

/// The place of the entry that a task is about.
fn place(started: &Started) -> u8 {
    let id = started.task.id.expect("nothing is missing in the stream");
    super::judge::small(id.entry.milliseconds)
}

impl Worker {
    pub fn new(incarnation: u8) -> Self {
        let name = format!("w{incarnation}");
        Worker { book: LeaseBook::new(&name, LEASE), name, phase: Phase::Free }
    }

    pub fn slot(&self) -> Option<&Slot> {
        match &self.phase {
            Phase::Holding(slot) => Some(slot),
            Phase::Free | Phase::Taking { .. } | Phase::Taken { .. } => None,
        }
    }

    /// Counters are only compared: what matters is whether one has moved since it was seen, and
    /// if not, for how long, up to a lease.
    pub fn describe<H: Hasher>(
        &self,
        others: &BTreeMap<String, u64>,
        lease: (u64, u64),
        now: u64,
        state: &mut H,
    ) {
        self.name.hash(state);
        let silence = |has_moved: bool, silent: u64| if has_moved { None } else { Some(silent.min(LEASE)) };
        for (name, value, silent) in self.book.members(now).filter(|(name, ..)| *name != self.name) {
            (name, silence(others.get(name) != Some(&value), silent)).hash(state);
        }
        for (_, value, silent) in self.book.leases(now) {
            silence(value != lease, silent).hash(state);
        }
        match &self.phase {
            Phase::Holding(slot) => slot.text.hash(state),
            phase => format!("{phase:?}").hash(state),
        }
    }
}

pub fn entity(name: &str) -> Entity {
    Entity::new(name).expect("it is short")
}
