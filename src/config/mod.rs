//! Configuration: one TOML file, then environment variables, then flags.
//!
//! `deploy/seriatim.toml` documents every key with its meaning, default, cost and
//! danger; a test keeps it equal to the defaults here. Unknown keys and impossible
//! relations are refused with a message that says what to write instead.

mod load;
mod topic;
mod validate;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::{
    load::{ENV_PREFIX, Overrides, load},
    topic::TopicConfig,
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub threads: usize,
    pub log: String,
    pub log_format: LogFormat,
    pub listen: Listen,
    pub store: StoreConfig,
    pub limits: Limits,
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
    pub drain_ms: u64,
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
            listen: Listen::default(),
            store: StoreConfig::default(),
            limits: Limits::default(),
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
            drain_ms: 10_000,
        }
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
