//! How long an event that was not handled waits before it is tried again.

use crate::random::Random;

/// The shortest first wait that is let pass without `unsafe_retry`.
pub const BASE_MS_FLOOR: u64 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// After the first failure; doubled after each further one.
    pub base_ms: u64,
    /// No wait is longer.
    pub cap_ms: u64,
    /// Give or take so much, or retries that began together come together for ever.
    pub jitter_percent: u64,
    /// Tries in all; then the entity is a dead letter.
    pub attempts_max: u32,
    /// Lets a policy pass that would hammer what has failed.
    pub unsafe_retry: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy {
            base_ms: 60_000,
            cap_ms: 3_600_000,
            jitter_percent: 20,
            attempts_max: 5,
            unsafe_retry: false,
        }
    }
}

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetryError {
    #[error("retry base ({base_ms} ms) is above its cap ({cap_ms} ms)")]
    BaseAboveCap { base_ms: u64, cap_ms: u64 },
    #[error("retry jitter of {0} % is above 100 %")]
    JitterTooLarge(u64),
    #[error("at least 1 attempt is needed")]
    NoAttempts,
    #[error(
        "a retry base of {0} ms is below {BASE_MS_FLOOR} ms and would hammer what has just failed; raise it, or \
         set unsafe_retry if you know better"
    )]
    BaseTooShort(u64),
    #[error(
        "without jitter, retries that began together come together for ever; set a jitter, or unsafe_retry if \
         you know better"
    )]
    NoJitter,
}

impl RetryPolicy {
    pub fn validate(&self) -> Result<(), RetryError> {
        if self.base_ms > self.cap_ms {
            Err(RetryError::BaseAboveCap { base_ms: self.base_ms, cap_ms: self.cap_ms })
        } else if self.jitter_percent > 100 {
            Err(RetryError::JitterTooLarge(self.jitter_percent))
        } else if self.attempts_max == 0 {
            Err(RetryError::NoAttempts)
        } else if self.unsafe_retry {
            Ok(())
        } else if self.base_ms < BASE_MS_FLOOR {
            Err(RetryError::BaseTooShort(self.base_ms))
        } else if self.jitter_percent == 0 {
            Err(RetryError::NoJitter)
        } else {
            Ok(())
        }
    }

    /// How long the next attempt may take before it counts as lost with its worker; `None` if
    /// there was the last one.
    pub fn wait_after(&self, attempts: u32, random: &mut Random) -> Option<u64> {
        if attempts >= self.attempts_max {
            return None;
        }
        Some(self.wait_ms(attempts.min(self.attempts_max - 1), random).unwrap_or(self.base_ms))
    }

    /// No wait after so many attempts is longer, jitter included.
    pub fn longest_ms(&self, attempts: u32) -> u64 {
        let wait = self.mean_ms(attempts);
        wait.saturating_add(self.jitter(wait))
    }

    fn mean_ms(&self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(63);
        self.base_ms.saturating_mul(1 << doublings).min(self.cap_ms)
    }

    fn jitter(&self, wait: u64) -> u64 {
        wait / 100 * self.jitter_percent + wait % 100 * self.jitter_percent / 100
    }

    /// How long to wait after so many attempts; `None` after the last.
    pub fn wait_ms(&self, attempts: u32, random: &mut Random) -> Option<u64> {
        if attempts >= self.attempts_max {
            return None;
        }
        let wait = self.mean_ms(attempts);
        let jitter = self.jitter(wait);
        Some(wait - jitter + random.below(2 * jitter + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_within_the_jitter() {
        let policy = RetryPolicy { attempts_max: 9, ..RetryPolicy::default() };
        let mut random = Random::from_seed(1);
        for (attempts, wait) in [(1, 60_000), (2, 120_000), (3, 240_000), (6, 1_920_000), (8, 3_600_000)] {
            for _ in 0..100 {
                let drawn = policy.wait_ms(attempts, &mut random).unwrap();
                assert!((wait * 8 / 10..=wait * 12 / 10).contains(&drawn), "{attempts}: {drawn}");
                assert!(drawn <= policy.longest_ms(attempts), "{attempts}: {drawn}");
            }
        }
        assert_eq!(policy.wait_ms(9, &mut random), None);
        let drawn: std::collections::BTreeSet<_> = (0..100).map(|_| policy.wait_ms(1, &mut random)).collect();
        assert!(drawn.len() > 50, "they differ");
    }

    #[test]
    fn a_policy_that_hammers_is_refused_unless_it_is_meant() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.validate(), Ok(()));
        let short = RetryPolicy { base_ms: 10, ..policy.clone() };
        assert_eq!(short.validate(), Err(RetryError::BaseTooShort(10)));
        let even = RetryPolicy { jitter_percent: 0, ..policy.clone() };
        assert_eq!(even.validate(), Err(RetryError::NoJitter));
        let meant = RetryPolicy { base_ms: 0, jitter_percent: 0, unsafe_retry: true, ..policy.clone() };
        assert_eq!(meant.validate(), Ok(()));
        assert_eq!(meant.wait_ms(1, &mut Random::from_seed(1)), Some(0));
        // What makes no sense stays refused.
        let odd = RetryPolicy { cap_ms: 1, unsafe_retry: true, ..policy.clone() };
        assert!(odd.validate().is_err());
        assert!(RetryPolicy { attempts_max: 0, ..policy }.validate().is_err());
    }
}
