//! A call made to one store, and its answer in words: the same code for every store, so
//! that two answers can be compared as they are.

use std::{fmt::Debug, time::Duration};

use futures_util::StreamExt;
use seriatim::{
    order::{Announcement, Probe, Verdict},
    store::{
        Admitted, Committed, Decision, EventId, Granted, GroupStore, OpenError, PartitionId, Path, Repair,
        RepairCursor, RetiredPoints, Store, StoreError, Trimmed, Waiter,
    },
};

use super::call::Call;

#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The word under which it is counted.
    pub kind: &'static str,
    /// All of it.
    pub text: String,
}

fn reply<T: Debug>(outcome: Result<T, StoreError>, kind: impl FnOnce(&T) -> &'static str) -> Reply {
    match outcome {
        Ok(answer) => Reply { kind: kind(&answer), text: format!("{answer:?}") },
        Err(error) => failed(&error),
    }
}

/// What an error means to a caller; the sentence is for people, and each store's own.
fn failed(error: &StoreError) -> Reply {
    let kind = match error {
        _ if error.to_string().contains("NOGROUP") => "no group",
        StoreError::NotExecuted(_) => "not executed",
        StoreError::Ambiguous(_) => "ambiguous",
        StoreError::Broken(_) => "broken",
    };
    Reply { kind, text: format!("{} {kind}", error.class()) }
}

fn done<T>(_: &T) -> &'static str {
    "done"
}

fn yes_or_no(is_so: &bool) -> &'static str {
    if *is_so { "yes" } else { "no" }
}

fn there<T>(found: &Option<T>) -> &'static str {
    if found.is_some() { "something" } else { "nothing" }
}

#[expect(clippy::ptr_arg, reason = "answers are vectors")]
fn filled<T>(found: &Vec<T>) -> &'static str {
    if found.is_empty() { "nothing" } else { "something" }
}

fn events(mut ids: impl Iterator<Item = EventId>) -> &'static str {
    match ids.next() {
        None => "nothing",
        Some(_) if ids.any(|id| id.index > 0) => "several of an entry",
        Some(_) => "something",
    }
}

/// Makes the call.
pub async fn make(store: &dyn Store, waiter: &mut dyn Waiter, call: &Call) -> Reply {
    match call {
        Call::Open(topic) => match store.open(topic).await {
            Ok(()) => Reply { kind: "done", text: String::new() },
            Err(OpenError::Store { source, .. }) => failed(&source),
            Err(error) => Reply { kind: "mismatch", text: format!("{error:?}") },
        },
        Call::Delete { topic } => reply(store.delete_topic(topic).await, done),
        Call::Topics => reply(store.topics().await, filled),
        Call::Record { topic } => reply(store.record(topic).await, there),
        Call::Ping => reply(store.ping().await, done),
        Call::Beat(beat) => reply(store.beat(beat).await, done),
        Call::Leave { sidecar } => reply(store.leave(sidecar).await, done),
        Call::Lead { sidecar, for_ms } => reply(store.lead_reconciler(sidecar, *for_ms).await, yes_or_no),
        Call::Read { at, place, after, count } => {
            reply(store.read(at, *place, *after, *count).await, |read| events(read.iter().map(|one| one.id)))
        }
        Call::Resume { at, entity } => reply(store.resume(at, entity).await, there),
        Call::Measure { at } => reply(store.measure(at).await, done),
        Call::Floor { at } => reply(store.floor(at).await, there),
        Call::Trim { at, count } => reply(store.trim(at, *count).await, trimmed),
        Call::Repair { at, count } => reply(repair(store, at, *count).await, filled),
        Call::Wait { after, count } => reply(waiter.wait(after, *count, Duration::ZERO).await, |streams| {
            events(streams.iter().flat_map(|(_, reads)| reads).map(|one| one.id))
        }),
        Call::Admit { .. }
        | Call::Elapse { .. }
        | Call::Probe { .. }
        | Call::Sweep { .. }
        | Call::Announce { .. }
        | Call::Extend { .. }
        | Call::Skip { .. }
        | Call::Degrade { .. } => by_the_rules(store, call).await,
        _ => of_groups(store, call).await,
    }
}

