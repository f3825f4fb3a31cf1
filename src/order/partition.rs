//! The lanes of one partition, and what they share: the parked limits and the list
//! of lanes that a call left half drained.

use std::collections::{BTreeSet, HashMap};

use super::{
    effects::{Effects, SkipReason},
    identity::Entity,
    lane::{Event, Lane, Payload},
    policy::Policy,
    state::LaneState,
    verdict::Verdict,
};

/// What is parked in all lanes of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Load {
    pub events: u64,
    pub bytes: u64,
}

impl Load {
    pub fn add(&mut self, bytes: u64) {
        self.events += 1;
        self.bytes += bytes;
    }

    pub fn remove(&mut self, bytes: u64) {
        self.events -= 1;
        self.bytes -= bytes;
    }
}

#[derive(Clone, Debug)]
pub struct Partition<P> {
    lanes: HashMap<Entity, Lane<P>>,
    load: Load,
    /// Lanes whose next is parked: a call ran out of room. Any later call goes on.
    draining: BTreeSet<Entity>,
}

impl<P> Default for Partition<P> {
    fn default() -> Self {
        Partition { lanes: HashMap::new(), load: Load::default(), draining: BTreeSet::new() }
    }
}

impl<P: Payload> Partition<P> {
    /// Goes on with the lanes that an earlier call left half drained. Every call
    /// does this first, so that what was promised comes before what is new.
    pub fn drain(&mut self, effects: &mut Effects<P>) {
        for entity in self.draining.clone() {
            let lane = self.lanes.get_mut(&entity).expect("a draining lane exists");
            lane.drain(&mut self.load, effects);
            if !lane.is_draining() {
                self.draining.remove(&entity);
            }
        }
    }

    /// Decides about one event. An entity that is refused at first sight leaves no
    /// trace.
    pub fn admit(
        &mut self,
        entity: &Entity,
        event: Event<P>,
        policy: &Policy,
        effects: &mut Effects<P>,
    ) -> Verdict {
        if let Some(lane) = self.lanes.get_mut(entity) {
            let verdict = lane.admit(event, policy, &mut self.load, effects);
            self.note_draining(entity);
            return verdict;
        }
        let mut lane = Lane::new(entity.clone(), event.epoch, policy);
        let verdict = lane.admit(event, policy, &mut self.load, effects);
        // A duplicate at first sight lies before the first sequence: no lane either.
        if !matches!(verdict, Verdict::Refused(_) | Verdict::Again | Verdict::Duplicate { .. }) {
            self.lanes.insert(entity.clone(), lane);
        }
        verdict
    }

    /// Gives the gap of one lane up (rule 5, once its time has come).
    pub fn skip(&mut self, entity: &Entity, reason: SkipReason, effects: &mut Effects<P>) {
        if let Some(lane) = self.lanes.get_mut(entity) {
            lane.skip(reason, &mut self.load, effects);
            self.note_draining(entity);
        }
    }

    /// Puts a lane back as its text says. It has nothing parked.
    pub fn restore(&mut self, entity: Entity, state: LaneState) {
        self.lanes.insert(entity.clone(), Lane::restore(entity, state));
    }

    /// Is anything left that a further call would release?
    pub fn is_draining(&self) -> bool {
        !self.draining.is_empty()
    }

    pub fn lane(&self, entity: &Entity) -> Option<&Lane<P>> {
        self.lanes.get(entity)
    }

    pub fn lanes(&self) -> impl Iterator<Item = (&Entity, &Lane<P>)> {
        self.lanes.iter()
    }

    /// Parked events and bytes of all lanes.
    pub fn parked(&self) -> (u64, u64) {
        (self.load.events, self.load.bytes)
    }

    fn note_draining(&mut self, entity: &Entity) {
        if self.lanes.get(entity).is_some_and(Lane::is_draining) {
            self.draining.insert(entity.clone());
        } else {
            self.draining.remove(entity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Action, Epoch, MarkerKind, Order, Position, Sequence};

    impl Payload for &'static str {
        fn size(&self) -> u64 {
            self.len() as u64
        }

        fn same_as(&self, other: &Self) -> bool {
            self == other
        }
    }

    fn offer(
        partition: &mut Partition<&'static str>,
        sequence: u64,
        effects: &mut Effects<&'static str>,
    ) -> Verdict {
        let position = Position::Given(Sequence::new(sequence).unwrap());
        let event = Event { epoch: Epoch::new(0).unwrap(), position, terminal: false, payload: "x" };
        partition.admit(&job(), event, &Policy::default(), effects)
    }

    fn job() -> Entity {
        Entity::new("job").unwrap()
    }

    /// No call of a store skips a gap by itself yet; the rules can.
    #[test]
    fn a_skipped_gap_is_marked_in_its_place_and_what_comes_then_is_late() {
        let mut partition = Partition::default();
        let mut effects = Effects::new(512);
        for sequence in [0, 3, 4, 6] {
            offer(&mut partition, sequence, &mut effects);
        }
        partition.skip(&job(), SkipReason::Timeout, &mut effects);
        assert_eq!(partition.lane(&job()).unwrap().state().to_string(), "0:5;k1,1,6;m1-2");
        let written: Vec<String> = effects
            .actions
            .iter()
            .map(|action| match action {
                Action::Append(append) => format!("{} {}", append.order.name(), append.sequence),
                Action::Mark(marker) => match marker.kind {
                    MarkerKind::Gap { reason, from } => {
                        format!("{} {from}-{}", reason.name(), marker.sequence)
                    }
                    MarkerKind::Epoch { .. } => "epoch".to_owned(),
                },
            })
            .collect();
        assert_eq!(written, ["strict 0", "timeout 1-2", "strict 3", "strict 4"]);

        let late = offer(&mut partition, 1, &mut effects);
        assert_eq!(late, Verdict::Late { sequence: Sequence::new(1).unwrap() });
        assert!(matches!(effects.actions.last(), Some(Action::Append(a)) if a.order == Order::Late));
        assert!(matches!(offer(&mut partition, 1, &mut effects), Verdict::Duplicate { .. }));
    }

    #[test]
    fn without_a_gap_there_is_nothing_to_skip() {
        let mut partition = Partition::default();
        let mut effects = Effects::new(512);
        partition.skip(&job(), SkipReason::Timeout, &mut effects);
        offer(&mut partition, 0, &mut effects);
        partition.skip(&job(), SkipReason::Timeout, &mut effects);
        assert_eq!(effects.actions.len(), 1);
        assert_eq!(partition.lane(&job()).unwrap().state().to_string(), "0:1");
    }
}
