//! What time does to a lane that waits for something.

use super::{
    super::{
        effects::{Note, SkipReason},
        identity::{Epoch, Sequence},
        ranges::Range,
        state::{Age, Gap},
    },
    Lane, Payload, Turn,
};

impl<P: Payload> Lane<P> {
    /// What is due now: draining goes on, a gap is probed or given up, a mode changes.
    pub(in crate::order) fn elapse(&mut self, turn: &mut Turn<'_, P>) {
        let settled = self.settle_mode(turn);
        if settled && !self.passes() {
            self.drain(turn);
            self.elapse_gap(turn);
        }
        self.elapse_shadow(turn);
        self.keep_time(turn);
    }

    /// Goes on with what an earlier call had no room for.
    pub(in crate::order) fn go_on(&mut self, turn: &mut Turn<'_, P>) {
        if self.unmarked.is_some() {
            self.pass_parked(turn);
        } else {
            self.drain(turn);
        }
        self.keep_time(turn);
    }

    /// Rule 5: a probe after each wait but the last, a skip after that.
    fn elapse_gap(&mut self, turn: &mut Turn<'_, P>) {
        let now = turn.clock.now();
        let Some(gap) = self.gap.filter(|gap| gap.deadline <= now) else { return };
        let attempt = gap.attempt + 1;
        let end = self.parked_end(turn);
        if attempt > turn.policy.last_attempt() || now >= end {
            if turn.effects.has_room(1) {
                turn.note_trouble(SkipReason::Timeout);
                self.skip(SkipReason::Timeout, turn);
            }
            return;
        }
        self.probe(attempt == turn.policy.last_attempt(), turn);
        let deadline = (now + turn.policy.gap_wait(&self.entity, attempt)).min(end);
        self.gap = Some(Gap { opened: gap.opened, attempt, deadline });
    }

    /// When whatever is parked has waited long enough, come what may.
    fn parked_end(&self, turn: &Turn<'_, P>) -> u64 {
        self.age.expect("something is parked").since + turn.policy.parked_age_max
    }

    /// Counts anew once all that was parked when it began to count is out.
    fn keep_age(&mut self, turn: &mut Turn<'_, P>) {
        if self.age.is_none_or(|age| self.next > age.upto) {
            let upto = self.parked.highest().expect("something is parked");
            self.age = Some(Age { since: turn.clock.now(), upto });
        }
    }

    /// After anything happened: a gap that is new gets its clock, once.
    pub(super) fn keep_time(&mut self, turn: &mut Turn<'_, P>) {
        if self.parked.is_empty() {
            (self.age, self.gap) = (None, None);
            return;
        }
        self.keep_age(turn);
        if self.gap.is_some() || self.is_draining() {
            return;
        }
        let now = turn.clock.now();
        let policy = turn.policy;
        let (attempt, wait) = if self.parked.terminals() > 0 {
            self.probe(true, turn);
            (policy.last_attempt(), policy.gap_waits_from(&self.entity, 0).min(policy.terminal_wait))
        } else {
            (0, policy.gap_wait(&self.entity, 0))
        };
        let deadline = (now + wait).min(self.parked_end(turn));
        self.gap = Some(Gap { opened: now, attempt, deadline });
    }

    /// Rule 6: the first terminal event parked behind a gap.
    pub(super) fn shorten_wait(&mut self, turn: &mut Turn<'_, P>) {
        // A gap that is only about to open will be short from the beginning.
        let Some(gap) = self.gap else { return };
        let rest = turn.policy.gap_waits_from(&self.entity, gap.attempt + 1);
        let deadline = (gap.deadline + rest).min(turn.clock.now() + turn.policy.terminal_wait);
        let deadline = deadline.min(self.parked_end(turn));
        self.gap = Some(Gap { opened: gap.opened, attempt: turn.policy.last_attempt(), deadline });
        self.probe(true, turn);
    }

    /// Somebody knows a living producer: the last wait may take longer. Only longer, and
    /// only for the gap that was meant.
    pub(in crate::order) fn extend(&mut self, epoch: Epoch, next: Sequence, turn: &mut Turn<'_, P>) {
        let Some(gap) = self.gap.filter(|_| self.epoch == epoch && self.next == next) else { return };
        if gap.attempt < turn.policy.last_attempt() || self.parked.terminals() > 0 {
            return;
        }
        let longest = (gap.opened + turn.policy.gap_wait_live).min(self.parked_end(turn));
        self.gap = Some(Gap { deadline: gap.deadline.max(longest), ..gap });
    }

    /// An operator gives the gap at `next` up. Nothing if it is not there (any more), or
    /// the call has no room.
    pub(in crate::order) fn skip_by_operator(
        &mut self,
        epoch: Epoch,
        next: Sequence,
        turn: &mut Turn<'_, P>,
    ) -> Option<Range> {
        if self.epoch != epoch || self.next != next || self.passes() {
            return None;
        }
        let range = self.gap_range().filter(|_| turn.effects.has_room(1))?;
        turn.note(Note::Skipped(SkipReason::Operator));
        self.skip(SkipReason::Operator, turn);
        self.keep_time(turn);
        Some(range)
    }
}
