//! One topic's section of the configuration.

use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::{
    order::{LatePlace, Ordering, Policy, Sequence},
    store::{Numbering, TopicSpec},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicConfig {
    pub partitions: u32,
    pub numbering: Numbering,
    pub first_sequence: u64,
    pub terminal_types: Vec<String>,
    pub ordering: OrderingConfig,
    pub late: LateConfig,
    pub parked_max: u64,
    pub parked_bytes_max: u64,
    pub partition_parked_max: u64,
    pub partition_parked_bytes_max: u64,
    pub ahead_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderingConfig {
    Enforce,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LateConfig {
    Aside,
    Inline,
}

impl Default for TopicConfig {
    fn default() -> Self {
        let policy = Policy::default();
        TopicConfig {
            partitions: 16,
            numbering: Numbering::Producer,
            first_sequence: policy.first.get(),
            terminal_types: Vec::new(),
            ordering: OrderingConfig::Enforce,
            late: LateConfig::Aside,
            parked_max: policy.parked_max,
            parked_bytes_max: policy.parked_bytes_max,
            partition_parked_max: policy.partition_parked_max,
            partition_parked_bytes_max: policy.partition_parked_bytes_max,
            ahead_max: policy.ahead_max,
        }
    }
}

impl TopicConfig {
    /// The topic as the store knows it.
    pub fn spec(&self, name: &str) -> Result<TopicSpec, ConfigError> {
        let first = Sequence::new(self.first_sequence).map_err(|error| ConfigError::Impossible {
            key: format!("topics.{name}.first_sequence"),
            reason: error.to_string(),
        })?;
        let policy = Policy {
            first,
            ordering: match self.ordering {
                OrderingConfig::Enforce => Ordering::Enforce,
                OrderingConfig::Off => Ordering::Off,
            },
            late: match self.late {
                LateConfig::Aside => LatePlace::Aside,
                LateConfig::Inline => LatePlace::Inline,
            },
            parked_max: self.parked_max,
            parked_bytes_max: self.parked_bytes_max,
            partition_parked_max: self.partition_parked_max,
            partition_parked_bytes_max: self.partition_parked_bytes_max,
            ahead_max: self.ahead_max,
            ..Policy::default()
        };
        Ok(TopicSpec {
            name: name.to_owned(),
            partitions: self.partitions,
            numbering: self.numbering,
            policy,
        })
    }
}
