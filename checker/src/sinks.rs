//! What handlers were given, against what stands in the streams.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Answer, Evidence, Found, Name, Order, Rules, Run, Stream, Wrong, shown};

pub(crate) fn judge(evidence: &Evidence, rules: &Rules, found: &mut Found) {
    let in_force = in_force(&evidence.runs, rules.suspended);
    judge_terms(&in_force, found);
    judge_order(&in_force, rules, found);
    judge_overlap(&in_force, found);
    judge_acks(&in_force, rules, found);
    judge_fences(&evidence.runs, found);
    judge_contents(evidence, found);
    if rules.is_final {
        judge_unhandled(evidence, rules, found);
    }
}

/// Without those that a suspended worker started under a term that was over.
fn in_force(runs: &[Run], suspended: bool) -> Vec<&Run> {
    let mut highest: BTreeMap<u32, u64> = BTreeMap::new();
    let mut kept = Vec::with_capacity(runs.len());
    for run in runs {
        let highest = highest.entry(run.partition).or_default();
        if !suspended || run.term >= *highest {
            kept.push(run);
        }
        *highest = run.term.max(*highest);
    }
    kept
}

/// What must not be run again once its ack is stored. Strict events and gaps are there once;
/// of the others it is the entry in the stream that is.
fn delivery(run: &Run) -> (Name, Order, u64, Option<(u64, u64)>) {
    let is_once = matches!(run.order, Order::Strict | Order::Gap);
    (run.name.clone(), run.order, if is_once { run.from } else { 0 }, run.entry.filter(|_| !is_once))
}

/// Terms rise, and each has one worker.
fn judge_terms(runs: &[&Run], found: &mut Found) {
    let mut owners: BTreeMap<(u32, u64), u32> = BTreeMap::new();
    let mut highest: BTreeMap<u32, u64> = BTreeMap::new();
    for run in runs {
        let highest = highest.entry(run.partition).or_default();
        if run.term < *highest {
            found.add(Wrong::FencedAck, format!("{} was started under term {}", shown(&run.name), run.term));
        }
        *highest = run.term.max(*highest);
        if *owners.entry((run.partition, run.term)).or_insert(run.worker) != run.worker {
            found.add(Wrong::FencedAck, format!("term {} has two workers", run.term));
        }
    }
}

/// A person gave up what failed: a gap stands in its place, whatever was tried before.
fn is_instead(run: &Run, rules: &Rules) -> bool {
    run.order == Order::Gap && run.entry.is_none() && rules.given_up.contains(&run.name.0)
}

struct Lane {
    next: u64,
    passed: BTreeSet<u64>,
}

/// First starts of an entity ascend without holes; a later start of the same is right only
/// while it is the latest.
fn judge_order(runs: &[&Run], rules: &Rules, found: &mut Found) {
    let mut epochs = BTreeMap::new();
    let mut started = BTreeSet::new();
    let mut lanes: BTreeMap<_, Lane> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.order != Order::Replay) {
        let (entity, epoch, sequence) = &run.name;
        let lane = lanes
            .entry((entity.clone(), *epoch))
            .or_insert_with(|| Lane { next: rules.first_sequence, passed: BTreeSet::new() });
        if matches!(run.order, Order::Passed | Order::Late) {
            lane.passed.insert(*sequence);
            continue;
        }
        if run.order == Order::Gap && run.entry.is_none() && run.answer != Some(Answer::Stored) {
            // Found by a worker that may have lost its lease: the next one may find what was missing.
            lane.passed.extend(run.from..=*sequence);
            continue;
        }
        if is_instead(run, rules) {
            lane.passed.extend(run.from..=*sequence);
            continue;
        }
        let highest = epochs.entry(entity.clone()).or_insert(*epoch);
        let is_epoch_over = *epoch < *highest;
        *highest = (*highest).max(*epoch);
        if !started.insert(delivery(run)) {
            if sequence + 1 < lane.next || is_epoch_over {
                let what = format!("{} was started again after {}", shown(&run.name), lane.next - 1);
                found.add(Wrong::Reordered, what);
            }
            continue;
        }
        let is_below = *sequence < lane.next || (run.from < lane.next && lane.passed.is_empty());
        if is_epoch_over || is_below {
            found.add(Wrong::Reordered, format!("{} was started after a later one", shown(&run.name)));
        } else if let Some(missing) = (lane.next..run.from).find(|sequence| !lane.passed.contains(sequence))
            && !rules.given_up.contains(entity)
        {
            found.add(Wrong::UnmarkedGap, format!("{} was started without {missing}", shown(&run.name)));
        }
        lane.next = lane.next.max(sequence + 1);
    }
}

