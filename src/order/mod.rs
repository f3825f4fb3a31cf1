//! The rules of ordering, as a machine without I/O, clock or randomness.
//!
//! Every decision about an event is taken here or, word for word the same, in
//! `store/scripts/admit.lua`. The rules themselves are written once, as a table,
//! in ARCHITECTURE.md ("The rules"); each of its rows has a scenario file in
//! `tests/scenarios/`, which both engines must pass, and a differential test drives
//! both with the same random histories.
//!
//! The surface is small: a [`Partition`] holds lanes; [`Partition::admit`] decides about
//! events, [`Partition::elapse`] does what time demands, [`Partition::sweep`] forgets what
//! is old; what has to be written, in which order, is collected in [`Effects`], which the
//! caller applies before anybody sees a [`Verdict`]. Time is an argument of each call.
//!
//! This module does not know what an event contains (only its size and whether two
//! are the same, see [`Payload`]), does not count metrics and cannot fail: bad input
//! is refused before it gets here. It imports nothing of the rest of the crate.

mod breaker;
mod clock;
mod effects;
mod follow;
pub mod foresee;
mod full;
mod identity;
mod lane;
mod lanes;
mod lifecycle;
mod parked;
mod partition;
mod policy;
mod ranges;
mod recent;
mod retire;
mod rings;
mod schedule;
mod state;
mod verdict;

pub use breaker::Breaker;
pub use clock::{ADVANCE_MAX_MS, PartitionClock, TICK_MS};
pub use effects::{
    Action, Append, DegradedBy, Edge, Effects, Marker, MarkerKind, Note, Order, Place, Probe, SkipReason,
};
pub use foresee::{Behind, Foreseen, Timing};
pub use full::{Full, Lengths};
pub use identity::{Entity, EntityError, Epoch, NUMBER_MAX, NumberError, Sequence};
pub use lane::{Event, Lane, Payload, Position};
pub use lifecycle::Lifecycle;
pub use partition::{Elapsed, Partition, PartitionMode};
pub use policy::{
    BreakerPolicy, LatePlace, Mode, Ordering, Overflow, Policy, Retention, Retirement, Rollout,
};
pub use ranges::{Range, Ranges};
pub use recent::{RECENT_MAX, Recent};
pub use retire::{Announced, Announcement, Filed, Finding, Memory, Swept};
pub use rings::{BUCKETS, Hand, Ring};
pub use schedule::{jittered, rollout_place};
pub use state::{Age, Gap, LaneState, ParkedSummary, Shadow, ShadowGap, StateError, Wait};
pub use verdict::{Refusal, Verdict};
