//! How long an entity is remembered: lanes by age, tombstones, and entities that were
//! announced but have not begun (rule 9, lost work).
//!
//! A lane's text has no time in it, or no sidecar could predict it. So each lane is filed
//! once, when it is made, in a ring of buckets; [`Partition::sweep`] looks at those that
//! are old enough and files them anew, with what it saw. A closed lane that was seen
//! twice in the same state, `retire_after` apart, has not moved for that long.

use std::collections::BTreeMap;

use super::{
    identity::Entity,
    lane::Payload,
    partition::Partition,
    policy::{Mode, Policy, Retirement},
    rings::Ring,
    state::LaneState,
};

/// How a lane was seen when it was filed: since when, in which state. Nothing if it was
/// filed when it was made.
pub type Filed = Option<(u64, String)>;

#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Lanes that were open when last seen.
    pub opened: Ring<Filed>,
    /// Lanes that were closed when last seen.
    pub closed: Ring<Filed>,
    pub tombs: Ring<LaneState>,
    pub announced: BTreeMap<Entity, Announced>,
}

/// An entity that somebody said will exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// Its first event is due then.
    Due(u64),
    /// It was due then, and reported missing.
    Missing(u64),
}

/// What became of an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    Noted,
    /// The entity has begun already.
    Begun,
    /// Too many are announced.
    Full,
}

/// Something a person may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// An entity without a terminal event, in this state since then at least.
    Stuck { entity: Entity, state: Box<LaneState>, since: u64 },
    /// An announced entity that has not begun.
    Missing { entity: Entity, due: u64 },
}

/// What one look at the lanes' ages did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// What the partition clock said.
    pub now: u64,
    pub findings: Vec<Finding>,
    pub retired: u64,
    pub forgotten: u64,
    /// More are old enough to be looked at.
    pub more: bool,
}

impl Memory {
    pub(super) fn tombstone(&self, entity: &Entity) -> Option<&LaneState> {
        self.tombs.get(entity)
    }

    /// A lane was made, or woken.
    pub(super) fn opened(&mut self, entity: &Entity) {
        self.tombs.remove(entity);
        self.opened.insert(entity.clone(), None);
    }
}

impl<P: Payload> Partition<P> {
    /// Somebody says that an entity will exist. Saying it again sets its time anew.
    pub fn announce(&mut self, entity: &Entity, within: u64, wall: u64, policy: &Policy) -> Announcement {
        let now = self.clock.advance(wall);
        if self.lanes.contains_key(entity) || self.memory.tombstone(entity).is_some() {
            return Announcement::Begun;
        }
        let is_full = |memory: &Memory| memory.announced.len() as u64 >= policy.announced_max;
        if !self.memory.announced.contains_key(entity) && is_full(&self.memory) {
            // Those that have begun only wait for their time to be looked at.
            let Memory { announced, tombs, .. } = &mut self.memory;
            announced.retain(|entity, _| !self.lanes.contains_key(entity) && tombs.get(entity).is_none());
            if is_full(&self.memory) {
                return Announcement::Full;
            }
        }
        // Above 0, because in Redis the sign tells those that were reported.
        self.memory.announced.insert(entity.clone(), Announced::Due((now + within).max(1)));
        Announcement::Noted
    }

    /// Looks at what is old enough: at most `count` entities in each of three places. What is
    /// due is judged as of a moment that a search began, if one is given, or what it files
    /// anew could come round again.
    pub fn sweep(&mut self, wall: u64, policy: &Policy, count: usize, as_of: Option<u64>) -> Swept {
        let now = self.clock.advance(wall);
        let as_of = as_of.unwrap_or(now);
        let times = &policy.retirement;
        let mut swept = Swept { now, ..Swept::default() };
        self.memory.opened.turn(now, times.stuck_after / 2);
        self.memory.closed.turn(now, times.retire_after / 2);
        self.memory.tombs.turn(now, times.remember_for / 2);
        if let Some(bucket) = self.memory.opened.due(as_of, times.stuck_after) {
            for (entity, filed) in self.memory.opened.take(bucket, count) {
                self.look_at_open(entity, filed, now, times, &mut swept);
            }
        }
        if let Some(bucket) = self.memory.closed.due(as_of, times.retire_after) {
            for (entity, filed) in self.memory.closed.take(bucket, count) {
                self.look_at_closed(entity, filed, now, &mut swept);
            }
        }
        if let Some(bucket) = self.memory.tombs.due(now, times.remember_for) {
            swept.forgotten += self.memory.tombs.clear(bucket) as u64;
        }
        self.look_at_announced(now, times, count, &mut swept);
        swept.more = self.memory.opened.due(as_of, times.stuck_after).is_some()
            || self.memory.closed.due(as_of, times.retire_after).is_some();
        swept
    }

