//! The lanes of one partition, and what they share: the clock and the lanes that wait
//! for it, the parked limits, the mode.

use std::collections::{BTreeSet, HashMap};

use super::{
    breaker::Breaker,
    clock::{CallClock, ELAPSE_MIN_MS, PartitionClock},
    effects::{Action, DegradedBy, Edge, Effects},
    full::{Full, Lengths},
    identity::{Entity, Epoch, Sequence},
    lane::{Event, Lane, Payload, Turn},
    lanes::{Lanes, index},
    policy::Policy,
    ranges::Range,
    retire::Memory,
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

/// Stands for a deadline in lanes that must be marked once the partition is restored:
/// later than any clock.
pub(super) const DUE_WHEN_RESTORED: u64 = 1 << 53;

/// Whether a partition promises order at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionMode {
    Ordered,
    Degraded { by: DegradedBy, since: u64 },
}

/// What one look at the clock did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Elapsed {
    /// False if another look was too short a time ago.
    pub ran: bool,
    /// Lanes that were due and looked at.
    pub lanes: u64,
    /// Others are due, too.
    pub more: bool,
}

#[derive(Clone, Debug)]
pub struct Partition<P> {
    pub(super) lanes: HashMap<Entity, Lane<P>>,
    load: Load,
    pub(super) clock: PartitionClock,
    /// When a look at the clock last found nothing more to do.
    elapsed: u64,
    /// Lanes for which time has something to do, by when: 0 while they are draining.
    pub(super) gaps: BTreeSet<(u64, Entity)>,
    pub(super) due: HashMap<Entity, u64>,
    pub(super) mode: PartitionMode,
    /// While it is degraded: lanes that are due before this have been told.
    pub(super) told: u64,
    pub(super) breaker: Breaker,
    /// Degraded lanes do not return yet, though the partition may be ordered.
    stays: bool,
    full: Full,
    pub(super) memory: Memory,
}

impl<P> Default for Partition<P> {
    fn default() -> Self {
        Partition {
            lanes: HashMap::new(),
            load: Load::default(),
            clock: PartitionClock::default(),
            elapsed: 0,
            gaps: BTreeSet::new(),
            due: HashMap::new(),
            mode: PartitionMode::Ordered,
            told: 0,
            breaker: Breaker::default(),
            stays: false,
            full: Full::default(),
            memory: Memory::default(),
        }
    }
}

impl<P: Payload> Partition<P> {
    /// Its clock starts now.
    pub fn new(wall: u64) -> Self {
        Partition { clock: PartitionClock { now: 0, last: wall }, ..Partition::default() }
    }

    /// Decides about events one after the other. `wall` is what the wall clock says.
    /// First it goes on with the lanes that an earlier call left half drained, so that
    /// what was promised comes before what is new.
    pub fn admit<'e>(
        &mut self,
        events: impl IntoIterator<Item = (&'e Entity, Event<P>)>,
        wall: u64,
        policy: &Policy,
        effects: &mut Effects<P>,
        mut decided: impl FnMut(Verdict, &Effects<P>),
    ) {
        self.call(wall, policy, effects, |lanes, turn| {
            for entity in lanes.draining() {
                lanes.with_lane(&entity, turn, |lane, turn| lane.go_on(turn));
            }
            for (entity, event) in events {
                let verdict = lanes.admit(entity, event, turn);
                decided(verdict, turn.effects);
            }
        });
    }

