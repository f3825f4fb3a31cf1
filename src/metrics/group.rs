//! What is counted for groups of workers that this process serves.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabel {
    topic: String,
    group: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupOutcomeLabel {
    topic: String,
    group: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Default)]
pub struct GroupMetrics {
    deliveries: Family<GroupOutcomeLabel, Counter>,
    leases: Family<GroupLabel, Gauge>,
    held: Family<GroupLabel, Gauge>,
    dead: Family<GroupLabel, Gauge>,
}

/// What a worker has done since it began, and what it has at present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    pub started: u64,
    pub acked: u64,
    pub nacked: u64,
    pub retried: u64,
    pub died: u64,
    pub fenced: u64,
    pub gaps: u64,
    pub malformed: u64,
    pub leases_lost: u64,
    pub leases: u64,
    pub held: u64,
    pub dead: u64,
}

impl GroupMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register(
            "deliveries",
            "What became of deliveries of workers served here: started, acked, nacked, retried, died, fenced, gap, \
             malformed, lease_lost",
            self.deliveries.clone(),
        );
        r.register("leases", "Partitions leased to workers served here", self.leases.clone());
        r.register("held_entities", "Entities held back in partitions leased here", self.held.clone());
        r.register("dead_entities", "Those of them that are dead letters", self.dead.clone());
    }

    /// Counts what a worker did between two looks at it.
    pub fn count(&self, topic: &str, group: &str, before: &WorkerCounts, now: &WorkerCounts) {
        for (outcome, before, now) in [
            ("started", before.started, now.started),
            ("acked", before.acked, now.acked),
            ("nacked", before.nacked, now.nacked),
            ("retried", before.retried, now.retried),
            ("died", before.died, now.died),
            ("fenced", before.fenced, now.fenced),
            ("gap", before.gaps, now.gaps),
            ("malformed", before.malformed, now.malformed),
            ("lease_lost", before.leases_lost, now.leases_lost),
        ] {
            let label = GroupOutcomeLabel { topic: topic.to_owned(), group: group.to_owned(), outcome };
            self.deliveries.get_or_create(&label).inc_by(now - before);
        }
        let label = GroupLabel { topic: topic.to_owned(), group: group.to_owned() };
        for (gauge, before, now) in [
            (&self.leases, before.leases, now.leases),
            (&self.held, before.held, now.held),
            (&self.dead, before.dead, now.dead),
        ] {
            // Several workers of a group may be served here: each moves it by its own share.
            gauge.get_or_create(&label).inc_by(now as i64 - before as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_of_a_group_add_up_and_leave_nothing_behind() {
        let metrics = GroupMetrics::default();
        let (none, some) =
            (WorkerCounts::default(), WorkerCounts { acked: 5, leases: 2, ..Default::default() });
        metrics.count("t", "g", &none, &some);
        metrics.count("t", "g", &none, &some);
        metrics.count("t", "g", &some, &WorkerCounts { leases: 0, ..some });
        let label = GroupLabel { topic: "t".into(), group: "g".into() };
        assert_eq!(metrics.leases.get_or_create(&label).get(), 2);
        let label = GroupOutcomeLabel { topic: "t".into(), group: "g".into(), outcome: "acked" };
        assert_eq!(metrics.deliveries.get_or_create(&label).get(), 10);
    }
}
