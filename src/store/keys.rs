//! The names of all keys, and which partition an entity belongs to: a public
//! contract for workers that read the streams themselves.
//!
//! The keys of one partition share a hash tag, so that a script touches one slot and
//! Redis Cluster spreads partitions. No key is named after an entity: an entity's
//! characters can neither choose a slot nor collide with another key.

use std::{fmt, sync::Arc};

use xxhash_rust::xxh3::xxh3_64;

use crate::order::{BUCKETS, Entity};

/// One partition of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId {
    pub topic: Arc<str>,
    pub index: u32,
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.topic, self.index)
    }
}

/// `xxh3_64(entity, seed 0) mod partitions`. Test vectors are published in
/// ARCHITECTURE.md.
pub fn partition_of(entity: &Entity, partitions: u32) -> u32 {
    let partition = xxh3_64(entity.as_str().as_bytes()) % u64::from(partitions);
    u32::try_from(partition).expect("it is below a u32")
}

/// The digest by which an assigned lane remembers an event's id.
pub fn id_digest(id: &str) -> u64 {
    xxh3_64(id.as_bytes())
}

/// Matches the record of every topic.
pub const TOPIC_PATTERN: &str = "seriatim:{*}:topic";

pub fn topic_key(topic: &str) -> String {
    format!("seriatim:{{{topic}}}:topic")
}

/// The topic whose record this key is.
pub fn topic_of_key(key: &str) -> Option<&str> {
    key.strip_prefix("seriatim:{")?.strip_suffix("}:topic")
}

/// Where gaps of a partition are probed: whoever has producers connected listens there.
pub fn probe_channel(partition: &PartitionId) -> String {
    format!("seriatim:{{{partition}}}:probes")
}

/// Matches the probe channels of all partitions of a topic.
pub fn probe_pattern(topic: &str) -> String {
    format!("seriatim:{{{topic}.*}}:probes")
}

/// Sidecars and when they were last heard of.
pub const SIDECARS_KEY: &str = "seriatim:{sidecars}";

/// Who looks for lost work at present.
pub const RECONCILER_KEY: &str = "seriatim:{sidecars}:reconciler";

/// The keys of one partition.
#[derive(Clone, Debug)]
pub struct PartitionKeys {
    pub events: String,
    pub late: String,
    pub lanes: String,
    pub parked: String,
    pub gaps: String,
    pub meta: String,
    /// Lanes that were made and not looked at since, by age: lists, because each event that begins a lane pays for it.
    pub born: [String; BUCKETS],
    /// Open lanes that were looked at, by age.
    pub opened: [String; BUCKETS],
    /// What is left of retired lanes, by age.
    pub tombs: [String; BUCKETS],
    /// Closed lanes by age.
    pub closed: [String; BUCKETS],
    pub announced: String,
    /// Says that a transaction is as predicted; never there but inside of one.
    pub writable: String,
    /// The stream, the lanes, and what is parked, meanwhile.
    pub writable_events: String,
    pub writable_lanes: String,
    pub writable_parked: String,
    /// Groups of workers, each with the id up to which it has done everything in `events`.
    pub groups: String,
}

impl PartitionKeys {
    pub fn new(partition: &PartitionId) -> Self {
        let key = |name: &str| format!("seriatim:{{{partition}}}:{name}");
        let ring = |name: &str| std::array::from_fn(|bucket| key(&format!("{name}:{bucket}")));
        PartitionKeys {
            events: key("events"),
            late: key("late"),
            lanes: key("lanes"),
            parked: key("parked"),
            gaps: key("gaps"),
            meta: key("meta"),
            born: ring("born"),
            opened: ring("opened"),
            tombs: ring("tombs"),
            closed: ring("closed"),
            announced: key("announced"),
            writable: key("writable"),
            writable_events: key("writable:events"),
            writable_lanes: key("writable:lanes"),
            writable_parked: key("writable:parked"),
            groups: key("groups"),
        }
    }

    /// Those that every script of the rules takes, in its order.
    pub fn of_rules(&self) -> Vec<&str> {
        let single = [&self.events, &self.late, &self.lanes, &self.parked, &self.gaps, &self.meta];
        single.into_iter().chain(&self.born).chain(&self.tombs).map(String::as_str).collect()
    }

    /// Those that `admit` takes, in its order.
    pub fn of_admit(&self) -> Vec<&str> {
        self.of_rules().into_iter().chain([self.writable.as_str()]).collect()
    }

    /// Those that `straight.lua` takes, in its order.
    pub fn of_straight(&self) -> Vec<&str> {
        let single = [&self.events, &self.lanes, &self.meta];
        let behind = [
            &self.writable,
            &self.writable_lanes,
            &self.parked,
            &self.writable_parked,
            &self.gaps,
            &self.writable_events,
        ];
        single.into_iter().chain(&self.born).chain(&self.tombs).chain(behind).map(String::as_str).collect()
    }

    /// All of them, in the order in which scripts take them.
    pub fn all(&self) -> Vec<&str> {
        let more = self.closed.iter().chain([&self.announced, &self.groups]).chain(&self.opened);
        self.of_rules().into_iter().chain(more.map(String::as_str)).collect()
    }
}

/// Groups of workers that are registered for a topic.
pub fn groups_key(topic: &str) -> String {
    format!("seriatim:{{{topic}}}:groups")
}

/// Who works for a group.
pub fn members_key(topic: &str, group: &str) -> String {
    format!("seriatim:{{{topic}}}:members:{group}")
}

/// What one group keeps about one partition.
#[derive(Clone, Debug)]
pub struct GroupKeys {
    pub events: String,
    /// Of all groups: up to where everything is done.
    pub groups: String,
    pub lease: String,
    /// How far each entity is acknowledged.
    pub resume: String,
    /// Entities that are held.
    pub held: String,
    /// Their events.
    pub kept: String,
}

impl GroupKeys {
    pub fn new(partition: &PartitionId, group: &str) -> Self {
        let key = |name: &str| format!("seriatim:{{{partition}}}:{name}");
        let own = |name: &str| key(&format!("{name}:{group}"));
        GroupKeys {
            events: key("events"),
            groups: key("groups"),
            lease: own("lease"),
            resume: own("resume"),
            held: own("held"),
            kept: own("kept"),
        }
    }

    /// The name of an event of a held entity.
    pub fn kept_field(entity: &Entity, number: u64) -> String {
        format!("{number}:{entity}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_as_documented_and_share_a_hash_tag() {
        let keys = PartitionKeys::new(&PartitionId { topic: "evaluations".into(), index: 3 });
        assert_eq!(keys.events, "seriatim:{evaluations.3}:events");
        assert!(keys.all().iter().all(|key| key.starts_with("seriatim:{evaluations.3}:")));
        assert_eq!(topic_of_key(&topic_key("evaluations")), Some("evaluations"));
        assert_eq!(topic_of_key("seriatim:{evaluations.3}:events"), None);
    }

    /// The vectors of ARCHITECTURE.md. They never change: every client computes them.
    #[test]
    fn partition_of_an_entity_is_pinned() {
        let long = "x".repeat(256);
        for (entity, of_16, of_7) in [
            ("evaluation-0", 14, 3),
            ("evaluation-1", 4, 3),
            ("a", 15, 1),
            ("{}", 6, 5),
            ("line\nbreak", 12, 2),
            ("nul\0", 7, 6),
            ("é", 3, 6),
            (long.as_str(), 9, 2),
        ] {
            let entity = Entity::new(entity).unwrap();
            assert_eq!((partition_of(&entity, 16), partition_of(&entity, 7)), (of_16, of_7), "{entity:?}");
        }
    }
}
