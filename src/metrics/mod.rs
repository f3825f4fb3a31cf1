//! Every metric, with its unit and help, in one place.
//!
//! Labels are closed sets: topics from the configuration, verdicts, reasons and error
//! classes. An entity is never a label. Handles are resolved once per topic, because
//! looking a label set up costs ten times what counting does.

mod group;
mod histogram;
mod topic;

use std::{fmt, sync::atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

use self::histogram::Histogram;
pub use self::{
    group::{GroupMetrics, WorkerCounts},
    topic::TopicMetrics,
};
use crate::store::Path;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TopicLabel {
    topic: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    topic: String,
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    topic: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartitionLabel {
    topic: String,
    partition: u32,
}

/// `stream` is "events" or "late".
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamLabel {
    topic: String,
    stream: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabel {
    path: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// The words of the stream label.
const STREAMS: [&str; 2] = ["events", "late"];

/// The words of the verdict label; the last is for requests whose outcome the store
/// did not tell in time.
pub const VERDICTS: [&str; 10] = [
    "released",
    "parked",
    "passed",
    "duplicate",
    "late",
    "conflict",
    "stale",
    "refused",
    "invalid",
    "unavailable",
];

pub struct Metrics {
    registry: Registry,
    events: Family<VerdictLabel, Counter>,
    refused: Family<ReasonLabel, Counter>,
    drained: Family<TopicLabel, Counter>,
    after_terminal: Family<TopicLabel, Counter>,
    publish_seconds: Family<TopicLabel, Histogram>,
    lane_depth: Family<TopicLabel, Histogram>,
    store_call_seconds: Family<PathLabel, Histogram>,
    store_errors: Family<ClassLabel, Counter>,
    skipped: Family<ReasonLabel, Counter>,
    probed: Family<TopicLabel, Counter>,
    resends: Family<TopicLabel, Counter>,
    gap_seconds: Family<TopicLabel, Histogram>,
    illegal: Family<TopicLabel, Counter>,
    elapse_seconds: Family<TopicLabel, Histogram>,
    elapse_lanes: Family<TopicLabel, Histogram>,
    degraded: Family<PartitionLabel, Gauge>,
    trimmed: Family<StreamLabel, Counter>,
    entries: Family<StreamLabel, Gauge>,
    fill_ratio: Family<TopicLabel, Gauge<f64, AtomicU64>>,
    full: Family<StreamLabel, Gauge>,
    shadow_distance: Family<TopicLabel, Histogram>,
    shadow_wait_seconds: Family<TopicLabel, Histogram>,
    shadow_skipped: Family<TopicLabel, Counter>,
    shadow_late: Family<TopicLabel, Counter>,
    stuck: Family<TopicLabel, Gauge>,
    missing: Family<TopicLabel, Counter>,
    retired: Family<TopicLabel, Counter>,
    repaired: Family<ReasonLabel, Counter>,
    reloads: Family<OutcomeLabel, Counter>,
    pub sidecars: Gauge,
    pub batch_events: Histogram,
    pub in_flight_events: Gauge,
    pub in_flight_bytes: Gauge,
    pub connections: Gauge,
    pub streams: Gauge,
    pub consumers: Gauge,
    pub groups: GroupMetrics,
    pub ready: Gauge,
    resident_memory: Gauge<u64, AtomicU64>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// 50 us to 26 s, doubling.
fn seconds() -> Histogram {
    Histogram::new((0..20).map(|power| 0.000_05 * f64::from(1 << power)))
}

/// 0, then doubling with a step between: small depths are the ones that matter.
fn depths() -> Histogram {
    Histogram::new([0, 1, 2, 3, 4, 6, 8, 10, 16, 32, 64, 128, 256, 512].map(f64::from))
}

/// 1 ms to 9 min, doubling: how long gaps last.
fn waits() -> Histogram {
    Histogram::new((0..20).map(|power| 0.001 * f64::from(1 << power)))
}

fn batch_sizes() -> Histogram {
    Histogram::new((0..10).map(|power| f64::from(1 << power)))
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Metrics {
            registry: Registry::with_prefix("seriatim"),
            events: Family::default(),
            refused: Family::default(),
            drained: Family::default(),
            after_terminal: Family::default(),
            publish_seconds: Family::new_with_constructor(seconds),
            lane_depth: Family::new_with_constructor(depths),
            store_call_seconds: Family::new_with_constructor(seconds),
            store_errors: Family::default(),
            skipped: Family::default(),
            probed: Family::default(),
            resends: Family::default(),
            gap_seconds: Family::new_with_constructor(waits),
            illegal: Family::default(),
            elapse_seconds: Family::new_with_constructor(seconds),
            elapse_lanes: Family::new_with_constructor(depths),
            degraded: Family::default(),
            trimmed: Family::default(),
            entries: Family::default(),
            fill_ratio: Family::default(),
            full: Family::default(),
            shadow_distance: Family::new_with_constructor(depths),
            shadow_wait_seconds: Family::new_with_constructor(waits),
            shadow_skipped: Family::default(),
            shadow_late: Family::default(),
            stuck: Family::default(),
            missing: Family::default(),
            retired: Family::default(),
            repaired: Family::default(),
            reloads: Family::default(),
            sidecars: Gauge::default(),
            batch_events: batch_sizes(),
            in_flight_events: Gauge::default(),
            in_flight_bytes: Gauge::default(),
            connections: Gauge::default(),
            streams: Gauge::default(),
            consumers: Gauge::default(),
            groups: GroupMetrics::default(),
            ready: Gauge::default(),
            resident_memory: Gauge::default(),
        };
        metrics.registered()
    }
}

impl Metrics {
    fn registered(mut self) -> Self {
        let r = &mut self.registry;
        r.register("events", "Events answered, by verdict", self.events.clone());
        r.register("refused", "Events refused, by the limit that did it", self.refused.clone());
        r.register("drained", "Parked events that found their turn", self.drained.clone());
        r.register(
            "after_terminal",
            "Events released although their entity's terminal event was out",
            self.after_terminal.clone(),
        );
        r.register_with_unit(
            "publish",
            "From receiving an event to its verdict, the store included",
            Unit::Seconds,
            self.publish_seconds.clone(),
        );
        r.register(
            "lane_depth",
            "Parked events of its lane when an event was parked; 0 for an event that was not",
            self.lane_depth.clone(),
        );
        r.register_with_unit(
            "store_call",
            "One call that admits a batch, by its path: straight, mixed, fast, barred, slow",
            Unit::Seconds,
            self.store_call_seconds.clone(),
        );
        r.register(
            "store_errors",
            "Calls that the store did not answer, by class",
            self.store_errors.clone(),
        );
        r.register("skipped", "Gaps given up, by reason", self.skipped.clone());
        r.register("probed", "Times a gap's producers were asked for what is missing", self.probed.clone());
        r.register("resends", "Probes for which a producer is connected here", self.resends.clone());
        r.register_with_unit(
            "gap",
            "From the opening of a gap to its being filled; skipped ones are not in it",
            Unit::Seconds,
            self.gap_seconds.clone(),
        );
        r.register("illegal", "Events whose type may not follow the one before", self.illegal.clone());
        r.register_with_unit(
            "elapse",
            "One look at what is due in a partition",
            Unit::Seconds,
            self.elapse_seconds.clone(),
        );
        r.register("elapse_lanes", "Lanes that were due in one look", self.elapse_lanes.clone());
        r.register("degraded", "1 while the partition promises no order", self.degraded.clone());
        r.register("trimmed", "Entries trimmed by this sidecar, by stream", self.trimmed.clone());
        r.register("entries", "Entries in the streams of all partitions", self.entries.clone());
        r.register_with_unit(
            "fill",
            "Entries of the fullest partition, as a part of entries_max; from 1 on it refuses",
            Unit::Ratios,
            self.fill_ratio.clone(),
        );
        r.register("full", "Partitions whose stream is full: they refuse events", self.full.clone());
        r.register(
            "shadow_distance",
            "Shadow: how many places late an event came",
            self.shadow_distance.clone(),
        );
        r.register_with_unit(
            "shadow_wait",
            "Shadow: how long enforcing would have waited for a gap to be filled",
            Unit::Seconds,
            self.shadow_wait_seconds.clone(),
        );
        r.register(
            "shadow_skipped",
            "Shadow: gaps that enforcing would have given up",
            self.shadow_skipped.clone(),
        );
        r.register("shadow_late", "Shadow: events that would have been late", self.shadow_late.clone());
        r.register(
            "stuck",
            "Entities without a terminal event for stuck_after_ms, as last counted here",
            self.stuck.clone(),
        );
        r.register("missing", "Announced entities that did not begin in time", self.missing.clone());
        r.register("retired", "Lanes that became tombstones", self.retired.clone());
        r.register("repaired", "What the reconciler found out of place, by kind", self.repaired.clone());
        r.register("reloads", "Times the configuration was read again, by outcome", self.reloads.clone());
        r.register(
            "sidecars",
            "Sidecars that gave a sign of life lately, this one too",
            self.sidecars.clone(),
        );
        r.register("batch_events", "Events per call that admits a batch", self.batch_events.clone());
        r.register("in_flight_events", "Events received and not yet answered", self.in_flight_events.clone());
        r.register_with_unit(
            "in_flight",
            "Bytes received and not yet answered",
            Unit::Bytes,
            self.in_flight_bytes.clone(),
        );
        r.register("connections", "Open gRPC connections", self.connections.clone());
        r.register("streams", "Open PublishStream calls", self.streams.clone());
        r.register("consumers", "Open Consume calls: workers served here", self.consumers.clone());
        self.groups.register(r);
        r.register("ready", "1 while the store answers and the process is not draining", self.ready.clone());
        r.register_with_unit(
            "resident_memory",
            "Resident memory of this process",
            Unit::Bytes,
            self.resident_memory.clone(),
        );
        self
    }

    /// The handles of one topic.
    pub fn topic(&self, topic: &str) -> TopicMetrics {
        let label = TopicLabel { topic: topic.to_owned() };
        let of_stream = |stream| StreamLabel { topic: topic.to_owned(), stream };
        TopicMetrics {
            topic: topic.to_owned(),
            verdicts: VERDICTS.map(|verdict| {
                self.events.get_or_create_owned(&VerdictLabel { topic: topic.to_owned(), verdict })
            }),
            refused: self.refused.clone(),
            drained: self.drained.get_or_create_owned(&label),
            after_terminal: self.after_terminal.get_or_create_owned(&label),
            skipped: self.skipped.clone(),
            probed: self.probed.get_or_create_owned(&label),
            resends: self.resends.get_or_create_owned(&label),
            gap_seconds: self.gap_seconds.get_or_create_owned(&label),
            illegal: self.illegal.get_or_create_owned(&label),
            elapse_seconds: self.elapse_seconds.get_or_create_owned(&label),
            elapse_lanes: self.elapse_lanes.get_or_create_owned(&label),
            degraded: self.degraded.clone(),
            trimmed: STREAMS.map(|stream| self.trimmed.get_or_create_owned(&of_stream(stream))),
            entries: STREAMS.map(|stream| self.entries.get_or_create_owned(&of_stream(stream))),
            full: STREAMS.map(|stream| self.full.get_or_create_owned(&of_stream(stream))),
            fill_ratio: self.fill_ratio.get_or_create_owned(&label),
            shadow_distance: self.shadow_distance.get_or_create_owned(&label),
            shadow_wait_seconds: self.shadow_wait_seconds.get_or_create_owned(&label),
            shadow_skipped: self.shadow_skipped.get_or_create_owned(&label),
            shadow_late: self.shadow_late.get_or_create_owned(&label),
            publish_seconds: self.publish_seconds.get_or_create_owned(&label),
            lane_depth: self.lane_depth.get_or_create_owned(&label),
            call_seconds: Path::ALL
                .map(|path| self.store_call_seconds.get_or_create_owned(&PathLabel { path: path.name() })),
        }
    }

    /// What a look through all of a topic counted.
    pub fn set_stuck(&self, topic: &str, stuck: u64) {
        let label = TopicLabel { topic: topic.to_owned() };
        self.stuck.get_or_create(&label).set(i64::try_from(stuck).unwrap_or(i64::MAX));
    }

    /// What a look for lost work found in one partition of a topic.
    pub fn count_reconciled(&self, topic: &str, missing: u64, retired: u64) {
        let label = TopicLabel { topic: topic.to_owned() };
        self.missing.get_or_create(&label).inc_by(missing);
        self.retired.get_or_create(&label).inc_by(retired);
    }

    pub fn count_repaired(&self, topic: &str, kind: &'static str, count: u64) {
        let label = ReasonLabel { topic: topic.to_owned(), reason: kind };
        self.repaired.get_or_create(&label).inc_by(count);
    }

    /// `outcome` is "done", "refused", or "unfinished" if the store failed on the way.
    pub fn count_reload(&self, outcome: &'static str) {
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub fn count_store_error(&self, class: &'static str) {
        self.store_errors.get_or_create(&ClassLabel { class }).inc();
    }

    /// All of it in the text format that Prometheus scrapes.
    pub fn render(&self) -> String {
        self.resident_memory.set(resident_bytes().unwrap_or(0));
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a string takes it");
        text
    }
}

/// Resident memory from the kernel, where it tells.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_event_is_rendered_with_its_labels() {
        let metrics = Metrics::default();
        let topic = metrics.topic("jobs");
        topic.count("released");
        topic.count_refused("parked_max");
        let text = metrics.render();
        assert!(text.contains(r#"seriatim_events_total{topic="jobs",verdict="released"} 1"#), "{text}");
        assert!(text.contains(r#"seriatim_refused_total{topic="jobs",reason="parked_max"} 1"#), "{text}");
        assert!(text.contains("# UNIT seriatim_publish_seconds seconds"), "{text}");
    }
}