    fn look_at_open(
        &mut self,
        entity: Entity,
        filed: Filed,
        now: u64,
        times: &Retirement,
        swept: &mut Swept,
    ) {
        let Some(state) = self.lanes.get(&entity).map(|lane| lane.state()) else { return };
        let text = state.to_string();
        if state.closed && state.parked.is_none() {
            self.memory.closed.insert(entity, Some((now, text)));
            return;
        }
        let since = filed.filter(|(_, seen)| *seen == text).map_or(now, |(since, _)| since);
        let is_idle = times.idle_retire_after > 0 && now - since >= times.idle_retire_after;
        if is_idle && !self.is_awaited(&entity) {
            self.retire(entity, state, swept);
            return;
        }
        self.memory.opened.insert(entity.clone(), Some((since, text)));
        swept.findings.push(Finding::Stuck { entity, state: Box::new(state), since });
    }

    fn look_at_closed(&mut self, entity: Entity, filed: Filed, now: u64, swept: &mut Swept) {
        let Some(state) = self.lanes.get(&entity).map(|lane| lane.state()) else { return };
        let text = state.to_string();
        if !state.closed || state.parked.is_some() {
            self.memory.opened.insert(entity, None);
        } else if filed.is_some_and(|(_, seen)| seen == text) && !self.is_awaited(&entity) {
            let LaneState { epoch, next, mode, missing, .. } = state;
            let mut tombstone = LaneState { closed: true, ..LaneState::healthy(epoch, next) };
            // What a lane that passes misses is marked when its next epoch begins.
            if mode != Mode::Enforce && !missing.is_empty() {
                (tombstone.mode, tombstone.missing) = (mode, missing);
            }
            self.retire(entity, tombstone, swept);
        } else {
            self.memory.closed.insert(entity, Some((now, text)));
        }
    }

    /// Has time still something to do in the lane: a gap to end, something to mark?
    fn is_awaited(&self, entity: &Entity) -> bool {
        self.lanes.get(entity).is_some_and(|lane| lane.due().is_some())
    }

    fn retire(&mut self, entity: Entity, tombstone: LaneState, swept: &mut Swept) {
        self.forget_lane(&entity);
        self.memory.tombs.remove(&entity);
        self.memory.tombs.insert(entity, tombstone);
        swept.retired += 1;
    }

    fn look_at_announced(&mut self, now: u64, times: &Retirement, count: usize, swept: &mut Swept) {
        let has_begun = |entity: &Entity, partition: &Self| {
            partition.lanes.contains_key(entity) || partition.memory.tombstone(entity).is_some()
        };
        let mut due: Vec<(u64, Entity)> = self
            .memory
            .announced
            .iter()
            .filter_map(|(entity, announced)| match announced {
                Announced::Due(due) if *due <= now => Some((*due, entity.clone())),
                Announced::Due(_) | Announced::Missing(_) => None,
            })
            .collect();
        due.sort();
        for (due, entity) in due.into_iter().take(count) {
            if has_begun(&entity, self) {
                self.memory.announced.remove(&entity);
            } else {
                self.memory.announced.insert(entity.clone(), Announced::Missing(due));
                swept.findings.push(Finding::Missing { entity, due });
            }
        }
        // Those reported are remembered for as long as tombstones are.
        self.memory.announced.retain(
            |_, announced| !matches!(announced, Announced::Missing(due) if *due + times.remember_for <= now),
        );
    }

    /// Where an entity stands: its lane, or what is left of it.
    pub fn resume(&self, entity: &Entity) -> Option<LaneState> {
        let lane = self.lanes.get(entity).map(|lane| lane.state());
        lane.or_else(|| self.memory.tombstone(entity).cloned())
    }

    pub fn memory(&self) -> &Memory {
        &self.memory
    }
}
