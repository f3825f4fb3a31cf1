//! One step of a history: the wall clock moves, then one call is made.

use std::fmt::Write;

use seriatim::{
    order::{Entity, Policy},
    store::{Batch, GapId},
};

pub struct Step {
    /// By how much the wall clock moves before the call; it may be set back.
    pub clock_ms: i64,
    pub call: Call,
}

pub enum Call {
    Admit(Batch),
    Elapse {
        lanes_max: usize,
    },
    Extend(GapId),
    Skip(GapId),
    SetDegraded(bool),
    Announce {
        entity: Entity,
        within_ms: u64,
    },
    Sweep,
    Trim {
        count: usize,
    },
    /// The topic is opened with another policy.
    Policy(Box<Policy>),
}

impl Step {
    pub fn describe(&self) -> String {
        let call = match &self.call {
            Call::Admit(batch) => describe(batch),
            Call::Elapse { lanes_max } => format!("elapse {lanes_max}"),
            Call::Extend(gap) => format!("extend {gap:?}"),
            Call::Skip(gap) => format!("skip {gap:?}"),
            Call::SetDegraded(true) => "degrade".to_owned(),
            Call::SetDegraded(false) => "restore".to_owned(),
            Call::Announce { entity, within_ms } => format!("announce {entity:?} {within_ms}"),
            Call::Sweep => "sweep".to_owned(),
            Call::Trim { count } => format!("trim {count}"),
            Call::Policy(policy) => format!("policy {policy:?}"),
        };
        format!("  clock {:+} {call}", self.clock_ms)
    }
}

fn describe(batch: &Batch) -> String {
    let mut line = String::from("admit");
    for offer in batch.offers() {
        let event = &offer.event;
        let data = String::from_utf8_lossy(&event.payload.data);
        let flag = if event.terminal { " terminal" } else { "" };
        let kind = &event.payload.kind;
        write!(line, " [{:.12?} {}/{:?} {kind} {data:?}{flag}]", offer.entity, event.epoch, event.position)
            .unwrap();
    }
    line
}
