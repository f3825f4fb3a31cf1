//! Reads a topic's streams and proves: no inversion, no unmarked gap, no duplicate.
//!
//! The [`Verifier`] knows only what any reader can know: the entries, in their order,
//! and the topic's first sequence. It does not look at lanes.

use std::collections::HashMap;

use serde::Serialize;

use crate::{
    order::{Epoch, Order, Place, Range, Ranges, Sequence},
    store::{Entry, Layout, PartitionId, Store, StoreError, StreamId, TopicRecord},
};

/// Findings that are kept in detail; all are counted.
const FINDINGS_KEPT: usize = 20;
/// Entries read at a time; fewer where one may hold many events.
const PAGE: usize = 1000;
const PAGE_OF_BATCHES: usize = 50;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Events and markers; an entry has several of them in `batch` layout.
    pub entries: u64,
    pub entities: u64,
    /// An entry after one that it should have come before.
    pub inversions: u64,
    /// Sequences jumped over without a marker that says so.
    pub unmarked_gaps: u64,
    pub duplicates: u64,
    /// Entries that never promised an order.
    pub passed: u64,
    pub markers: u64,
    /// Events of the late streams, and late ones written inline.
    pub late: u64,
    /// Entries whose type may not follow the one before, by the topic's lifecycle. They
    /// are where they belong, so they do not count against `ok`.
    pub illegal: u64,
    pub ok: bool,
    /// The first findings, for a person.
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub kind: FindingKind,
    pub partition: u32,
    pub id: String,
    pub entity: String,
    pub epoch: u64,
    pub sequence: u64,
    /// What should have come.
    pub next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    Inversion,
    UnmarkedGap,
    Duplicate,
    /// In its place, but by the lifecycle it should not have happened.
    IllegalTransition,
}

/// What was read of one entity.
struct Seen {
    epoch: Epoch,
    next: Sequence,
    /// Jumped over and not come since.
    missing: Ranges,
}

pub struct Verifier {
    first: Sequence,
    partition: u32,
    /// The beginning of the stream is gone: an entity may start anywhere.
    trimmed: bool,
    seen: HashMap<String, Seen>,
    report: Report,
}

impl Verifier {
    pub fn new(first: Sequence) -> Self {
        let report = Report::default();
        Verifier { first, partition: 0, trimmed: false, seen: HashMap::new(), report }
    }

    /// The entries that follow belong to another partition, hence to other entities.
    pub fn begin_partition(&mut self, partition: u32, trimmed: bool) {
        self.report.entities += self.seen.len() as u64;
        self.seen.clear();
        self.partition = partition;
        self.trimmed = trimmed;
    }

    pub fn entry(&mut self, entry: &Entry) {
        self.report.entries += 1;
        // What concerns the whole partition has no entity.
        if entry.entity.is_empty() {
            self.report.markers += 1;
            return;
        }
        if is_illegal(entry) {
            self.find(FindingKind::IllegalTransition, entry);
        }
        match entry.order {
            Order::Strict => self.in_order(entry),
            Order::Passed => self.passed(entry),
            Order::Marker => self.marker(entry),
            Order::Late => self.report.late += 1,
            Order::Replay => {}
        }
    }

    pub fn finish(mut self) -> Report {
        self.begin_partition(0, false);
        let Report { inversions, unmarked_gaps, duplicates, .. } = self.report;
        self.report.ok = inversions + unmarked_gaps + duplicates == 0;
        self.report
    }

    fn in_order(&mut self, entry: &Entry) {
        let seen = self.seen_of(entry, entry.sequence);
        if entry.epoch < seen.epoch {
            return self.find(FindingKind::Inversion, entry);
        }
        if entry.epoch > seen.epoch {
            // A new epoch says so itself; this one did not.
            (seen.epoch, seen.next, seen.missing) = (entry.epoch, entry.sequence.after(), Ranges::default());
            return self.find(FindingKind::UnmarkedGap, entry);
        }
        if entry.sequence < seen.next {
            let was_missing = seen.missing.contains(entry.sequence);
            seen.missing.remove(entry.sequence);
            let kind = if was_missing { FindingKind::Inversion } else { FindingKind::Duplicate };
            return self.find(kind, entry);
        }
        // Also if something below passed by, and no marker said that it will not come.
        if entry.sequence > seen.next || !seen.missing.is_empty() {
            seen.missing = Ranges::default();
            self.find(FindingKind::UnmarkedGap, entry);
        }
        self.seen_of(entry, entry.sequence).reach(entry.sequence);
    }