    /// Does what is due: at most `lanes_max` lanes, and no more than a call may append. It
    /// also sees whether the streams, which are so long, are full.
    pub fn elapse(
        &mut self,
        wall: u64,
        policy: &Policy,
        lanes_max: usize,
        lengths: Lengths,
        effects: &mut Effects<P>,
    ) -> Elapsed {
        let now = self.clock.advance(wall);
        if now - self.elapsed < ELAPSE_MIN_MS {
            return Elapsed::default();
        }
        self.full.look(lengths, policy);
        self.restore_if_calm(now, policy, effects);
        let mut due = self.lanes_due(now, lanes_max);
        let (untold, told) = self.lanes_untold(self.told.max(now + 1), lanes_max - due.len());
        due.extend(untold.iter().map(|(_, entity)| entity.clone()));
        let (mut seen, mut told, degraded) = (0_usize, told, self.is_degraded());
        self.call(wall, policy, effects, |lanes, turn| {
            for entity in &due {
                if !turn.effects.has_room(1) {
                    break;
                }
                lanes.with_lane(entity, turn, |lane, turn| lane.elapse(turn));
                seen += 1;
            }
        });
        // Those that there was no room for are told by the next look.
        if let Some((due, _)) = untold.get(seen.saturating_sub(due.len() - untold.len())) {
            told = *due;
        }
        if degraded {
            self.told = told;
        }
        let seen = seen as u64;
        let more =
            !self.lanes_due(now, 1).is_empty() || !self.lanes_untold(self.told.max(now) + 1, 1).0.is_empty();
        if !more {
            self.elapsed = now;
        }
        Elapsed { ran: true, lanes: seen, more }
    }

    /// A living producer is known: the gap's last wait may take longer.
    pub fn extend(&mut self, entity: &Entity, epoch: Epoch, next: Sequence, wall: u64, policy: &Policy) {
        let mut effects = Effects::new(0);
        self.call(wall, policy, &mut effects, |lanes, turn| {
            lanes.with_lane(entity, turn, |lane, turn| lane.extend(epoch, next, turn));
        });
    }

    /// An operator gives one gap up. Nothing if it is not there.
    pub fn skip(
        &mut self,
        entity: &Entity,
        epoch: Epoch,
        next: Sequence,
        wall: u64,
        policy: &Policy,
        effects: &mut Effects<P>,
    ) -> Option<Range> {
        let mut skipped = None;
        self.call(wall, policy, effects, |lanes, turn| {
            lanes.with_lane(entity, turn, |lane, turn| skipped = lane.skip_by_operator(epoch, next, turn));
        });
        skipped
    }

    /// By an operator: it stays so until he restores it.
    pub fn degrade(&mut self, wall: u64, effects: &mut Effects<P>) {
        let since = self.clock.advance(wall);
        if self.mode == PartitionMode::Ordered {
            effects.push(Action::Edge(Edge::Degraded(DegradedBy::Operator)));
        }
        self.mode = PartitionMode::Degraded { by: DegradedBy::Operator, since };
        self.told = 0;
    }

    /// By an operator, whoever degraded it.
    pub fn restore(&mut self, wall: u64, effects: &mut Effects<P>) {
        self.clock.advance(wall);
        if self.is_degraded() {
            effects.push(Action::Edge(Edge::Restored(DegradedBy::Operator)));
        }
        (self.mode, self.breaker) = (PartitionMode::Ordered, Breaker::default());
    }

    fn restore_if_calm(&mut self, now: u64, policy: &Policy, effects: &mut Effects<P>) {
        if let PartitionMode::Degraded { by: DegradedBy::Breaker, since } = self.mode
            && now - since >= policy.breaker.hold
            && self.breaker.is_calm(now, &policy.breaker)
        {
            effects.push(Action::Edge(Edge::Restored(DegradedBy::Breaker)));
            self.mode = PartitionMode::Ordered;
        }
    }

