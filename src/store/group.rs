//! What groups of workers keep in the store, and the port to it.
//!
//! A group has a **floor** in each partition: all entries up to it are done. What is done
//! above it follows from the entities' **points**, which move with the acknowledgements in
//! one step. So nothing has to be claimed entry by entry: reading is plain, and whoever
//! takes a partition over reads on from the floor and leaves out what the points cover.
//!
//! A partition is **leased** to one worker at a time. All that a worker changes is fenced by
//! its term. A lease has no time in it: its holder counts it up, and whoever wants it
//! watches the count by its own clock.

use std::{fmt, str::FromStr, time::Duration};

use futures_util::future::BoxFuture;

use super::{
    Entry, EventId, PartitionId, Point, RecordError, RetiredPoints, StoreError, StreamId, record::beginning,
};
use crate::order::Entity;

/// Names a group of workers of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId {
    pub topic: String,
    pub group: String,
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.group)
    }
}

/// Where a group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the oldest entry there is.
    #[default]
    Beginning,
    /// With what is published from now on.
    End,
    /// Behind this entry, in every partition.
    After(StreamId),
}

/// What a person decided about a whole group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Switches {
    /// Nothing is delivered.
    pub paused: bool,
    /// What is out of order is delivered at once.
    pub degraded: bool,
}

/// Who works for a group, as told when somebody shows up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attendance {
    /// Each with what it counts up while it lives, by name.
    pub members: Vec<Member>,
    pub switches: Switches,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    pub count: u64,
}

/// A lease as anybody sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSeen {
    /// Nobody: it is free.
    pub owner: Option<String>,
    pub term: u64,
    /// Counted up by the owner while it lives.
    pub count: u64,
}

/// A lease that was just taken, and how its partition was left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leased {
    pub term: u64,
    pub floor: StreamId,
    /// What was being handled, and how often it had been the only suspect of a crash.
    pub running: Vec<Running>,
    /// Done above the floor, and covered by no point.
    pub loose: Vec<EventId>,
    /// Counts a person's decisions about held entities.
    pub asked: u64,
    /// The store's wall clock.
    pub now_ms: u64,
}

/// An event that is being handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    pub id: EventId,
    /// How often its handler was the only one that ran when its worker ended.
    pub crashes: u32,
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.crashes {
            0 => write!(f, "{}", self.id),
            crashes => write!(f, "{}!{crashes}", self.id),
        }
    }
}

impl FromStr for Running {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let (id, crashes) = text.split_once('!').unwrap_or((text, "0"));
        let crashes = crashes.parse().map_err(|_| RecordError::Id(beginning(text)))?;
        Ok(Running { id: id.parse()?, crashes })
    }
}

/// Why an entity is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// It is tried again when its time comes.
    #[default]
    Retrying,
    /// Given up: only a person can let it go on.
    Dead,
    /// A person paused it.
    Paused,
    /// A person wants its first event to be given up.
    SkipAsked,
    /// A person wants all that is held to be given up.
    DropAsked,
}

impl HoldState {
    const LETTERS: [(HoldState, char); 5] = [
        (HoldState::Retrying, 'r'),
        (HoldState::Dead, 'd'),
        (HoldState::Paused, 'p'),
        (HoldState::SkipAsked, 's'),
        (HoldState::DropAsked, 'x'),
    ];

    pub fn letter(self) -> char {
        Self::LETTERS.iter().find(|(state, _)| *state == self).expect("each has one").1
    }

    pub fn from_letter(letter: char) -> Option<Self> {
        Self::LETTERS.iter().find(|(_, known)| *known == letter).map(|(state, _)| *state)
    }
}

/// An entity that is held. Its events wait in the store, numbered from `first` on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub state: HoldState,
    /// How often the first one was tried.
    pub attempts: u32,
    /// When it is tried again, by the store's wall clock.
    pub due_ms: u64,
    pub first: u64,
    /// The number that the next one gets.
    pub next: u64,
    pub bytes: u64,
    /// All up to here is held: what is read of it again is known. Nothing: the entity's point
    /// says where it is.
    pub reached: Option<Point>,
    /// Why the first one was not handled.
    pub reason: String,
}

impl Head {
    /// Of an entity of which nothing is held yet.
    pub fn paused() -> Self {
        Head { state: HoldState::Paused, ..Head::default() }
    }
}

