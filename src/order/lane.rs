//! The ordering state of one entity: the rules themselves.
//!
//! Methods come in three kinds:
//! - *decide*: [`Lane::admit`] takes an event and returns its verdict;
//! - *go on*: [`Lane::drain`] continues what a call without room left behind, and
//!   [`Lane::skip`] gives the current gap up;
//! - *look*: [`Lane::state`], [`Lane::parked`], [`Lane::is_draining`].
//!
//! A lane never asks for the time. The letters in the comments are the rows of the
//! table in ARCHITECTURE.md, and `tests/scenarios/` has a file for each.

use super::{
    effects::{Action, Append, Effects, Marker, MarkerKind, Order, Place, SkipReason},
    identity::{Entity, Epoch, Sequence},
    parked::{Parked, Waiting},
    partition::Load,
    policy::{LatePlace, Ordering, Policy},
    ranges::{Range, Ranges},
    recent::Recent,
    state::LaneState,
    verdict::{Refusal, Verdict},
};

/// What the rules need to know of an event's content.
pub trait Payload: Clone {
    /// Bytes that count towards the parked limits.
    fn size(&self) -> u64;
    /// Would publishing the other one instead make a difference to a worker?
    fn same_as(&self, other: &Self) -> bool;
}

#[derive(Clone, Debug)]
pub struct Event<P> {
    pub epoch: Epoch,
    pub position: Position,
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

#[derive(Clone, Debug)]
pub struct Lane<P> {
    entity: Entity,
    epoch: Epoch,
    next: Sequence,
    closed: bool,
    passing: bool,
    parked: Parked<P>,
    /// Skipped and not filled since; in a passing lane: not arrived yet.
    missing: Ranges,
    recent: Recent,
}

impl<P: Payload> Lane<P> {
    pub(super) fn new(entity: Entity, epoch: Epoch, policy: &Policy) -> Self {
        Lane {
            entity,
            epoch,
            next: policy.first,
            closed: false,
            passing: policy.ordering == Ordering::Off,
            parked: Parked::default(),
            missing: Ranges::default(),
            recent: Recent::default(),
        }
    }

    /// A lane with nothing parked, as its text says.
    pub(super) fn restore(entity: Entity, state: LaneState) -> Self {
        assert!(state.parked.is_none(), "parked events are more than their summary");
        let LaneState { epoch, next, closed, passing, missing, recent, .. } = state;
        Lane { entity, epoch, next, closed, passing, parked: Parked::default(), missing, recent }
    }

    /// Decides about one event. On [`Verdict::Refused`] the lane is as it was; on
    /// [`Verdict::Again`] it may have moved on, but the event is not part of it.
    pub(super) fn admit(
        &mut self,
        event: Event<P>,
        policy: &Policy,
        load: &mut Load,
        effects: &mut Effects<P>,
    ) -> Verdict {
        if event.epoch < self.epoch {
            return Verdict::Stale { epoch: self.epoch };
        }
        if event.epoch > self.epoch {
            if let Some(refusal) = self.refusal_after_rebase(&event, policy, load) {
                return Verdict::Refused(refusal);
            }
            if !self.flush(load, effects) || !effects.has_room(2) {
                return Verdict::Again;
            }
            self.rebase(event.epoch, policy, effects);
        }
        match event.position {
            Position::Assigned { id } => self.admit_assigned(id, event, effects),
            Position::Given(sequence) if self.passing => self.pass(sequence, event, effects),
            Position::Given(sequence) => self.admit_given(sequence, event, policy, load, effects),
        }
    }

