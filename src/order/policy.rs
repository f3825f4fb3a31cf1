//! What a topic decides about its lanes. Times are in milliseconds of the partition
//! clock.

use std::collections::BTreeSet;

use super::{
    identity::{Entity, Sequence},
    lane::{Event, Payload},
    lifecycle::Lifecycle,
    schedule::rollout_place,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The sequence every epoch begins with.
    pub first: Sequence,
    pub ordering: Ordering,
    pub rollout: Rollout,
    pub late: LatePlace,
    pub overflow: Overflow,
    /// Parked events of one lane.
    pub parked_max: u64,
    /// Parked bytes of one lane.
    pub parked_bytes_max: u64,
    /// Parked events of one partition.
    pub partition_parked_max: u64,
    /// Parked bytes of one partition.
    pub partition_parked_bytes_max: u64,
    /// How far ahead of next an event may be.
    pub ahead_max: u64,
    /// Entries one call may append, in all lanes together. At least 2, which an epoch
    /// needs; at most some 2,000, which is what a script can unpack.
    pub append_max: u64,
    /// How long a gap waits: a probe follows each wait but the last, a skip the last.
    pub gap_waits: Vec<u64>,
    /// How long a gap may wait while a producer of its entity is connected.
    pub gap_wait_live: u64,
    /// How long a lane may have something parked without a break, whatever its gaps.
    pub parked_age_max: u64,
    /// How long a gap still waits once a terminal event is parked behind it.
    pub terminal_wait: u64,
    pub breaker: BreakerPolicy,
    /// Types that are terminal even if the event does not say so.
    pub terminal_types: BTreeSet<String>,
    pub lifecycle: Option<Lifecycle>,
    pub retirement: Retirement,
    /// Announced entities of one partition.
    pub announced_max: u64,
    pub retention: Retention,
}

/// Whether lanes are born with a promise of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    Enforce,
    /// Everything passes at once, and what enforcing would have done is measured.
    Shadow,
    /// Everything passes at once, marked (rule 10).
    Off,
}

/// Which entities the ordering is for; all others pass. Decided once in an entity's
/// life, when its lane is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollout {
    pub percent: u64,
    /// Inside, whatever the percentage. A `*` at the end stands for any rest.
    pub allow: Vec<String>,
    /// Outside, whatever the percentage and the other list.
    pub deny: Vec<String>,
}

/// Where a late event goes (rule 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatePlace {
    /// To the partition's late stream.
    Aside,
    /// Into the event stream, marked.
    Inline,
}

/// What happens when a lane's own parked limits are reached (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// Its gap is given up at once.
    Skip,
    /// Events are refused until the gap is filled or its time is up.
    Refuse,
}

/// When a partition degrades by itself, and when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Skips within the window that trip it; 0 never does.
    pub skips: u64,
    pub window: u64,
    /// The least time it stays tripped.
    pub hold: u64,
}

/// When lanes are looked at, forgotten, and how long they are remembered after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retirement {
    /// An entity without a terminal event for so long is reported.
    pub stuck_after: u64,
    /// A closed lane in which nothing happened for so long becomes a tombstone.
    pub retire_after: u64,
    /// An open one likewise; 0 never does.
    pub idle_retire_after: u64,
    /// How long a tombstone stays, at least.
    pub remember_for: u64,
}

/// How long entries stay in a partition's streams, and how many it may have. The rules ask
/// for the two limits; the rest is for whoever trims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Older entries are trimmed, once every group has done them.
    pub retain_ms: u64,
    /// So are those beyond the newest so many.
    pub retain_entries: u64,
    /// At so many entries the partition is full.
    pub entries_max: u64,
    /// Older late events are trimmed.
    pub late_retain_ms: u64,
    /// At so many late events nothing more may become late.
    pub late_max: u64,
}

/// The mode a lane is born with and keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    Shadow,
    Pass,
}

impl Policy {
    /// The mode of a lane that is made now.
    pub fn mode_of(&self, entity: &Entity) -> Mode {
        match self.ordering {
            Ordering::Off => Mode::Pass,
            _ if !self.rollout.includes(entity) => Mode::Pass,
            Ordering::Shadow => Mode::Shadow,
            Ordering::Enforce => Mode::Enforce,
        }
    }
}

impl Policy {
    /// Does the event end its entity: by its own word, or by its type?
    pub fn is_terminal<P: Payload>(&self, event: &Event<P>) -> bool {
        event.terminal || self.terminal_types.contains(event.payload.kind())
    }
}

impl Rollout {
    fn includes(&self, entity: &Entity) -> bool {
        let is_in = |list: &[String]| list.iter().any(|pattern| matches(pattern, entity.as_str()));
        let is_everybody = self.percent >= 100;
        !is_in(&self.deny)
            && (is_everybody || is_in(&self.allow) || rollout_place(entity) < self.percent * 100)
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

impl Default for Policy {
    fn default() -> Self {
        const SECOND: u64 = 1_000;
        const HOUR: u64 = 3_600 * SECOND;
        Policy {
            first: Sequence::new(0).expect("0 is a sequence"),
            ordering: Ordering::Enforce,
            rollout: Rollout { percent: 100, allow: Vec::new(), deny: Vec::new() },
            late: LatePlace::Aside,
            overflow: Overflow::Skip,
            parked_max: 64,
            parked_bytes_max: 4 << 20,
            partition_parked_max: 100_000,
            partition_parked_bytes_max: 256 << 20,
            ahead_max: 1_000_000,
            append_max: 512,
            gap_waits: [10, 20, 30, 60, 60].map(|seconds| seconds * SECOND).to_vec(),
            gap_wait_live: 300 * SECOND,
            parked_age_max: 600 * SECOND,
            terminal_wait: 5 * SECOND,
            breaker: BreakerPolicy { skips: 100, window: 60 * SECOND, hold: 30 * SECOND },
            terminal_types: BTreeSet::new(),
            lifecycle: None,
            retirement: Retirement {
                stuck_after: 600 * SECOND,
                retire_after: 24 * HOUR,
                idle_retire_after: 0,
                remember_for: 7 * 24 * HOUR,
            },
            announced_max: 100_000,
            retention: Retention {
                retain_ms: 24 * HOUR,
                retain_entries: 100_000,
                entries_max: 1_000_000,
                late_retain_ms: 7 * 24 * HOUR,
                late_max: 100_000,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_stand_above_the_percentage_and_deny_above_allow() {
        let rollout = |percent, allow: &[&str], deny: &[&str]| Rollout {
            percent,
            allow: allow.iter().map(ToString::to_string).collect(),
            deny: deny.iter().map(ToString::to_string).collect(),
        };
        let job = Entity::new("job-1").unwrap();
        assert!(!rollout(0, &[], &[]).includes(&job) && rollout(100, &[], &[]).includes(&job));
        assert!(rollout(0, &["job-*"], &[]).includes(&job));
        assert!(!rollout(0, &["job"], &[]).includes(&job), "without a star the whole name counts");
        assert!(!rollout(100, &["job-1"], &["*"]).includes(&job));
    }
}
