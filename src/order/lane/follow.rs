//! A lane that follows a stream: a worker's, which mostly reads what is in order already.

use super::{
    super::{
        effects::SkipReason,
        identity::{Entity, Epoch, Sequence},
        policy::Policy,
        ranges::{Range, Ranges},
    },
    Lane, Payload, Turn,
};

impl<P: Payload> Lane<P> {
    /// An entity that is seen for the first time, here and not at its beginning.
    pub(in crate::order) fn starting_at(
        entity: Entity,
        epoch: Epoch,
        next: Sequence,
        policy: &Policy,
        degraded: bool,
    ) -> Self {
        let mut lane = Lane::new(entity, epoch, policy, degraded);
        lane.next = next;
        lane.unmarked = lane.unmarked.map(|_| next);
        lane
    }

    pub(in crate::order) fn is_beyond(&self, epoch: Epoch) -> bool {
        self.epoch > epoch
    }

    pub(in crate::order) fn missing_in(&self, epoch: Epoch) -> Option<&Ranges> {
        (self.epoch == epoch && !self.missing.is_empty()).then_some(&self.missing)
    }

    /// From where on what is missing in this epoch has not been marked.
    pub(in crate::order) fn unmarked_in(&self, epoch: Epoch) -> Option<Sequence> {
        self.unmarked.filter(|_| self.epoch == epoch)
    }

    /// Nothing of this epoch below `to` comes any more: what is parked there is released
    /// around gaps, and what is missing there is a gap.
    pub(in crate::order) fn reach(
        &mut self,
        epoch: Epoch,
        to: Sequence,
        reason: SkipReason,
        turn: &mut Turn<'_, P>,
    ) {
        if !self.settle_mode(turn) {
            return;
        }
        if epoch > self.epoch && self.flush(turn) && turn.effects.has_room(1) {
            self.rebase(epoch, turn);
        }
        if epoch == self.epoch && self.passes() {
            self.pass_to(to, reason, turn);
        } else if epoch == self.epoch {
            self.drain(turn);
            while self.next < to && turn.effects.has_room(1) {
                let parked = self.parked.lowest().filter(|lowest| *lowest < to);
                let last = parked.unwrap_or(to).before().expect("it is above next");
                self.give_up(reason, Range { first: self.next, last }, turn);
                self.drain(turn);
            }
        }
        self.keep_time(turn);
    }

    /// The same in a lane that passes: what it still misses below is marked now.
    fn pass_to(&mut self, to: Sequence, reason: SkipReason, turn: &mut Turn<'_, P>) {
        self.jump(to);
        while let Some(range) = self.missing.first_from(self.unmarked.unwrap_or(self.next)) {
            if range.first >= to || !turn.effects.has_room(1) {
                return;
            }
            let last = range.last.min(to.before().expect("it is above the range"));
            self.mark_gap(reason, Range { first: range.first, last }, None, turn);
            self.unmarked = Some(last.after());
        }
        if self.unmarked.is_some_and(|from| from < to) {
            self.unmarked = Some(to);
        }
    }
}
