//! What a run has seen, so that one that proved less than it claims fails.

use std::collections::BTreeMap;

use seriatim::{
    order::{Full, LaneState, Mode, Note, Order, Verdict},
    store::{Admitted, Decision, Entry, Layout, Numbering, Path, TopicSpec},
};

use super::pair::Seen;

#[derive(Default)]
pub struct Coverage {
    pub steps: u64,
    seen: BTreeMap<String, u64>,
    /// Which streams were full after the step before.
    full: Full,
    /// Verdict, by the state of its lane before the call.
    verdicts: BTreeMap<(&'static str, &'static str), u64>,
}

/// Each must be seen at least this often in a run of the usual length.
const SEEN_MIN: u64 = 100;

/// What must be seen.
const WANTED: [&str; 79] = [
    "verdict RELEASED",
    "verdict PARKED",
    "verdict PASSED",
    "verdict DUPLICATE",
    "verdict DUPLICATE retired",
    "verdict LATE",
    "verdict CONFLICT",
    "verdict STALE",
    "verdict REFUSED ahead_max",
    "verdict REFUSED parked_max",
    "verdict REFUSED parked_bytes_max",
    "verdict REFUSED partition_parked_max",
    "verdict REFUSED partition_parked_bytes_max",
    "verdict REFUSED entries_max",
    "verdict REFUSED late_max",
    "verdict AGAIN",
    "marker gap timeout",
    "marker gap overflow",
    "marker gap epoch",
    "marker gap operator",
    "marker gap degraded",
    "marker epoch",
    "marker degraded breaker",
    "marker degraded operator",
    "marker restored breaker",
    "marker restored operator",
    "entry strict",
    "entry passed",
    "entry late",
    "entry illegal",
    "note filled",
    "note probed",
    "note skipped",
    "note illegal",
    "note distance",
    "note would wait",
    "note would skip",
    "note would be late",
    "call more",
    "call after terminal",
    "elapse ran",
    "elapse early",
    "elapse more",
    "elapse done",
    "sweep found",
    "sweep retired",
    "sweep forgot",
    "path slow",
    "path barred",
    "path fast",
    "path straight",
    "path mixed",
    "path mixed, parked",
    "path mixed, drained",
    "path mixed, more",
    "path straight, parked",
    "path straight, drained",
    "lane degraded",
    "lane shadow",
    "lane retired",
    "trim removed",
    "became full",
    "had room again",
    "late became full",
    "late had room again",
    "layout entry",
    "layout batch",
    "layout batch, path barred",
    "layout batch, path fast",
    "layout batch, path fast, many events",
    "layout batch, path straight",
    "layout batch, path straight, many events",
    "layout batch, path straight, parked",
    "layout batch, path straight, drained",
    "calls after another sidecar's",
    "layout batch, numbers assigned",
    "entry with many events",
    "entry with many events late",
    "entry with a marker and an event",
];

impl Coverage {
    fn count(&mut self, what: impl Into<String>) {
        *self.seen.entry(what.into()).or_default() += 1;
    }

    /// Counts one step of a history of this topic; `before` are the lanes of the batch's events,
    /// before the call.
    pub fn add(&mut self, topic: &TopicSpec, seen: &Seen, before: &[Option<LaneState>]) {
        self.steps += 1;
        self.count_layout(topic, seen);
        if let Some(admitted) = &seen.admitted {
            self.count(format!("path {}", admitted.path.name()));
            self.count_straight(topic.layout, admitted);
            for (decision, lane) in admitted.decisions.iter().zip(before) {
                let (verdict, state) = (verdict(decision.verdict), state(lane.as_ref(), decision.verdict));
                self.count(format!("verdict {verdict}"));
                self.count(format!("lane {state}"));
                *self.verdicts.entry((verdict, state)).or_default() += 1;
            }
            if admitted.more {
                self.count("call more");
            }
            if admitted.after_terminal > 0 {
                self.count("call after terminal");
            }
        }
        if let Some(elapsed) = &seen.elapsed {
            self.count(if elapsed.ran { "elapse ran" } else { "elapse early" });
            self.count(if elapsed.more { "elapse more" } else { "elapse done" });
        }
        for note in &seen.notes {
            self.count(match note {
                Note::Filled(_) => "note filled",
                Note::Skipped(_) => "note skipped",
                Note::Probed => "note probed",
                Note::Illegal => "note illegal",
                Note::Distance(_) => "note distance",
                Note::WouldWait(_) => "note would wait",
                Note::WouldSkip => "note would skip",
                Note::WouldBeLate => "note would be late",
            });
        }
        seen.entries.iter().for_each(|entry| self.count(entry_word(entry)));
        if seen.trimmed > 0 {
            self.count("trim removed");
        }
        if seen.other {
            self.count("calls after another sidecar's");
        }
        self.count_edges(seen.full);
        for (what, count) in
            [("found", seen.findings as u64), ("retired", seen.retired), ("forgot", seen.forgotten)]
        {
            if count > 0 {
                self.count(format!("sweep {what}"));
            }
        }
    }

    fn count_straight(&mut self, layout: Layout, admitted: &Admitted) {
        let layout = if layout == Layout::Batch { "layout batch, " } else { "" };
        let is_parked = |decision: &Decision| matches!(decision.verdict, Verdict::Parked { .. });
        for (what, happened) in [
            ("parked", admitted.decisions.iter().any(is_parked)),
            ("drained", admitted.drained > 0),
            ("more", admitted.more),
        ] {
            if happened && matches!(admitted.path, Path::Mixed | Path::Straight) {
                self.count(format!("{layout}path {}, {what}", admitted.path.name()));
            }
        }
    }

