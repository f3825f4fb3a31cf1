//! The durable port, and everything that knows Redis.
//!
//! A [`Store`] admits batches of events atomically and reads streams back. Two
//! engines stand behind it: [`RedisStore`], where a script decides next to the data,
//! and [`MemoryStore`], where `order/` decides in this process and nothing survives
//! it. `redis::` and key names do not leave this module.

mod batch;
mod field;
#[cfg(test)]
mod fuzz;
mod group;
mod id;
mod keys;
mod memory;
mod point;
mod record;
mod redis;
mod topic;
mod trim;

use futures_util::{future::BoxFuture, stream::BoxStream};

pub use self::{
    batch::{Batch, Guess, LaneOffers, Offer, lanes},
    group::{
        Attendance, Commit, Committed, Granted, GroupId, GroupMeasure, GroupStore, Head, HeadChange,
        HoldState, KeptEvents, LeaseSeen, Leased, Member, REASON_BYTES_MAX, Read, Running, Start, Streams,
        Switches, Waiter, Wish,
    },
    id::{EventId, StreamId},
    keys::{
        GroupKeys, PartitionId, PartitionKeys, groups_key, id_digest, members_key, partition_of,
        probe_channel, topic_key,
    },
    memory::{GroupPart, MemoryImage, MemoryStore},
    point::{Point, RetiredPoints},
    record::{Entry, Payload, RecordError},
    redis::{RedisSettings, RedisStore, ServerReport, Straight},
    topic::{Layout, Mismatch, Numbering, TopicRecord, TopicSpec, WIRE_VERSION, lists_text, policy_text},
    trim::{Floor, Trimmed},
};
use crate::order::{
    Announcement, Entity, Epoch, LaneState, Note, Place, Probe, Range, Sequence, Swept, Verdict,
};

/// Where the ordering state and the streams live.
///
/// Every method may be called again after any error: admitting is idempotent and
/// the others only read, except [`Store::delete_topic`].
pub trait Store: GroupStore {
    /// What this store is, in words for a person.
    fn describe(&self) -> String;

    fn kind(&self) -> StoreKind;

    /// Creates the topic where it is absent, or checks that it is the same one, and puts
    /// its policy in force. After success its partitions can be admitted to. Opening a
    /// topic again, with another policy, is how a policy changes.
    fn open<'a>(&'a self, topic: &'a TopicSpec) -> BoxFuture<'a, Result<(), OpenError>>;

    /// Decides about all events of the batch, in its order, those of an entity atomically.
    /// When it returns `Ok`, what the verdicts claim is in the store. When it returns an
    /// error the events of each entity were either applied whole or not at all; offering
    /// the batch again gives true verdicts in both cases. At most one call per partition may be in
    /// flight from one caller, or its batches may overtake each other.
    ///
    /// An empty batch goes on with lanes that an earlier call left half drained.
    fn admit<'a>(
        &'a self,
        partition: &'a PartitionId,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Admitted, StoreError>>;

