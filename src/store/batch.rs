//! Events on their way into one partition, in the order in which they are decided.

use xxhash_rust::xxh3::xxh3_64;

use super::record::Payload;
use crate::order::{Entity, Event, Position, Sequence};

/// One event of one entity.
#[derive(Clone, Debug)]
pub struct Offer {
    pub entity: Entity,
    pub event: Event<Payload>,
}

impl Offer {
    /// What its entity, payload and bookkeeping weigh in a batch.
    pub fn size(&self) -> usize {
        const OVERHEAD: usize = 128;
        let Payload { kind, attrs, data } = &self.event.payload;
        self.entity.as_str().len() + kind.len() + attrs.len() + data.len() + OVERHEAD
    }
}

/// Offers grouped by entity; within an entity by epoch, then sequence, then arrival.
///
/// Sorting changes nothing that the rules promise (events of one epoch commute) and
/// lets an entity's run be released without being parked first. It is also what the
/// fast path needs: one predicted state before and after each lane.
///
/// Entities whose turn seems to have come are in front, then those of which something else is
/// guessed: a store may have a cheaper way for both. What seems so need not be so.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    offers: Vec<Offer>,
    /// So many of them are likely to be in their turn.
    likely: usize,
    /// Of the others, a guess for each entity.
    guesses: Vec<Guess>,
}

/// What is likely to become of an entity's offers. Nothing depends on it but what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// They are released, and nothing else is.
    InTurn,
    /// It is parked, as the first of its lane, in which this comes next.
    Ahead {
        next: Sequence,
    },
    /// It is parked, and nothing of its entity has come before.
    Begins,
    /// It is parked where others are, or is what those wait for.
    Waits,
    Unclear,
}

impl Guess {
    /// In which order a batch has them.
    fn rank(self) -> u8 {
        match self {
            Guess::InTurn => 0,
            Guess::Ahead { .. } | Guess::Begins | Guess::Waits => 1,
            Guess::Unclear => 2,
        }
    }
}

/// The offers of one entity.
pub type LaneOffers<'a> = &'a [Offer];

impl Batch {
    /// Forms a batch from offers in arrival order; what came with each offer is
    /// returned in the order of the batch.
    pub fn form<T>(arrived: Vec<(Offer, T)>) -> (Batch, Vec<T>) {
        Batch::form_by(arrived, |_| Guess::InTurn)
    }