    fn admit_given(
        &mut self,
        sequence: Sequence,
        event: Event<P>,
        policy: &Policy,
        load: &mut Load,
        effects: &mut Effects<P>,
    ) -> Verdict {
        if sequence < self.next {
            return self.admit_below_next(sequence, event, policy, effects);
        }
        // Also at next itself: a lane that ran out of room still has it parked.
        if let Some(waiting) = self.parked.get(sequence) {
            let same = waiting.payload.same_as(&event.payload);
            return if same { Verdict::Duplicate { sequence } } else { Verdict::Conflict };
        }
        if sequence == self.next {
            if !effects.has_room(1) {
                return Verdict::Again;
            }
            self.append_next(event.terminal, event.payload, effects);
            self.drain(load, effects);
            return Verdict::Released { sequence };
        }
        if let Some(refusal) = refusal(sequence, self.next, &self.parked, event.payload.size(), policy, load)
        {
            return Verdict::Refused(refusal);
        }
        load.add(event.payload.size());
        self.parked.insert(sequence, Waiting { terminal: event.terminal, payload: event.payload });
        Verdict::Parked { depth: self.parked.count() }
    }

    fn admit_below_next(
        &mut self,
        sequence: Sequence,
        event: Event<P>,
        policy: &Policy,
        effects: &mut Effects<P>,
    ) -> Verdict {
        if !self.missing.contains(sequence) {
            return Verdict::Duplicate { sequence };
        }
        if !effects.has_room(1) {
            return Verdict::Again;
        }
        self.missing.remove(sequence);
        self.missing.merge_down();
        let place = match policy.late {
            LatePlace::Aside => Place::Late,
            LatePlace::Inline => Place::Events,
        };
        self.append(place, Order::Late, sequence, event.payload, effects);
        self.closed |= event.terminal;
        Verdict::Late { sequence }
    }

    fn admit_assigned(&mut self, id: u64, event: Event<P>, effects: &mut Effects<P>) -> Verdict {
        if let Some(sequence) = self.recent.find(id, self.next) {
            return Verdict::Duplicate { sequence };
        }
        if !effects.has_room(1) {
            return Verdict::Again;
        }
        let sequence = self.next;
        self.recent.push(id);
        self.append_next(event.terminal, event.payload, effects);
        if self.passing { Verdict::Passed { sequence } } else { Verdict::Released { sequence } }
    }

    /// Rule 10: written at once; what it jumped over stays missing until it comes.
    fn pass(&mut self, sequence: Sequence, event: Event<P>, effects: &mut Effects<P>) -> Verdict {
        if sequence < self.next && !self.missing.contains(sequence) {
            return Verdict::Duplicate { sequence };
        }
        if !effects.has_room(1) {
            return Verdict::Again;
        }
        if sequence < self.next {
            self.missing.remove(sequence);
            self.missing.merge_down();
            self.append(Place::Events, Order::Passed, sequence, event.payload, effects);
            self.closed |= event.terminal;
        } else {
            self.jump(sequence);
            self.append_next(event.terminal, event.payload, effects);
        }
        Verdict::Passed { sequence }
    }

    /// Releases parked events while they are contiguous and there is room.
    pub(super) fn drain(&mut self, load: &mut Load, effects: &mut Effects<P>) {
        while effects.has_room(1) {
            let Some(waiting) = self.parked.take(self.next) else { return };
            load.remove(waiting.payload.size());
            effects.drained += 1;
            self.append_next(waiting.terminal, waiting.payload, effects);
        }
    }

    /// Gives the gap up: a marker in its place, then the parked events behind it.
    /// Without a gap, or without room, nothing happens.
    pub(super) fn skip(&mut self, reason: SkipReason, load: &mut Load, effects: &mut Effects<P>) {
        let Some(lowest) = self.parked.lowest().filter(|lowest| *lowest > self.next) else { return };
        if !effects.has_room(1) {
            return;
        }
        let last = lowest.before().expect("it is above next");
        self.mark_gap(reason, Range { first: self.next, last }, effects);
        self.jump(lowest);
        self.drain(load, effects);
    }

    /// Releases all that is parked, around marked gaps, before a rebase. False if
    /// there was no room for all of it.
    fn flush(&mut self, load: &mut Load, effects: &mut Effects<P>) -> bool {
        self.drain(load, effects);
        while !self.parked.is_empty() {
            if self.is_draining() || !effects.has_room(1) {
                return false;
            }
            self.skip(SkipReason::Epoch, load, effects);
        }
        // A passing lane never said what it misses; now nobody will bring it.
        while self.passing && !self.missing.is_empty() {
            if !effects.has_room(1) {
                return false;
            }
            let range = self.missing.pop_first().expect("it is not empty");
            self.mark_gap(SkipReason::Epoch, range, effects);
        }
        true
    }

