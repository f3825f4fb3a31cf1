//! Relations between keys: what no file may say, and what to write instead.

use std::net::SocketAddr;

use super::{Config, ConfigError, MEMORY_URL, TopicConfig};
use crate::order::{NUMBER_MAX, Policy};

/// The largest event data that can be configured.
const EVENT_BYTES_CEILING: usize = 4 << 20;
/// What an event weighs besides its data: entity, type, attributes, framing.
const ENVELOPE_BYTES: usize = 1 << 10;
const PARTITIONS_MAX: u32 = 1024;
/// Of whatever is counted in memory.
const COUNT_CEILING: usize = 1 << 24;
/// Lanes that one script call can write back.
const ELAPSE_CEILING: usize = 512;
const SWEEP_CEILING: usize = 512;
/// Waits of a schedule.
const GAP_WAITS_MAX: usize = 16;
/// Ten years, as a bound on any time: sums of them stay exact.
const TIME_MAX_MS: u64 = 10 * 365 * 24 * 3_600_000;
/// Bytes of a list together.
const LIST_BYTES_MAX: usize = 2048;
/// A partition's stream: below the least a few nodes of it would fill it.
const ENTRIES_LEAST: u64 = 1_000;
const ENTRIES_CEILING: u64 = 1_000_000_000;
/// Names on a rollout's list, and types of a lifecycle: scripts read them in each slow call.
const LIST_MAX: usize = 64;

impl Config {
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_process()?;
        self.validate_store()?;
        self.validate_limits()?;
        self.validate_fleet()?;
        self.delivery.validate()?;
        require(!self.topics.is_empty(), "topics", || {
            "there is no topic; add a section [topics.NAME], for example [topics.evaluations]".to_owned()
        })?;
        self.topics.iter().try_for_each(|(name, topic)| topic.validate(name))
    }

    fn validate_process(&self) -> Result<(), ConfigError> {
        at_least("threads", self.threads, 1)?;
        require(!(self.listen.grpc.is_empty() && self.listen.socket.is_empty()), "listen", || {
            "nothing to listen on; set listen.grpc, listen.socket or both".to_owned()
        })?;
        for (key, address) in [("listen.grpc", &self.listen.grpc), ("listen.web", &self.listen.web)] {
            let is_address = address.is_empty() || address.parse::<SocketAddr>().is_ok();
            require(is_address, key, || {
                format!(
                    "{address:?} is not an address; write an IP and a port, for example \"127.0.0.1:7401\""
                )
            })?;
        }
        Ok(())
    }

    fn validate_store(&self) -> Result<(), ConfigError> {
        let store = &self.store;
        let known = ["redis://", "redis+unix://", "unix://", "valkey://"];
        let is_known = store.url == MEMORY_URL || known.iter().any(|scheme| store.url.starts_with(scheme));
        require(is_known, "store.url", || {
            let scheme = store.url.split(':').next().unwrap_or_default();
            let tls = if matches!(scheme, "rediss" | "valkeys") { " (TLS is not built in)" } else { "" };
            format!(
                "the scheme {scheme:?} is not known{tls}; write \"redis://host:port/db\", \
                 \"redis+unix:///path/to/socket\" or \"{MEMORY_URL}\" for the embedded store"
            )
        })?;
        at_least("store.connect_timeout_ms", store.connect_timeout_ms, 1)?;
        at_least("store.response_timeout_ms", store.response_timeout_ms, 1)?;
        at_least_other(
            ("store.wait_ms", store.wait_ms),
            ("store.response_timeout_ms", store.response_timeout_ms),
            "or no call is ever repeated",
        )
    }

    fn validate_fleet(&self) -> Result<(), ConfigError> {
        let fleet = &self.fleet;
        at_least("fleet.heartbeat_interval_ms", fleet.heartbeat_interval_ms, 100)?;
        at_least_other(
            ("fleet.orphan_threshold_ms", fleet.orphan_threshold_ms),
            ("fleet.heartbeat_interval_ms + 1", fleet.heartbeat_interval_ms + 1),
            "or a living sidecar would look dead between two signs of life",
        )?;
        at_most("fleet.orphan_threshold_ms", fleet.orphan_threshold_ms, TIME_MAX_MS)?;
        at_least("fleet.reconcile_interval_ms", fleet.reconcile_interval_ms, 100)?;
        at_most("fleet.reconcile_interval_ms", fleet.reconcile_interval_ms, TIME_MAX_MS)?;
        at_least("fleet.reconcile_max", fleet.reconcile_max, 1)?;
        at_most("fleet.reconcile_max", fleet.reconcile_max, SWEEP_CEILING)
    }

    fn validate_limits(&self) -> Result<(), ConfigError> {
        let limits = &self.limits;
        at_least("limits.event_bytes", limits.event_bytes, 1)?;
        at_most("limits.event_bytes", limits.event_bytes, EVENT_BYTES_CEILING)?;
        at_least("limits.request_events", limits.request_events, 1)?;
        at_least("limits.batch_events", limits.batch_events, 1)?;
        let append_max = usize::try_from(Policy::default().append_max).expect("it is small");
        at_most("limits.batch_events", limits.batch_events, append_max)?;
        at_least("limits.batch_bytes", limits.batch_bytes, 1)?;
        at_least("limits.connection_requests", limits.connection_requests, 1)?;
        at_least("limits.connections", limits.connections, 1)?;
        at_least("limits.elapse_max", limits.elapse_max, 1)?;
        at_most("limits.elapse_max", limits.elapse_max, ELAPSE_CEILING)?;
        let largest_event = limits.event_bytes + limits.attribute_bytes + ENVELOPE_BYTES;
        at_least_other(
            ("limits.request_bytes", limits.request_bytes),
            ("limits.event_bytes + limits.attribute_bytes + 1024", largest_event),
            "or the largest event allowed could never be sent",
        )?;
        at_least_other(
            ("limits.in_flight_bytes", limits.in_flight_bytes),
            ("limits.request_bytes", limits.request_bytes),
            "or the largest request allowed could never be taken in",
        )?;
        at_least_other(
            ("limits.in_flight_events", limits.in_flight_events),
            ("limits.request_events", limits.request_events),
            "or the largest request allowed could never be taken in",
        )?;
        at_least_other(
            ("limits.stream_in_flight", limits.stream_in_flight),
            ("limits.request_events", limits.request_events),
            "or the largest request allowed could never be taken in by a stream",
        )?;
        for (key, value) in [
            ("limits.in_flight_events", limits.in_flight_events),
            ("limits.stream_in_flight", limits.stream_in_flight),
            ("limits.connection_requests", limits.connection_requests),
            ("limits.connections", limits.connections),
        ] {
            at_most(key, value, COUNT_CEILING)?;
        }
        // Permits are counted in 32 bits.
        at_most("limits.in_flight_bytes", limits.in_flight_bytes, u32::MAX as usize >> 3)
    }
}

