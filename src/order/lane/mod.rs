//! The ordering state of one entity: the rules themselves.
//!
//! - [`admit`] decides about an event that is offered;
//! - [`release`] writes in turn: draining, skipping, changing the epoch;
//! - [`wait`] is what happens to a gap as time passes;
//! - [`follow`] is a worker's side of it: a lane that follows a stream;
//! - [`pass`] is life without a promise of order: passing, shadow and degraded lanes.
//!
//! A lane never asks for the time by itself: a call brings it ([`Turn`]). The letters in
//! the comments are the rows of the tables in ARCHITECTURE.md, and `tests/scenarios/`
//! has a file for each.

mod admit;
mod follow;
mod pass;
mod release;
mod wait;

use super::{
    breaker::Breaker,
    clock::CallClock,
    effects::{Effects, Note, Probe, SkipReason},
    full::Full,
    identity::{Entity, Epoch, Sequence},
    parked::Parked,
    partition::Load,
    policy::{Mode, Policy},
    ranges::{Range, Ranges},
    recent::Recent,
    state::{Age, Gap, LaneState, Shadow, Wait},
};

/// What the rules need to know of an event's content.
pub trait Payload: Clone {
    /// Bytes that count towards the parked limits.
    fn size(&self) -> u64;
    /// Would publishing the other one instead make a difference to a worker?
    fn same_as(&self, other: &Self) -> bool;
    /// The event's type.
    fn kind(&self) -> &str;
    /// The same, with a mark that its type may not follow this stage.
    fn marked_illegal(self, stage: Option<&str>) -> Self;
}

#[derive(Clone, Debug)]
pub struct Event<P> {
    pub epoch: Epoch,
    pub position: Position,
    /// The producer said so; the topic's types may say it, too.
    pub terminal: bool,
    pub payload: P,
}

/// Who numbers the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The producer did.
    Given(Sequence),
    /// The lane does, in order of arrival; `id` is the digest of the event's id.
    Assigned { id: u64 },
}

/// What one call brings along, shared by all its lanes.
pub(super) struct Turn<'a, P> {
    pub policy: &'a Policy,
    pub clock: CallClock<'a>,
    /// The partition is degraded.
    pub degraded: bool,
    /// Degraded lanes do not return yet.
    pub stays: bool,
    /// Which of its streams are full.
    pub full: Full,
    pub load: &'a mut Load,
    pub breaker: &'a mut Breaker,
    /// A skip in this call spoke of trouble.
    pub trouble: bool,
    pub effects: &'a mut Effects<P>,
}

impl<P> Turn<'_, P> {
    fn note(&mut self, note: Note) {
        self.effects.notes.push(note);
    }

    /// A skip that speaks of trouble: one more for the breaker.
    fn note_trouble(&mut self, reason: SkipReason) {
        self.note(Note::Skipped(reason));
        self.trouble = true;
        let now = self.clock.now();
        self.breaker.hit(now, &self.policy.breaker);
    }
}

#[derive(Clone, Debug)]
pub struct Lane<P> {
    entity: Entity,
    epoch: Epoch,
    next: Sequence,
    closed: bool,
    mode: Mode,
    parked: Parked<P>,
    /// None while nothing is parked.
    age: Option<Age>,
    /// None while nothing is parked, or the lane is draining.
    gap: Option<Gap>,
    /// Skipped and not filled since; in a lane that passes: not arrived yet.
    missing: Ranges,
    /// What is missing from here on has not been marked; what is missing below is late
    /// if it comes. An enforcing lane that has it is degraded; one that was born passing
    /// has it only while its epoch is being ended.
    unmarked: Option<Sequence>,
    /// In a shadow lane, while something is missing.
    shadow: Option<Shadow>,
    stage: Option<Box<str>>,
    recent: Recent,
    /// It was retired: its next epoch is a new life, with the mode of a new lane.
    reborn: bool,
}

