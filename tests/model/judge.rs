//! What the streams of one entity must look like, folded as they are written.
//!
//! It shares nothing with the rules: it knows the kinds of entries and what a reader may
//! conclude from them. Of what was written only that is kept which later entries are judged
//! by, so two histories that mean the same for the future are one state.

use seriatim::order::{Action, DegradedBy, Edge, MarkerKind, Order, SkipReason};

use super::node::Body;

pub type Faults = u32;

pub const ORDER: Faults = 1;
pub const HOLE: Faults = 1 << 1;
pub const TWICE: Faults = 1 << 2;
pub const NEXT: Faults = 1 << 3;
pub const TURN: Faults = 1 << 4;
pub const PARKED: Faults = 1 << 5;
pub const EPOCH: Faults = 1 << 6;
pub const LATE: Faults = 1 << 7;
pub const EDGE: Faults = 1 << 8;
pub const REPLY: Faults = 1 << 9;
pub const EARLY: Faults = 1 << 10;
pub const FAST: Faults = 1 << 11;
pub const DUE: Faults = 1 << 12;
pub const KEPT: Faults = 1 << 13;
pub const LOST: Faults = 1 << 14;
pub const STUCK: Faults = 1 << 15;

/// Sequences of a model lie below this, and so do epochs.
pub const SEQUENCES: u8 = 8;

/// An entry, as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Entry {
    Strict { epoch: u8, sequence: u8, terminal: bool },
    Passed { epoch: u8, sequence: u8, terminal: bool },
    Late { epoch: u8, sequence: u8, terminal: bool },
    Gap { epoch: u8, from: u8, to: u8, why: Why },
    Epoch { epoch: u8, previous: u8 },
    Degraded { by_operator: bool },
    Restored { by_operator: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    Timeout,
    Overflow,
    Epoch,
    Operator,
    Degraded,
}

pub fn small(number: u64) -> u8 {
    u8::try_from(number).expect("a model's numbers are small")
}

impl Entry {
    pub fn of(action: &Action<Body>) -> Self {
        match action {
            Action::Append(append) => {
                let (epoch, sequence) = (small(append.epoch.get()), small(append.sequence.get()));
                let terminal = append.payload.terminal;
                match append.order {
                    Order::Strict => Entry::Strict { epoch, sequence, terminal },
                    Order::Passed => Entry::Passed { epoch, sequence, terminal },
                    Order::Late => Entry::Late { epoch, sequence, terminal },
                    Order::Marker | Order::Replay => unreachable!("the rules append no such event"),
                }
            }
            Action::Mark(marker) => {
                let (epoch, to) = (small(marker.epoch.get()), small(marker.sequence.get()));
                match marker.kind {
                    MarkerKind::Epoch { previous } => Entry::Epoch { epoch, previous: small(previous.get()) },
                    MarkerKind::Gap { reason, from, .. } => {
                        Entry::Gap { epoch, from: small(from.get()), to, why: why(reason) }
                    }
                }
            }
            Action::Edge(Edge::Degraded(by)) => Entry::Degraded { by_operator: *by == DegradedBy::Operator },
            Action::Edge(Edge::Restored(by)) => Entry::Restored { by_operator: *by == DegradedBy::Operator },
        }
    }
}

fn why(reason: SkipReason) -> Why {
    match reason {
        SkipReason::Timeout => Why::Timeout,
        SkipReason::Overflow => Why::Overflow,
        SkipReason::Epoch => Why::Epoch,
        SkipReason::Operator => Why::Operator,
        SkipReason::Degraded => Why::Degraded,
        SkipReason::Overtaken => unreachable!("only workers' lanes are overtaken"),
    }
}

/// Bits of the sequences `from..to`.
fn run(from: u8, to: u8) -> u8 {
    (from..to).fold(0, |bits, sequence| bits | 1 << sequence)
}