impl TopicConfig {
    fn validate(&self, name: &str) -> Result<(), ConfigError> {
        let is_name = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        require(is_name, &format!("topics.{name:?}"), || {
            "a topic's name has 1 to 64 characters a-z, 0-9 and '-'".to_owned()
        })?;
        let key = |key: &str| format!("topics.{name}.{key}");
        at_least(&key("partitions"), self.partitions, 1)?;
        at_most(&key("partitions"), self.partitions, PARTITIONS_MAX)?;
        at_least(&key("parked_max"), self.parked_max, 1)?;
        at_least(&key("parked_bytes_max"), self.parked_bytes_max, 1)?;
        at_least(&key("ahead_max"), self.ahead_max, 1)?;
        // Half of all numbers: whoever begins at the end runs out of them.
        at_most(&key("first_sequence"), self.first_sequence, NUMBER_MAX / 2)?;
        at_least_other(
            (&key("partition_parked_max"), self.partition_parked_max),
            (&key("parked_max"), self.parked_max),
            "or a single lane could never use its share",
        )?;
        at_least_other(
            (&key("partition_parked_bytes_max"), self.partition_parked_bytes_max),
            (&key("parked_bytes_max"), self.parked_bytes_max),
            "or a single lane could never use its share",
        )?;
        at_least_other(
            (&key("ahead_max"), self.ahead_max),
            (&key("parked_max"), self.parked_max),
            "or parked_max could never be reached",
        )?;
        self.validate_times(&key)?;
        self.validate_retention(&key)?;
        self.validate_lists(&key)?;
        self.spec(name).map(drop)
    }