    fn count_layout(&mut self, topic: &TopicSpec, seen: &Seen) {
        self.count(format!("layout {}", topic.layout.name()));
        if let (Layout::Batch, Some(admitted)) = (topic.layout, &seen.admitted) {
            let path = admitted.path.name();
            self.count(format!("layout batch, path {path}"));
            if admitted.decisions.len() > 1 {
                self.count(format!("layout batch, path {path}, many events"));
            }
            if topic.numbering == Numbering::Assigned {
                self.count("layout batch, numbers assigned");
            }
        }
        // A step appends one entry to each stream, or one for each event.
        for events in seen.entries.chunk_by(|one, next| next.id.index > one.id.index) {
            if events.len() < 2 {
                continue;
            }
            let is_marker = |event: &Entry| event.order == Order::Marker;
            self.count("entry with many events");
            if events.iter().all(|event| event.order == Order::Late) {
                self.count("entry with many events late");
            }
            if events.iter().any(is_marker) && !events.iter().all(is_marker) {
                self.count("entry with a marker and an event");
            }
        }
    }

    fn count_edges(&mut self, full: Full) {
        for (stream, was, is) in [("", self.full.events, full.events), ("late ", self.full.late, full.late)] {
            match (was, is) {
                (false, true) => self.count(format!("{stream}became full")),
                (true, false) => self.count(format!("{stream}had room again")),
                (true, true) | (false, false) => {}
            }
        }
        self.full = full;
    }

    /// A new history: nothing is full.
    pub fn begin(&mut self) {
        self.full = Full::default();
    }

    /// Prints what was seen, and fails if a run of the usual length missed something.
    pub fn report_and_check(&self, is_long_enough: bool) {
        println!("{} steps; seen, how often", self.steps);
        for (what, count) in &self.seen {
            println!("  {what:<45} {count:>9}");
        }
        self.print_verdicts();
        for what in WANTED {
            let count = self.seen.get(what).copied().unwrap_or(0);
            let enough = count >= SEEN_MIN || !is_long_enough;
            assert!(enough, "{what} was seen {count} times only, in {} steps", self.steps);
        }
    }

    fn print_verdicts(&self) {
        let mut states: Vec<&str> = self.verdicts.keys().map(|(_, state)| *state).collect();
        states.sort_unstable();
        states.dedup();
        let mut verdicts: Vec<&str> = self.verdicts.keys().map(|(verdict, _)| *verdict).collect();
        verdicts.dedup();
        println!("verdict by the state of the lane before the call");
        print!("  {:<36}", "");
        states.iter().for_each(|state| print!("{state:>10}"));
        println!();
        for verdict in verdicts {
            print!("  {verdict:<36}");
            for state in &states {
                let count = self.verdicts.get(&(verdict, state)).copied().unwrap_or(0);
                print!("{count:>10}");
            }
            println!();
        }
    }
}

fn entry_word(entry: &Entry) -> String {
    let reason = || {
        let attrs: serde_json::Value = serde_json::from_str(&entry.attrs).unwrap();
        attrs["reason"].as_str().unwrap().to_owned()
    };
    match (entry.order, entry.kind.as_str()) {
        (Order::Marker, "seriatim.gap") => format!("marker gap {}", reason()),
        (Order::Marker, "seriatim.epoch") => "marker epoch".to_owned(),
        (Order::Marker, edge) => format!("marker {} {}", edge.trim_start_matches("seriatim."), reason()),
        _ if entry.attrs.contains(r#""illegal""#) => "entry illegal".to_owned(),
        (order, _) => format!("entry {}", order.name()),
    }
}

fn verdict(verdict: Verdict) -> &'static str {
    use seriatim::order::Refusal;
    match verdict {
        Verdict::Released { .. } => "RELEASED",
        Verdict::Parked { .. } => "PARKED",
        Verdict::Passed { .. } => "PASSED",
        Verdict::Duplicate { .. } => "DUPLICATE",
        Verdict::Retired { .. } => "DUPLICATE retired",
        Verdict::Late { .. } => "LATE",
        Verdict::Conflict => "CONFLICT",
        Verdict::Stale { .. } => "STALE",
        Verdict::Refused(Refusal::AheadMax) => "REFUSED ahead_max",
        Verdict::Refused(Refusal::ParkedMax) => "REFUSED parked_max",
        Verdict::Refused(Refusal::ParkedBytesMax) => "REFUSED parked_bytes_max",
        Verdict::Refused(Refusal::PartitionParkedMax) => "REFUSED partition_parked_max",
        Verdict::Refused(Refusal::PartitionParkedBytesMax) => "REFUSED partition_parked_bytes_max",
        Verdict::Refused(Refusal::EntriesMax) => "REFUSED entries_max",
        Verdict::Refused(Refusal::LateMax) => "REFUSED late_max",
        Verdict::Again => "AGAIN",
    }
}

/// One word for a lane: the rarest thing about it.
fn state(lane: Option<&LaneState>, verdict: Verdict) -> &'static str {
    let Some(lane) = lane else { return "unknown" };
    match lane.mode {
        _ if matches!(verdict, Verdict::Retired { .. }) => "retired",
        Mode::Shadow => "shadow",
        Mode::Pass => "passing",
        Mode::Enforce if lane.unmarked.is_some() => "degraded",
        Mode::Enforce if lane.wait.is_some_and(|wait| wait.gap.is_none()) => "draining",
        Mode::Enforce if lane.parked.is_some() => "gap",
        Mode::Enforce if lane.closed => "closed",
        Mode::Enforce if !lane.missing.is_empty() => "skipped",
        Mode::Enforce => "healthy",
    }
}
