//! What a person wants with held entities.
//!
//! The worker that has the partition writes all that is held but one letter: a wish
//! (`seriatim dead`, `seriatim group pause`) is noted as the entity's state, and done here.

use super::Feed;
use crate::{
    deliver::task::{Task, What},
    order::{Entity, Sequence},
    store::{Head, HoldState},
};

impl Feed {
    /// What the store says of all held entities: at the beginning, and after a person's
    /// decision. Nothing may have been committed since it was read.
    pub fn heads(&mut self, heads: Vec<(Entity, Head)>) {
        for (entity, stored) in heads {
            self.head(entity, stored);
        }
        self.look_at_holds = true;
    }

    fn head(&mut self, entity: Entity, stored: Head) {
        let state = stored.state;
        if let Some(hold) = self.holds.get_mut(&entity) {
            // Tried at once, also if it was retrying all along.
            let is_redriven = state == HoldState::Retrying && stored.attempts == 0 && stored.due_ms == 0;
            let is_new = hold.stored != Some(state);
            hold.stored = Some(state);
            if is_new {
                hold.head.state = state;
            }
            if is_redriven && !hold.is_out {
                (hold.head.attempts, hold.head.due_ms) = (0, 0);
            }
            if is_new || is_redriven {
                self.staged.heads.insert(entity.clone());
            }
        } else if let Some(at) = self.staged.ended.iter().position(|change| change.entity == entity) {
            // The hold is over, unless somebody wished something just now.
            if self.staged.ended[at].was != Some(state) {
                let ended = self.staged.ended.remove(at);
                self.begin_hold(&entity, Head { state, ..ended.head }, Some(state));
                self.staged.heads.insert(entity.clone());
            }
        } else if self.lines.get(&entity).is_some_and(|line| line.busy) {
            // What is being handled comes before what is held: it begins with the answer.
            self.deferred.insert(entity, stored);
            return;
        } else {
            self.begin_hold(&entity, stored, Some(state));
        }
        self.end_if_empty(&entity);
    }

    /// An event of the entity was answered: a wish that waited for that is done.
    pub(super) fn do_deferred(&mut self, entity: &Entity) {
        if let Some(head) = self.deferred.remove(entity) {
            self.head(entity.clone(), head);
        }
    }

    /// A person wants the first event, or all that is held, to be given up: a gap stands in
    /// its place.
    pub(super) fn do_wish(&mut self, entity: &Entity) {
        let hold = self.holds.get_mut(entity).expect("the entity is held");
        if hold.is_empty() {
            hold.head.state = HoldState::Retrying;
            self.staged.heads.insert(entity.clone());
            self.end_if_empty(entity);
            return;
        }
        // Its numbers have to be known first.
        let Some((number, first)) = hold.fetched.front().cloned() else { return };
        let (at, gap) = if hold.head.state == HoldState::DropAsked {
            // In the last one's place: numbers that were given are not given again.
            let reached = hold.head.reached.as_ref().filter(|reached| reached.epoch == first.epoch);
            let last = reached.and_then(|reached| reached.next.before()).unwrap_or(first.sequence);
            (hold.head.next - 1, gap_for(&first, last.max(first.sequence), "dropped"))
        } else {
            (number, gap_for(&first, first.sequence, "skipped"))
        };
        if at > number {
            hold.fetched.clear();
            hold.head.bytes = 0;
        } else {
            hold.fetched.pop_front();
            hold.head.bytes = hold.head.bytes.saturating_sub(first.bytes());
        }
        hold.head.bytes += gap.bytes();
        hold.fetched.push_front((at, gap.clone()));
        (hold.head.first, hold.head.state) = (at, HoldState::Retrying);
        (hold.head.attempts, hold.head.due_ms) = (0, 0);
        (number..at).for_each(|dropped| self.staged.drop_kept(entity, dropped));
        self.staged.kept.insert((entity.clone(), at), gap.to_text());
        self.staged.heads.insert(entity.clone());
    }
}

/// A gap in place of this task and all up to `last`.
fn gap_for(first: &Task, last: Sequence, reason: &str) -> Task {
    let from = match first.what {
        What::Event { .. } => first.sequence,
        What::Gap { from, .. } => from,
    };
    let what = What::Gap { from, reason: reason.into(), waited_ms: None };
    Task { id: None, epoch: first.epoch, sequence: last, what, moves: first.moves }
}
