//! Writing in turn: what is next, what was parked behind it, and the marks for what is
//! given up in between.

use super::{
    super::{
        effects::{Action, Append, Marker, MarkerKind, Note, Order, Place, SkipReason},
        identity::{Epoch, Sequence},
        policy::Mode,
        ranges::{Range, Ranges},
        recent::Recent,
    },
    Lane, Payload, Turn,
};

impl<P: Payload> Lane<P> {
    /// Releases parked events while they are contiguous and there is room.
    pub(super) fn drain(&mut self, turn: &mut Turn<'_, P>) {
        while turn.effects.has_room(1) {
            let Some(waiting) = self.parked.take(self.next) else { return };
            turn.load.remove(waiting.payload.size());
            turn.effects.drained += 1;
            self.append_next(waiting.terminal, waiting.payload, turn);
        }
    }

    /// Gives the gap up: a marker in its place, then the parked events behind it.
    /// Without a gap, or without room, nothing happens.
    pub(super) fn skip(&mut self, reason: SkipReason, turn: &mut Turn<'_, P>) {
        if let Some(range) = self.gap_range().filter(|_| turn.effects.has_room(1)) {
            self.give_up(reason, range, turn);
            self.drain(turn);
        }
    }

    /// Marks what lies at next and moves next behind it.
    pub(super) fn give_up(&mut self, reason: SkipReason, range: Range, turn: &mut Turn<'_, P>) {
        let waited = self.gap.take().map(|gap| turn.clock.now() - gap.opened);
        self.mark_gap(reason, range, waited, turn);
        self.jump(range.last.after());
    }

    /// Releases all that is parked, around marked gaps, before a rebase. False if
    /// there was no room for all of it.
    pub(super) fn flush(&mut self, turn: &mut Turn<'_, P>) -> bool {
        self.drain(turn);
        while !self.parked.is_empty() {
            if self.is_draining() || !turn.effects.has_room(1) {
                return false;
            }
            turn.note(Note::Skipped(SkipReason::Epoch));
            self.skip(SkipReason::Epoch, turn);
        }
        // A lane that passes never said what it misses; now nobody will bring it.
        while let Some(range) = self.first_unmarked() {
            if !turn.effects.has_room(1) {
                return false;
            }
            self.mark_gap(SkipReason::Epoch, range, None, turn);
            (self.unmarked, self.shadow) = (Some(range.last.after()), None);
        }
        true
    }

    /// The lowest missing run of a lane that passes, of which no marker speaks.
    fn first_unmarked(&self) -> Option<Range> {
        match (self.mode, self.unmarked) {
            (_, Some(from)) => self.missing.first_from(from),
            (Mode::Pass | Mode::Shadow, None) => self.missing.first(),
            (Mode::Enforce, None) => None,
        }
    }

    pub(super) fn rebase(&mut self, epoch: Epoch, turn: &mut Turn<'_, P>) {
        turn.effects.push(Action::Mark(Marker {
            entity: self.entity.clone(),
            epoch,
            sequence: turn.policy.first,
            kind: MarkerKind::Epoch { previous: self.epoch },
        }));
        if std::mem::take(&mut self.reborn) {
            self.mode = turn.policy.mode_of(&self.entity);
        }
        self.epoch = epoch;
        self.next = turn.policy.first;
        self.closed = false;
        self.age = None;
        self.missing = Ranges::default();
        self.unmarked = (turn.degraded && self.mode == Mode::Enforce).then_some(self.next);
        self.shadow = None;
        self.stage = None;
        self.recent = Recent::default();
    }

    /// Moves next up to `to`; what lies between is missing from now on.
    pub(super) fn jump(&mut self, to: Sequence) {
        if to > self.next {
            let last = to.before().expect("it is above next");
            self.missing.push(Range { first: self.next, last });
            self.missing.merge_down();
            self.next = to;
        }
    }

    pub(super) fn append_next(&mut self, terminal: bool, payload: P, turn: &mut Turn<'_, P>) {
        if let Some(gap) = self.gap.take() {
            let waited = turn.clock.now() - gap.opened;
            turn.note(Note::Filled(waited));
        }
        let sequence = self.next;
        turn.effects.after_terminal += u64::from(self.closed);
        let order = if self.passes() { Order::Passed } else { Order::Strict };
        self.append_judged(order, sequence, payload, turn);
        self.next = sequence.after();
        self.closed |= terminal;
    }

    /// Appends what the lifecycle has an opinion about.
    pub(super) fn append_judged(
        &mut self,
        order: Order,
        sequence: Sequence,
        mut payload: P,
        turn: &mut Turn<'_, P>,
    ) {
        if let Some(lifecycle) = &turn.policy.lifecycle {
            let kind = payload.kind();
            let stage = if lifecycle.types().contains(kind) { Some(kind.into()) } else { self.stage.clone() };
            if !lifecycle.allows(self.stage.as_deref(), kind) {
                turn.effects.notes.push(Note::Illegal);
                payload = payload.marked_illegal(self.stage.as_deref());
            }
            self.stage = stage;
        }
        self.append(Place::Events, order, sequence, payload, turn);
    }

    pub(super) fn append(
        &self,
        place: Place,
        order: Order,
        sequence: Sequence,
        payload: P,
        turn: &mut Turn<'_, P>,
    ) {
        let (entity, epoch) = (self.entity.clone(), self.epoch);
        turn.effects.push(Action::Append(Append { place, order, entity, epoch, sequence, payload }));
    }

    pub(super) fn mark_gap(
        &self,
        reason: SkipReason,
        range: Range,
        waited: Option<u64>,
        turn: &mut Turn<'_, P>,
    ) {
        let kind = MarkerKind::Gap { reason, from: range.first, waited };
        let (entity, epoch, sequence) = (self.entity.clone(), self.epoch, range.last);
        turn.effects.push(Action::Mark(Marker { entity, epoch, sequence, kind }));
    }
}
