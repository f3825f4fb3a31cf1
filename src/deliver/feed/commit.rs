//! What is to be written, gathered until the next commit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Feed;
use crate::{
    order::Entity,
    store::{Commit, EventId, HeadChange, Point, Running},
};

#[derive(Clone, Debug, Default)]
pub struct Staged {
    pub points: HashMap<Entity, Point>,
    /// Held entities whose head has changed.
    pub heads: BTreeSet<Entity>,
    /// Holds that ended.
    pub ended: Vec<HeadChange>,
    pub kept: BTreeMap<(Entity, u64), Vec<u8>>,
    pub dropped: Vec<(Entity, u64)>,
    /// Something is to be written.
    pub changed: bool,
}

impl Staged {
    pub fn drop_kept(&mut self, entity: &Entity, number: u64) {
        self.kept.remove(&(entity.clone(), number));
        self.dropped.push((entity.clone(), number));
    }
}

impl Feed {
    /// Is there something to be written, other than a sign of life?
    pub fn has_news(&self) -> bool {
        self.staged.changed || !self.staged.heads.is_empty()
    }

    /// What is to be written now. It is written again until it is known to be in the store,
    /// and only then asked for the next.
    pub fn commit(&mut self) -> Commit {
        let floor = self.floor();
        self.loose = self.loose.split_off(&EventId::end_of(floor));
        let heads = self.head_changes();
        let number = self.commits;
        self.commits += 1;
        let staged = std::mem::take(&mut self.staged);
        let runs = |out: &super::Out| {
            // Held ones are counted where they are held.
            let id = out.task.id.filter(|_| out.held.is_none())?;
            Some(Running { id, crashes: out.crashes.unwrap_or(0) })
        };
        let mut running: Vec<Running> = self.out.values().filter_map(runs).collect();
        let waiting = self.suspects.iter().filter(|(id, _)| id.entry > floor);
        let waiting = waiting.map(|(id, crashes)| Running { id: *id, crashes: *crashes });
        let missing: Vec<Running> =
            waiting.filter(|suspect| running.iter().all(|run| run.id != suspect.id)).collect();
        running.extend(missing);
        Commit {
            term: self.term,
            number,
            floor,
            running,
            loose: self.loose.iter().copied().collect(),
            points: staged.points.into_iter().collect(),
            heads,
            kept: staged.kept.into_iter().map(|((entity, number), text)| (entity, number, text)).collect(),
            dropped: staged.dropped,
        }
    }

    /// It is in the store. `is_looking_up`: points are being looked up, and what
    /// is found may be older.
    pub fn committed(&mut self, asked: u64, now_ms: u64, now: u64, is_looking_up: bool) {
        self.store_clock = (now_ms, now);
        self.asked = asked;
        // What is being looked up must not be forgotten meanwhile.
        if !is_looking_up {
            self.forget_idle();
            let staged = &self.staged.points;
            self.lineless.retain(|entity, _| staged.contains_key(entity));
        }
    }

    /// Of entities with nothing in hand only so many are remembered; the others' points are
    /// looked up again.
    fn forget_idle(&mut self) {
        if self.lines.len() <= self.limits.idle_max + self.holds.len() {
            return;
        }
        let idle: Vec<Entity> = self
            .lines
            .iter()
            .filter(|(entity, line)| {
                line.is_idle()
                    && !self.staged.points.contains_key(*entity)
                    && !self.holds.contains_key(*entity)
            })
            .map(|(entity, _)| entity.clone())
            .collect();
        for entity in idle {
            if self.lanes.forget(&entity) {
                self.lines.remove(&entity);
            }
        }
        // What a burst has made of the tables is given back.
        self.lines.shrink_to(2 * self.limits.idle_max);
        self.lanes.shrink_to(2 * self.limits.idle_max);
    }
}