    /// One call: lets `act` work on the lanes, then sees to the breaker.
    pub(super) fn call(
        &mut self,
        wall: u64,
        policy: &Policy,
        effects: &mut Effects<P>,
        act: impl FnOnce(&mut Lanes<'_, P>, &mut Turn<'_, P>),
    ) {
        let (degraded, stays, full) = (self.is_degraded(), self.stays, self.full);
        let Partition { lanes, load, clock, gaps, due, breaker, memory, .. } = self;
        let clock = CallClock::new(clock, wall);
        let mut turn = Turn { policy, clock, degraded, stays, full, load, breaker, trouble: false, effects };
        act(&mut Lanes { lanes, gaps, due, memory }, &mut turn);
        if turn.trouble && !degraded && turn.effects.has_room(1) {
            let since = turn.clock.now();
            if turn.breaker.is_tripped(since, &policy.breaker) {
                turn.effects.push(Action::Edge(Edge::Degraded(DegradedBy::Breaker)));
                self.mode = PartitionMode::Degraded { by: DegradedBy::Breaker, since };
                self.told = 0;
            }
        }
    }

    /// Lanes whose time has come, at most `count`; in an ordered partition also those that
    /// were waiting for it to be restored.
    fn lanes_due(&self, now: u64, count: usize) -> Vec<Entity> {
        let returns = !self.is_degraded() && !self.stays;
        let is_due = |due: u64| due <= now || (due == DUE_WHEN_RESTORED && returns);
        self.gaps
            .iter()
            .filter(|(due, _)| is_due(*due))
            .take(count)
            .map(|(_, entity)| entity.clone())
            .collect()
    }

    /// Lanes that still wait, from a time on, although the partition is degraded, at most
    /// `count`, and before which time all have been told then. Those of the last one's very
    /// time may be left: the next look begins with them.
    fn lanes_untold(&self, from: u64, count: usize) -> (Vec<(u64, Entity)>, u64) {
        if !self.is_degraded() || count == 0 {
            return (Vec::new(), self.told);
        }
        let waits = |(due, _): &&(u64, Entity)| (from..DUE_WHEN_RESTORED).contains(due);
        let untold: Vec<_> = self.gaps.iter().filter(waits).take(count).cloned().collect();
        let told = match untold.last() {
            Some((due, _)) if untold.len() == count => *due,
            Some(_) | None => DUE_WHEN_RESTORED,
        };
        (untold, told)
    }

    /// Lets degraded lanes return to an ordered partition, or not yet: somebody may know that what
    /// they miss can still come, and that to mark it would be too soon.
    pub fn set_stays(&mut self, stays: bool) {
        self.stays = stays;
    }

    /// Puts a lane back as its text says. It has nothing parked.
    pub fn restore_lane(&mut self, entity: Entity, state: LaneState) {
        let lane = Lane::restore(entity.clone(), state);
        let due = lane.due();
        self.lanes.insert(entity.clone(), lane);
        index(&mut self.gaps, &mut self.due, &entity, due);
    }

    /// Removes a lane that became a tombstone.
    pub(super) fn forget_lane(&mut self, entity: &Entity) {
        self.lanes.remove(entity);
        index(&mut self.gaps, &mut self.due, entity, None);
    }

    /// Is anything left that a further call would release?
    pub fn is_draining(&self) -> bool {
        self.gaps.first().is_some_and(|(due, _)| *due == 0)
    }

    pub fn is_degraded(&self) -> bool {
        self.mode != PartitionMode::Ordered
    }

    pub fn mode(&self) -> PartitionMode {
        self.mode
    }

    /// While it is degraded: lanes that are due before this have been told.
    pub fn told(&self) -> u64 {
        self.told
    }

    pub fn breaker(&self) -> Breaker {
        self.breaker
    }

    /// Which of its streams were full at the last look.
    pub fn full(&self) -> Full {
        self.full
    }

    /// Looks at the wall clock; returns what the partition's clock says.
    pub fn advance(&mut self, wall: u64) -> u64 {
        self.clock.advance(wall)
    }

    pub fn clock(&self) -> PartitionClock {
        self.clock
    }

    /// Lanes for which time has something to do, by when.
    pub fn gaps(&self) -> impl Iterator<Item = (&Entity, u64)> {
        self.gaps.iter().map(|(due, entity)| (entity, *due))
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
}
