//! Lanes that follow a stream, as a worker's do.
//!
//! What a sidecar wrote in order says more than an event by itself: an entry that is
//! `strict`, or a marker, means that nothing of its entity below it follows. So a worker's
//! lane waits only for what passed, and for what other programs wrote.

use super::{
    breaker::Breaker,
    effects::{DegradedBy, Effects, SkipReason},
    identity::{Entity, Epoch, Sequence},
    lane::{Lane, Payload},
    lanes::index,
    partition::{Partition, PartitionMode},
    policy::Policy,
    ranges::Ranges,
};

impl<P: Payload> Partition<P> {
    /// Nothing of this entity and epoch below `to` comes any more. One that is unknown starts
    /// there, without a gap.
    #[expect(clippy::too_many_arguments, reason = "they are one event and one call")]
    pub fn reach(
        &mut self,
        entity: &Entity,
        epoch: Epoch,
        to: Sequence,
        reason: SkipReason,
        wall: u64,
        policy: &Policy,
        effects: &mut Effects<P>,
    ) {
        if self.lanes.contains_key(entity) {
            self.call(wall, policy, effects, |lanes, turn| {
                lanes.with_lane(entity, turn, |lane, turn| lane.reach(epoch, to, reason, turn));
            });
        } else {
            let lane = Lane::starting_at(entity.clone(), epoch, to, policy, self.is_degraded());
            self.lanes.insert(entity.clone(), lane);
        }
    }

    /// More is parked than may be: all lanes pass until it is calm again.
    pub fn trip(&mut self, wall: u64, policy: &Policy) {
        let since = self.clock.advance(wall);
        if !self.is_degraded() {
            self.mode = PartitionMode::Degraded { by: DegradedBy::Breaker, since };
            self.told = 0;
        }
        self.breaker = Breaker::default();
        (0..policy.breaker.skips).for_each(|_| self.breaker.hit(since, &policy.breaker));
    }

    /// Is a higher epoch of the entity known?
    pub fn is_stale(&self, entity: &Entity, epoch: Epoch) -> bool {
        self.lanes.get(entity).is_some_and(|lane| lane.is_beyond(epoch))
    }

    /// What an entity misses in this epoch.
    pub fn missing(&self, entity: &Entity, epoch: Epoch) -> Option<&Ranges> {
        self.lanes.get(entity).and_then(|lane| lane.missing_in(epoch))
    }

    /// From where on nobody was told of what an entity misses in this epoch.
    pub fn unmarked(&self, entity: &Entity, epoch: Epoch) -> Option<Sequence> {
        self.lanes.get(entity).and_then(|lane| lane.unmarked_in(epoch))
    }

    pub fn is_degraded_by_operator(&self) -> bool {
        matches!(self.mode, PartitionMode::Degraded { by: DegradedBy::Operator, .. })
    }

    /// Forgets a lane in which nothing is due; false if something is.
    pub fn forget(&mut self, entity: &Entity) -> bool {
        let is_idle = self.lanes.get(entity).is_none_or(|lane| lane.due().is_none());
        if is_idle {
            self.lanes.remove(entity);
            self.memory.opened.remove(entity);
            index(&mut self.gaps, &mut self.due, entity, None);
        }
        is_idle
    }

    /// Gives back what is kept for more lanes than these.
    pub fn shrink_to(&mut self, lanes: usize) {
        self.lanes.shrink_to(lanes);
        self.due.shrink_to(lanes);
    }
}
