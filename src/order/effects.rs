//! What a decision wants written, in order.
//!
//! The core appends to the [`Effects`] it is given and never applies them; the
//! caller applies them all, in order, before anybody sees the verdict.

use super::{
    identity::{Entity, Epoch, Sequence},
    ranges::Range,
};

/// Collects the actions of one call, and bounds how many entries it may append.
#[derive(Debug)]
pub struct Effects<P> {
    pub actions: Vec<Action<P>>,
    /// Parked events that found their turn.
    pub drained: u64,
    /// Released although the lane was closed.
    pub after_terminal: u64,
    /// What else happened that somebody may want to count.
    pub notes: Vec<Note>,
    /// Gaps that somebody should be asked to fill.
    pub probes: Vec<Probe>,
    append_max: u64,
}

/// One thing that happened to a gap, or to what would have been one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// A gap was filled after so many milliseconds.
    Filled(u64),
    Skipped(SkipReason),
    Probed,
    /// A released event's type may not follow the one before it.
    Illegal,
    /// Shadow: an event came after one that is so many places further on.
    Distance(u64),
    /// Shadow: enforcing would have waited so long for a gap to be filled.
    WouldWait(u64),
    /// Shadow: enforcing would have given a gap up.
    WouldSkip,
    /// Shadow: the event would have been late.
    WouldBeLate,
}

/// The missing run of a lane, for whoever can publish it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    pub entity: Entity,
    pub epoch: Epoch,
    pub missing: Range,
    /// A skip comes next, and who knows a living producer may ask for more time.
    pub is_extensible: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P> {
    Append(Append<P>),
    Mark(Marker),
    /// The whole partition changes its mode.
    Edge(Edge),
}

/// A partition begins or ends to be degraded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Degraded(DegradedBy),
    Restored(DegradedBy),
}

/// Who decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DegradedBy {
    Breaker,
    Operator,
}

impl DegradedBy {
    pub fn name(self) -> &'static str {
        match self {
            DegradedBy::Breaker => "breaker",
            DegradedBy::Operator => "operator",
        }
    }
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
    Gap {
        reason: SkipReason,
        from: Sequence,
        /// How long it was waited for, if it was.
        waited: Option<u64>,
    },
    Epoch {
        previous: Epoch,
    },
}

/// Why a gap was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkipReason {
    Timeout,
    Overflow,
    Epoch,
    Operator,
    Degraded,
    /// A worker's lane: what follows is here already.
    Overtaken,
}

impl SkipReason {
    /// Those that a sidecar writes.
    pub const ALL: [SkipReason; 5] = [
        SkipReason::Timeout,
        SkipReason::Overflow,
        SkipReason::Epoch,
        SkipReason::Operator,
        SkipReason::Degraded,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SkipReason::Timeout => "timeout",
            SkipReason::Overflow => "overflow",
            SkipReason::Epoch => "epoch",
            SkipReason::Operator => "operator",
            SkipReason::Degraded => "degraded",
            SkipReason::Overtaken => "overtaken",
        }
    }
}

impl<P> Effects<P> {
    pub fn new(append_max: u64) -> Self {
        let (notes, probes) = (Vec::new(), Vec::new());
        Effects { actions: Vec::new(), drained: 0, after_terminal: 0, notes, probes, append_max }
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
