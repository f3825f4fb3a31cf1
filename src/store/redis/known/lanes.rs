//! Where lanes are, by a hash of their entity: a table that grows with them up to a bound, and forgets.

use xxhash_rust::xxh3::xxh3_128_with_seed;

use crate::order::{Epoch, Sequence};

/// How many lanes the partitions of a topic know together: 2 MiB, once there are so many.
const SLOTS_OF_TOPIC: usize = 131_072;
const SLOTS_FIRST: usize = 64;
/// A lane is in one of so many slots.
const NEAR: usize = 8;

pub struct Lanes {
    key: u64,
    slots: Vec<Slot>,
    used: usize,
    slots_max: usize,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Of the entity, under a key that nobody knows: what it says is relied on. 0 where there is none.
    tag: u64,
    epoch: u32,
    next: u32,
}

impl Lanes {
    /// Of one of so many partitions.
    pub fn new(key: u64, partitions: u32) -> Self {
        let slots_max = (SLOTS_OF_TOPIC / partitions.max(1) as usize).next_power_of_two().max(SLOTS_FIRST);
        Lanes { key, slots: Vec::new(), used: 0, slots_max }
    }

    pub fn get(&self, entity: &str) -> Option<(Epoch, Sequence)> {
        let slot = self.slots[self.find(self.place_of(entity)?)?];
        let known = "it was one when it was put here";
        Some((Epoch::new(slot.epoch.into()).expect(known), Sequence::new(slot.next.into()).expect(known)))
    }

    /// Numbers that are too large for a slot are not remembered.
    pub fn set(&mut self, entity: &str, epoch: Epoch, next: Sequence) {
        let (Ok(epoch), Ok(next)) = (u32::try_from(epoch.get()), u32::try_from(next.get())) else {
            return self.remove(entity);
        };
        if self.slots.is_empty() || (self.used * 2 > self.slots.len() && self.slots.len() < self.slots_max) {
            self.grow();
        }
        let (home, tag) = self.place_of(entity).expect("there are slots");
        let free = || self.near(home).find(|at| self.slots[*at].tag == 0);
        // Where all are taken, one that depends on nothing but chance makes room.
        let at =
            self.find((home, tag)).or_else(free).unwrap_or((home + tag as usize % NEAR) % self.slots.len());
        self.used += usize::from(self.slots[at].tag == 0);
        self.slots[at] = Slot { tag, epoch, next };
    }

    pub fn remove(&mut self, entity: &str) {
        if let Some(at) = self.place_of(entity).and_then(|place| self.find(place)) {
            self.slots[at] = Slot::default();
            self.used -= 1;
        }
    }

    pub fn clear(&mut self) {
        if self.used > 0 {
            self.slots.fill(Slot::default());
            self.used = 0;
        }
    }

    /// All is forgotten: a slot does not say where it would be in a larger table.
    fn grow(&mut self) {
        let slots = (2 * self.slots.len()).clamp(SLOTS_FIRST, self.slots_max);
        (self.slots, self.used) = (vec![Slot::default(); slots], 0);
    }

    fn find(&self, (home, tag): (usize, u64)) -> Option<usize> {
        self.near(home).find(|at| self.slots[*at].tag == tag)
    }

    fn near(&self, home: usize) -> impl Iterator<Item = usize> {
        let mask = self.slots.len() - 1;
        (home..home + NEAR).map(move |at| at & mask)
    }

    /// Where it begins to be looked for, and its tag; nothing if there are no slots.
    fn place_of(&self, entity: &str) -> Option<(usize, u64)> {
        let mask = self.slots.len().checked_sub(1)?;
        let hash = xxh3_128_with_seed(entity.as_bytes(), self.key);
        Some(((hash >> 64) as usize & mask, (hash as u64).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, next: u64) -> (Epoch, Sequence) {
        (Epoch::new(epoch).unwrap(), Sequence::new(next).unwrap())
    }

    fn put(lanes: &mut Lanes, entity: &str, (epoch, next): (Epoch, Sequence)) {
        lanes.set(entity, epoch, next);
    }

    #[test]
    fn the_last_place_is_known_until_it_is_removed() {
        let mut lanes = Lanes::new(1, 16);
        assert_eq!(lanes.get("a"), None);
        lanes.remove("a");
        put(&mut lanes, "a", at(0, 3));
        put(&mut lanes, "b", at(2, 1));
        put(&mut lanes, "a", at(0, 4));
        assert_eq!((lanes.get("a"), lanes.get("b"), lanes.get("c")), (Some(at(0, 4)), Some(at(2, 1)), None));
        lanes.remove("a");
        assert_eq!((lanes.get("a"), lanes.used), (None, 1));
        lanes.clear();
        assert_eq!((lanes.get("b"), lanes.used), (None, 0));
    }

    #[test]
    fn what_is_too_large_is_not_taken_for_something_smaller() {
        let mut lanes = Lanes::new(1, 16);
        for large in [at(0, 1 << 32), at(1 << 32, 0)] {
            put(&mut lanes, "a", at(0, 3));
            put(&mut lanes, "a", large);
            assert_eq!(lanes.get("a"), None);
        }
        put(&mut lanes, "a", at(u32::MAX.into(), u32::MAX.into()));
        assert_eq!(lanes.get("a"), Some(at(u32::MAX.into(), u32::MAX.into())));
    }

    #[test]
    fn many_are_known_none_wrongly_and_the_table_is_bounded() {
        let mut lanes = Lanes::new(1, 16);
        let live = SLOTS_OF_TOPIC as u64 / 16 / 2;
        for round in 1..4 {
            for n in 0..live {
                put(&mut lanes, &n.to_string(), at(0, round * 10_000 + n));
            }
        }
        let known: Vec<_> = (0..live).filter_map(|n| Some((n, lanes.get(&n.to_string())?))).collect();
        assert!(known.len() as u64 * 100 >= live * 95, "{} of {live}", known.len());
        assert!(known.iter().all(|(n, place)| *place == at(0, 30_000 + n)));
        for n in live..20 * live {
            put(&mut lanes, &n.to_string(), at(0, n));
        }
        assert_eq!(lanes.slots.len(), lanes.slots_max);
        let wrong = (0..20 * live).filter(|n| {
            lanes
                .get(&n.to_string())
                .is_some_and(|place| place.1.get() % 10_000 != n % 10_000 && place != at(0, 30_000 + n))
        });
        assert_eq!(wrong.count(), 0);
    }
}
