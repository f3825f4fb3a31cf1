//! Configuration: one TOML file, then environment variables, then flags.
//!
//! `deploy/seriatim.toml` documents every key with its meaning, default, cost and
//! danger; a test keeps it equal to the defaults here. Unknown keys and impossible
//! relations are refused with a message that says what to write instead.

mod delivery;
#[cfg(test)]
mod fuzz;
mod load;
mod topic;
mod validate;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::{
    delivery::DeliveryConfig,
    load::{ENV_PREFIX, Overrides, Source, load},
    topic::{LifecycleConfig, TopicConfig},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub threads: usize,
    pub log: String,
    pub log_format: LogFormat,
    pub reload_ms: u64,
    pub listen: Listen,
    pub store: StoreConfig,
    pub limits: Limits,
    pub fleet: Fleet,
    pub delivery: DeliveryConfig,
    pub topics: BTreeMap<String, TopicConfig>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Listen {
    pub grpc: String,
    pub socket: String,
    pub web: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    pub url: String,
    pub connect_timeout_ms: u64,
    pub response_timeout_ms: u64,
    pub wait_ms: u64,
    pub start_wait_ms: u64,
    pub straight: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub event_bytes: usize,
    pub attribute_bytes: usize,
    pub request_events: usize,
    pub request_bytes: usize,
    pub batch_events: usize,
    pub batch_bytes: usize,
    pub in_flight_events: usize,
    pub in_flight_bytes: usize,
    pub stream_in_flight: usize,
    pub connection_requests: usize,
    pub connections: usize,
    pub elapse_max: usize,
    pub drain_ms: u64,
}

/// What sidecars do for all of them: signs of life, and looking for lost work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fleet {
    pub heartbeat_interval_ms: u64,
    pub orphan_threshold_ms: u64,
    pub reconcile_interval_ms: u64,
    pub reconcile_max: usize,
    pub reconcile_pause_ms: u64,
}

/// The URL of the embedded store.
pub const MEMORY_URL: &str = "memory:";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("{origin}: {reason}")]
    Malformed { origin: String, reason: String },
    #[error("{key}: {reason}")]
    Impossible { key: String, reason: String },
}

impl Config {
    /// The first key that differs and cannot change while the process runs. Of the
    /// topics, everything can but what is fixed at their creation.
    pub fn needs_restart(&self, new: &Config) -> Option<String> {
        let names = |config: &Config| config.topics.keys().cloned().collect::<Vec<_>>();
        let fixed =
            |topic: &TopicConfig| (topic.partitions, topic.layout, topic.numbering, topic.first_sequence);
        let changed = |name: &&String| fixed(&self.topics[*name]) != fixed(&new.topics[*name]);
        let sections = [
            ("threads", self.threads == new.threads),
            ("log", self.log == new.log),
            ("log_format", self.log_format == new.log_format),
            ("reload_ms", self.reload_ms == new.reload_ms),
            ("listen", self.listen == new.listen),
            ("store", self.store == new.store),
            ("limits", self.limits == new.limits),
            ("fleet", self.fleet == new.fleet),
            ("delivery", self.delivery == new.delivery),
            ("topics", names(self) == names(new)),
        ];
        let section = sections.into_iter().find(|(_, same)| !same).map(|(key, _)| key.to_owned());
        section.or_else(|| self.topics.keys().find(changed).map(|name| format!("topics.{name}")))
    }
}

impl Default for Config {
    /// What runs without a file: one topic, so that a trial needs no configuration.
    fn default() -> Self {
        let evaluations = TopicConfig {
            terminal_types: ["cancelled", "completed", "failed"].map(str::to_owned).to_vec(),
            ..TopicConfig::default()
        };
        Config {
            threads: 1,
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            reload_ms: 2_000,
            listen: Listen::default(),
            store: StoreConfig::default(),
            limits: Limits::default(),
            fleet: Fleet::default(),
            delivery: DeliveryConfig::default(),
            topics: BTreeMap::from([("evaluations".to_owned(), evaluations)]),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Listen { grpc: "127.0.0.1:7401".to_owned(), socket: String::new(), web: "127.0.0.1:7402".to_owned() }
    }
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            url: "redis://127.0.0.1:6379".to_owned(),
            connect_timeout_ms: 500,
            response_timeout_ms: 1_000,
            wait_ms: 5_000,
            start_wait_ms: 30_000,
            straight: true,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            event_bytes: 256 << 10,
            attribute_bytes: 8 << 10,
            request_events: 1024,
            request_bytes: 4 << 20,
            batch_events: 256,
            batch_bytes: 1 << 20,
            in_flight_events: 16_384,
            in_flight_bytes: 64 << 20,
            stream_in_flight: 1024,
            connection_requests: 256,
            connections: 1024,
            elapse_max: 128,
            drain_ms: 10_000,
        }
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Fleet {
            heartbeat_interval_ms: 10_000,
            orphan_threshold_ms: 60_000,
            reconcile_interval_ms: 60_000,
            reconcile_max: 256,
            reconcile_pause_ms: 10,
        }
    }
}

impl Fleet {
    /// How long a silent sidecar is remembered.
    pub fn forget_after_ms(&self) -> u64 {
        const HOUR_MS: u64 = 3_600_000;
        (3 * self.orphan_threshold_ms).max(HOUR_MS)
    }

    /// How long the right to reconcile lasts unless it is renewed.
    pub fn lead_ms(&self) -> u64 {
        const TWO_MINUTES_MS: u64 = 120_000;
        (2 * self.reconcile_interval_ms).max(TWO_MINUTES_MS)
    }
}

impl StoreConfig {
    pub fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }

    pub fn response_timeout(&self) -> Duration {
        Duration::from_millis(self.response_timeout_ms)
    }

    pub fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_ms)
    }

    pub fn start_wait(&self) -> Duration {
        Duration::from_millis(self.start_wait_ms)
    }
}
