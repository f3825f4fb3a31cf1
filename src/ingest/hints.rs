//! What a partition's task believes of its lanes: enough to tell which events are likely to be in their turn.
//!
//! A store has a cheap way for those, and one event among them that is not in its turn spoils it for all. So the task
//! remembers of some entities, from the verdicts that it saw, what comes next and what is parked behind that. Nothing
//! depends on it: other sidecars, time and people move lanes, too, and a table of fixed size forgets. A hint that is
//! wrong costs an event the dearer way; no verdict ever comes from here.

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    order::{Epoch, Position, Sequence, Verdict},
    store::{Guess, LaneOffers, Offer},
};

/// How many sets of hints a topic's partitions have together, and hints in a set: 1 MiB a topic, once events come.
const SETS_OF_TOPIC: usize = 8_192;
const HINTS_OF_SET: usize = 8;

/// Events of unknown entities that were in their turn before the next such event is expected to be.
const TRUST_MIN: u32 = 64;

/// What is further ahead may as well be behind.
const AHEAD_MAX: u32 = 1 << 31;

pub struct Hints {
    /// The sequence with which entities begin.
    first: Sequence,
    /// So many sets there are, once there is something to be remembered.
    sets_max: usize,
    /// Each with the hint that was learned from last in front.
    sets: Vec<[Hint; HINTS_OF_SET]>,
    /// How many events in a row were in their turn that were not their entity's first, and of which no hint was there.
    trust: u32,
}

/// Of one entity. Numbers are cut off: a hint may be wrong anyway.
#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    /// A part of the entity's hash; 0 where there is none.
    tag: u32,
    epoch: u32,
    next: u32,
    /// What is parked: a bit for each sequence, from the one behind next on.
    parked: u32,
}

impl Hint {
    /// What becomes of so many events of one epoch, if they are from this one on.
    fn guess(&self, epoch: Epoch, sequence: Sequence, events: usize) -> Guess {
        let ahead = (sequence.get() as u32).wrapping_sub(self.next);
        if self.epoch != epoch.get() as u32 {
            return Guess::Unclear;
        }
        let is_parked =
            ahead.checked_sub(1).and_then(|bit| self.parked.checked_shr(bit)).unwrap_or(0) & 1 == 1;
        match (ahead, self.parked) {
            (0, 0) => Guess::InTurn,
            // What is cut off may be larger.
            (1..AHEAD_MAX, 0) if events == 1 && sequence.get() < AHEAD_MAX.into() => {
                let next = Sequence::new(self.next.into()).expect("it is smaller than a sequence");
                Guess::Ahead { next }
            }
            (0..AHEAD_MAX, 1..) if events == 1 && !is_parked => Guess::Waits,
            _ => Guess::Unclear,
        }
    }

    /// This is next, whatever was believed.
    fn move_to(&mut self, sequence: Sequence) {
        let (next, before) = (sequence.get() as u32, self.next);
        self.parked = match next.wrapping_sub(before) {
            ahead @ ..AHEAD_MAX => self.parked.checked_shr(ahead),
            behind => self.parked.checked_shl(behind.wrapping_neg()),
        }
        .unwrap_or(0);
        self.next = next;
    }

    /// Next was released, and with it what is parked directly behind it.
    fn advance(&mut self) {
        let run = self.parked.trailing_ones();
        self.next = self.next.wrapping_add(1 + run);
        self.parked = self.parked.checked_shr(1 + run).unwrap_or(0);
    }

    /// What is too far ahead is taken to be as far as can be told.
    fn park(&mut self, sequence: Sequence) {
        let ahead = (sequence.get() as u32).wrapping_sub(self.next);
        self.parked |= ahead.checked_sub(1).map_or(0, |bit| 1_u32 << bit.min(u32::BITS - 1));
    }
}

