//! What a topic is: what is fixed when it is created, and its policy.

use std::fmt;

use crate::order::{LatePlace, Ordering, Overflow, Policy, Sequence};

/// The version of keys, layout and scripts. A store written by another one is not
/// touched.
pub const WIRE_VERSION: u32 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSpec {
    pub name: String,
    pub partitions: u32,
    pub layout: Layout,
    pub numbering: Numbering,
    pub policy: Policy,
}

/// How a topic's events stand in its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// One entry an event.
    #[default]
    Entry,
    /// One entry a call, each of its fields one event (`field.rs`).
    Batch,
}

impl Layout {
    pub const ALL: [Layout; 2] = [Layout::Entry, Layout::Batch];

    pub fn name(self) -> &'static str {
        match self {
            Layout::Entry => "entry",
            Layout::Batch => "batch",
        }
    }
}

/// Who numbers a topic's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Numbering {
    #[default]
    Producer,
    Assigned,
}

impl Numbering {
    pub fn name(self) -> &'static str {
        match self {
            Numbering::Producer => "producer",
            Numbering::Assigned => "assigned",
        }
    }
}

/// What is fixed at creation, as it stands in the topic's record.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TopicRecord {
    pub partitions: u32,
    pub layout: String,
    pub first_sequence: u64,
    pub numbering: String,
    pub wire_version: u32,
}

impl TopicSpec {
    pub fn record(&self) -> TopicRecord {
        TopicRecord {
            partitions: self.partitions,
            layout: self.layout.name().to_owned(),
            first_sequence: self.policy.first.get(),
            numbering: self.numbering.name().to_owned(),
            wire_version: WIRE_VERSION,
        }
    }
}

/// A field of the record that differs from what the configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub field: &'static str,
    pub wanted: String,
    pub found: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { field, wanted, found } = self;
        write!(f, "{field} is fixed at {found} since the topic was created, the configuration says {wanted}")
    }
}

impl TopicRecord {
    /// `None` if a later version made it.
    pub fn layout(&self) -> Option<Layout> {
        Layout::ALL.into_iter().find(|known| known.name() == self.layout)
    }

    pub fn fields(&self) -> [(&'static str, String); 5] {
        [
            ("partitions", self.partitions.to_string()),
            ("layout", self.layout.clone()),
            ("first_sequence", self.first_sequence.to_string()),
            ("numbering", self.numbering.clone()),
            ("wire_version", self.wire_version.to_string()),
        ]
    }

    /// From field and value pairs; `None` if one is absent or malformed.
    pub fn from_fields(fields: &[(String, String)]) -> Option<Self> {
        let field = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, value)| value);
        Some(TopicRecord {
            partitions: field("partitions")?.parse().ok().filter(|partitions| *partitions > 0)?,
            layout: field("layout")?.clone(),
            first_sequence: field("first_sequence")?.parse().ok().filter(|n| Sequence::new(*n).is_ok())?,
            numbering: field("numbering")?.clone(),
            wire_version: field("wire_version")?.parse().ok()?,
        })
    }

    /// The first field in which the record differs from what is wanted.
    pub fn mismatch(&self, wanted: &TopicRecord) -> Option<Mismatch> {
        let pairs = self.fields().into_iter().zip(wanted.fields());
        let mut differing = pairs.filter(|((_, found), (_, wanted))| found != wanted);
        differing.next().map(|((field, found), (_, wanted))| Mismatch { field, wanted, found })
    }
}

/// The policy as the scripts read it: words separated by colons.
pub fn policy_text(policy: &Policy) -> String {
    let ordering = match policy.ordering {
        Ordering::Enforce => "enforce",
        Ordering::Shadow => "shadow",
        Ordering::Off => "off",
    };
    let late = match policy.late {
        LatePlace::Aside => "aside",
        LatePlace::Inline => "inline",
    };
    let overflow = match policy.overflow {
        Overflow::Skip => "skip",
        Overflow::Refuse => "refuse",
    };
    let (breaker, retirement, retention) = (&policy.breaker, &policy.retirement, &policy.retention);
    let numbers = [
        policy.parked_max,
        policy.parked_bytes_max,
        policy.partition_parked_max,
        policy.partition_parked_bytes_max,
        policy.ahead_max,
        policy.append_max,
        policy.rollout.percent,
        policy.gap_wait_live,
        policy.parked_age_max,
        policy.terminal_wait,
        breaker.skips,
        breaker.window,
        breaker.hold,
        retirement.stuck_after,
        retirement.retire_after,
        retirement.idle_retire_after,
        retirement.remember_for,
        policy.announced_max,
        retention.retain_ms,
        retention.retain_entries,
        retention.entries_max,
        retention.late_retain_ms,
        retention.late_max,
    ];
    let mut text = format!("{}:{ordering}:{late}:{overflow}", policy.first);
    numbers.iter().for_each(|number| text.push_str(&format!(":{number}")));
    let waits: Vec<String> = policy.gap_waits.iter().map(ToString::to_string).collect();
    text + ":" + &waits.join(",")
}

/// The policy's lists as JSON, or nothing if all are empty.
pub fn lists_text(policy: &Policy) -> String {
    let Policy { rollout, terminal_types, lifecycle, .. } = policy;
    if rollout.allow.is_empty() && rollout.deny.is_empty() && terminal_types.is_empty() && lifecycle.is_none()
    {
        return String::new();
    }
    let lifecycle = lifecycle.as_ref().map(|lifecycle| {
        serde_json::json!({
            "initial": lifecycle.initial,
            "transitions": lifecycle.transitions,
            "known": lifecycle.types(),
        })
    });
    let mut lists = serde_json::json!({
        "allow": rollout.allow,
        "deny": rollout.deny,
        "terminal": terminal_types,
    });
    if let Some(lifecycle) = lifecycle {
        lists["lifecycle"] = lifecycle;
    }
    lists.to_string()
}
