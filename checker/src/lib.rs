//! Judges a run from what was written down: what producers were told, what stands in the
//! streams, what handlers were given.
//!
//! It shares no code with what it judges, and knows none of its inner states. A simulation
//! fills the evidence from memory, a test with real processes from journals.

mod sinks;
mod streams;

use std::{collections::BTreeSet, fmt, sync::Arc};

/// All that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub sent: Vec<Sent>,
    /// What was ever appended, each stream in its order.
    pub entries: Vec<Entry>,
    /// Runs of handlers, in the order in which they started.
    pub runs: Vec<Run>,
    /// What is not at rest although all should be: one sentence each.
    pub leftovers: Vec<String>,
}

/// What the run was promised.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// With which every epoch begins.
    pub first_sequence: u64,
    /// All work is done: whatever was accepted must have arrived.
    pub is_final: bool,
    /// There were workers: whatever is in the streams must have been handled.
    pub has_workers: bool,
    /// Workers were suspended: one that starts something under a term that is over is
    /// forgiven, unless its ack was taken.
    pub suspended: bool,
    /// A gap that was waited for may not be given up sooner than this after something behind
    /// it was first sent.
    pub gap_wait_min: u64,
    /// Entities of which a person gave something up: of these nothing counts as unhandled.
    pub given_up: BTreeSet<Arc<str>>,
}

/// An event is named by entity, epoch and sequence.
pub type Name = (Arc<str>, u64, u64);

/// One event that a producer sent, and the last that it heard of it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub name: Name,
    pub payload: u64,
    /// When it was first sent.
    pub at: u64,
    pub fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is or will be in a stream, as this one said at that time.
    Accepted { at: u64 },
    /// An event of this name is or will be in a stream, perhaps another one.
    Known,
    /// It is in no stream because of this sending.
    Rejected,
    /// Nobody answered.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Events,
    Late,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    Strict,
    Passed,
    Late,
    Replay,
    /// Nothing comes for `from..=sequence`.
    Gap,
    /// The entity's epoch begins.
    Epoch,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub stream: Stream,
    pub at: u64,
    pub name: Name,
    pub order: Order,
    /// Of a gap: the first that it covers.
    pub from: u64,
    /// Of a gap: it was given up because nothing came in time.
    pub is_time_out: bool,
    pub payload: u64,
}

/// One run of a handler.
#[derive(Clone, Debug)]
pub struct Run {
    /// One process: one that is started again is another.
    pub worker: u32,
    pub partition: u32,
    pub term: u64,
    pub name: Name,
    pub from: u64,
    pub order: Order,
    /// The entry, where there is one.
    pub entry: Option<(u64, u64)>,
    pub payload: u64,
    /// Places in the order of all that happened.
    pub started: u64,
    pub done: Option<u64>,
    pub is_nacked: bool,
    /// What its answer came to, as far as it was heard.
    pub answer: Option<Answer>,
    /// Its process was killed, at this place.
    pub killed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Stored,
    Fenced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wrong {
    /// What was accepted is in no stream, or what is in the stream was not handled.
    Lost,
    /// It is there twice, or was handled again after its ack.
    Duplicated,
    /// After one that comes later.
    Reordered,
    /// A sequence is passed over, and nothing says so.
    UnmarkedGap,
    /// Given up although it was there, or too soon.
    FalseGap,
    /// Nobody sent it.
    Invented,
    /// Something waits though nothing can come any more.
    Stuck,
    /// Two handlers of one entity at once.
    Overlap,
    /// An ack was taken under a term that was over.
    FencedAck,
}

#[derive(Clone, Debug)]
pub struct Violation {
    pub wrong: Wrong,
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.wrong, self.what)
    }
}

#[derive(Default)]
struct Found(Vec<Violation>);

impl Found {
    fn add(&mut self, wrong: Wrong, what: impl Into<String>) {
        self.0.push(Violation { wrong, what: what.into() });
    }
}

/// Everything that is wrong; nothing if all is well.
pub fn judge(evidence: &Evidence, rules: &Rules) -> Vec<Violation> {
    let mut found = Found::default();
    streams::judge(evidence, rules, &mut found);
    if rules.has_workers {
        sinks::judge(evidence, rules, &mut found);
    }
    if rules.is_final {
        evidence.leftovers.iter().for_each(|what| found.add(Wrong::Stuck, what.as_str()));
    }
    found.0
}

fn shown((entity, epoch, sequence): &Name) -> String {
    format!("{entity} epoch {epoch} sequence {sequence}")
}

#[cfg(test)]
mod tests;
