//! When a partition takes nothing new, because its streams are as long as they may be.
//!
//! Looked at with the clock, not with every event: a batch that is in order asks for no
//! length, and a stream may therefore grow beyond its limit by what comes within a tick.

use super::{
    effects::Place,
    policy::{Policy, Retention},
    verdict::Refusal,
};

/// A full stream is full until it is below so many percent of its limit: or it would change
/// its mind with every entry that is trimmed.
const FULL_UNTIL_PERCENT: u64 = 95;

/// How many entries a partition's streams have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    pub events: u64,
    pub late: u64,
}

/// Which of a partition's streams are full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Full {
    pub events: bool,
    pub late: bool,
}

impl Full {
    pub(super) fn look(&mut self, lengths: Lengths, policy: &Policy) {
        let Retention { entries_max, late_max, .. } = policy.retention;
        self.events = is_full(self.events, lengths.events, entries_max);
        self.late = is_full(self.late, lengths.late, late_max);
    }

    /// Why nothing new may be written to this place. Where `events` is full nothing is
    /// taken at all: whatever is parked or late belongs there, sooner or later.
    pub(super) fn refusal(self, place: Place) -> Option<Refusal> {
        match place {
            _ if self.events => Some(Refusal::EntriesMax),
            Place::Late if self.late => Some(Refusal::LateMax),
            Place::Events | Place::Late => None,
        }
    }
}

fn is_full(was_full: bool, length: u64, limit: u64) -> bool {
    if was_full { length * 100 >= limit * FULL_UNTIL_PERCENT } else { length >= limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_at_the_limit_and_until_there_is_some_room() {
        assert!(!is_full(false, 99, 100) && is_full(false, 100, 100));
        assert!(is_full(true, 95, 100) && !is_full(true, 94, 100));
        assert!(is_full(true, 1, 1) && !is_full(true, 0, 1));
    }
}
