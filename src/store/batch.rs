//! Events on their way into one partition, in the order in which they are decided.

use std::collections::HashMap;

use super::record::Payload;
use crate::order::{Entity, Event, Position};

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
/// Entities whose turn seems to have come are in front of the others: a store may have a
/// cheaper way for those. What seems so need not be so.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    offers: Vec<Offer>,
    /// So many of them are likely to be in their turn.
    likely: usize,
}

/// The offers of one entity.
pub type LaneOffers<'a> = &'a [Offer];

impl Batch {
    /// Forms a batch from offers in arrival order; what came with each offer is
    /// returned in the order of the batch.
    pub fn form<T>(arrived: Vec<(Offer, T)>) -> (Batch, Vec<T>) {
        Batch::form_by(arrived, |_| true)
    }

    /// The same, by whether an entity's offers are likely to be in their turn.
    pub fn form_by<T>(
        arrived: Vec<(Offer, T)>,
        is_likely: impl Fn(LaneOffers<'_>) -> bool,
    ) -> (Batch, Vec<T>) {
        let mut ranks: HashMap<&Entity, usize> = HashMap::with_capacity(arrived.len());
        let keys = arrived.iter().map(|(Offer { entity, event }, _)| {
            let fresh = ranks.len();
            let rank = *ranks.entry(entity).or_insert(fresh);
            let sequence = match event.position {
                Position::Given(sequence) => sequence.get(),
                Position::Assigned { .. } => 0,
            };
            (rank, event.epoch, sequence)
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
        Batch::likely_first(offers, companions, is_likely)
    }

    fn likely_first<T>(
        offers: Vec<Offer>,
        companions: Vec<T>,
        is_likely: impl Fn(LaneOffers<'_>) -> bool,
    ) -> (Batch, Vec<T>) {
        let mut unlikely = Vec::with_capacity(offers.len());
        for lane in lanes(&offers) {
            unlikely.resize(unlikely.len() + lane.len(), !is_likely(lane));
        }
        let likely = unlikely.iter().filter(|unlikely| !**unlikely).count();
        if unlikely.is_sorted() {
            return (Batch { offers, likely }, companions);
        }
        let mut keyed: Vec<_> = unlikely.into_iter().zip(offers.into_iter().zip(companions)).collect();
        keyed.sort_by_key(|(unlikely, _)| *unlikely);
        let (offers, companions) = keyed.into_iter().map(|(_, arrived)| arrived).unzip();
        (Batch { offers, likely }, companions)
    }

    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Those that are likely to be in their turn, and the others.
    pub fn parts(&self) -> (&[Offer], &[Offer]) {
        self.offers.split_at(self.likely)
    }

    pub fn into_offers(self) -> Vec<Offer> {
        self.offers
    }

    pub fn is_empty(&self) -> bool {
        self.offers.is_empty()
    }
}

/// The offers of each entity in turn.
pub fn lanes(offers: &[Offer]) -> impl Iterator<Item = LaneOffers<'_>> {
    offers.chunk_by(|a, b| a.entity == b.entity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Epoch, Sequence};

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
    fn who_is_likely_to_be_in_turn_comes_first() {
        let arrived = [("b", 0, 2), ("a", 0, 0), ("b", 0, 1), ("c", 0, 5), ("a", 0, 1)];
        let offers = arrived.iter().enumerate().map(|(i, (e, epoch, s))| (offer(e, *epoch, *s), i)).collect();
        let (batch, companions) = Batch::form_by(offers, |lane| lane[0].entity.as_str() != "b");
        assert_eq!(companions, [1, 4, 3, 2, 0]);
        let (likely, others) = batch.parts();
        assert_eq!((likely.len(), others.len()), (3, 2));
    }
}
