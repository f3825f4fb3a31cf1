//! Randomness as a port: a seeded generator that is handed in, so that a run can be
//! repeated. Nothing here is for secrets.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn from_seed(seed: u64) -> Self {
        Random(seed)
    }

    /// Seeded by the operating system.
    pub fn from_system() -> Self {
        Random(RandomState::new().build_hasher().finish())
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let other = self.below(i as u64 + 1);
            items.swap(i, usize::try_from(other).expect("it is an index"));
        }
    }
}
