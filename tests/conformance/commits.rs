//! What random workers and people say about a group: sights of leases, commits, wishes;
//! right, repeated, late and wrong.

use seriatim::{
    order::Entity,
    store::{
        Commit, EventId, GroupId, GroupStore, Head, HeadChange, HoldState, LeaseSeen, MemoryStore,
        PartitionId, Point, Running, StreamId, Wish,
    },
};

use super::{
    call::Call,
    history::{WORKERS, any, entity},
    support::Random,
};

/// Events of one entity that may be kept, by their numbers.
pub const KEPT_MAX: u64 = 5;
const STATES: [HoldState; 5] =
    [HoldState::Retrying, HoldState::Dead, HoldState::Paused, HoldState::SkipAsked, HoldState::DropAsked];
const WISHES: [Wish; 5] = [Wish::Redrive, Wish::Skip, Wish::Drop, Wish::Pause, Wish::Resume];
/// Whatever a handler may have said.
const REASONS: [&str; 7] = ["", "it fell", "a|b|c", "x,1,2", "two\nlines\r\n", "nul\0nul", "ü%s%1"];

/// What was seen of leases earlier.
#[derive(Default)]
pub struct Sights(Vec<LeaseSeen>);

impl Sights {
    async fn now(&mut self, memory: &MemoryStore, at: &PartitionId, group: &str) -> LeaseSeen {
        let id = GroupId { topic: at.topic.to_string(), group: group.to_owned() };
        let seen = memory.leases(&id, at.index + 1).await.unwrap();
        let seen = seen.into_iter().nth(at.index as usize).unwrap_or_default();
        self.0.push(seen.clone());
        seen
    }

    pub async fn lease(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        at: PartitionId,
        group: String,
    ) -> Call {
        let now = self.now(memory, &at, &group).await;
        let (seen, sight) = match random.below(100) {
            0..=59 => (now, "as it is"),
            60..=69 => (random.pick(&self.0).clone(), "as some lease was once"),
            70..=79 => (LeaseSeen { owner: worker(random), ..now }, "with an owner"),
            80..=89 => (LeaseSeen { term: other(random, now.term), ..now }, "with another term"),
            _ => (LeaseSeen { count: other(random, now.count), ..now }, "with another count"),
        };
        Call::Lease { at, group, owner: (*random.pick(&WORKERS)).to_owned(), seen, sight }
    }

    /// A term, the one in force or another.
    async fn term(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        at: &PartitionId,
        group: &str,
    ) -> (u64, &'static str) {
        let now = self.now(memory, at, group).await;
        match random.below(100) {
            0..=69 => (now.term, "in force"),
            70..=84 => (random.pick(&self.0).term, "of some time"),
            _ => (other(random, now.term), "of nobody"),
        }
    }

    pub async fn release(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        at: PartitionId,
        group: String,
    ) -> Call {
        let (term, sight) = self.term(random, memory, &at, &group).await;
        Call::Release { at, group, term, sight }
    }

    pub async fn sweep_points(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        at: PartitionId,
        group: String,
    ) -> Call {
        let now = self.now(memory, &at, &group).await;
        let (term, sight) = match random.below(100) {
            0..=79 => (now.term, "in force"),
            80..=89 => (random.pick(&self.0).term, "of some time"),
            _ => (other(random, now.term), "of nobody"),
        };
        Call::SweepPoints { at, group, term, count: random.within(1, 100) as usize, sight }
    }

