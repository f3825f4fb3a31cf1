//! The events of one lane that wait for their turn.

use std::collections::BTreeMap;

use super::{identity::Sequence, lane::Payload, ranges::Ranges, state::ParkedSummary};

#[derive(Clone, Debug)]
pub(super) struct Waiting<P> {
    pub terminal: bool,
    pub payload: P,
}

#[derive(Clone, Debug)]
pub(super) struct Parked<P> {
    events: BTreeMap<Sequence, Waiting<P>>,
    bytes: u64,
    /// How many of them are terminal.
    terminals: u64,
}

impl<P> Default for Parked<P> {
    fn default() -> Self {
        Parked { events: BTreeMap::new(), bytes: 0, terminals: 0 }
    }
}

impl<P: Payload> Parked<P> {
    pub fn count(&self) -> u64 {
        self.events.len() as u64
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn terminals(&self) -> u64 {
        self.terminals
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn get(&self, sequence: Sequence) -> Option<&Waiting<P>> {
        self.events.get(&sequence)
    }

    pub fn lowest(&self) -> Option<Sequence> {
        self.events.first_key_value().map(|(sequence, _)| *sequence)
    }

    pub fn highest(&self) -> Option<Sequence> {
        self.events.last_key_value().map(|(sequence, _)| *sequence)
    }

    pub fn insert(&mut self, sequence: Sequence, waiting: Waiting<P>) {
        self.bytes += waiting.payload.size();
        self.terminals += u64::from(waiting.terminal);
        let before = self.events.insert(sequence, waiting);
        assert!(before.is_none(), "a parked sequence is compared, not replaced");
    }

    pub fn take(&mut self, sequence: Sequence) -> Option<Waiting<P>> {
        let waiting = self.events.remove(&sequence)?;
        self.bytes -= waiting.payload.size();
        self.terminals -= u64::from(waiting.terminal);
        Some(waiting)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Sequence, &Waiting<P>)> {
        self.events.iter().map(|(sequence, waiting)| (*sequence, waiting))
    }

    pub fn summary(&self) -> Option<ParkedSummary> {
        let sequences: Ranges = self.events.keys().copied().collect();
        (!self.is_empty()).then(|| ParkedSummary { count: self.count(), bytes: self.bytes, sequences })
    }
}
