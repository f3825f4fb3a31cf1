//! The lanes of a partition while a call works on them, and by when each is due.

use std::collections::{BTreeSet, HashMap};

use super::{
    identity::Entity,
    lane::{Event, Lane, Payload, Turn},
    retire::Memory,
    verdict::Verdict,
};

/// The lanes and what is known about when they are due, while a call works on them.
pub(super) struct Lanes<'a, P> {
    pub lanes: &'a mut HashMap<Entity, Lane<P>>,
    pub gaps: &'a mut BTreeSet<(u64, Entity)>,
    pub due: &'a mut HashMap<Entity, u64>,
    pub memory: &'a mut Memory,
}

impl<P: Payload> Lanes<'_, P> {
    pub fn draining(&self) -> Vec<Entity> {
        self.gaps.iter().take_while(|(due, _)| *due == 0).map(|(_, entity)| entity.clone()).collect()
    }

    pub fn with_lane(
        &mut self,
        entity: &Entity,
        turn: &mut Turn<'_, P>,
        act: impl FnOnce(&mut Lane<P>, &mut Turn<'_, P>),
    ) {
        if let Some(lane) = self.lanes.get_mut(entity) {
            act(lane, turn);
            let due = lane.due();
            index(self.gaps, self.due, entity, due);
        }
    }

    /// Decides about one event. An entity that is refused at first sight leaves no
    /// trace.
    pub fn admit(&mut self, entity: &Entity, event: Event<P>, turn: &mut Turn<'_, P>) -> Verdict {
        let mut verdict = Verdict::Again;
        if self.lanes.contains_key(entity) {
            self.with_lane(entity, turn, |lane, turn| verdict = lane.admit(event, turn));
            return verdict;
        }
        let woken = match self.memory.tombstone(entity) {
            Some(state) if state.closed && event.epoch <= state.epoch => {
                return Verdict::Retired { epoch: state.epoch };
            }
            Some(state) => {
                let lane = Lane::restore(entity.clone(), state.clone());
                Some(if state.closed { lane.reborn() } else { lane })
            }
            None => None,
        };
        // An open lane that was idle is there again, whatever becomes of the event.
        let is_woken = woken.as_ref().is_some_and(|lane| !lane.is_closed());
        let fresh = || Lane::new(entity.clone(), event.epoch, turn.policy, turn.degraded);
        let mut lane = woken.unwrap_or_else(fresh);
        let written = turn.effects.actions.len();
        verdict = lane.admit(event, turn);
        lane.end_rebirth();
        // A duplicate at first sight lies before the first sequence: no lane either.
        let is_nothing = matches!(verdict, Verdict::Refused(_) | Verdict::Again | Verdict::Duplicate { .. });
        let leaves_no_trace = is_nothing && turn.effects.actions.len() == written;
        if is_woken || !leaves_no_trace {
            self.memory.opened(entity);
            let due = lane.due();
            self.lanes.insert(entity.clone(), lane);
            index(self.gaps, self.due, entity, due);
        }
        verdict
    }
}

/// Keeps both ways of looking a lane's due time up in step.
pub(super) fn index(
    gaps: &mut BTreeSet<(u64, Entity)>,
    due_of: &mut HashMap<Entity, u64>,
    entity: &Entity,
    due: Option<u64>,
) {
    let before = due_of.get(entity).copied();
    if before == due {
        return;
    }
    if let Some(before) = before {
        gaps.remove(&(before, entity.clone()));
        due_of.remove(entity);
    }
    if let Some(due) = due {
        gaps.insert((due, entity.clone()));
        due_of.insert(entity.clone(), due);
    }
}
