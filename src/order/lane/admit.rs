//! What becomes of an event that is offered.

use super::{
    super::{
        effects::{Order, Place, SkipReason},
        identity::Sequence,
        parked::{Parked, Waiting},
        policy::{LatePlace, Overflow, Policy},
        ranges::Range,
        verdict::{Refusal, Verdict},
    },
    Event, Lane, Payload, Position, Turn,
};

impl<P: Payload> Lane<P> {
    /// Decides about one event. On [`Verdict::Refused`] the lane is as it was, but for a
    /// change of its mode that was due anyway; on [`Verdict::Again`] it may have moved
    /// on, but the event is not part of it.
    pub(in crate::order) fn admit(&mut self, mut event: Event<P>, turn: &mut Turn<'_, P>) -> Verdict {
        if event.epoch < self.epoch {
            return Verdict::Stale { epoch: self.epoch };
        }
        event.terminal = turn.policy.is_terminal(&event);
        let verdict = if self.settle_mode(turn) { self.decide(event, turn) } else { Verdict::Again };
        self.keep_time(turn);
        verdict
    }

    fn decide(&mut self, event: Event<P>, turn: &mut Turn<'_, P>) -> Verdict {
        if event.epoch > self.epoch {
            if let Some(refusal) = self.refusal_after_rebase(&event, turn) {
                return Verdict::Refused(refusal);
            }
            if !self.flush(turn) || !turn.effects.has_room(2) {
                return Verdict::Again;
            }
            self.rebase(event.epoch, turn);
        }
        match event.position {
            Position::Assigned { id } => self.admit_assigned(id, event, turn),
            Position::Given(sequence) if self.passes() => self.pass(sequence, event, turn),
            Position::Given(sequence) => self.admit_given(sequence, event, turn),
        }
    }

    fn admit_given(&mut self, sequence: Sequence, event: Event<P>, turn: &mut Turn<'_, P>) -> Verdict {
        if sequence < self.next {
            return self.admit_below_next(sequence, event, turn);
        }
        // Also at next itself: a lane that ran out of room still has it parked.
        if let Some(waiting) = self.parked.get(sequence) {
            let same = waiting.payload.same_as(&event.payload);
            return if same { Verdict::Duplicate { sequence } } else { Verdict::Conflict };
        }
        if let Some(refusal) = turn.full.refusal(Place::Events) {
            return Verdict::Refused(refusal);
        }
        if sequence > self.next {
            let size = event.payload.size();
            if let Some(refusal) = refusal(sequence, self.next, &self.parked, size, turn) {
                return Verdict::Refused(refusal);
            }
            if !self.make_room(sequence, size, turn) {
                return Verdict::Again;
            }
        }
        if sequence == self.next {
            if !turn.effects.has_room(1) {
                return Verdict::Again;
            }
            self.append_next(event.terminal, event.payload, turn);
            self.drain(turn);
            return Verdict::Released { sequence };
        }
        turn.load.add(event.payload.size());
        let first_terminal = event.terminal && self.parked.terminals() == 0;
        self.parked.insert(sequence, Waiting { terminal: event.terminal, payload: event.payload });
        if first_terminal {
            self.shorten_wait(turn);
        }
        Verdict::Parked { depth: self.parked.count() }
    }

    /// Rule 7: gives gaps up until the event fits. False if the call has no room for
    /// that. The event's own sequence is never given up.
    fn make_room(&mut self, sequence: Sequence, size: u64, turn: &mut Turn<'_, P>) -> bool {
        while lane_refusal(&self.parked, size, turn.policy).is_some() {
            if self.is_draining() || !turn.effects.has_room(2) {
                return false;
            }
            let range = self.gap_range().filter(|range| range.last < sequence);
            let last = range.map_or_else(|| sequence.before().expect("it is above next"), |range| range.last);
            turn.note_trouble(SkipReason::Overflow);
            self.give_up(SkipReason::Overflow, Range { first: self.next, last }, turn);
            self.drain(turn);
            if self.next == sequence {
                return true;
            }
        }
        true
    }

    pub(super) fn admit_below_next(
        &mut self,
        sequence: Sequence,
        event: Event<P>,
        turn: &mut Turn<'_, P>,
    ) -> Verdict {
        if !self.missing.contains(sequence) {
            return Verdict::Duplicate { sequence };
        }
        let place = match turn.policy.late {
            LatePlace::Aside => Place::Late,
            LatePlace::Inline => Place::Events,
        };
        if let Some(refusal) = turn.full.refusal(place) {
            return Verdict::Refused(refusal);
        }
        if !turn.effects.has_room(1) {
            return Verdict::Again;
        }
        self.missing.remove(sequence);
        self.missing.merge_down();
        self.append(place, Order::Late, sequence, event.payload, turn);
        self.closed |= event.terminal;
        Verdict::Late { sequence }
    }

    fn admit_assigned(&mut self, id: u64, event: Event<P>, turn: &mut Turn<'_, P>) -> Verdict {
        if let Some(sequence) = self.recent.find(id, self.next) {
            return Verdict::Duplicate { sequence };
        }
        if let Some(refusal) = turn.full.refusal(Place::Events) {
            return Verdict::Refused(refusal);
        }
        if !turn.effects.has_room(1) {
            return Verdict::Again;
        }
        let sequence = self.next;
        self.recent.push(id);
        self.append_next(event.terminal, event.payload, turn);
        if self.passes() { Verdict::Passed { sequence } } else { Verdict::Released { sequence } }
    }

    /// Would the event be refused once the lane is rebased to its epoch? Asked
    /// before anything moves, so that a refused event changes nothing.
    fn refusal_after_rebase(&self, event: &Event<P>, turn: &Turn<'_, P>) -> Option<Refusal> {
        match event.position {
            _ if turn.full.events => turn.full.refusal(Place::Events),
            Position::Given(sequence) if sequence > turn.policy.first && !self.passes() => {
                let nothing = Parked::<P>::default();
                refusal(sequence, turn.policy.first, &nothing, event.payload.size(), turn)
            }
            Position::Given(_) | Position::Assigned { .. } => None,
        }
    }
}

/// The limits for an event beyond next that refuse it.
fn refusal<P: Payload>(
    sequence: Sequence,
    next: Sequence,
    parked: &Parked<P>,
    size: u64,
    turn: &Turn<'_, P>,
) -> Option<Refusal> {
    let policy = turn.policy;
    let of_lane = match policy.overflow {
        Overflow::Refuse => lane_refusal(parked, size, policy),
        Overflow::Skip => None,
    };
    if sequence.ahead_of(next) > policy.ahead_max {
        Some(Refusal::AheadMax)
    } else if of_lane.is_some() {
        of_lane
    } else if turn.load.events + 1 > policy.partition_parked_max {
        Some(Refusal::PartitionParkedMax)
    } else if turn.load.bytes + size > policy.partition_parked_bytes_max {
        Some(Refusal::PartitionParkedBytesMax)
    } else {
        None
    }
}

/// The limits of the lane itself.
fn lane_refusal<P: Payload>(parked: &Parked<P>, size: u64, policy: &Policy) -> Option<Refusal> {
    if parked.count() + 1 > policy.parked_max {
        Some(Refusal::ParkedMax)
    } else if parked.bytes() + size > policy.parked_bytes_max {
        Some(Refusal::ParkedBytesMax)
    } else {
        None
    }
}
