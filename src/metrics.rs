//! Every metric, with its unit and help, in one place.
//!
//! Labels are closed sets: topics from the configuration, verdicts, reasons and error
//! classes. An entity is never a label. Handles are resolved once per topic, because
//! looking a label set up costs ten times what counting does.

use std::{fmt, sync::atomic::AtomicU64};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

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
struct PathLabel {
    path: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

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
    pub batch_events: Histogram,
    pub in_flight_events: Gauge,
    pub in_flight_bytes: Gauge,
    pub connections: Gauge,
    pub streams: Gauge,
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
            batch_events: batch_sizes(),
            in_flight_events: Gauge::default(),
            in_flight_bytes: Gauge::default(),
            connections: Gauge::default(),
            streams: Gauge::default(),
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
            "Parked events of a lane after each event was decided; 0 if none",
            self.lane_depth.clone(),
        );
        r.register_with_unit(
            "store_call",
            "One call that admits a batch, by the path the script took",
            Unit::Seconds,
            self.store_call_seconds.clone(),
        );
        r.register(
            "store_errors",
            "Calls that the store did not answer, by class",
            self.store_errors.clone(),
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
        TopicMetrics {
            topic: topic.to_owned(),
            verdicts: VERDICTS.map(|verdict| {
                self.events.get_or_create_owned(&VerdictLabel { topic: topic.to_owned(), verdict })
            }),
            refused: self.refused.clone(),
            drained: self.drained.get_or_create_owned(&label),
            after_terminal: self.after_terminal.get_or_create_owned(&label),
            publish_seconds: self.publish_seconds.get_or_create_owned(&label),
            lane_depth: self.lane_depth.get_or_create_owned(&label),
            fast_seconds: self.store_call_seconds.get_or_create_owned(&PathLabel { path: "fast" }),
            slow_seconds: self.store_call_seconds.get_or_create_owned(&PathLabel { path: "slow" }),
        }
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

/// The handles of one topic, shared by its partitions.
pub struct TopicMetrics {
    topic: String,
    verdicts: [Counter; VERDICTS.len()],
    refused: Family<ReasonLabel, Counter>,
    pub drained: Counter,
    pub after_terminal: Counter,
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

    pub fn count_refused(&self, reason: &'static str) {
        self.count("refused");
        self.refused.get_or_create(&ReasonLabel { topic: self.topic.clone(), reason }).inc();
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