    /// Does what is due in a partition, in at most so many lanes. Any number of callers
    /// may do this at once; a call too soon after another does nothing.
    fn elapse<'a>(
        &'a self,
        partition: &'a PartitionId,
        lanes_max: usize,
    ) -> BoxFuture<'a, Result<Elapsed, StoreError>>;

    /// Removes entries that are old, or too many, and that every group has done: at most
    /// `count` of each stream, a thousand being a good number. Never one that a group has
    /// not done. Any number of callers may do this at once; a call too soon after another
    /// does nothing, unless the partition is full.
    fn trim<'a>(
        &'a self,
        partition: &'a PartitionId,
        count: usize,
    ) -> BoxFuture<'a, Result<Trimmed, StoreError>>;

    /// Up to where every group has done everything; `None` if there is no group.
    fn floor<'a>(&'a self, partition: &'a PartitionId) -> BoxFuture<'a, Result<Option<Floor>, StoreError>>;

    /// Says that a producer of the entity is connected: the last wait for the gap at
    /// `next` may take longer.
    fn extend<'a>(
        &'a self,
        partition: &'a PartitionId,
        gap: &'a GapId,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Gives one gap up because a person wants it; `audit` is members of a JSON object
    /// that join the marker's attributes. Returns what was given up; nothing if that gap
    /// is not there (any more).
    fn skip<'a>(
        &'a self,
        partition: &'a PartitionId,
        gap: &'a GapId,
        audit: &'a str,
    ) -> BoxFuture<'a, Result<Option<Range>, StoreError>>;

    /// Takes a partition's promise of order away, or gives it back. False if it was so
    /// already.
    fn set_degraded<'a>(
        &'a self,
        partition: &'a PartitionId,
        degraded: bool,
    ) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// Notes that an entity will exist, and in how many milliseconds it should begin.
    fn announce<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
        within_ms: u64,
    ) -> BoxFuture<'a, Result<Announcement, StoreError>>;

    /// Looks at lanes that are old enough: retires, forgets, reports. At most `count`
    /// entities in each of three places. A search of several calls gives the `now` of its
    /// first one to the others, and sees every entity once.
    fn sweep<'a>(
        &'a self,
        partition: &'a PartitionId,
        count: usize,
        as_of: Option<u64>,
    ) -> BoxFuture<'a, Result<Swept, StoreError>>;

    /// Looks for what should not be there, about `count` entries from a place on, and
    /// mends what is safe to mend.
    fn repair<'a>(
        &'a self,
        partition: &'a PartitionId,
        from: RepairCursor,
        count: usize,
    ) -> BoxFuture<'a, Result<Repaired, StoreError>>;

    /// Gaps of a topic as they are probed, by whichever process. Ends when the store is
    /// out of reach: ask again. What was probed meanwhile is not repeated.
    fn probes<'a>(
        &'a self,
        topic: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Vec<Probe>>, StoreError>>;

    /// Probes nobody: everybody who listens to the topic's probes hears that.
    fn call_out<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Tells that this process is alive, and who else is or was.
    fn beat<'a>(&'a self, beat: &'a Beat) -> BoxFuture<'a, Result<Vec<SidecarSeen>, StoreError>>;

    /// Tells that this process ends as it should.
    fn leave<'a>(&'a self, sidecar: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Takes or keeps the right to look for lost work; false if somebody else has it.
    fn lead_reconciler<'a>(&'a self, owner: &'a str, for_ms: u64) -> BoxFuture<'a, Result<bool, StoreError>>;

    /// The state of an entity's lane, as durable as a verdict. `None` if unknown.
    fn resume<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
    ) -> BoxFuture<'a, Result<Option<LaneState>, StoreError>>;

    /// The events of up to `count` entries after an id, oldest first. Of fewer entries than
    /// that ([`Entry::entries`]): the end was reached.
    fn read<'a>(
        &'a self,
        partition: &'a PartitionId,
        place: Place,
        after: StreamId,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>>;

    /// The names of all topics, sorted.
    fn topics(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>>;

    /// What is fixed about a topic. `None` if there is no such topic.
    fn record<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Option<TopicRecord>, StoreError>>;

    /// Sizes of one partition.
    fn measure<'a>(&'a self, partition: &'a PartitionId) -> BoxFuture<'a, Result<Measure, StoreError>>;

    /// Removes the topic, its streams and its ordering state, for ever.
    fn delete_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Does the store answer?
    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    Redis,
    /// In this process, and gone with it.
    Embedded,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// One per event, in the order of the batch.
    pub decisions: Vec<Decision>,
    pub path: Path,
    /// The call ran out of room: call again (an empty batch will do) to go on.
    pub more: bool,
    /// Parked events that found their turn.
    pub drained: u64,
    /// Released although their entity's terminal event was out already.
    pub after_terminal: u64,
    pub notes: Vec<Note>,
}

impl Admitted {
    /// The same of events that have these places among them, in ascending order.
    fn join(&mut self, others: Admitted, places: &[usize]) {
        for (place, decision) in places.iter().zip(others.decisions) {
            self.decisions.insert(*place, decision);
        }
        self.more |= others.more;
        self.drained += others.drained;
        self.after_terminal += others.after_terminal;
        self.notes.extend(others.notes);
    }
}

/// What time did to a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// False if another call was too short a time ago.
    pub ran: bool,
    /// Lanes that were due and looked at.
    pub lanes: u64,
    /// Others are due, too: call again.
    pub more: bool,
    pub drained: u64,
    pub after_terminal: u64,
    pub notes: Vec<Note>,
    /// The partition is degraded now.
    pub degraded: bool,
}

/// One gap of one lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GapId {
    pub entity: Entity,
    pub epoch: Epoch,
    pub next: Sequence,
}

/// Where [`Store::repair`] goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairCursor {
    place: usize,
    at: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    pub findings: Vec<Repair>,
    /// Where to go on; `None` once everything was looked at.
    pub next: Option<RepairCursor>,
}

/// Something that should not have been there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    pub kind: RepairKind,
    pub entity: String,
    /// The lane's state, or the parked event's name.
    pub what: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepairKind {
    /// A lane waits, but no deadline was listed. Listed.
    UnlistedGap,
    /// A deadline was listed for a lane that does not wait. Removed.
    IdleGap,
    /// A deadline was listed for no lane at all. Removed.
    GapWithoutLane,
    /// A lane would never have been retired or reported. Filed.
    UnfiledLane,
    /// A parked event that was released already. Removed.
    ParkedTwice,
    /// A parked event that its lane did not know of. It does now.
    ParkedUnknownToLane,
    /// A parked event without a lane. Left alone: a person must look.
    ParkedWithoutLane,
    /// A parked event of another epoch, or of a lane that parks nothing. Left alone.
    ParkedAstray,
}