    /// The same, by what is likely to become of an entity's offers.
    pub fn form_by<T>(arrived: Vec<(Offer, T)>, guess: impl Fn(LaneOffers<'_>) -> Guess) -> (Batch, Vec<T>) {
        let keys = arrived.iter().zip(firsts(&arrived)).map(|((Offer { event, .. }, _), first)| {
            let sequence = match event.position {
                Position::Given(sequence) => sequence.get(),
                Position::Assigned { .. } => 0,
            };
            (first, event.epoch, sequence)
        });
        let keys: Vec<_> = keys.collect();
        // As they came, where no entity has two: then nothing has to be moved.
        let (offers, companions) = if keys.is_sorted() {
            arrived.into_iter().unzip()
        } else {
            let mut keyed: Vec<_> = keys.into_iter().zip(arrived).collect();
            keyed.sort_by_key(|(key, _)| *key);
            keyed.into_iter().map(|(_, arrived)| arrived).unzip()
        };
        Batch::likely_first(offers, companions, guess)
    }

    fn likely_first<T>(
        offers: Vec<Offer>,
        companions: Vec<T>,
        guess: impl Fn(LaneOffers<'_>) -> Guess,
    ) -> (Batch, Vec<T>) {
        let (mut ranks, mut guesses) = (Vec::with_capacity(offers.len()), Vec::new());
        for lane in lanes(&offers) {
            let guess = guess(lane);
            ranks.resize(ranks.len() + lane.len(), guess.rank());
            if guess != Guess::InTurn {
                guesses.push(guess);
            }
        }
        guesses.sort_by_key(|guess| guess.rank());
        let likely = ranks.iter().filter(|rank| **rank == Guess::InTurn.rank()).count();
        if ranks.is_sorted() {
            return (Batch { offers, likely, guesses }, companions);
        }
        let mut keyed: Vec<_> = ranks.into_iter().zip(offers.into_iter().zip(companions)).collect();
        keyed.sort_by_key(|(rank, _)| *rank);
        let (offers, companions) = keyed.into_iter().map(|(_, arrived)| arrived).unzip();
        (Batch { offers, likely, guesses }, companions)
    }

    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Those that are likely to be in their turn, and the others.
    pub fn parts(&self) -> (&[Offer], &[Offer]) {
        self.offers.split_at(self.likely)
    }

    /// What is guessed of each entity of the others.
    pub fn guesses(&self) -> &[Guess] {
        &self.guesses
    }

    pub fn into_offers(self) -> Vec<Offer> {
        self.offers
    }

    pub fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }
}

/// For each offer, the first one of its entity. By a table of hashes without a key: whoever makes entities meet there
/// gains no more than the square of a batch.
fn firsts<T>(arrived: &[(Offer, T)]) -> Vec<usize> {
    const FREE: usize = usize::MAX;
    let mut slots = vec![FREE; (2 * arrived.len()).next_power_of_two()];
    let mask = slots.len() - 1;
    let entity = |at: usize| &arrived[at].0.entity;
    let first = |at: usize| {
        // The lowest bits say in which partition it is.
        let mut slot = (xxh3_64(entity(at).as_str().as_bytes()) >> 32) as usize & mask;
        while slots[slot] != FREE && entity(slots[slot]) != entity(at) {
            slot = (slot + 1) & mask;
        }
        if slots[slot] == FREE {
            slots[slot] = at;
        }
        slots[slot]
    };
    (0..arrived.len()).map(first).collect()
}

/// The offers of each entity in turn.
pub fn lanes(offers: &[Offer]) -> impl Iterator<Item = LaneOffers<'_>> {
    offers.chunk_by(|a, b| a.entity == b.entity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Epoch;

    fn offer(entity: &str, epoch: u64, sequence: u64) -> Offer {
        Offer {
            entity: Entity::new(entity).unwrap(),
            event: Event {
                epoch: Epoch::new(epoch).unwrap(),
                position: Position::Given(Sequence::new(sequence).unwrap()),
                terminal: false,
                payload: Payload { kind: "t".into(), attrs: "{}".into(), data: Default::default() },
            },
        }
    }

    #[test]
    fn entities_keep_their_arrival_and_their_events_are_sorted() {
        let arrived = [("b", 0, 2), ("a", 1, 0), ("b", 0, 1), ("a", 0, 9), ("b", 0, 1)];
        let offers = arrived.iter().enumerate().map(|(i, (e, epoch, s))| (offer(e, *epoch, *s), i)).collect();
        let (batch, companions) = Batch::form(offers);
        // The two b/0/1 stay in the order they came: the first one decides.
        assert_eq!(companions, [2, 4, 0, 3, 1]);
        assert_eq!(lanes(batch.offers()).map(<[_]>::len).collect::<Vec<_>>(), [3, 2]);
        assert_eq!(batch.parts().1.len(), 0);
    }

    #[test]
    fn who_is_likely_to_be_in_turn_comes_first_and_what_is_unclear_last() {
        let arrived =
            [("b", 0, 2), ("d", 0, 7), ("a", 0, 0), ("b", 0, 1), ("c", 0, 5), ("a", 0, 1), ("e", 0, 4)];
        let offers = arrived.iter().enumerate().map(|(i, (e, epoch, s))| (offer(e, *epoch, *s), i)).collect();
        let ahead = Guess::Ahead { next: Sequence::new(3).unwrap() };
        let (batch, companions) = Batch::form_by(offers, |lane| match lane[0].entity.as_str() {
            "b" => Guess::Unclear,
            "d" => ahead,
            "e" => Guess::Waits,
            _ => Guess::InTurn,
        });
        assert_eq!(companions, [2, 5, 4, 1, 6, 3, 0]);
        let (likely, others) = batch.parts();
        assert_eq!((likely.len(), others.len()), (3, 4));
        assert_eq!(batch.guesses(), [ahead, Guess::Waits, Guess::Unclear]);
    }
}