    fn passed(&mut self, entry: &Entry) {
        self.report.passed += 1;
        let first = self.first;
        let seen = self.seen_of(entry, first);
        if entry.epoch > seen.epoch {
            (seen.epoch, seen.next, seen.missing) = (entry.epoch, first, Ranges::default());
        }
        if entry.epoch < seen.epoch || entry.sequence >= seen.next {
            if entry.epoch == seen.epoch {
                seen.reach(entry.sequence);
            }
        } else if seen.missing.contains(entry.sequence) {
            seen.missing.remove(entry.sequence);
        } else {
            self.find(FindingKind::Duplicate, entry);
        }
    }

    fn marker(&mut self, entry: &Entry) {
        self.report.markers += 1;
        let first = self.first;
        let from = gap_start(&entry.attrs);
        let seen = self.seen_of(entry, from.unwrap_or(first));
        match from {
            // An epoch marker, or one that this version does not know.
            None if entry.epoch > seen.epoch => {
                (seen.epoch, seen.next, seen.missing) = (entry.epoch, entry.sequence, Ranges::default());
            }
            None => {}
            Some(from) if from > seen.next => {
                self.find(FindingKind::UnmarkedGap, entry);
                self.seen_of(entry, first).cover(from, entry.sequence);
            }
            Some(from) => seen.cover(from, entry.sequence),
        }
    }

    /// An entity's record; one that was never seen starts at the first sequence, or
    /// at `base` where the beginning of the stream is gone.
    fn seen_of(&mut self, entry: &Entry, base: Sequence) -> &mut Seen {
        let next = if self.trimmed { base } else { self.first };
        let fresh = || Seen { epoch: entry.epoch, next, missing: Ranges::default() };
        if !self.seen.contains_key(&entry.entity) {
            self.seen.insert(entry.entity.clone(), fresh());
        }
        self.seen.get_mut(&entry.entity).expect("it was just put there")
    }

    fn find(&mut self, kind: FindingKind, entry: &Entry) {
        match kind {
            FindingKind::Inversion => self.report.inversions += 1,
            FindingKind::UnmarkedGap => self.report.unmarked_gaps += 1,
            FindingKind::Duplicate => self.report.duplicates += 1,
            FindingKind::IllegalTransition => self.report.illegal += 1,
        }
        if self.report.findings.len() < FINDINGS_KEPT {
            let next = self.seen.get(&entry.entity).map_or(self.first, |seen| seen.next);
            self.report.findings.push(Finding {
                kind,
                partition: self.partition,
                id: entry.id.to_string(),
                entity: entry.entity.clone(),
                epoch: entry.epoch.get(),
                sequence: entry.sequence.get(),
                next: next.get(),
            });
        }
    }
}

impl Seen {
    /// Moves next behind a sequence; what it jumps over is missing.
    fn reach(&mut self, sequence: Sequence) {
        if sequence > self.next {
            let last = sequence.before().expect("it is above next");
            self.missing.push(Range { first: self.next, last });
        }
        self.next = sequence.after();
    }

    /// A marker says that nothing of `from..=to` is to be expected here.
    fn cover(&mut self, from: Sequence, to: Sequence) {
        // Whole runs: a gap may be as wide as the numbers go.
        let is_covered = |run: &Range| run.first >= from && run.last <= to;
        let mut left = Ranges::default();
        self.missing.iter().filter(|run| !is_covered(run)).for_each(|run| left.push(run));
        self.missing = left;
        self.next = self.next.max(to.after());
    }
}