impl RepairKind {
    pub const ALL: [RepairKind; 8] = [
        RepairKind::UnlistedGap,
        RepairKind::IdleGap,
        RepairKind::GapWithoutLane,
        RepairKind::UnfiledLane,
        RepairKind::ParkedTwice,
        RepairKind::ParkedUnknownToLane,
        RepairKind::ParkedWithoutLane,
        RepairKind::ParkedAstray,
    ];

    /// The word for it in metrics, reports and the script's reply.
    pub fn name(self) -> &'static str {
        match self {
            RepairKind::UnlistedGap => "unlisted_gap",
            RepairKind::IdleGap => "idle_gap",
            RepairKind::GapWithoutLane => "gap_without_lane",
            RepairKind::UnfiledLane => "unfiled_lane",
            RepairKind::ParkedTwice => "parked_twice",
            RepairKind::ParkedUnknownToLane => "parked_unknown_to_lane",
            RepairKind::ParkedWithoutLane => "parked_without_lane",
            RepairKind::ParkedAstray => "parked_astray",
        }
    }

    pub fn is_mended(self) -> bool {
        !matches!(self, RepairKind::ParkedWithoutLane | RepairKind::ParkedAstray)
    }
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Unique to the process.
    pub sidecar: String,
    /// What it says about itself, as JSON.
    pub about: String,
    /// After so long without a beat a sidecar is no longer shown.
    pub forget_after_ms: u64,
}

/// A sidecar that was heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidecarSeen {
    pub sidecar: String,
    pub about: String,
    /// How long ago, by the store's clock.
    pub silent_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// Of the entry that was written for the event itself, or, in `batch` layout, for all of its
    /// call that went to the same stream.
    pub id: Option<StreamId>,
}

/// How a batch was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// All in order, and appended by plain XADDs: by comparing strings before them.
    Straight,
    /// Those that seemed to be in order as if they had been alone, the others by the rules.
    Mixed,
    /// All in order: by comparing strings.
    Fast,
    /// By the rules, after plain XADDs were barred because something was not in order.
    Barred,
    /// By the rules.
    Slow,
}

impl Path {
    pub const ALL: [Path; 5] = [Path::Straight, Path::Mixed, Path::Fast, Path::Barred, Path::Slow];

    pub fn name(self) -> &'static str {
        match self {
            Path::Straight => "straight",
            Path::Mixed => "mixed",
            Path::Fast => "fast",
            Path::Barred => "barred",
            Path::Slow => "slow",
        }
    }
}

/// Sizes of one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Measure {
    /// Entries in `events`.
    pub entries: u64,
    /// Entries in `late`.
    pub late: u64,
    /// Entities with a lane.
    pub lanes: u64,
    /// Parked events.
    pub parked: u64,
    pub parked_bytes: u64,
    /// Lanes for which time has something to do: gaps, mostly.
    pub gaps: u64,
    /// Announced entities that have not begun, as far as is known.
    pub announced: u64,
    /// The partition promises no order at present.
    pub degraded: bool,
    /// The partition has `entries_max` entries and takes nothing new.
    pub full: bool,
    /// There are `late_max` late events, and nothing more may become late.
    pub late_full: bool,
    /// Entries once appended to `events` and trimmed since.
    pub trimmed: u64,
}

/// Why a store did not answer with a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Certainly nothing happened; the same call may succeed later.
    #[error("the store did not execute the call: {0}")]
    NotExecuted(String),
    /// The call may or may not have taken effect. Offer it again.
    #[error("the store's answer did not arrive: {0}")]
    Ambiguous(String),
    /// The store holds what this program cannot work with. Offering again will not
    /// help; a person must look.
    #[error("the store cannot be used: {0}")]
    Broken(String),
}

impl StoreError {
    /// The word for it in metrics.
    pub fn class(&self) -> &'static str {
        match self {
            StoreError::NotExecuted(_) => "not_executed",
            StoreError::Ambiguous(_) => "ambiguous",
            StoreError::Broken(_) => "broken",
        }
    }

    /// Can offering again help?
    pub fn is_passing(&self) -> bool {
        match self {
            StoreError::NotExecuted(_) | StoreError::Ambiguous(_) => true,
            StoreError::Broken(_) => false,
        }
    }
}

/// Why a topic could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error(
        "topic {topic}: {mismatch}; write that into the configuration, or delete the topic with `seriatim topic delete {topic}`"
    )]
    Mismatch { topic: String, mismatch: Mismatch },
    #[error("topic {topic}: {source}")]
    Store { topic: String, source: StoreError },
}
