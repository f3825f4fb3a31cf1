//! Looks for lost work in one partition: what is stuck, what never began, what is out of
//! place. Retires what is old on the way.
//!
//! It goes in small calls with pauses, so that a slow store is not flooded, and each call
//! decides by what it finds at that moment: doing it twice, or by two at once, is safe.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use crate::{
    clock::Clock,
    order::{Finding, LaneState},
    store::{PartitionId, Repair, RepairCursor, Store, StoreError},
};

/// Findings of each kind that are kept in detail; all are counted.
const FINDINGS_KEPT: usize = 100;

/// How gently to look.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Look also for what is out of place: at everything, not only at what is old.
    pub repairs: bool,
    /// Entities that one call looks at.
    pub count: usize,
    /// Between two calls.
    pub pause: Duration,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reconciled {
    pub stuck: u64,
    pub missing: u64,
    pub retired: u64,
    pub forgotten: u64,
    /// Out of place, and mended.
    pub mended: u64,
    /// Out of place, and left for a person to look at.
    pub unmended: u64,
    /// Both, by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    pub stuck_lanes: Vec<StuckLane>,
    pub missing_entities: Vec<MissingEntity>,
    pub out_of_place: Vec<OutOfPlace>,
}

/// An entity without a terminal event for too long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StuckLane {
    pub partition: u32,
    pub entity: String,
    pub epoch: u64,
    pub next: u64,
    /// Its lifecycle's stage, where there is one.
    pub stage: Option<String>,
    /// How long it has not moved, at least; 0 if it moved lately.
    pub idle_ms: u64,
    /// One sentence for a person.
    pub reason: String,
}

/// An entity that was announced and has not begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MissingEntity {
    pub partition: u32,
    pub entity: String,
    pub overdue_ms: u64,
}

/// Something that should not have been there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OutOfPlace {
    pub partition: u32,
    pub kind: &'static str,
    pub entity: String,
    pub what: String,
    pub mended: bool,
}

/// Looks at everything in a partition once.
pub async fn reconcile(
    store: &dyn Store,
    partition: &PartitionId,
    pace: Pace,
    clock: &dyn Clock,
    found: &mut Reconciled,
) -> Result<(), StoreError> {
    let mut as_of = None;
    loop {
        let swept = store.sweep(partition, pace.count, as_of).await?;
        as_of = as_of.or(Some(swept.now));
        found.retired += swept.retired;
        found.forgotten += swept.forgotten;
        for finding in swept.findings {
            found.add(partition.index, finding, swept.now);
        }
        clock.sleep(pace.pause).await;
        if !swept.more {
            break;
        }
    }
    let mut from = pace.repairs.then(RepairCursor::default);
    while let Some(cursor) = from {
        let repaired = store.repair(partition, cursor, pace.count).await?;
        repaired.findings.into_iter().for_each(|repair| found.add_repair(partition.index, repair));
        from = repaired.next;
        clock.sleep(pace.pause).await;
    }
    Ok(())
}

impl Reconciled {
    fn add(&mut self, partition: u32, finding: Finding, now: u64) {
        match finding {
            Finding::Stuck { entity, state, since } => {
                self.stuck += 1;
                if self.stuck_lanes.len() < FINDINGS_KEPT {
                    let (epoch, next) = (state.epoch.get(), state.next.get());
                    self.stuck_lanes.push(StuckLane {
                        partition,
                        entity: entity.to_string(),
                        epoch,
                        next,
                        stage: state.stage.as_deref().map(str::to_owned),
                        idle_ms: now - since,
                        reason: why_stuck(&state, now),
                    });
                }
            }
            Finding::Missing { entity, due } => {
                self.missing += 1;
                if self.missing_entities.len() < FINDINGS_KEPT {
                    let (entity, overdue_ms) = (entity.to_string(), now - due);
                    self.missing_entities.push(MissingEntity { partition, entity, overdue_ms });
                }
            }
        }
    }

    fn add_repair(&mut self, partition: u32, repair: Repair) {
        let Repair { kind, entity, what } = repair;
        let mended = kind.is_mended();
        *(if mended { &mut self.mended } else { &mut self.unmended }) += 1;
        *self.kinds.entry(kind.name()).or_default() += 1;
        if self.out_of_place.len() < FINDINGS_KEPT {
            self.out_of_place.push(OutOfPlace { partition, kind: kind.name(), entity, what, mended });
        }
    }

    /// Is there anything that a person should look at?
    pub fn is_clean(&self) -> bool {
        self.stuck + self.missing + self.unmended == 0
    }
}

fn why_stuck(state: &LaneState, now: u64) -> String {
    let stage = state.stage.as_ref().map_or_else(String::new, |stage| format!(" in {stage:?}"));
    let next = state.next;
    match (&state.parked, state.wait.and_then(|wait| wait.gap)) {
        (Some(parked), Some(gap)) => format!(
            "waits{stage} for {next}, with {} parked behind it, since {} s",
            parked.count,
            (now - gap.opened) / 1000
        ),
        (Some(parked), None) => format!("is releasing {} events{stage}", parked.count),
        (None, _) if state.closed => format!("is closed{stage}, but has events after its end"),
        (None, _) => format!("no event{stage} after the one before {next}"),
    }
}
