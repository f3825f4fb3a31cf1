//! One topic's section of the configuration.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ConfigError;
use crate::{
    order::{
        BreakerPolicy, LatePlace, Lifecycle, Ordering, Overflow, Policy, Retention, Retirement, Rollout,
        Sequence,
    },
    store::{Layout, Numbering, TopicSpec},
};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TopicConfig {
    pub partitions: u32,
    pub layout: Layout,
    pub numbering: Numbering,
    pub first_sequence: u64,
    pub terminal_types: Vec<String>,
    pub ordering: OrderingConfig,
    pub rollout_percent: u64,
    pub rollout_allow: Vec<String>,
    pub rollout_deny: Vec<String>,
    pub late: LateConfig,
    pub overflow: OverflowConfig,
    pub parked_max: u64,
    pub parked_bytes_max: u64,
    pub partition_parked_max: u64,
    pub partition_parked_bytes_max: u64,
    pub ahead_max: u64,
    pub gap_waits_ms: Vec<u64>,
    pub gap_wait_live_ms: u64,
    pub parked_age_max_ms: u64,
    pub terminal_wait_ms: u64,
    pub breaker_skips: u64,
    pub breaker_window_ms: u64,
    pub breaker_hold_ms: u64,
    pub stuck_after_ms: u64,
    pub retire_after_ms: u64,
    pub idle_retire_after_ms: u64,
    pub remember_for_ms: u64,
    pub announced_max: u64,
    pub retain_ms: u64,
    pub retain_entries: u64,
    pub entries_max: u64,
    pub late_retain_ms: u64,
    pub late_max: u64,
    pub lifecycle: LifecycleConfig,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderingConfig {
    Enforce,
    Shadow,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LateConfig {
    Aside,
    Inline,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverflowConfig {
    Skip,
    Refuse,
}

/// Which type may follow which. Empty: nobody asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LifecycleConfig {
    pub initial: Vec<String>,
    pub terminal: Vec<String>,
    pub transitions: BTreeMap<String, Vec<String>>,
}

impl LifecycleConfig {
    pub fn is_empty(&self) -> bool {
        self == &LifecycleConfig::default()
    }

    /// All types it names.
    pub fn types(&self) -> BTreeSet<&str> {
        let following = self.transitions.iter().flat_map(|(from, to)| to.iter().chain([from]));
        self.initial.iter().chain(&self.terminal).chain(following).map(String::as_str).collect()
    }
}

impl Default for TopicConfig {
    fn default() -> Self {
        let policy = Policy::default();
        TopicConfig {
            partitions: 16,
            layout: Layout::default(),
            numbering: Numbering::Producer,
            first_sequence: policy.first.get(),
            terminal_types: Vec::new(),
            ordering: OrderingConfig::Enforce,
            rollout_percent: policy.rollout.percent,
            rollout_allow: Vec::new(),
            rollout_deny: Vec::new(),
            late: LateConfig::Aside,
            overflow: OverflowConfig::Skip,
            parked_max: policy.parked_max,
            parked_bytes_max: policy.parked_bytes_max,
            partition_parked_max: policy.partition_parked_max,
            partition_parked_bytes_max: policy.partition_parked_bytes_max,
            ahead_max: policy.ahead_max,
            gap_waits_ms: policy.gap_waits,
            gap_wait_live_ms: policy.gap_wait_live,
            parked_age_max_ms: policy.parked_age_max,
            terminal_wait_ms: policy.terminal_wait,
            breaker_skips: policy.breaker.skips,
            breaker_window_ms: policy.breaker.window,
            breaker_hold_ms: policy.breaker.hold,
            stuck_after_ms: policy.retirement.stuck_after,
            retire_after_ms: policy.retirement.retire_after,
            idle_retire_after_ms: policy.retirement.idle_retire_after,
            remember_for_ms: policy.retirement.remember_for,
            announced_max: policy.announced_max,
            retain_ms: policy.retention.retain_ms,
            retain_entries: policy.retention.retain_entries,
            entries_max: policy.retention.entries_max,
            late_retain_ms: policy.retention.late_retain_ms,
            late_max: policy.retention.late_max,
            lifecycle: LifecycleConfig::default(),
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
        let (name, partitions, numbering) = (name.to_owned(), self.partitions, self.numbering);
        Ok(TopicSpec { name, partitions, layout: self.layout, numbering, policy: self.policy(first) })
    }

    fn policy(&self, first: Sequence) -> Policy {
        Policy {
            first,
            ordering: match self.ordering {
                OrderingConfig::Enforce => Ordering::Enforce,
                OrderingConfig::Shadow => Ordering::Shadow,
                OrderingConfig::Off => Ordering::Off,
            },
            rollout: Rollout {
                percent: self.rollout_percent,
                allow: self.rollout_allow.clone(),
                deny: self.rollout_deny.clone(),
            },
            late: match self.late {
                LateConfig::Aside => LatePlace::Aside,
                LateConfig::Inline => LatePlace::Inline,
            },
            overflow: match self.overflow {
                OverflowConfig::Skip => Overflow::Skip,
                OverflowConfig::Refuse => Overflow::Refuse,
            },
            parked_max: self.parked_max,
            parked_bytes_max: self.parked_bytes_max,
            partition_parked_max: self.partition_parked_max,
            partition_parked_bytes_max: self.partition_parked_bytes_max,
            ahead_max: self.ahead_max,
            append_max: Policy::default().append_max,
            gap_waits: self.gap_waits_ms.clone(),
            gap_wait_live: self.gap_wait_live_ms,
            parked_age_max: self.parked_age_max_ms,
            terminal_wait: self.terminal_wait_ms,
            breaker: BreakerPolicy {
                skips: self.breaker_skips,
                window: self.breaker_window_ms,
                hold: self.breaker_hold_ms,
            },
            terminal_types: self.terminal_types.iter().chain(&self.lifecycle.terminal).cloned().collect(),
            lifecycle: (!self.lifecycle.is_empty()).then(|| self.lifecycle()),
            retirement: Retirement {
                stuck_after: self.stuck_after_ms,
                retire_after: self.retire_after_ms,
                idle_retire_after: self.idle_retire_after_ms,
                remember_for: self.remember_for_ms,
            },
            announced_max: self.announced_max,
            retention: Retention {
                retain_ms: self.retain_ms,
                retain_entries: self.retain_entries,
                entries_max: self.entries_max,
                late_retain_ms: self.late_retain_ms,
                late_max: self.late_max,
            },
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        let set = |types: &Vec<String>| types.iter().cloned().collect();
        let transitions = self.lifecycle.transitions.iter().map(|(from, to)| (from.clone(), set(to)));
        Lifecycle { initial: set(&self.lifecycle.initial), transitions: transitions.collect() }
    }
}