fn is_illegal(entry: &Entry) -> bool {
    // Cheap first: nearly no entry is.
    let attrs = || serde_json::from_str::<serde_json::Value>(&entry.attrs).ok();
    entry.attrs.contains(r#""illegal":"#) && attrs().is_some_and(|attrs| attrs.get("illegal").is_some())
}

/// Where the gap of a marker begins; `None` for any other marker.
fn gap_start(attrs: &str) -> Option<Sequence> {
    let attrs: serde_json::Value = serde_json::from_str(attrs).ok()?;
    Sequence::new(attrs.get("from")?.as_u64()?).ok()
}

/// Reads all streams of a topic; `progress` is told how many entries were read.
pub async fn verify_topic(
    store: &dyn Store,
    topic: &str,
    record: &TopicRecord,
    mut progress: impl FnMut(u64),
) -> Result<Report, StoreError> {
    let first = Sequence::new(record.first_sequence).expect("a record is checked when it is read");
    let mut verifier = Verifier::new(first);
    let page_max = if record.layout() == Some(Layout::Entry) { PAGE } else { PAGE_OF_BATCHES };
    for index in 0..record.partitions {
        let partition = PartitionId { topic: topic.into(), index };
        let measure = store.measure(&partition).await?;
        verifier.begin_partition(index, measure.trimmed > 0);
        let mut after = StreamId::default();
        loop {
            let page = store.read(&partition, Place::Events, after, page_max).await?;
            page.iter().for_each(|entry| verifier.entry(entry));
            progress(page.len() as u64);
            match page.last() {
                Some(last) if Entry::entries(&page) == page_max => after = last.id.entry,
                _ => break,
            }
        }
        verifier.report.late += late_events(store, &partition, record, measure.late).await?;
    }
    Ok(verifier.finish())
}

/// Events of a late stream. In `entry` layout they are as many as its entries, and need not be
/// read.
async fn late_events(
    store: &dyn Store,
    partition: &PartitionId,
    record: &TopicRecord,
    entries: u64,
) -> Result<u64, StoreError> {
    if record.layout() == Some(Layout::Entry) {
        return Ok(entries);
    }
    let (mut count, mut after) = (0, StreamId::default());
    loop {
        let page = store.read(partition, Place::Late, after, PAGE_OF_BATCHES).await?;
        count += page.len() as u64;
        match page.last() {
            Some(last) if Entry::entries(&page) == PAGE_OF_BATCHES => after = last.id.entry,
            _ => return Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries as `order epoch/sequence` or `gap epoch/from-to` or `epoch n`.
    fn verify(entries: &[&str]) -> Report {
        let mut verifier = Verifier::new(Sequence::new(0).unwrap());
        for (i, text) in entries.iter().enumerate() {
            let (word, rest) = text.split_once(' ').unwrap();
            let (epoch, place) = rest.split_once('/').unwrap_or((rest, "0"));
            let (from, to) = place.split_once('-').unwrap_or((place, place));
            let (order, attrs) = match word {
                "gap" => (Order::Marker, format!(r#"{{"reason":"timeout","from":{from}}}"#)),
                "epoch" => (Order::Marker, r#"{"previous":0}"#.to_owned()),
                name => (Order::ALL.into_iter().find(|order| order.name() == name).unwrap(), "{}".to_owned()),
            };
            verifier.entry(&Entry {
                id: StreamId { milliseconds: i as u64, counter: 0 }.into(),
                entity: "e".into(),
                epoch: Epoch::new(epoch.parse().unwrap()).unwrap(),
                sequence: Sequence::new(to.parse().unwrap()).unwrap(),
                kind: String::new(),
                order,
                attrs,
                data: Default::default(),
            });
        }
        verifier.finish()
    }

    fn counts(entries: &[&str]) -> (u64, u64, u64) {
        let report = verify(entries);
        (report.inversions, report.unmarked_gaps, report.duplicates)
    }

    #[test]
    fn what_is_in_order_is_clean() {
        assert!(verify(&["strict 0/0", "strict 0/1", "epoch 1", "strict 1/0"]).ok);
        assert!(verify(&["strict 0/0", "gap 0/1-4", "strict 0/5", "late 0/2"]).ok);
    }

    #[test]
    fn each_fault_is_told_apart() {
        assert_eq!(counts(&["strict 0/0", "strict 0/2"]), (0, 1, 0));
        assert_eq!(counts(&["strict 0/1", "strict 0/0"]), (1, 1, 0));
        assert_eq!(counts(&["strict 0/0", "strict 0/0"]), (0, 0, 1));
        assert_eq!(counts(&["epoch 1", "strict 1/0", "strict 0/0"]), (1, 0, 0));
        assert_eq!(counts(&["strict 0/0", "strict 1/0"]), (0, 1, 0));
        assert_eq!(counts(&["strict 0/0", "gap 0/2-4", "strict 0/5"]), (0, 1, 0));
    }

    #[test]
    fn what_passed_by_must_be_marked_before_order_is_promised_again() {
        assert!(verify(&["strict 0/0", "passed 0/3", "passed 0/1", "gap 0/2-2", "strict 0/4"]).ok);
        assert_eq!(counts(&["strict 0/0", "passed 0/3", "strict 0/4"]), (0, 1, 0));
    }

    #[test]
    fn passed_entries_promise_no_order_but_no_duplicates_either() {
        let report = verify(&["passed 0/1", "passed 0/0", "passed 0/2"]);
        assert!(report.ok && report.passed == 3);
        assert_eq!(counts(&["passed 0/1", "passed 0/0", "passed 0/0"]), (0, 0, 1));
    }

    #[test]
    fn a_trimmed_stream_may_begin_anywhere() {
        let mut verifier = Verifier::new(Sequence::new(0).unwrap());
        verifier.begin_partition(0, true);
        verifier.report = verify(&[]);
        let entry = |sequence| Entry {
            id: Default::default(),
            entity: "e".into(),
            epoch: Epoch::new(3).unwrap(),
            sequence: Sequence::new(sequence).unwrap(),
            kind: String::new(),
            order: Order::Strict,
            attrs: "{}".into(),
            data: Default::default(),
        };
        verifier.entry(&entry(7));
        verifier.entry(&entry(8));
        assert!(verifier.finish().ok);
    }
}
