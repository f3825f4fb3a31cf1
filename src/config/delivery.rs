//! How workers are served: by `Delivery/Consume` and by `seriatim consume`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::deliver::{ConsumerOptions, retry::RetryPolicy};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DeliveryConfig {
    pub consumers_max: usize,
    pub lease_ms: u64,
    pub renew_ms: u64,
    pub batch: usize,
    pub window_entries: usize,
    pub window_bytes: u64,
    pub handler_max_ms: u64,
    pub missing_waits_ms: Vec<u64>,
    pub parked_max: u64,
    pub retry_base_ms: u64,
    pub retry_cap_ms: u64,
    pub retry_jitter_percent: u64,
    pub attempts_max: u32,
    pub unsafe_retry: bool,
    pub crashes_max: u32,
    pub held_max: u64,
}

impl Default for DeliveryConfig {
    fn default() -> Self {
        let options = ConsumerOptions::new("-", "-");
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).expect("a default is short");
        DeliveryConfig {
            consumers_max: 64,
            lease_ms: ms(options.lease),
            renew_ms: ms(options.renew),
            batch: options.batch,
            window_entries: options.window_entries,
            window_bytes: options.window_bytes,
            handler_max_ms: ms(options.handler_max),
            missing_waits_ms: options.missing_waits.into_iter().map(ms).collect(),
            parked_max: options.parked_max,
            retry_base_ms: options.retry.base_ms,
            retry_cap_ms: options.retry.cap_ms,
            retry_jitter_percent: options.retry.jitter_percent,
            attempts_max: options.retry.attempts_max,
            unsafe_retry: options.retry.unsafe_retry,
            crashes_max: options.crashes_max,
            held_max: options.held_max,
        }
    }
}

impl DeliveryConfig {
    pub fn options(&self, topic: &str, group: &str) -> ConsumerOptions {
        ConsumerOptions {
            lease: Duration::from_millis(self.lease_ms),
            renew: Duration::from_millis(self.renew_ms),
            batch: self.batch,
            window_entries: self.window_entries,
            window_bytes: self.window_bytes,
            handler_max: Duration::from_millis(self.handler_max_ms),
            missing_waits: self.missing_waits_ms.iter().copied().map(Duration::from_millis).collect(),
            parked_max: self.parked_max,
            retry: RetryPolicy {
                base_ms: self.retry_base_ms,
                cap_ms: self.retry_cap_ms,
                jitter_percent: self.retry_jitter_percent,
                attempts_max: self.attempts_max,
                unsafe_retry: self.unsafe_retry,
            },
            crashes_max: self.crashes_max,
            held_max: self.held_max,
            ..ConsumerOptions::new(topic, group)
        }
    }

    pub fn validate(&self) -> Result<(), ConfigError> {
        let impossible = |reason: String| ConfigError::Impossible { key: "delivery".to_owned(), reason };
        if self.consumers_max == 0 {
            return Err(impossible("consumers_max must be at least 1".to_owned()));
        }
        self.options("-", "-").validate().map_err(|error| impossible(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_that_hammers_is_refused_with_the_way_out() {
        let bad = DeliveryConfig { retry_base_ms: 10, ..DeliveryConfig::default() };
        let said = bad.validate().unwrap_err().to_string();
        assert!(
            said.starts_with("delivery: a retry base of 10 ms") && said.contains("unsafe_retry"),
            "{said}"
        );
        assert_eq!(DeliveryConfig { unsafe_retry: true, ..bad }.validate(), Ok(()));
        assert!(DeliveryConfig { renew_ms: 9_000, ..DeliveryConfig::default() }.validate().is_err());
    }
}