/// The longest reason that is kept, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { state, attempts, due_ms, first, next, bytes, reached, reason } = self;
        let letter = state.letter();
        let reached = reached.as_ref().map(ToString::to_string).unwrap_or_default();
        write!(f, "{letter},{attempts},{due_ms},{first},{next},{bytes}|{reached}|{reason}")
    }
}

impl FromStr for Head {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let parsed = || {
            let (numbers, rest) = text.split_once('|')?;
            let (reached, reason) = rest.split_once('|')?;
            let (letter, numbers) = numbers.split_once(',')?;
            let numbers: Vec<u64> = numbers.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
            let [attempts, due_ms, first, next, bytes] = numbers[..] else { return None };
            Some(Head {
                state: HoldState::from_letter(letter.chars().next()?)?,
                attempts: attempts.try_into().ok()?,
                due_ms,
                first,
                next,
                bytes,
                reached: if reached.is_empty() { None } else { Some(reached.parse().ok()?) },
                reason: reason.to_owned(),
            })
        };
        let broken = || format!("{:?}... says of no entity how it is held", beginning(text));
        parsed().ok_or_else(|| StoreError::Broken(broken()))
    }
}

/// What is written about a held entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadChange {
    pub entity: Entity,
    /// As it was when the worker decided. If a person changed it meanwhile, the person's
    /// wish stands, and the rest of `head` is written.
    pub was: Option<HoldState>,
    pub head: Head,
    /// It is held no longer, unless a person wished something meanwhile.
    pub ends: bool,
}

/// All that a worker writes about its partition, in one fenced step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    pub term: u64,
    /// How many commits of this term came before. One that was applied is not applied again,
    /// and a store that went back is noticed.
    pub number: u64,
    pub floor: StreamId,
    pub running: Vec<Running>,
    pub loose: Vec<EventId>,
    pub points: Vec<(Entity, Point)>,
    pub heads: Vec<HeadChange>,
    /// Events of held entities: number and text.
    pub kept: Vec<(Entity, u64, Vec<u8>)>,
    pub dropped: Vec<(Entity, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    Done {
        /// Counts a person's decisions about held entities: if it has changed, look.
        asked: u64,
        now_ms: u64,
    },
    /// Somebody else has the lease: nothing was written.
    Fenced { term: u64 },
}

/// What a person wants with one held entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Try it again, now.
    Redrive,
    /// Give its first event up.
    Skip,
    /// Give all that is held up.
    Drop,
    /// Hold it, whether or not something failed.
    Pause,
    /// Let what was paused go on.
    Resume,
}

impl Wish {
    /// The state that it stands for, and the states in which it makes sense.
    pub fn changes(self) -> (HoldState, &'static [HoldState]) {
        use HoldState::{Dead, DropAsked, Paused, Retrying, SkipAsked};
        match self {
            Wish::Redrive => (Retrying, &[Dead, Retrying]),
            Wish::Skip => (SkipAsked, &[Dead, Retrying, Paused]),
            Wish::Drop => (DropAsked, &[Dead, Retrying, Paused]),
            Wish::Pause => (Paused, &[Retrying, Paused]),
            Wish::Resume => (Retrying, &[Paused]),
        }
    }
}

/// What became of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    Done,
    /// The entity is not held.
    NotHeld,
    /// It is held, but the wish does not fit its state.
    Unfit(HoldState),
}

/// An event as it stands in the stream, which others may have written badly. The events of an
/// entry are always read together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub id: EventId,
    pub entry: Result<Entry, RecordError>,
}

/// A group of one topic, as `seriatim group list` shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GroupMeasure {
    pub group: String,
    /// Registered here; otherwise somebody made it with XGROUP.
    pub registered: bool,
    #[serde(flatten)]
    pub switches: Switches,
    /// Workers that showed up lately.
    pub members: Option<u64>,
    /// How much older the first entry that is not done is than the last one, in the partition
    /// that is furthest behind.
    pub behind_ms: u64,
    /// Entities that are held, and those of them that are dead.
    pub held: Option<u64>,
    pub dead: Option<u64>,
}

impl Read {
    /// How many entries these are of.
    pub fn entries(reads: &[Read]) -> usize {
        reads.iter().filter(|read| read.id.index == 0).count()
    }
}

/// Events of several partitions.
pub type Streams = Vec<(PartitionId, Vec<Read>)>;

/// Events of a held entity, as text, by number.
pub type KeptEvents = Vec<(u64, Vec<u8>)>;

