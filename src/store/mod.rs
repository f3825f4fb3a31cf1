//! The durable port, and everything that knows Redis.
//!
//! A [`Store`] admits batches of events atomically and reads streams back. Two
//! engines stand behind it: [`RedisStore`], where a script decides next to the data,
//! and [`MemoryStore`], where `order/` decides in this process and nothing survives
//! it. `redis::` and key names do not leave this module.

mod batch;
mod keys;
mod memory;
mod record;
mod redis;
mod topic;

use futures_util::future::BoxFuture;

pub use self::{
    batch::{Batch, LaneOffers, Offer},
    keys::{PartitionId, PartitionKeys, id_digest, partition_of, topic_key},
    memory::MemoryStore,
    record::{Entry, Payload, RecordError, StreamId},
    redis::{RedisSettings, RedisStore, ServerReport},
    topic::{Mismatch, Numbering, TopicRecord, TopicSpec, WIRE_VERSION, policy_text},
};
use crate::order::{Entity, LaneState, Place, Verdict};

/// Where the ordering state and the streams live.
///
/// Every method may be called again after any error: admitting is idempotent and
/// the others only read, except [`Store::delete_topic`].
pub trait Store: Send + Sync + 'static {
    /// What this store is, in words for a person.
    fn describe(&self) -> String;

    fn kind(&self) -> StoreKind;

    /// Creates the topic where it is absent, or checks that it is the same one.
    /// After success its partitions can be admitted to.
    fn open<'a>(&'a self, topic: &'a TopicSpec) -> BoxFuture<'a, Result<(), OpenError>>;

    /// Decides about all events of the batch, atomically and in its order. When it
    /// returns `Ok`, what the verdicts claim is in the store. When it returns an
    /// error the batch was either applied whole or not at all; offering it again
    /// gives true verdicts in both cases. At most one call per partition may be in
    /// flight from one caller, or its batches may overtake each other.
    ///
    /// An empty batch goes on with lanes that an earlier call left half drained.
    fn admit<'a>(
        &'a self,
        partition: &'a PartitionId,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Admitted, StoreError>>;

    /// The state of an entity's lane, as durable as a verdict. `None` if unknown.
    fn resume<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
    ) -> BoxFuture<'a, Result<Option<LaneState>, StoreError>>;

    /// Up to `count` entries after an id, oldest first. Fewer than `count` means the
    /// end was reached.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub verdict: Verdict,
    /// Of the entry that was written for the event itself.
    pub id: Option<StreamId>,
}

/// How a batch was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// All in order: by comparing strings.
    Fast,
    /// By the rules.
    Slow,
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