    fn validate_times(&self, key: &impl Fn(&str) -> String) -> Result<(), ConfigError> {
        require((1..=GAP_WAITS_MAX).contains(&self.gap_waits_ms.len()), &key("gap_waits_ms"), || {
            let count = self.gap_waits_ms.len();
            format!(
                "a schedule has 1 to {GAP_WAITS_MAX} waits, this one has {count}; write for example [10000, 20000]"
            )
        })?;
        for wait in &self.gap_waits_ms {
            at_least(&key("gap_waits_ms"), *wait, 1)?;
            at_most(&key("gap_waits_ms"), *wait, TIME_MAX_MS)?;
        }
        for (name, value) in [
            ("gap_wait_live_ms", self.gap_wait_live_ms),
            ("parked_age_max_ms", self.parked_age_max_ms),
            ("terminal_wait_ms", self.terminal_wait_ms),
            ("breaker_window_ms", self.breaker_window_ms),
            ("stuck_after_ms", self.stuck_after_ms),
            ("retire_after_ms", self.retire_after_ms),
            ("remember_for_ms", self.remember_for_ms),
            ("retain_ms", self.retain_ms),
            ("late_retain_ms", self.late_retain_ms),
        ] {
            at_least(&key(name), value, 1)?;
            at_most(&key(name), value, TIME_MAX_MS)?;
        }
        at_most(&key("idle_retire_after_ms"), self.idle_retire_after_ms, TIME_MAX_MS)?;
        at_most(&key("breaker_hold_ms"), self.breaker_hold_ms, TIME_MAX_MS)?;
        at_most(&key("breaker_skips"), self.breaker_skips, 1_000_000)?;
        at_least_other(
            (&key("parked_age_max_ms"), self.parked_age_max_ms),
            ("the sum of gap_waits_ms", self.gap_waits_ms.iter().sum()),
            "or the schedule would never come to its end",
        )?;
        at_least_other(
            (&key("remember_for_ms"), self.remember_for_ms),
            (&key("parked_age_max_ms"), self.parked_age_max_ms),
            "or an event could outlive the memory of its entity",
        )
    }

    fn validate_retention(&self, key: &impl Fn(&str) -> String) -> Result<(), ConfigError> {
        at_least(&key("retain_entries"), self.retain_entries, 1)?;
        at_least(&key("late_max"), self.late_max, 1)?;
        at_most(&key("late_max"), self.late_max, ENTRIES_CEILING)?;
        at_least(&key("entries_max"), self.entries_max, ENTRIES_LEAST)?;
        at_most(&key("entries_max"), self.entries_max, ENTRIES_CEILING)?;
        at_least_other(
            (&key("entries_max"), self.entries_max),
            ("twice retain_entries", self.retain_entries.saturating_mul(2)),
            "or a partition could be full of what every group has done",
        )
    }

    fn validate_lists(&self, key: &impl Fn(&str) -> String) -> Result<(), ConfigError> {
        at_most(&key("rollout_percent"), self.rollout_percent, 100)?;
        for (name, list) in [
            ("rollout_allow", &self.rollout_allow),
            ("rollout_deny", &self.rollout_deny),
            ("terminal_types", &self.terminal_types),
        ] {
            at_most(&key(name), list.len(), LIST_MAX)?;
            require(list.iter().map(String::len).sum::<usize>() <= LIST_BYTES_MAX, &key(name), || {
                format!(
                    "its items have more than {LIST_BYTES_MAX} bytes together; write beginnings with a * instead"
                )
            })?;
            require(list.iter().all(|item| !item.is_empty()), &key(name), || {
                "an item is empty; leave it out, or write \"*\" for all".to_owned()
            })?;
        }
        let lifecycle = &self.lifecycle;
        let named = lifecycle.types();
        at_most(&key("lifecycle"), named.len(), LIST_MAX)?;
        let is_plain = |name: &&str| {
            (1..=64).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        if let Some(odd) = named.iter().find(|name| !is_plain(name)) {
            return require(false, &key("lifecycle"), || {
                format!(
                    "{odd:?} is no type for a lifecycle: 1 to 64 characters a-z, A-Z, 0-9, '.', '_' and '-'"
                )
            });
        }
        require(lifecycle.is_empty() || !lifecycle.initial.is_empty(), &key("lifecycle.initial"), || {
            "a lifecycle needs a type to begin with; write for example [\"provisioning\"]".to_owned()
        })?;
        let reached = |kind: &&&str| {
            let kind = **kind;
            lifecycle.initial.iter().any(|initial| initial == kind)
                || lifecycle.transitions.values().any(|next| next.iter().any(|name| name == kind))
        };
        match named.iter().find(|kind| !reached(kind)) {
            Some(never) => require(false, &key("lifecycle.transitions"), || {
                format!("nothing leads to {never:?}; let a type lead to it, or make it initial")
            }),
            None => Ok(()),
        }
    }
}

fn require(holds: bool, key: &str, reason: impl FnOnce() -> String) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::Impossible { key: key.to_owned(), reason: reason() }) }
}