async fn by_the_rules(store: &dyn Store, call: &Call) -> Reply {
    match call {
        Call::Admit { at, batch } => {
            // How it was decided is the store's own affair.
            let plain = |admitted| Admitted { path: Path::Slow, ..admitted };
            let is_late = |decision: &Decision| matches!(decision.verdict, Verdict::Late { .. });
            reply(store.admit(at, batch).await.map(plain), |admitted| match &admitted.decisions[..] {
                [] => "nothing",
                decisions if decisions.iter().any(is_late) => "something late",
                _ => "something",
            })
        }
        Call::Elapse { at } => {
            reply(store.elapse(at, 5).await, |elapsed| if elapsed.ran { "ran" } else { "early" })
        }
        Call::Probe { at } => reply(probe(store, at).await, filled),
        Call::Sweep { at } => reply(store.sweep(at, 1_000, None).await, |swept| match swept.retired {
            0 => "nothing",
            _ => "retired",
        }),
        Call::Announce { at, entity, within_ms } => {
            reply(store.announce(at, entity, *within_ms).await, |announced| match announced {
                Announcement::Noted => "noted",
                Announcement::Begun => "begun",
                Announcement::Full => "full",
            })
        }
        Call::Extend { at, gap } => reply(store.extend(at, gap).await, done),
        Call::Skip { at, gap } => reply(store.skip(at, gap, r#""by":"ops""#).await, there),
        Call::Degrade { at, degraded } => reply(store.set_degraded(at, *degraded).await, yes_or_no),
        other => unreachable!("{other:?} runs no rules"),
    }
}

async fn of_groups(store: &dyn Store, call: &Call) -> Reply {
    match call {
        Call::Register { group, partitions, start } => {
            reply(store.register(group, *partitions, *start).await, yes_or_no)
        }
        Call::Remove { group, partitions } => reply(store.remove(group, *partitions).await, done),
        Call::Groups { topic } => reply(GroupStore::groups(store, topic).await, filled),
        Call::Switch { group, switches } => reply(store.switch(group, *switches).await, yes_or_no),
        Call::Attend { group, member } => reply(store.attend(group, member).await, there),
        Call::Depart { group, member } => reply(store.depart(group, member).await, done),
        Call::Leases { group, partitions } => {
            reply(store.leases(group, *partitions).await, |seen| match seen.len() {
                0 => "nothing",
                count if count < *partitions as usize => "fewer",
                _ => "all",
            })
        }
        Call::Lease { at, group, owner, seen, .. } => {
            reply(store.lease(at, group, owner, seen).await, |leased| {
                if leased.is_some() { "leased" } else { "refused" }
            })
        }
        Call::Release { at, group, term, .. } => reply(store.release(at, group, *term).await, done),
        Call::Commit { at, group, commit, .. } => {
            reply(store.commit(at, group, commit).await, |committed| match committed {
                Committed::Done { .. } => "done",
                Committed::Fenced { .. } => "fenced",
            })
        }
        Call::Points { at, group, entities } => reply(store.points(at, group, entities).await, |points| {
            if points.iter().any(Option::is_some) { "something" } else { "nothing" }
        }),
        Call::SweepPoints { at, group, term, count, .. } => {
            reply(sweep_points(store, (at, group), *term, *count).await, done)
        }
        Call::Heads { at, group } => reply(store.heads(at, group).await, filled),
        Call::Kept { at, group, entity, numbers } => {
            reply(store.kept(at, group, entity, numbers.clone()).await, filled)
        }
        Call::Wish { at, group, entity, wish } => {
            reply(store.wish(at, group, entity, *wish).await, |granted| match granted {
                Granted::Done => "done",
                Granted::NotHeld => "not held",
                Granted::Unfit(_) => "unfit",
            })
        }
        Call::ReadOn { at, after, count } => {
            reply(store.read_on(at, *after, *count).await, |read| events(read.iter().map(|one| one.id)))
        }
        other => unreachable!("{other:?} is not a group's"),
    }
}

fn trimmed(trimmed: &Trimmed) -> &'static str {
    match trimmed {
        Trimmed { ran: false, .. } => "not run",
        Trimmed { events: 1.., floor: None, .. } => "removed, without a group",
        Trimmed { events: 1.., .. } => "removed up to a floor",
        Trimmed { late: 1.., .. } => "removed late ones only",
        Trimmed { floor: None, .. } => "nothing, without a group",
        Trimmed { .. } => "nothing",
    }
}

/// The pages of two stores need not be the same: what was found on all of them must be.
async fn repair(store: &dyn Store, at: &PartitionId, count: usize) -> Result<Vec<Repair>, StoreError> {
    let (mut findings, mut next) = (Vec::new(), Some(RepairCursor::default()));
    while let Some(from) = next {
        let repaired = store.repair(at, from, count).await?;
        findings.extend(repaired.findings);
        next = repaired.next;
    }
    Ok(findings)
}

/// Likewise: what is forgotten in the end is seen in the state afterwards.
async fn sweep_points(
    store: &dyn Store,
    (at, group): (&PartitionId, &str),
    term: u64,
    count: usize,
) -> Result<(), StoreError> {
    let mut found = RetiredPoints::default();
    while let Some(more) = store.sweep_points(at, group, term, &found, count).await? {
        found = more;
        if found.cursor == 0 {
            // What was found last.
            return store.sweep_points(at, group, term, &found, count).await.map(drop);
        }
    }
    Ok(())
}

/// What is heard of a partition's gaps while the time is looked at. A call to nobody ends it.
async fn probe(store: &dyn Store, at: &PartitionId) -> Result<Vec<Probe>, StoreError> {
    let mut heard = store.probes(&at.topic).await?;
    store.elapse(at, 5).await?;
    store.call_out(&at.topic).await?;
    let mut probes = Vec::new();
    while let Some(probed) = heard.next().await {
        if probed.is_empty() {
            break;
        }
        probes.extend(probed);
    }
    Ok(probes)
}