impl<P: Payload> Lane<P> {
    pub(super) fn new(entity: Entity, epoch: Epoch, policy: &Policy, degraded: bool) -> Self {
        let mode = policy.mode_of(&entity);
        Lane {
            entity,
            epoch,
            next: policy.first,
            closed: false,
            mode,
            parked: Parked::default(),
            age: None,
            gap: None,
            missing: Ranges::default(),
            unmarked: (degraded && mode == Mode::Enforce).then_some(policy.first),
            shadow: None,
            stage: None,
            recent: Recent::default(),
            reborn: false,
        }
    }

    /// A lane with nothing parked, as its text says.
    pub(super) fn restore(entity: Entity, state: LaneState) -> Self {
        assert!(state.parked.is_none(), "parked events are more than their summary");
        let LaneState { epoch, next, closed, mode, missing, unmarked, shadow, stage, recent, .. } = state;
        let (parked, age, gap) = (Parked::default(), None, None);
        Lane {
            entity,
            epoch,
            next,
            closed,
            mode,
            parked,
            age,
            gap,
            missing,
            unmarked,
            shadow,
            stage,
            recent,
            reborn: false,
        }
    }

    /// A lane that had ended: its next epoch is a new life.
    pub(super) fn reborn(self) -> Self {
        Lane { reborn: true, ..self }
    }

    /// Its text does not say that it was retired once; so that holds for one event only.
    pub(super) fn end_rebirth(&mut self) {
        self.reborn = false;
    }

    pub fn state(&self) -> LaneState {
        let wait = |age| Wait { age, terminals: self.parked.terminals(), gap: self.gap };
        LaneState {
            epoch: self.epoch,
            next: self.next,
            closed: self.closed,
            mode: self.mode,
            parked: self.parked.summary(),
            wait: self.age.map(wait),
            missing: self.missing.clone(),
            unmarked: self.unmarked,
            shadow: self.shadow,
            stage: self.stage.clone(),
            recent: self.recent.clone(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// What is parked: sequence, terminal, payload.
    pub fn parked(&self) -> impl Iterator<Item = (Sequence, bool, &P)> {
        self.parked.iter().map(|(sequence, waiting)| (sequence, waiting.terminal, &waiting.payload))
    }

    /// Did a call run out of room before everything was written whose turn had come?
    pub fn is_draining(&self) -> bool {
        let turn_has_come = self.unmarked.is_some() || self.parked.get(self.next).is_some();
        !self.parked.is_empty() && turn_has_come
    }

    /// When time has something to do here: 0 while draining, never without a gap.
    pub(super) fn due(&self) -> Option<u64> {
        if self.is_draining() {
            return Some(0);
        }
        if let Some(from) = self.unmarked.filter(|_| self.mode == Mode::Enforce) {
            return self.missing.first_from(from).map(|_| super::partition::DUE_WHEN_RESTORED);
        }
        let shadow = self.shadow.and_then(|shadow| shadow.gap).map(|gap| gap.deadline);
        self.gap.map(|gap| gap.deadline).or(shadow)
    }

    /// Does it write without a promise of order?
    fn passes(&self) -> bool {
        self.mode != Mode::Enforce || self.unmarked.is_some()
    }

    /// The missing run at next, if something is parked behind it.
    fn gap_range(&self) -> Option<Range> {
        let lowest = self.parked.lowest().filter(|lowest| *lowest > self.next)?;
        Some(Range { first: self.next, last: lowest.before().expect("it is above next") })
    }

    /// Asks for what is missing. What a terminal event waits for is not given more time.
    fn probe(&self, is_last: bool, turn: &mut Turn<'_, P>) {
        let missing = self.gap_range().expect("a gap is being probed");
        let (entity, epoch) = (self.entity.clone(), self.epoch);
        let is_extensible = is_last && self.parked.terminals() == 0;
        turn.effects.probes.push(Probe { entity, epoch, missing, is_extensible });
        turn.note(Note::Probed);
    }
}
