//! What is counted for one topic.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};

use super::{Histogram, PartitionLabel, ReasonLabel, STREAMS, VERDICTS};
use crate::{
    order::Note,
    store::{Path, Trimmed},
};

/// The handles of one topic, shared by its partitions.
pub struct TopicMetrics {
    pub(super) topic: String,
    pub(super) verdicts: [Counter; VERDICTS.len()],
    pub(super) refused: Family<ReasonLabel, Counter>,
    pub drained: Counter,
    pub after_terminal: Counter,
    pub(super) skipped: Family<ReasonLabel, Counter>,
    pub(super) probed: Counter,
    pub resends: Counter,
    pub(super) gap_seconds: Histogram,
    pub(super) illegal: Counter,
    pub elapse_seconds: Histogram,
    pub elapse_lanes: Histogram,
    pub(super) degraded: Family<PartitionLabel, Gauge>,
    /// These three for `events` and `late`.
    pub(super) trimmed: [Counter; STREAMS.len()],
    pub(super) entries: [Gauge; STREAMS.len()],
    pub(super) full: [Gauge; STREAMS.len()],
    pub(super) fill_ratio: Gauge<f64, AtomicU64>,
    pub(super) shadow_distance: Histogram,
    pub(super) shadow_wait_seconds: Histogram,
    pub(super) shadow_skipped: Counter,
    pub(super) shadow_late: Counter,
    pub publish_seconds: Histogram,
    pub lane_depth: Histogram,
    pub call_seconds: [Histogram; Path::ALL.len()],
}

impl TopicMetrics {
    /// Counts one answered event; `verdict` is one of [`VERDICTS`].
    pub fn count(&self, verdict: &str) {
        let at = VERDICTS.iter().position(|known| *known == verdict).expect("the verdict is a known word");
        self.verdicts[at].inc();
    }

    /// Counts what a call did to gaps.
    pub fn note(&self, notes: &[Note]) {
        let seconds = |milliseconds: u64| milliseconds as f64 / 1000.0;
        for note in notes {
            match *note {
                Note::Filled(waited) => self.gap_seconds.observe(seconds(waited)),
                Note::Skipped(reason) => {
                    let label = ReasonLabel { topic: self.topic.clone(), reason: reason.name() };
                    self.skipped.get_or_create(&label).inc();
                }
                Note::Probed => drop(self.probed.inc()),
                Note::Illegal => drop(self.illegal.inc()),
                Note::Distance(places) => self.shadow_distance.observe(places as f64),
                Note::WouldWait(waited) => self.shadow_wait_seconds.observe(seconds(waited)),
                Note::WouldSkip => drop(self.shadow_skipped.inc()),
                Note::WouldBeLate => drop(self.shadow_late.inc()),
            }
        }
    }

    pub fn set_degraded(&self, partition: u32, degraded: bool) {
        let label = PartitionLabel { topic: self.topic.clone(), partition };
        self.degraded.get_or_create(&label).set(i64::from(degraded));
    }

    pub fn count_trimmed(&self, events: u64, late: u64) {
        self.trimmed[0].inc_by(events);
        self.trimmed[1].inc_by(late);
    }

    /// What was last heard of each partition.
    pub fn set_entries(&self, partitions: &[Trimmed]) {
        let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let sum = |of: fn(&Trimmed) -> u64| count(partitions.iter().map(of).sum());
        self.entries[0].set(sum(|p| p.entries));
        self.entries[1].set(sum(|p| p.late_entries));
        self.full[0].set(sum(|p| u64::from(p.full)));
        self.full[1].set(sum(|p| u64::from(p.late_full)));
        // Nothing is known of a limit of 0: the partition did not answer yet.
        let known = partitions.iter().filter(|p| p.entries_max > 0);
        let fill = known.map(|p| p.entries as f64 / p.entries_max as f64);
        self.fill_ratio.set(fill.fold(0.0, f64::max));
    }

    pub fn count_refused(&self, reason: &'static str) {
        self.count("refused");
        self.refused.get_or_create(&ReasonLabel { topic: self.topic.clone(), reason }).inc();
    }
}
