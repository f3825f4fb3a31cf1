//! How long a gap is waited for, and who is inside a rollout: both follow from the
//! entity by a small hash that Lua's doubles and Rust compute alike.

use super::{identity::Entity, policy::Policy};

/// A prime; every product below stays under 2^53.
const MODULUS: u64 = (1 << 31) - 1;
const SPREAD: u64 = 48_271;
/// Sets the rollout's hash apart from those of the attempts.
const ROLLOUT_SALT: u64 = 7_919;

fn mix(entity: &Entity, salt: u64) -> u64 {
    let polynomial = entity.as_str().bytes().fold(salt, |hash, byte| (hash * 31 + u64::from(byte)) % MODULUS);
    (polynomial * SPREAD) % MODULUS
}

/// A place in 0..10,000 that an entity has for ever. The first `rollout_percent` of
/// them are inside.
pub fn rollout_place(entity: &Entity) -> u64 {
    mix(entity, ROLLOUT_SALT) % 10_000
}

/// The wait of one attempt, give or take 20 %: gaps that opened together do not end
/// together.
pub fn jittered(wait: u64, entity: &Entity, attempt: usize) -> u64 {
    let permille = 800 + mix(entity, attempt as u64 + 1) % 401;
    (wait * permille / 1000).max(1)
}

impl Policy {
    /// The attempt after which a gap is given up.
    pub(super) fn last_attempt(&self) -> usize {
        self.gap_waits.len() - 1
    }

    /// How long the attempt waits.
    pub(super) fn gap_wait(&self, entity: &Entity, attempt: usize) -> u64 {
        jittered(self.gap_waits[attempt], entity, attempt)
    }

    /// How long each attempt waits.
    pub fn gap_waits_of(&self, entity: &Entity) -> impl Iterator<Item = u64> {
        (0..self.gap_waits.len()).map(|attempt| self.gap_wait(entity, attempt))
    }

    /// How long the attempts from this one on wait together.
    pub(super) fn gap_waits_from(&self, entity: &Entity, attempt: usize) -> u64 {
        (attempt..self.gap_waits.len()).map(|attempt| self.gap_wait(entity, attempt)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_a_fifth_and_differs() {
        let waits: Vec<u64> = (0..1000)
            .map(|n| jittered(10_000, &Entity::new(&format!("evaluation-{n}")).unwrap(), 0))
            .collect();
        assert!(waits.iter().all(|wait| (8_000..=12_000).contains(wait)));
        let mean = waits.iter().sum::<u64>() / 1000;
        assert!((9_700..=10_300).contains(&mean), "{mean}");
        assert_ne!(
            jittered(10_000, &Entity::new("a").unwrap(), 0),
            jittered(10_000, &Entity::new("a").unwrap(), 1)
        );
        assert_eq!(jittered(1, &Entity::new("a").unwrap(), 0), 1);
    }

    #[test]
    fn a_percent_of_the_entities_is_about_a_percent() {
        let inside = |percent: u64| {
            let place = |n: u64| rollout_place(&Entity::new(&format!("job-{n:08}")).unwrap());
            (0..10_000).filter(|n| place(*n) < percent * 100).count()
        };
        assert!((50..200).contains(&inside(1)), "{}", inside(1));
        assert!((4_700..5_300).contains(&inside(50)), "{}", inside(50));
        assert_eq!((inside(0), inside(100)), (0, 10_000));
    }
}