/// While one runs no other of its entity starts, unless the lease was lost.
fn judge_overlap(runs: &[&Run], found: &mut Found) {
    let mut running: BTreeMap<_, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        let beside = running.entry(run.name.0.clone()).or_default();
        beside.retain(|other| {
            let ended = other.done.or(other.killed);
            ended.is_none_or(|ended| ended >= run.started)
        });
        if beside.iter().any(|other| run.term <= other.term) {
            found.add(Wrong::Overlap, format!("{} was started beside another", shown(&run.name)));
        }
        beside.push(run);
    }
}

/// Nothing is run again after its ack.
fn judge_acks(runs: &[&Run], rules: &Rules, found: &mut Found) {
    let mut acked = BTreeSet::new();
    for run in runs.iter().filter(|run| !is_instead(run, rules)) {
        let delivery = delivery(run);
        if acked.contains(&delivery) {
            found.add(Wrong::Duplicated, format!("{} was run again after its ack", shown(&run.name)));
        } else if is_acked(run) {
            acked.insert(delivery);
        }
    }
}

fn is_acked(run: &Run) -> bool {
    run.answer == Some(Answer::Stored) && !run.is_nacked
}

/// An ack is sent after its run's end: it must be refused if by then a higher term had started
/// something.
fn judge_fences(runs: &[Run], found: &mut Found) {
    let mut rises: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for run in runs {
        let rises = rises.entry(run.partition).or_default();
        if rises.last().is_none_or(|(_, term)| run.term > *term) {
            rises.push((run.started, run.term));
        }
    }
    for run in runs.iter().filter(|run| is_acked(run)) {
        let Some(done) = run.done else { continue };
        let before = rises[&run.partition].iter().rev().find(|(started, _)| *started < done);
        if before.is_some_and(|(_, term)| *term > run.term) {
            found.add(Wrong::FencedAck, format!("{} was acked under term {}", shown(&run.name), run.term));
        }
    }
}

/// Whatever was run stands in the stream, with the same payload.
fn judge_contents(evidence: &Evidence, found: &mut Found) {
    let in_events = evidence.entries.iter().filter(|entry| entry.stream == Stream::Events);
    let there: BTreeSet<(&Name, u64)> = in_events.map(|entry| (&entry.name, entry.payload)).collect();
    for run in evidence.runs.iter().filter(|run| run.order != Order::Gap) {
        if !there.contains(&(&run.name, run.payload)) {
            found.add(Wrong::Invented, format!("{} was run, and is in no stream", shown(&run.name)));
        }
    }
}

/// Whatever stands in the stream was handled.
fn judge_unhandled(evidence: &Evidence, rules: &Rules, found: &mut Found) {
    let handled: BTreeSet<(&Name, bool)> = evidence
        .runs
        .iter()
        // It was, whether or not its ack is stored.
        .filter(|run| run.done.is_some() && !run.is_nacked)
        .map(|run| (&run.name, run.order == Order::Gap))
        .collect();
    for entry in &evidence.entries {
        let is_for_workers = entry.stream == Stream::Events && entry.order != Order::Epoch;
        let is_gap = entry.order == Order::Gap;
        let is_forgiven = rules.given_up.contains(&entry.name.0) || is_gap;
        if is_for_workers && !is_forgiven && !handled.contains(&(&entry.name, is_gap)) {
            found.add(Wrong::Lost, format!("{} was not handled", shown(&entry.name)));
        }
    }
}