    fn rebase(&mut self, epoch: Epoch, policy: &Policy, effects: &mut Effects<P>) {
        effects.push(Action::Mark(Marker {
            entity: self.entity.clone(),
            epoch,
            sequence: policy.first,
            kind: MarkerKind::Epoch { previous: self.epoch },
        }));
        self.epoch = epoch;
        self.next = policy.first;
        self.closed = false;
        self.missing = Ranges::default();
        self.recent = Recent::default();
    }

    /// Would the event be refused once the lane is rebased to its epoch? Asked
    /// before anything moves, so that a refused event changes nothing.
    fn refusal_after_rebase(&self, event: &Event<P>, policy: &Policy, load: &Load) -> Option<Refusal> {
        match event.position {
            Position::Given(sequence) if sequence > policy.first && !self.passing => {
                refusal(sequence, policy.first, &Parked::<P>::default(), event.payload.size(), policy, load)
            }
            Position::Given(_) | Position::Assigned { .. } => None,
        }
    }

    /// Moves next up to `to`; what lies between is missing from now on.
    fn jump(&mut self, to: Sequence) {
        if to > self.next {
            let last = to.before().expect("it is above next");
            self.missing.push(Range { first: self.next, last });
            self.missing.merge_down();
            self.next = to;
        }
    }

    fn append_next(&mut self, terminal: bool, payload: P, effects: &mut Effects<P>) {
        let sequence = self.next;
        effects.after_terminal += u64::from(self.closed);
        let order = if self.passing { Order::Passed } else { Order::Strict };
        self.append(Place::Events, order, sequence, payload, effects);
        self.next = sequence.after();
        self.closed |= terminal;
    }

    fn append(&self, place: Place, order: Order, sequence: Sequence, payload: P, effects: &mut Effects<P>) {
        let (entity, epoch) = (self.entity.clone(), self.epoch);
        effects.push(Action::Append(Append { place, order, entity, epoch, sequence, payload }));
    }

    fn mark_gap(&self, reason: SkipReason, range: Range, effects: &mut Effects<P>) {
        let kind = MarkerKind::Gap { reason, from: range.first };
        let (entity, epoch, sequence) = (self.entity.clone(), self.epoch, range.last);
        effects.push(Action::Mark(Marker { entity, epoch, sequence, kind }));
    }

    pub fn state(&self) -> LaneState {
        LaneState {
            epoch: self.epoch,
            next: self.next,
            closed: self.closed,
            passing: self.passing,
            parked: self.parked.summary(),
            missing: self.missing.clone(),
            recent: self.recent.clone(),
        }
    }

    /// What is parked: sequence, terminal, payload.
    pub fn parked(&self) -> impl Iterator<Item = (Sequence, bool, &P)> {
        self.parked.iter().map(|(sequence, waiting)| (sequence, waiting.terminal, &waiting.payload))
    }

    /// Did a call run out of room while the lane's next is parked?
    pub fn is_draining(&self) -> bool {
        self.parked.get(self.next).is_some()
    }
}

/// The limits for an event beyond next.
fn refusal<P: Payload>(
    sequence: Sequence,
    next: Sequence,
    parked: &Parked<P>,
    size: u64,
    policy: &Policy,
    load: &Load,
) -> Option<Refusal> {
    if sequence.ahead_of(next) > policy.ahead_max {
        Some(Refusal::AheadMax)
    } else if parked.count() + 1 > policy.parked_max {
        Some(Refusal::ParkedMax)
    } else if parked.bytes() + size > policy.parked_bytes_max {
        Some(Refusal::ParkedBytesMax)
    } else if load.events + 1 > policy.partition_parked_max {
        Some(Refusal::PartitionParkedMax)
    } else if load.bytes + size > policy.partition_parked_bytes_max {
        Some(Refusal::PartitionParkedBytesMax)
    } else {
        None
    }
}
