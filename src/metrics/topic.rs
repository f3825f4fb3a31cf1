//! What is counted for one topic.

use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram};

use super::{PartitionLabel, ReasonLabel, VERDICTS};
use crate::order::Note;

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
    pub(super) shadow_distance: Histogram,
    pub(super) shadow_wait_seconds: Histogram,
    pub(super) shadow_skipped: Counter,
    pub(super) shadow_late: Counter,
    pub publish_seconds: Histogram,
    pub lane_depth: Histogram,
    pub fast_seconds: Histogram,
    pub slow_seconds: Histogram,
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

    pub fn count_refused(&self, reason: &'static str) {
        self.count("refused");
        self.refused.get_or_create(&ReasonLabel { topic: self.topic.clone(), reason }).inc();
    }
}
