//! Life without a promise of order (rule 10): lanes born outside, shadow lanes that
//! measure what enforcing would have done, and lanes of a degraded partition.

use super::{
    super::{
        effects::{Note, Order, Place, SkipReason},
        identity::Sequence,
        policy::Mode,
        state::{Shadow, ShadowGap},
        verdict::Verdict,
    },
    Event, Lane, Payload, Turn,
};

impl<P: Payload> Lane<P> {
    /// Written at once; what it jumped over stays missing until it comes.
    pub(super) fn pass(&mut self, sequence: Sequence, event: Event<P>, turn: &mut Turn<'_, P>) -> Verdict {
        let is_missing = sequence < self.next;
        if is_missing && !self.missing.contains(sequence) {
            return Verdict::Duplicate { sequence };
        }
        if self.unmarked.is_some_and(|from| sequence < from) {
            return self.admit_below_next(sequence, event, turn);
        }
        if let Some(refusal) = turn.full.refusal(Place::Events) {
            return Verdict::Refused(refusal);
        }
        if !turn.effects.has_room(1) {
            return Verdict::Again;
        }
        let gap = self.shadow_gap_at();
        let terminal = event.terminal;
        if is_missing {
            self.note_distance(sequence, turn);
            self.missing.remove(sequence);
            self.missing.merge_down();
            self.append_judged(Order::Passed, sequence, event.payload, turn);
            self.closed |= terminal;
        } else {
            self.jump(sequence);
            self.append_next(terminal, event.payload, turn);
        }
        if self.mode == Mode::Shadow {
            self.measure(gap, terminal, turn);
        }
        Verdict::Passed { sequence }
    }

    /// Follows the partition into degraded mode or out of it. False if the call had no
    /// room to finish that.
    pub(super) fn settle_mode(&mut self, turn: &mut Turn<'_, P>) -> bool {
        if self.mode != Mode::Enforce {
            return true;
        }
        if turn.degraded && self.unmarked.is_none() {
            self.unmarked = Some(self.next);
            self.gap = None;
        }
        if self.unmarked.is_none() {
            return true;
        }
        self.pass_parked(turn);
        if !self.parked.is_empty() {
            return false;
        }
        if turn.degraded || turn.stays {
            return true;
        }
        // The way back: from now on what is missing is late if it comes.
        while let Some(range) = self.unmarked.and_then(|from| self.missing.first_from(from)) {
            if !turn.effects.has_room(1) {
                return false;
            }
            turn.note(Note::Skipped(SkipReason::Degraded));
            self.mark_gap(SkipReason::Degraded, range, None, turn);
            self.unmarked = Some(range.last.after());
        }
        self.unmarked = None;
        true
    }

    /// On the way into degraded mode what is parked passes, too.
    pub(super) fn pass_parked(&mut self, turn: &mut Turn<'_, P>) {
        while turn.effects.has_room(1) {
            let Some(lowest) = self.parked.lowest() else { return };
            let waiting = self.parked.take(lowest).expect("it is the lowest");
            turn.load.remove(waiting.payload.size());
            turn.effects.drained += 1;
            self.jump(lowest);
            self.append_next(waiting.terminal, waiting.payload, turn);
        }
    }

    /// Where enforcing would be waiting: the lowest missing sequence not given up.
    fn shadow_gap_at(&self) -> Option<Sequence> {
        self.missing.first_from(self.shadow?.floor).map(|range| range.first)
    }

    fn note_distance(&mut self, sequence: Sequence, turn: &mut Turn<'_, P>) {
        if self.mode == Mode::Shadow {
            // The furthest that came is the one before next.
            turn.note(Note::Distance(self.next.ahead_of(sequence.after())));
            if self.shadow.is_some_and(|shadow| sequence < shadow.floor) {
                turn.note(Note::WouldBeLate);
            }
        }
    }

    /// After an event passed: has the gap that enforcing would wait for changed?
    fn measure(&mut self, before: Option<Sequence>, terminal: bool, turn: &mut Turn<'_, P>) {
        let open = self.shadow.and_then(|shadow| shadow.gap);
        let at = self.shadow_gap_at();
        if let Some(gap) = open.filter(|_| at != before) {
            let waited = turn.clock.now() - gap.opened;
            turn.note(Note::WouldWait(waited));
        }
        let floor = self.shadow.map_or(turn.policy.first, |shadow| shadow.floor);
        self.open_shadow_gap(floor, open.filter(|_| at == before), turn);
        // What would be parked: all that came beyond the gap.
        while let Some(at) = self.shadow_gap_at() {
            let parked = self.next.ahead_of(at) - self.missing.count_from(at);
            if parked <= turn.policy.parked_max {
                break;
            }
            self.give_up_shadow_gap(turn);
        }
        if let Some(Shadow { floor, gap: Some(gap) }) = self.shadow.filter(|_| terminal) {
            let deadline = gap.deadline.min(turn.clock.now() + turn.policy.terminal_wait);
            self.shadow = Some(Shadow { floor, gap: Some(ShadowGap { deadline, ..gap }) });
        }
    }

    fn open_shadow_gap(&mut self, floor: Sequence, open: Option<ShadowGap>, turn: &mut Turn<'_, P>) {
        if self.missing.is_empty() {
            self.shadow = None;
            return;
        }
        let gap = self.missing.first_from(floor).map(|_| {
            open.unwrap_or_else(|| {
                let opened = turn.clock.now();
                let wait = turn.policy.gap_waits_from(&self.entity, 0).min(turn.policy.parked_age_max);
                ShadowGap { opened, deadline: opened + wait }
            })
        });
        self.shadow = Some(Shadow { floor, gap });
    }

    fn give_up_shadow_gap(&mut self, turn: &mut Turn<'_, P>) {
        let Some(shadow) = self.shadow else { return };
        let Some(range) = self.missing.first_from(shadow.floor) else { return };
        turn.note(Note::WouldSkip);
        self.open_shadow_gap(range.last.after(), None, turn);
    }

    pub(super) fn elapse_shadow(&mut self, turn: &mut Turn<'_, P>) {
        let gap = self.shadow.and_then(|shadow| shadow.gap);
        if gap.is_some_and(|gap| gap.deadline <= turn.clock.now()) {
            self.give_up_shadow_gap(turn);
        }
    }
}
