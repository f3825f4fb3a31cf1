//! What stands in the streams, against what producers were told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{Entry, Evidence, Fate, Found, Name, Order, Rules, Stream, Wrong, shown};

/// What was seen of one epoch of one entity.
#[derive(Default)]
struct Lane {
    /// The first sequence that is neither there nor given up, as far as order goes.
    next: u64,
    present: BTreeSet<u64>,
    given_up: BTreeSet<u64>,
}

pub(crate) fn judge(evidence: &Evidence, rules: &Rules, found: &mut Found) {
    let mut lanes: BTreeMap<(Arc<str>, u64), Lane> = BTreeMap::new();
    let mut epochs: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    for entry in &evidence.entries {
        let (entity, epoch, _) = &entry.name;
        let lane = lanes
            .entry((entity.clone(), *epoch))
            .or_insert_with(|| Lane { next: rules.first_sequence, ..Lane::default() });
        if matches!(entry.order, Order::Strict | Order::Gap | Order::Epoch) {
            let highest = epochs.entry(entity.clone()).or_default();
            if epoch < highest {
                found.add(Wrong::Reordered, format!("{} comes after epoch {highest}", shown(&entry.name)));
            }
            *highest = (*highest).max(*epoch);
        }
        lane.take(entry, found);
    }
    judge_sent(evidence, rules, &lanes, found);
}

impl Lane {
    fn take(&mut self, entry: &Entry, found: &mut Found) {
        let sequence = entry.name.2;
        match entry.order {
            Order::Epoch => {}
            Order::Gap => {
                self.pass_over(entry, entry.from, found);
                for covered in entry.from..=sequence {
                    if self.present.contains(&covered) || !self.given_up.insert(covered) {
                        let what = format!("{} covers {covered}, which was there", shown(&entry.name));
                        found.add(Wrong::FalseGap, what);
                    }
                }
                self.next = self.next.max(sequence + 1);
            }
            Order::Strict => {
                let is_new = self.present.insert(sequence);
                if !is_new {
                    found.add(Wrong::Duplicated, format!("{} stands there twice", shown(&entry.name)));
                } else if sequence < self.next {
                    let what = format!("{} comes after {}", shown(&entry.name), self.next - 1);
                    found.add(Wrong::Reordered, what);
                }
                self.pass_over(entry, sequence, found);
                self.next = self.next.max(sequence + 1);
            }
            Order::Passed | Order::Late => {
                if !self.present.insert(sequence) {
                    found.add(Wrong::Duplicated, format!("{} stands there twice", shown(&entry.name)));
                }
            }
            // Written anew on purpose.
            Order::Replay => {}
        }
    }

    /// Everything below must be there or given up.
    fn pass_over(&mut self, entry: &Entry, to: u64, found: &mut Found) {
        let is_missing =
            |sequence: &u64| !self.present.contains(sequence) && !self.given_up.contains(sequence);
        if let Some(missing) = (self.next..to).find(is_missing) {
            found.add(Wrong::UnmarkedGap, format!("{} passes over {missing}", shown(&entry.name)));
        }
    }
}

fn judge_sent(
    evidence: &Evidence,
    rules: &Rules,
    lanes: &BTreeMap<(Arc<str>, u64), Lane>,
    found: &mut Found,
) {
    let mut payloads: BTreeMap<&Name, BTreeSet<u64>> = BTreeMap::new();
    for sent in &evidence.sent {
        payloads.entry(&sent.name).or_default().insert(sent.payload);
    }
    for entry in evidence.entries.iter().filter(|entry| !matches!(entry.order, Order::Gap | Order::Epoch)) {
        if !payloads.get(&entry.name).is_some_and(|sent| sent.contains(&entry.payload)) {
            found.add(Wrong::Invented, format!("nobody sent {} as it stands", shown(&entry.name)));
        }
    }
    if rules.is_final {
        for sent in &evidence.sent {
            let is_there = lanes
                .get(&(sent.name.0.clone(), sent.name.1))
                .is_some_and(|lane| lane.present.contains(&sent.name.2));
            if matches!(sent.fate, Fate::Accepted { .. } | Fate::Known) && !is_there {
                found.add(Wrong::Lost, format!("{} is in no stream: {:?}", shown(&sent.name), sent.fate));
            }
        }
    }
    judge_gaps(evidence, rules, found);
}

/// Nothing that was accepted before, or came in time, is given up.
fn judge_gaps(evidence: &Evidence, rules: &Rules, found: &mut Found) {
    let mut accepted: BTreeMap<&Name, u64> = BTreeMap::new();
    for sent in &evidence.sent {
        if let Fate::Accepted { at } = sent.fate {
            let first = accepted.entry(&sent.name).or_insert(at);
            *first = at.min(*first);
        }
    }
    let gaps =
        evidence.entries.iter().filter(|entry| entry.order == Order::Gap && entry.stream == Stream::Events);
    for gap in gaps {
        let (entity, epoch, last) = &gap.name;
        for covered in gap.from..=*last {
            if accepted.get(&(entity.clone(), *epoch, covered)).is_some_and(|at| *at < gap.at) {
                let what = format!("{} covers {covered}, which was accepted before", shown(&gap.name));
                found.add(Wrong::FalseGap, what);
            }
        }
        if gap.is_time_out {
            let behind = evidence
                .sent
                .iter()
                .filter(|sent| sent.name.0 == *entity && sent.name.1 == *epoch && sent.name.2 > *last);
            let waited_since = behind.map(|sent| sent.at).min().unwrap_or(gap.at);
            let waited = gap.at.saturating_sub(waited_since);
            if waited < rules.gap_wait_min {
                found.add(Wrong::FalseGap, format!("{} was given up after {waited}", shown(&gap.name)));
            }
        }
    }
}
