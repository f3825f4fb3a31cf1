//! A set of entities by age, in four buckets that take turns.
//!
//! New ones go into the current bucket; once it has been current for a while the next
//! one takes over, if it is empty. So a bucket's age is known without a time for each
//! entity, and what is old enough is found without looking at the rest.

use std::collections::BTreeMap;

use super::identity::Entity;

pub const BUCKETS: usize = 4;

#[derive(Clone, Debug)]
pub struct Ring<T> {
    buckets: [BTreeMap<Entity, T>; BUCKETS],
    hand: Hand,
}

/// Where a ring stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hand {
    pub current: usize,
    /// When the current bucket became it.
    pub turned: u64,
    /// When each bucket last ceased to be it.
    pub ended: [u64; BUCKETS],
}

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Ring { buckets: Default::default(), hand: Hand::default() }
    }
}

impl<T> Ring<T> {
    /// Lets the next bucket take over, if it is time and it is empty.
    pub fn turn(&mut self, now: u64, width: u64) {
        let Hand { current, turned, .. } = self.hand;
        let next = (current + 1) % BUCKETS;
        if now - turned >= width && self.buckets[next].is_empty() {
            self.hand.ended[current] = now;
            self.hand.current = next;
            self.hand.turned = now;
        }
    }

    /// The oldest bucket that is not empty, if all in it are older than `age`.
    pub fn due(&self, now: u64, age: u64) -> Option<usize> {
        let oldest_first = (1..BUCKETS).map(|step| (self.hand.current + step) % BUCKETS);
        let is_due = |at: &usize| !self.buckets[*at].is_empty() && self.hand.ended[*at] + age <= now;
        oldest_first.into_iter().find(is_due)
    }

    pub fn insert(&mut self, entity: Entity, value: T) {
        self.buckets[self.hand.current].insert(entity, value);
    }

    pub fn get(&self, entity: &Entity) -> Option<&T> {
        self.buckets.iter().find_map(|bucket| bucket.get(entity))
    }

    pub fn remove(&mut self, entity: &Entity) -> Option<T> {
        self.buckets.iter_mut().find_map(|bucket| bucket.remove(entity))
    }

    /// Takes up to `count` out of a bucket.
    pub fn take(&mut self, bucket: usize, count: usize) -> Vec<(Entity, T)> {
        let bucket = &mut self.buckets[bucket];
        std::iter::from_fn(|| bucket.pop_first()).take(count).collect()
    }

    pub fn clear(&mut self, bucket: usize) -> usize {
        std::mem::take(&mut self.buckets[bucket]).len()
    }

    pub fn hand(&self) -> Hand {
        self.hand
    }

    pub fn buckets(&self) -> &[BTreeMap<Entity, T>; BUCKETS] {
        &self.buckets
    }
}