impl Hints {
    /// Of one of so many partitions.
    pub fn new(first: Sequence, partitions: u32) -> Self {
        let sets_max = (SETS_OF_TOPIC / partitions.max(1) as usize).max(1);
        Hints { first, sets_max, sets: Vec::new(), trust: TRUST_MIN }
    }

    /// What is likely to become of these, all of one entity? If nothing is known of it: the first is in its turn, and so
    /// is any other if such ones were lately. Where more entities are alive than fit in here, or in a sidecar that has
    /// just begun, they are; where entities begin with what comes too early they do that.
    pub fn guess(&self, lane: LaneOffers<'_>) -> Guess {
        let Some((epoch, first)) = run(lane) else { return Guess::Unclear };
        let (set, tag) = self.place_of(&lane[0]);
        let hint = self.sets.get(set).and_then(|set| set.iter().find(|hint| hint.tag == tag));
        match hint {
            Some(hint) => hint.guess(epoch, first, lane.len()),
            None if first == self.first || self.trust >= TRUST_MIN => Guess::InTurn,
            None if lane.len() == 1 => Guess::Begins,
            None => Guess::Unclear,
        }
    }

    /// What became of an event.
    pub fn learn(&mut self, offer: &Offer, verdict: Verdict) {
        let Position::Given(sequence) = offer.event.position else { return };
        match verdict {
            Verdict::Released { .. } => {
                let hint = self.hint(offer, sequence, sequence.get(), true);
                hint.move_to(sequence);
                hint.advance();
            }
            // Of an entity that is not known most likely nothing has come.
            Verdict::Parked { .. } => self.hint(offer, sequence, self.first.get(), false).park(sequence),
            Verdict::Passed { .. }
            | Verdict::Duplicate { .. }
            | Verdict::Retired { .. }
            | Verdict::Late { .. }
            | Verdict::Conflict
            | Verdict::Stale { .. }
            | Verdict::Refused(_)
            | Verdict::Again => {}
        }
    }

    /// The entity's in this epoch; or a new one that says `next`, in place of the one that was not learned from for
    /// longest.
    fn hint(&mut self, offer: &Offer, sequence: Sequence, next: u64, is_in_turn: bool) -> &mut Hint {
        if self.sets.is_empty() {
            self.sets.resize(self.sets_max, Default::default());
        }
        let ((set, tag), epoch) = (self.place_of(offer), offer.event.epoch.get() as u32);
        let set = &mut self.sets[set];
        let known = set.iter().position(|hint| hint.tag == tag);
        set[..=known.unwrap_or(HINTS_OF_SET - 1)].rotate_right(1);
        if known.is_none() && sequence != self.first {
            self.trust = if is_in_turn { self.trust.saturating_add(1) } else { 0 };
        }
        if known.is_none() || set[0].epoch != epoch {
            set[0] = Hint { tag, epoch, next: next as u32, parked: 0 };
        }
        &mut set[0]
    }

    /// Its set, and its tag in there. (The lowest bits say in which partition it is.)
    fn place_of(&self, offer: &Offer) -> (usize, u32) {
        let hash = xxh3_64(offer.entity.as_str().as_bytes());
        ((hash >> 48) as usize % self.sets_max, ((hash >> 16) as u32).max(1))
    }
}