/// Waits for new entries, on a connection of its own.
pub trait Waiter: Send {
    /// The events of entries after these ids, at most `count` entries of each; nothing if none
    /// came in time.
    fn wait<'a>(
        &'a mut self,
        after: &'a [(PartitionId, StreamId)],
        count: usize,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Streams, StoreError>>;
}

/// The port. Every method may be called again after any error. What needs a group that is not
/// there fails with NOGROUP, unless it says otherwise; nothing that is empty is answered for it.
pub trait GroupStore: Send + Sync + 'static {
    /// Creates a group where it is absent. False if it is there.
    fn register<'a>(
        &'a self,
        group: &'a GroupId,
        partitions: u32,
        start: Start,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Removes a group and all that it holds, for ever.
    fn remove<'a>(&'a self, group: &'a GroupId, partitions: u32) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Registered groups of a topic, and whether each is paused or degraded.
    fn groups<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Vec<(String, Switches)>, StoreError>>;

    /// Decides about a whole group. False if it is not registered.
    fn switch<'a>(
        &'a self,
        group: &'a GroupId,
        switches: Switches,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Shows up as a member, and sees who else did. `None` if the group is not registered.
    fn attend<'a>(
        &'a self,
        group: &'a GroupId,
        member: &'a Member,
    ) -> BoxFuture<'a, Result<Option<Attendance>, StoreError>>;

    /// Leaves, or shows one that is dead out; nothing happens if there is no such group.
    fn depart<'a>(&'a self, group: &'a GroupId, member: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// The leases of all partitions, in their order. Fewer if the group is gone.
    fn leases<'a>(
        &'a self,
        group: &'a GroupId,
        partitions: u32,
    ) -> BoxFuture<'a, Result<Vec<LeaseSeen>, StoreError>>;

    /// Takes a lease, if it is still as it was seen.
    fn lease<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        owner: &'a str,
        seen: &'a LeaseSeen,
    ) -> BoxFuture<'a, Result<Option<Leased>, StoreError>>;

    /// Gives a lease back, if it is still held under this term; otherwise nothing happens.
    fn release<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        term: u64,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Writes, and counts the lease up. All or nothing.
    fn commit<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        commit: &'a Commit,
    ) -> BoxFuture<'a, Result<Committed, StoreError>>;

    /// How far these entities are acknowledged.
    fn points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entities: &'a [Entity],
    ) -> BoxFuture<'a, Result<Vec<Option<Point>>, StoreError>>;

    /// Forgets points of retired entities that an earlier call found, and finds more of them, about
    /// `count` from a place on. Nothing happens, and nothing is returned, under another term, or if
    /// the group has not come as far as the stream went when they were found.
    fn sweep_points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        term: u64,
        found: &'a RetiredPoints,
        count: usize,
    ) -> BoxFuture<'a, Result<Option<RetiredPoints>, StoreError>>;

    /// All held entities, by name.
    fn heads<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
    ) -> BoxFuture<'a, Result<Vec<(Entity, Head)>, StoreError>>;

    /// Events of a held entity, from a number on; those that are there.
    fn kept<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entity: &'a Entity,
        numbers: std::ops::Range<u64>,
    ) -> BoxFuture<'a, Result<KeptEvents, StoreError>>;

    /// Notes a person's wish for the worker that has the partition.
    fn wish<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entity: &'a Entity,
        wish: Wish,
    ) -> BoxFuture<'a, Result<Granted, StoreError>>;

    /// The events of up to `count` entries after an id, as they stand. Of fewer entries than
    /// that: the end was reached.
    fn read_on<'a>(
        &'a self,
        partition: &'a PartitionId,
        after: StreamId,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Read>, StoreError>>;

    /// Somebody who waits for entries; connects when first used.
    fn waiter(&self) -> Box<dyn Waiter>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_head_say_the_same() {
        for text in
            ["r,1,1763,0,1,10|0:5;m2|it fell | twice", "d,5,0,3,9,900|7:9007199254740992|", "p,0,0,0,0,0||"]
        {
            assert_eq!(text.parse::<Head>().unwrap().to_string(), text);
        }
        for text in ["", "r", "q,1,2,3,4,5||", "r,1,2,3,4||", "r,1,2,3,4,5|x|", "r,1,2,3,4,5|0:1"] {
            assert!(text.parse::<Head>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_running_reads_with_its_crashes() {
        for text in ["17-1", "17-1!2", "17-1#3", "17-1#3!2"] {
            assert_eq!(text.parse::<Running>().unwrap().to_string(), text);
        }
        assert!("17!2".parse::<Running>().is_err());
    }
}