/// Bit of a number in all epochs.
fn place(epoch: u8, sequence: u8) -> u64 {
    1 << (epoch * SEQUENCES + sequence)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Judge {
    /// None before anything is known of the entity.
    pub epoch: Option<u8>,
    /// One above the last that was written or marked.
    pub top: u8,
    /// Given up with a marker, and not come late since.
    pub marked: u8,
    /// Passed over without a marker.
    pub unmarked: u8,
    /// All numbers that were written.
    written: u64,
    pub is_degraded: bool,
    pub is_closed: bool,
    pub faults: Faults,
}

impl Judge {
    pub fn has_written(&self, epoch: u8, sequence: u8) -> bool {
        self.written & place(epoch, sequence) != 0
    }

    pub fn expect(&mut self, holds: bool, else_: Faults) {
        if !holds {
            self.faults |= else_;
        }
    }

    pub fn see(&mut self, entry: Entry) {
        match entry {
            Entry::Strict { epoch, sequence, terminal } => {
                self.see_event(epoch, sequence, terminal);
                self.expect(sequence <= self.top && self.unmarked == 0, HOLE);
                self.expect(sequence >= self.top, ORDER);
                self.top = self.top.max(sequence + 1);
            }
            Entry::Passed { epoch, sequence, terminal } => {
                self.see_event(epoch, sequence, terminal);
                if sequence >= self.top {
                    self.unmarked |= run(self.top, sequence);
                    self.top = sequence + 1;
                } else {
                    self.expect(self.unmarked & (1 << sequence) != 0, ORDER);
                    self.unmarked &= !(1 << sequence);
                }
            }
            Entry::Late { epoch, sequence, terminal } => {
                self.see_event(epoch, sequence, terminal);
                self.expect(self.marked & (1 << sequence) != 0, LATE);
                self.marked &= !(1 << sequence);
            }
            Entry::Gap { epoch, from, to, why } => self.see_gap(epoch, from, to, why),
            Entry::Epoch { epoch, previous } => {
                self.expect(self.epoch == Some(previous) && epoch > previous, EPOCH);
                self.expect(self.unmarked == 0, HOLE);
                (self.epoch, self.top, self.is_closed) = (Some(epoch), 0, false);
                (self.marked, self.unmarked) = (0, 0);
            }
            Entry::Degraded { .. } => {
                self.expect(!self.is_degraded, EDGE);
                self.is_degraded = true;
            }
            Entry::Restored { .. } => {
                self.expect(self.is_degraded, EDGE);
                self.is_degraded = false;
            }
        }
    }

    fn see_event(&mut self, epoch: u8, sequence: u8, terminal: bool) {
        let known = *self.epoch.get_or_insert(epoch);
        self.expect(known == epoch, EPOCH);
        self.expect(!self.has_written(epoch, sequence), TWICE);
        self.written |= place(epoch, sequence);
        self.is_closed |= terminal;
    }

    fn see_gap(&mut self, epoch: u8, from: u8, to: u8, why: Why) {
        let known = *self.epoch.get_or_insert(epoch);
        self.expect(known == epoch, EPOCH);
        let bits = run(from, to + 1);
        let is_missing = (from..=to).all(|sequence| !self.has_written(epoch, sequence));
        self.expect(is_missing && from <= to, HOLE);
        if from == self.top {
            self.top = to + 1;
        } else {
            // What passed over it said nothing: all of it is marked, and no more.
            let around = (bits << 1 | bits >> 1) & !bits;
            let is_whole = self.unmarked & bits == bits && self.unmarked & around == 0;
            self.expect(is_whole && matches!(why, Why::Degraded | Why::Epoch), HOLE);
            self.unmarked &= !bits;
        }
        self.marked |= bits;
    }

    /// The entity is forgotten: whatever comes begins a new life.
    pub fn forget(&mut self) {
        let (is_degraded, faults) = (self.is_degraded, self.faults);
        *self = Judge { is_degraded, faults, ..Judge::default() };
    }
}
