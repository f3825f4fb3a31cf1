//! How a worker works: every limit and wait has its name here.

use std::time::Duration;

use super::{
    feed::FeedLimits,
    retry::{RetryError, RetryPolicy},
};
use crate::{
    order::{Policy, Sequence},
    store::{Layout, Start},
};

#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    pub topic: String,
    /// Who shares the work: a-z, 0-9 and `-`, at most 64 characters.
    pub group: String,
    /// A name for people; need not be unique.
    pub name: String,
    /// Where the group begins, if it is new.
    pub start: Start,
    /// Deliveries that may be out at once. Default: 64.
    pub in_flight_max: usize,
    /// Events that one read asks for, about. Default: 256.
    pub batch: usize,
    /// After so long without a sign of life a partition is taken over. Default: 15 s.
    pub lease: Duration,
    /// How often a sign of life is given; at most a third of `lease`. Default: 5 s.
    pub renew: Duration,
    /// How long closing waits for deliveries that are out. Default: 10 s.
    pub drain: Duration,
    /// Events of a partition that may be read and not done. Default: 4,096.
    pub window_entries: usize,
    /// The same in bytes. Default: 32 MiB.
    pub window_bytes: u64,
    /// Events that may be held in a partition. Default: 100,000.
    pub held_max: u64,
    /// How often an event may be the only one handled when its worker ends. Default: 3.
    pub crashes_max: u32,
    /// A handler that takes longer has failed. Default: 1 h.
    pub handler_max: Duration,
    /// How long an event that is missing between others that passed is waited for. Default: 5 s.
    pub missing_waits: Vec<Duration>,
    /// Events of one entity that wait for a missing one. Default: 256.
    pub parked_max: u64,
    pub retry: RetryPolicy,
}

/// Why options are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("{what} {name:?} is not made of 1 to 64 characters a-z, 0-9 and -")]
    Name { what: &'static str, name: String },
    #[error("{0} must be at least 1")]
    Zero(&'static str),
    #[error(
        "renew ({renew_ms} ms) must be at most a third of lease ({lease_ms} ms), or a single lost call would cost the lease"
    )]
    RenewTooRare { renew_ms: u128, lease_ms: u128 },
    #[error(transparent)]
    Retry(#[from] RetryError),
}

impl ConsumerOptions {
    pub fn new(topic: &str, group: &str) -> Self {
        ConsumerOptions {
            topic: topic.to_owned(),
            group: group.to_owned(),
            name: "worker".to_owned(),
            start: Start::Beginning,
            in_flight_max: 64,
            batch: 256,
            lease: Duration::from_secs(15),
            renew: Duration::from_secs(5),
            drain: Duration::from_secs(10),
            window_entries: 4_096,
            window_bytes: 32 << 20,
            held_max: 100_000,
            crashes_max: 3,
            handler_max: Duration::from_secs(3_600),
            missing_waits: vec![Duration::from_secs(5)],
            parked_max: 256,
            retry: RetryPolicy::default(),
        }
    }

    pub fn validate(&self) -> Result<(), OptionsError> {
        for (what, name) in [("the topic", &self.topic), ("the group", &self.group)] {
            if !is_name(name) {
                return Err(OptionsError::Name { what, name: name.clone() });
            }
        }
        for (what, number) in [
            ("in_flight_max", self.in_flight_max as u64),
            ("batch", self.batch as u64),
            ("window_entries", self.window_entries as u64),
            ("window_bytes", self.window_bytes),
            ("held_max", self.held_max),
            ("crashes_max", u64::from(self.crashes_max)),
            ("renew", self.renew.as_millis() as u64),
            ("missing_waits", self.missing_waits.len() as u64),
            ("parked_max", self.parked_max),
        ] {
            if number == 0 {
                return Err(OptionsError::Zero(what));
            }
        }
        if self.renew * 3 > self.lease {
            let (renew_ms, lease_ms) = (self.renew.as_millis(), self.lease.as_millis());
            return Err(OptionsError::RenewTooRare { renew_ms, lease_ms });
        }
        Ok(self.retry.validate()?)
    }

    pub(super) fn limits(&self, layout: Layout) -> FeedLimits {
        let entry_events = match layout {
            Layout::Entry => 1,
            Layout::Batch => Policy::default().append_max as usize,
        };
        FeedLimits {
            window_entries: self.window_entries,
            window_bytes: self.window_bytes,
            entry_events,
            held_max: self.held_max,
            crashes_max: self.crashes_max,
            handler_max_ms: ms(self.handler_max),
            idle_max: (self.window_entries / 4).max(1),
        }
    }

    /// The rules of the reorder buffer. What waits in it fills at most half of the window, or
    /// what it waits for could not be read.
    pub(super) fn policy(&self, first: Sequence) -> Policy {
        Policy {
            first,
            parked_max: self.parked_max,
            partition_parked_max: (self.window_entries as u64 / 2).max(1),
            partition_parked_bytes_max: (self.window_bytes / 2).max(1),
            gap_waits: self.missing_waits.iter().map(|wait| ms(*wait).max(1)).collect(),
            ..Policy::default()
        }
    }
}

/// Names of topics and groups become parts of keys.
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(fits)
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused_with_a_reason() {
        let options = ConsumerOptions::new("evaluations", "storage");
        assert_eq!(options.validate(), Ok(()));
        let said = |change: fn(&mut ConsumerOptions)| {
            let mut options = options.clone();
            change(&mut options);
            options.validate().unwrap_err().to_string()
        };
        assert!(said(|o| o.group = "A b".into()).contains("the group \"A b\" is not made of"));
        assert!(said(|o| o.renew = Duration::from_secs(6)).contains("at most a third of lease"));
        assert!(said(|o| o.retry.base_ms = 1).contains("unsafe_retry"));
        assert_eq!(said(|o| o.in_flight_max = 0), "in_flight_max must be at least 1");
    }
}
