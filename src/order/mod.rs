//! The rules of ordering, as a machine without I/O, clock or randomness.
//!
//! Every decision about an event is taken here or, word for word the same, in
//! `store/scripts/admit.lua`. The rules themselves are written once, as a table,
//! in ARCHITECTURE.md ("The rules"); each of its rows has a scenario file in
//! `tests/scenarios/`, which both engines must pass, and a differential test drives
//! both with the same random histories.
//!
//! The surface is small: a [`Partition`] holds lanes; [`Partition::admit`] takes one
//! event and returns its [`Verdict`]; what has to be written, in which order, is
//! collected in [`Effects`], which the caller applies before anybody sees the
//! verdict.
//!
//! This module does not know what an event contains (only its size and whether two
//! are the same, see [`Payload`]), does not count metrics and cannot fail: bad input
//! is refused before it gets here. It imports nothing of the rest of the crate.

mod effects;
mod identity;
mod lane;
mod parked;
mod partition;
mod policy;
mod ranges;
mod recent;
mod state;
mod verdict;

pub use effects::{Action, Append, Effects, Marker, MarkerKind, Order, Place, SkipReason};
pub use identity::{Entity, EntityError, Epoch, NUMBER_MAX, NumberError, Sequence};
pub use lane::{Event, Lane, Payload, Position};
pub use partition::Partition;
pub use policy::{LatePlace, Ordering, Policy};
pub use ranges::{Range, Ranges};
pub use recent::{RECENT_MAX, Recent};
pub use state::{LaneState, ParkedSummary, StateError};
pub use verdict::{Refusal, Verdict};
