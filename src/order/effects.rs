//! What a decision wants written, in order.
//!
//! The core appends to the [`Effects`] it is given and never applies them; the
//! caller applies them all, in order, before anybody sees the verdict.

use super::identity::{Entity, Epoch, Sequence};

/// Collects the actions of one call, and bounds how many entries it may append.
#[derive(Debug)]
pub struct Effects<P> {
    pub actions: Vec<Action<P>>,
    /// Parked events that found their turn.
    pub drained: u64,
    /// Released although the lane was closed.
    pub after_terminal: u64,
    append_max: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P> {
    Append(Append<P>),
    Mark(Marker),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append<P> {
    pub place: Place,
    pub order: Order,
    pub entity: Entity,
    pub epoch: Epoch,
    pub sequence: Sequence,
    pub payload: P,
}

/// Which of the partition's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Events,
    Late,
}

/// What an entry says of its place in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Strict,
    Passed,
    Late,
    Marker,
    Replay,
}

impl Order {
    pub const ALL: [Order; 5] = [Order::Strict, Order::Passed, Order::Late, Order::Marker, Order::Replay];

    pub fn name(self) -> &'static str {
        match self {
            Order::Strict => "strict",
            Order::Passed => "passed",
            Order::Late => "late",
            Order::Marker => "marker",
            Order::Replay => "replay",
        }
    }
}

/// An entry that says what is not there, or what changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    pub entity: Entity,
    pub epoch: Epoch,
    /// Gap: the last sequence it covers. Epoch: the new epoch's first sequence.
    pub sequence: Sequence,
    pub kind: MarkerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerKind {
    Gap { reason: SkipReason, from: Sequence },
    Epoch { previous: Epoch },
}

/// Why a gap was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    Timeout,
    Epoch,
}

impl SkipReason {
    pub fn name(self) -> &'static str {
        match self {
            SkipReason::Timeout => "timeout",
            SkipReason::Epoch => "epoch",
        }
    }
}

impl<P> Effects<P> {
    pub fn new(append_max: u64) -> Self {
        Effects { actions: Vec::new(), drained: 0, after_terminal: 0, append_max }
    }

    /// May `entries` more be appended in this call?
    pub fn has_room(&self, entries: u64) -> bool {
        self.actions.len() as u64 + entries <= self.append_max
    }

    pub(super) fn push(&mut self, action: Action<P>) {
        assert!(self.has_room(1), "the caller asked for room before it appended");
        self.actions.push(action);
    }
}