fn at_least<N: PartialOrd + std::fmt::Display>(key: &str, value: N, least: N) -> Result<(), ConfigError> {
    require(value >= least, key, || format!("{value} is too small; write at least {least}"))
}

fn at_most<N: PartialOrd + std::fmt::Display>(key: &str, value: N, most: N) -> Result<(), ConfigError> {
    require(value <= most, key, || format!("{value} is too large; write at most {most}"))
}

fn at_least_other<N: PartialOrd + std::fmt::Display>(
    (key, value): (&str, N),
    (other_key, other): (&str, N),
    or_else: &str,
) -> Result<(), ConfigError> {
    require(value >= other, key, || {
        format!("{value} is less than {other_key} ({other}), {or_else}; write at least {other}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.validate().expect_err("the relation is impossible").to_string()
    }

    #[test]
    fn the_defaults_are_possible() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn impossible_relations_are_refused_with_what_to_write_instead() {
        assert_eq!(
            refused(|config| config.limits.in_flight_events = 10),
            "limits.in_flight_events: 10 is less than limits.request_events (1024), or the largest request \
             allowed could never be taken in; write at least 1024"
        );
        assert_eq!(
            refused(|config| config.limits.event_bytes = 5 << 20),
            "limits.event_bytes: 5242880 is too large; write at most 4194304"
        );
        assert!(refused(|config| config.topics.clear()).contains("add a section [topics.NAME]"));
        assert!(refused(|config| config.listen.grpc = "localhost".into()).contains("127.0.0.1:7401"));
        assert!(refused(|config| config.listen.grpc.clear()).contains("nothing to listen on"));
        assert!(refused(|config| config.store.url = "rediss://host".into()).contains("TLS is not built in"));
        assert!(refused(|config| config.store.wait_ms = 1).contains("store.response_timeout_ms"));
        assert!(refused(|c| c.fleet.orphan_threshold_ms = 10_000).contains("heartbeat_interval_ms"));
    }

    #[test]
    fn topics_are_checked_by_name() {
        let topic = |change: fn(&mut TopicConfig)| {
            refused(|config| change(config.topics.get_mut("evaluations").expect("it is the default")))
        };
        assert!(topic(|t| t.partitions = 0).starts_with("topics.evaluations.partitions: 0 is too small"));
        assert!(topic(|t| t.first_sequence = 1 << 53).contains("first_sequence"));
        assert!(topic(|t| t.parked_max = 200_000).contains("partition_parked_max"));
        assert!(topic(|t| t.gap_waits_ms.clear()).contains("1 to 16 waits"));
        assert!(topic(|t| t.gap_waits_ms = vec![0]).contains("0 is too small"));
        assert!(topic(|t| t.parked_age_max_ms = 1_000).contains("the sum of gap_waits_ms (180000)"));
        assert!(topic(|t| t.retain_entries = 600_000).contains("twice retain_entries (1200000)"));
        assert!(topic(|t| t.entries_max = 999).contains("write at least 1000"));
        assert!(topic(|t| t.late_max = 0).contains("late_max: 0 is too small"));
        assert!(topic(|t| t.retain_ms = 0).contains("retain_ms: 0 is too small"));
        assert!(topic(|t| t.rollout_percent = 101).contains("at most 100"));
        assert!(topic(|t| t.rollout_deny = vec![String::new()]).contains("an item is empty"));
        assert!(topic(|t| t.lifecycle.terminal = vec!["done".into()]).contains("needs a type to begin with"));
        let odd = topic(|t| t.lifecycle.initial = vec!["a b".into()]);
        assert!(odd.contains("no type for a lifecycle"), "{odd}");
        let unreached = topic(|t| {
            t.lifecycle.initial = vec!["a".into()];
            t.lifecycle.terminal = vec!["z".into()];
        });
        assert!(unreached.contains("nothing leads to \"z\""), "{unreached}");
        let bad_name = refused(|config| {
            config.topics.insert("Evaluations!".into(), TopicConfig::default());
        });
        assert!(bad_name.contains("1 to 64 characters"), "{bad_name}");
    }
}
