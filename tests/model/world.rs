//! The world around the rules of admission, at one moment: what is stored, what is under way,
//! what producers still have to say, and what may still go wrong.

use std::sync::Arc;

use super::{
    judge::{Entry, Faults},
    node::Node,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Call {
    /// Somebody waits for the answer.
    pub is_awaited: bool,
    /// Which offers it brings, as bits.
    pub mask: u8,
    pub stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    Asked,
    /// Only with [`Flaw::AdvanceBeforeAppend`].
    Decided {
        entries: Vec<Entry>,
        answer: Answer,
    },
    Answered {
        answer: Answer,
        is_durable: bool,
    },
}

/// Which of the call's offers need no further call, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Answer {
    pub accepted: u8,
    pub rejected: u8,
    pub is_draining: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub store: Arc<Node>,
    /// None once no failover can come any more.
    pub replica: Option<Arc<Node>>,
    /// In order, because they have no names.
    pub calls: Vec<Call>,
    /// Offers that have to be made, as bits.
    pub todo: u8,
    /// Acknowledged, and in the store when that was said.
    pub accepted: u8,
    /// Acknowledged, and lost with a failover.
    pub lost: u8,
    pub faults: u8,
    pub resends: u8,
    pub failovers: u8,
    pub looks: u8,
    pub modes: u8,
    /// The gap that somebody saw: epoch and next.
    pub view: Option<(u8, u8)>,
    /// Somebody knows that a lane is draining.
    pub owes_drain: bool,
    pub broken: Faults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Publish(u8),
    /// The store carries the call out; the flag says that time has passed.
    Execute(usize, bool),
    /// What was decided is written: a step of its own only where that is the flaw.
    Write(usize),
    Receive(usize),
    /// The request or its answer is lost, and whoever waits learns it.
    Lose(usize),
    /// Nobody waits any more, but the request is still under way.
    GiveUp(usize),
    Elapse,
    GoOn,
    Sweep,
    Replicate,
    Failover,
    Look,
    Skip,
    Extend,
    Degrade(bool),
}

pub fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..8).filter(move |bit| mask & (1 << bit) != 0)
}

impl State {
    pub fn awaited(&self) -> usize {
        self.calls.iter().filter(|call| call.is_awaited).count()
    }

    pub fn faults_found(&self) -> Faults {
        self.broken | self.store.judge.faults
    }

    pub fn put(&mut self, call: Call) {
        let at = self.calls.partition_point(|other| *other <= call);
        self.calls.insert(at, call);
    }
}
