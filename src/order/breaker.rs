//! When a partition stops promising order by itself, and when it begins again.
//!
//! A level rises with every skip and leaks away over the window; at the top the breaker
//! trips. It returns once the level is down to half and the hold time has passed, so
//! that it does not flap. Thousandths are counted, because both engines must agree.

use super::policy::BreakerPolicy;

const SKIP: u64 = 1_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    /// Thousandths of a skip, as of `at`.
    pub level: u64,
    pub at: u64,
}

impl Breaker {
    pub(super) fn hit(&mut self, now: u64, policy: &BreakerPolicy) {
        if policy.skips > 0 {
            self.level = (self.level_at(now, policy) + SKIP).min(policy.skips * SKIP);
            self.at = now;
        }
    }

    pub(super) fn level_at(&self, now: u64, policy: &BreakerPolicy) -> u64 {
        let elapsed = now.saturating_sub(self.at).min(policy.window);
        self.level.saturating_sub(elapsed * policy.skips * SKIP / policy.window)
    }

    pub(super) fn is_tripped(&self, now: u64, policy: &BreakerPolicy) -> bool {
        policy.skips > 0 && self.level_at(now, policy) >= policy.skips * SKIP
    }

    pub(super) fn is_calm(&self, now: u64, policy: &BreakerPolicy) -> bool {
        policy.skips == 0 || self.level_at(now, policy) * 2 <= policy.skips * SKIP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerPolicy = BreakerPolicy { skips: 3, window: 600, hold: 0 };

    #[test]
    fn it_trips_at_the_top_and_is_calm_at_half() {
        let mut breaker = Breaker::default();
        [10, 10, 10].into_iter().for_each(|now| breaker.hit(now, &POLICY));
        assert!(breaker.is_tripped(10, &POLICY) && !breaker.is_calm(10, &POLICY));
        assert!(!breaker.is_tripped(12, &POLICY), "the level leaks");
        assert!(!breaker.is_calm(300, &POLICY) && breaker.is_calm(310, &POLICY));
        assert_eq!(breaker.level_at(10_000, &POLICY), 0);
    }

    #[test]
    fn few_skips_over_a_long_time_never_trip_it() {
        let mut breaker = Breaker::default();
        for skip in 0..100 {
            breaker.hit(skip * 250, &POLICY);
            assert!(!breaker.is_tripped(skip * 250, &POLICY));
        }
    }
}