/// Where they begin, if they follow each other without a hole.
fn run(lane: LaneOffers<'_>) -> Option<(Epoch, Sequence)> {
    let place = |offer: &Offer| match offer.event.position {
        Position::Given(sequence) => Some((offer.event.epoch, sequence)),
        Position::Assigned { .. } => None,
    };
    let first = place(&lane[0])?;
    let mut next = first;
    for offer in lane {
        if place(offer) != Some(next) {
            return None;
        }
        next.1 = next.1.after();
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        order::{Entity, Event, Refusal},
        store::Payload,
    };

    fn offer(entity: &str, epoch: u64, sequence: u64) -> Offer {
        let payload = Payload { kind: "t".into(), attrs: "{}".into(), data: Default::default() };
        let position = Position::Given(Sequence::new(sequence).unwrap());
        let epoch = Epoch::new(epoch).unwrap();
        let event = Event { epoch, position, terminal: false, payload };
        Offer { entity: Entity::new(entity).unwrap(), event }
    }

    fn released(sequence: u64) -> Verdict {
        Verdict::Released { sequence: Sequence::new(sequence).unwrap() }
    }

    const PARKED: Verdict = Verdict::Parked { depth: 1 };

    fn ahead_of(next: u64) -> Guess {
        Guess::Ahead { next: Sequence::new(next).unwrap() }
    }

    fn hints() -> Hints {
        Hints::new(Sequence::new(0).unwrap(), 16)
    }

    /// Which of the sequences 0 to 9 are expected of the entity.
    fn expected(hints: &Hints, entity: &str, epoch: u64) -> Vec<u64> {
        guessed(hints, entity, epoch, Guess::InTurn)
    }

    /// Of which of the sequences 0 to 9 this is guessed.
    fn guessed(hints: &Hints, entity: &str, epoch: u64, guess: Guess) -> Vec<u64> {
        (0..10).filter(|sequence| hints.guess(&[offer(entity, epoch, *sequence)]) == guess).collect()
    }

    #[test]
    fn whoever_is_unknown_is_expected_and_then_only_what_is_next() {
        let mut hints = hints();
        assert_eq!(expected(&hints, "a", 0).len(), 10);
        hints.learn(&offer("a", 0, 4), released(4));
        assert_eq!(expected(&hints, "a", 0), [5]);
        assert_eq!(expected(&hints, "a", 1), [0_u64; 0], "a new epoch has to be begun");
        assert_eq!(expected(&hints, "b", 0).len(), 10);
    }

    #[test]
    fn what_was_parked_goes_with_what_was_missing() {
        let mut hints = hints();
        hints.learn(&offer("a", 0, 1), released(1));
        assert_eq!(guessed(&hints, "a", 0, ahead_of(2)), [3, 4, 5, 6, 7, 8, 9]);
        for ahead in [4, 3, 6] {
            hints.learn(&offer("a", 0, ahead), PARKED);
            assert_eq!(expected(&hints, "a", 0), [0_u64; 0], "what fills a gap is not all that is released");
        }
        assert_eq!(guessed(&hints, "a", 0, Guess::Waits), [2, 5, 7, 8, 9]);
        assert_eq!(guessed(&hints, "a", 0, Guess::Unclear), [0, 1, 3, 4, 6], "it was there before");
        hints.learn(&offer("a", 0, 2), released(2));
        assert_eq!(expected(&hints, "a", 0), [0_u64; 0]);
        hints.learn(&offer("a", 0, 5), released(5));
        assert_eq!(expected(&hints, "a", 0), [7]);
    }

    #[test]
    fn an_unknown_entity_that_waits_is_taken_to_have_begun_with_that() {
        let mut hints = hints();
        hints.learn(&offer("a", 2, 5), PARKED);
        // It had not.
        hints.learn(&offer("a", 2, 3), released(3));
        assert_eq!(guessed(&hints, "a", 2, Guess::Waits), [4, 6, 7, 8, 9]);
        hints.learn(&offer("a", 2, 4), released(4));
        assert_eq!(expected(&hints, "a", 2), [6]);
        // It was behind that: somebody has begun it anew.
        hints.learn(&offer("a", 2, 8), PARKED);
        hints.learn(&offer("a", 2, 5), released(5));
        assert_eq!(guessed(&hints, "a", 2, Guess::Waits), [6, 7, 9]);
        hints.learn(&offer("a", 2, 7), released(7));
        assert_eq!(expected(&hints, "a", 2), [9]);
    }

    #[test]
    fn unknown_entities_are_trusted_until_one_of_them_was_not_in_turn() {
        let mut hints = hints();
        hints.learn(&offer("a", 0, 3), PARKED);
        assert_eq!(expected(&hints, "b", 0), [0]);
        for n in 0..u64::from(TRUST_MIN) {
            assert_eq!(expected(&hints, "b", 0), [0]);
            hints.learn(&offer(&n.to_string(), 0, 5), released(5));
            // What is known, or begins, says nothing about what is not known.
            hints.learn(&offer(&n.to_string(), 0, 7), PARKED);
            hints.learn(&offer(&format!("other {n}"), 0, 0), released(0));
        }
        assert_eq!(expected(&hints, "b", 0).len(), 10);
    }

    #[test]
    fn what_others_did_is_learned_from_what_follows() {
        let mut hints = hints();
        hints.learn(&offer("a", 0, 1), released(1));
        hints.learn(&offer("a", 0, 4), PARKED);
        // Somebody has skipped 2 and 3.
        hints.learn(&offer("a", 0, 7), released(7));
        assert_eq!(expected(&hints, "a", 0), [8]);
        for verdict in [Verdict::Conflict, Verdict::Again, Verdict::Refused(Refusal::AheadMax)] {
            hints.learn(&offer("a", 0, 9), verdict);
        }
        assert_eq!(expected(&hints, "a", 0), [8]);
        hints.learn(&offer("a", 3, 0), released(0));
        assert_eq!(expected(&hints, "a", 3), [1]);
    }

    #[test]
    fn a_run_is_expected_as_a_whole() {
        let mut hints = hints();
        hints.learn(&offer("a", 0, 1), released(1));
        let lane = |sequences: &[u64]| sequences.iter().map(|s| offer("a", 0, *s)).collect::<Vec<_>>();
        assert_eq!(hints.guess(&lane(&[2, 3, 4])), Guess::InTurn);
        assert_eq!(hints.guess(&lane(&[2, 4])), Guess::Unclear);
        assert_eq!(hints.guess(&lane(&[2, 2])), Guess::Unclear, "one of them is a duplicate");
        assert_eq!(hints.guess(&lane(&[3])), ahead_of(2));
        assert_eq!(hints.guess(&lane(&[3, 4])), Guess::Unclear);
        hints.learn(&offer("a", 0, 3), PARKED);
        assert_eq!(hints.guess(&lane(&[2])), Guess::Waits);
        assert_eq!(hints.guess(&lane(&[2, 3])), Guess::Unclear);
    }

    #[test]
    fn far_ahead_is_as_far_as_a_hint_can_tell() {
        for sequence in [37, 38, 1_000_000] {
            let mut hint = Hint { next: 5, ..Hint::default() };
            hint.park(Sequence::new(5).unwrap());
            assert_eq!(hint.parked, 0);
            hint.park(Sequence::new(sequence).unwrap());
            assert_eq!(hint.parked, 1 << 31);
        }
        let mut hint = Hint { next: 5, ..Hint::default() };
        hint.parked = u32::MAX;
        hint.advance();
        assert_eq!((hint.next, hint.parked), (5 + 33, 0));
    }

    #[test]
    fn many_entities_are_remembered_and_not_more() {
        let mut hints = hints();
        let places = hints.sets_max * HINTS_OF_SET;
        let is_known = |hints: &Hints, n: usize| hints.guess(&[offer(&n.to_string(), 0, 9)]) != Guess::InTurn;
        for n in 0..places / 2 {
            hints.learn(&offer(&n.to_string(), 0, 0), released(0));
        }
        let known = (0..places / 2).filter(|n| is_known(&hints, *n)).count();
        assert!(known * 100 >= places / 2 * 95, "{known} of {}", places / 2);
        for n in places..9 * places {
            hints.learn(&offer(&n.to_string(), 0, 0), released(0));
        }
        assert!((0..places / 2).all(|n| !is_known(&hints, n)), "the oldest have made room");
    }
}
