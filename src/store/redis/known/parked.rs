//! Events that this store has parked, so that they need not be read when their turn comes. The oldest make room.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;

use crate::{
    order::{Entity, Epoch, Position, Sequence},
    store::Offer,
};

/// How much the partitions of a topic keep together, where so much is parked.
const BYTES_OF_TOPIC: usize = 16 << 20;

type Name = (Entity, Epoch, Sequence);

pub struct Parked {
    events: HashMap<Name, Offer>,
    /// As they came; some are not here any more.
    order: VecDeque<Name>,
    bytes: usize,
    bytes_max: usize,
}

impl Parked {
    /// Of one of so many partitions.
    pub fn new(partitions: u32) -> Self {
        let bytes_max = BYTES_OF_TOPIC / partitions.max(1) as usize;
        Parked { events: HashMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub fn add(&mut self, offer: &Offer) {
        let Position::Given(sequence) = offer.event.position else { return };
        if offer.size() > self.bytes_max {
            return;
        }
        let name = (offer.entity.clone(), offer.event.epoch, sequence);
        let mut kept = offer.clone();
        // As it came it would keep all that was read with it from the connection.
        kept.event.payload.data = Bytes::copy_from_slice(&offer.event.payload.data);
        self.bytes += kept.size();
        match self.events.insert(name.clone(), kept) {
            Some(before) => self.bytes -= before.size(),
            None => self.order.push_back(name),
        }
        if self.order.len() > 2 * self.events.len() {
            self.order.retain(|name| self.events.contains_key(name));
        }
        while self.bytes > self.bytes_max {
            let oldest = self.order.pop_front().expect("what is here has a place in the order");
            self.remove(&oldest);
        }
    }

    pub fn take_behind(&mut self, offer: &Offer, run: u64) -> Option<Vec<Offer>> {
        let Position::Given(sequence) = offer.event.position else { return None };
        let mut name = (offer.entity.clone(), offer.event.epoch, sequence);
        let mut names = Vec::new();
        for _ in 0..run {
            name.2 = name.2.after();
            if !self.events.contains_key(&name) {
                return None;
            }
            names.push(name.clone());
        }
        Some(names.iter().filter_map(|name| self.remove(name)).collect())
    }

    pub fn clear(&mut self) {
        (self.events, self.order, self.bytes) = Default::default();
    }

    fn remove(&mut self, name: &Name) -> Option<Offer> {
        let removed = self.events.remove(name)?;
        self.bytes -= removed.size();
        Some(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::offer, *};

    fn behind(parked: &mut Parked, entity: &str, sequence: u64, run: u64) -> Option<Vec<String>> {
        let taken = parked.take_behind(&offer(entity, sequence, ""), run)?;
        let data = |offer: &Offer| String::from_utf8(offer.event.payload.data.to_vec()).unwrap();
        Some(taken.iter().map(data).collect())
    }

    #[test]
    fn a_run_is_taken_whole_or_not_at_all_and_once() {
        let mut parked = Parked::new(1);
        for (sequence, data) in [(5, "five"), (4, "four"), (7, "seven")] {
            parked.add(&offer("a", sequence, data));
        }
        assert_eq!(behind(&mut parked, "a", 3, 3), None);
        assert_eq!(behind(&mut parked, "b", 3, 1), None);
        assert_eq!(behind(&mut parked, "a", 3, 2).unwrap(), ["four", "five"]);
        assert_eq!(behind(&mut parked, "a", 3, 2), None);
        assert_eq!(behind(&mut parked, "a", 6, 1).unwrap(), ["seven"]);
        assert_eq!((parked.bytes, parked.events.len()), (0, 0));
    }

    #[test]
    fn the_oldest_make_room_and_what_was_taken_takes_none() {
        let mut parked = Parked::new(1);
        let data = "x".repeat(BYTES_OF_TOPIC / 8);
        for sequence in 1..20 {
            parked.add(&offer("a", sequence, &data));
            parked.add(&offer("a", sequence, &data));
        }
        assert!(parked.bytes <= parked.bytes_max && parked.events.len() == 7, "{}", parked.events.len());
        assert_eq!(behind(&mut parked, "a", 11, 1), None);
        assert_eq!(behind(&mut parked, "a", 12, 7).unwrap().len(), 7);
        for round in 0..10_000 {
            parked.add(&offer("a", round + 1, ""));
            assert!(behind(&mut parked, "a", round, 1).is_some());
        }
        assert!(parked.order.len() <= 2, "{}", parked.order.len());
        parked.add(&offer("a", 1, &"x".repeat(BYTES_OF_TOPIC)));
        assert!(parked.events.is_empty(), "too large to be kept");
    }
}