    pub async fn commit(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        at: PartitionId,
        group: String,
    ) -> Call {
        let now = self.now(memory, &at, &group).await;
        let (term, number, sight) = match random.below(100) {
            0..=74 => (now.term, now.count, "the next"),
            75..=82 => (now.term, now.count.saturating_sub(1), "once more"),
            83..=86 => (now.term, now.count.saturating_sub(random.within(2, 4)), "from before"),
            87..=91 => (now.term, now.count + random.within(1, 2), "ahead"),
            92..=95 => (random.pick(&self.0).term, now.count, "of some term"),
            _ => (other(random, now.term), now.count, "of another term"),
        };
        let ids = ids(memory, &at).await;
        let heads = memory.heads(&at, &group).await.unwrap_or_default();
        let mut commit = Commit { term, number, floor: id(random, &ids), ..Commit::default() };
        commit.running = several(random, |random| {
            let crashes = if random.percent(30) { random.below(4) as u32 } else { 0 };
            Running { id: event(random, &ids), crashes }
        });
        commit.loose = several(random, |random| event(random, &ids));
        commit.points = several(random, |random| (any(random), point(random)));
        commit.heads = several(random, |random| change(random, &heads));
        commit.kept = several(random, |random| {
            let text = (0..random.below(6)).map(|_| random.draw() as u8).collect();
            (any(random), random.below(KEPT_MAX), text)
        });
        commit.dropped = several(random, |random| (any(random), random.below(KEPT_MAX)));
        if random.percent(1) {
            // More than one command of a script can take.
            commit.points =
                (0..2_100).map(|n| (entity(&format!("one of many {n}")), point(random))).collect();
        }
        Call::Commit { at, group, commit: Box::new(commit), sight }
    }
}

pub fn wish(random: &mut Random, at: PartitionId, group: String) -> Call {
    Call::Wish { at, group, entity: any(random), wish: *random.pick(&WISHES) }
}

fn worker(random: &mut Random) -> Option<String> {
    random.percent(70).then(|| (*random.pick(&WORKERS)).to_owned())
}

fn other(random: &mut Random, number: u64) -> u64 {
    if random.percent(50) { number.saturating_sub(1) } else { number + 1 }
}

fn several<T>(random: &mut Random, mut one: impl FnMut(&mut Random) -> T) -> Vec<T> {
    let count = if random.percent(50) { 0 } else { random.within(1, 3) };
    (0..count).map(|_| one(random)).collect()
}

/// The ids of what is in the stream.
pub async fn ids(memory: &MemoryStore, at: &PartitionId) -> Vec<StreamId> {
    let reads = memory.read_on(at, StreamId::default(), 1_000).await.unwrap_or_default();
    reads.into_iter().map(|read| read.id.entry).collect()
}

/// Of an event in such an entry.
fn event(random: &mut Random, ids: &[StreamId]) -> EventId {
    let index = if random.percent(50) { 0 } else { random.below(5) as u32 };
    EventId { entry: id(random, ids), index }
}

/// Of an entry, mostly; or of none.
pub fn id(random: &mut Random, ids: &[StreamId]) -> StreamId {
    let some = if ids.is_empty() { StreamId::default() } else { *random.pick(ids) };
    match random.below(100) {
        0..=4 => StreamId::default(),
        5..=9 => StreamId { counter: some.counter + 1, ..some },
        10..=29 => ids.last().copied().unwrap_or_default(),
        30..=32 => StreamId::MAX,
        _ => some,
    }
}

fn point(random: &mut Random) -> Point {
    let (epoch, next) = (random.below(3), random.within(20, 40));
    let text = match random.below(4) {
        0 => format!("{epoch}:{next}c"),
        1 => format!("{epoch}:{next};m{}-{}", random.below(5), random.within(6, 9)),
        2 => format!("{epoch}:{next}p;m3"),
        _ => format!("{epoch}:{next}"),
    };
    text.parse().expect("points are well formed")
}

fn change(random: &mut Random, heads: &[(Entity, Head)]) -> HeadChange {
    let entity = any(random);
    let is = heads.iter().find(|(held, _)| *held == entity).map(|(_, head)| head.state);
    let was = match random.below(100) {
        0..=69 => is,
        70..=79 => None,
        _ => Some(*random.pick(&STATES)),
    };
    let first = random.below(KEPT_MAX);
    let head = Head {
        state: *random.pick(&STATES),
        attempts: random.below(20) as u32,
        due_ms: if random.percent(10) { u64::MAX } else { random.below(1 << 50) },
        first,
        next: first + random.below(3),
        bytes: random.below(1_000),
        reached: random.percent(50).then(|| point(random)),
        reason: (*random.pick(&REASONS)).to_owned(),
    };
    HeadChange { entity, was, head, ends: random.percent(30) }
}
