//! What was sent lately, kept after its verdict.
//!
//! A verdict is not the end: a relay can lose a message that it confirmed, and a store
//! can forget what it had. Then the sidecar finds a gap and asks, and whoever still has
//! the events ends the gap by publishing them again. The oldest leave first.

use std::{collections::BTreeMap, sync::Arc};

use prost::Message;

use crate::grpc::pb;

pub struct Ring {
    events_max: usize,
    bytes_max: usize,
    bytes: usize,
    next_age: u64,
    by_age: BTreeMap<u64, Kept>,
    /// By entity, epoch and sequence, as a `Resend` asks for them.
    by_place: BTreeMap<Place, u64>,
}

type Place = (String, u64, u64);

struct Kept {
    event: Arc<pb::Event>,
    bytes: usize,
}

impl Ring {
    pub fn new(events_max: usize, bytes_max: usize) -> Self {
        Ring {
            events_max,
            bytes_max,
            bytes: 0,
            next_age: 0,
            by_age: BTreeMap::new(),
            by_place: BTreeMap::new(),
        }
    }

    /// Keeps an event, unless one with its number is kept already: what came first is what
    /// the lane has. An event without a sequence cannot be asked for; one larger than the
    /// ring would only drive the others out.
    pub fn put(&mut self, event: Arc<pb::Event>) {
        let bytes = event.encoded_len();
        let Some(place) = place(&event) else { return };
        if self.events_max == 0 || bytes > self.bytes_max || self.by_place.contains_key(&place) {
            return;
        }
        while self.by_age.len() >= self.events_max || self.bytes + bytes > self.bytes_max {
            let oldest = self.by_age.first_key_value().map(|(age, _)| *age);
            self.remove(oldest.expect("something takes the room that is missing"));
        }
        self.bytes += bytes;
        self.by_place.insert(place, self.next_age);
        self.by_age.insert(self.next_age, Kept { event, bytes });
        self.next_age += 1;
    }

    /// Forgets this very event: it got a verdict that says it will never be in a lane.
    pub fn forget(&mut self, event: &Arc<pb::Event>) {
        let age = place(event).and_then(|place| self.by_place.get(&place).copied());
        if let Some(age) = age.filter(|age| Arc::ptr_eq(&self.by_age[age].event, event)) {
            self.remove(age);
        }
    }

    /// The events that are asked for, from the lowest sequence on, at most `most`.
    pub fn asked(&self, ask: &pb::Resend, most: usize) -> Vec<Arc<pb::Event>> {
        if ask.from > ask.to {
            return Vec::new();
        }
        let at = |sequence| (ask.entity.clone(), ask.epoch, sequence);
        let ages = self.by_place.range(at(ask.from)..=at(ask.to)).take(most);
        ages.map(|(_, age)| self.by_age[age].event.clone()).collect()
    }

    fn remove(&mut self, age: u64) {
        let Kept { event, bytes } = self.by_age.remove(&age).expect("both maps have it");
        self.bytes -= bytes;
        self.by_place.remove(&place(&event).expect("only numbered events are kept"));
    }
}

fn place(event: &pb::Event) -> Option<Place> {
    Some((event.entity.clone(), event.epoch, event.sequence?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(entity: &str, epoch: u64, sequence: u64) -> Arc<pb::Event> {
        let data = vec![b'x'; 100].into();
        Arc::new(pb::Event {
            entity: entity.into(),
            epoch,
            sequence: Some(sequence),
            data,
            ..Default::default()
        })
    }

    fn ask(entity: &str, epoch: u64, from: u64, to: u64) -> pb::Resend {
        pb::Resend { topic: "jobs".into(), entity: entity.into(), epoch, from, to }
    }

    fn sequences(ring: &Ring, ask: &pb::Resend) -> Vec<u64> {
        ring.asked(ask, usize::MAX).iter().map(|event| event.sequence()).collect()
    }

    fn filled(events_max: usize, bytes_max: usize, events: &[Arc<pb::Event>]) -> Ring {
        let mut ring = Ring::new(events_max, bytes_max);
        events.iter().for_each(|event| ring.put(event.clone()));
        assert_eq!(ring.by_age.len(), ring.by_place.len());
        assert_eq!(ring.bytes, ring.by_age.values().map(|kept| kept.event.encoded_len()).sum::<usize>());
        ring
    }

    #[test]
    fn what_is_asked_for_comes_in_order_and_nothing_else() {
        let ring = filled(
            100,
            1 << 20,
            &[event("a", 0, 3), event("a", 0, 1), event("b", 0, 2), event("a", 1, 2), event("a", 0, 9)],
        );
        assert_eq!(sequences(&ring, &ask("a", 0, 0, 8)), [1, 3]);
        assert_eq!(sequences(&ring, &ask("a", 0, 3, 3)), [3]);
        assert_eq!(sequences(&ring, &ask("a", 1, 0, u64::MAX)), [2]);
        assert_eq!(sequences(&ring, &ask("aa", 0, 0, 9)), [0; 0]);
        assert_eq!(sequences(&ring, &ask("a", 2, 0, 9)), [0; 0]);
        assert_eq!(ring.asked(&ask("a", 0, 0, 9), 2).len(), 2, "no more than was allowed");
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_empty() {
        assert_eq!(sequences(&filled(9, 1 << 20, &[event("a", 0, 5)]), &ask("a", 0, 9, 1)), [0; 0]);
    }

    #[test]
    fn the_oldest_leave_when_there_are_too_many() {
        let events: Vec<_> = (0..10).map(|sequence| event("a", 0, sequence)).collect();
        assert_eq!(sequences(&filled(3, 1 << 20, &events), &ask("a", 0, 0, 9)), [7, 8, 9]);
        assert_eq!(sequences(&filled(0, 1 << 20, &events), &ask("a", 0, 0, 9)), [0; 0]);
    }

    #[test]
    fn the_oldest_leave_when_they_are_too_large() {
        let events: Vec<_> = (0..10).map(|sequence| event("a", 0, sequence)).collect();
        let bytes_max = 4 * events[9].encoded_len();
        assert_eq!(sequences(&filled(100, bytes_max, &events), &ask("a", 0, 0, 9)), [6, 7, 8, 9]);
    }

    #[test]
    fn one_larger_than_the_ring_drives_nothing_out() {
        let mut ring = filled(100, 1000, &[event("a", 0, 0)]);
        let large = pb::Event { data: vec![0; 1000].into(), ..(*event("a", 0, 1)).clone() };
        ring.put(Arc::new(large));
        assert_eq!(sequences(&ring, &ask("a", 0, 0, 9)), [0]);
    }

    #[test]
    fn one_without_a_sequence_is_not_kept() {
        let unnumbered = pb::Event { sequence: None, ..(*event("a", 0, 0)).clone() };
        assert!(filled(9, 1 << 20, &[Arc::new(unnumbered)]).by_age.is_empty());
    }

    #[test]
    fn of_two_with_one_number_the_first_stays() {
        let (first, second) = (event("a", 0, 0), event("a", 0, 0));
        let mut ring = filled(9, 1 << 20, &[first.clone(), second.clone()]);
        ring.forget(&second);
        assert!(Arc::ptr_eq(&ring.asked(&ask("a", 0, 0, 0), 1)[0], &first));
        ring.forget(&first);
        ring.put(second.clone());
        assert!(Arc::ptr_eq(&ring.asked(&ask("a", 0, 0, 0), 1)[0], &second));
        assert_eq!((ring.by_age.len(), ring.bytes), (1, second.encoded_len()));
    }
}
