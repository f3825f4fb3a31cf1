//! What one group of workers keeps about one partition, and who may change it: the decisions
//! of the scripts `group_lease`, `group_release`, `group_commit` and `group_wish`, without the
//! store around them.

use std::collections::{BTreeMap, HashMap};

use crate::{
    order::Entity,
    store::{Commit, Committed, EventId, Granted, Head, LeaseSeen, Leased, Point, Running, StreamId, Wish},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPart {
    pub floor: StreamId,
    pub owner: Option<String>,
    pub term: u64,
    pub count: u64,
    pub asked: u64,
    pub running: Vec<Running>,
    pub loose: Vec<EventId>,
    pub resume: HashMap<Entity, Point>,
    pub held: BTreeMap<Entity, Head>,
    pub kept: HashMap<(Entity, u64), Vec<u8>>,
}

impl GroupPart {
    pub fn seen(&self) -> LeaseSeen {
        LeaseSeen { owner: self.owner.clone(), term: self.term, count: self.count }
    }

    /// Takes the lease, if it is still as it was seen. Terms rise, also over a store that lost
    /// the last ones.
    pub fn lease(&mut self, owner: &str, seen: &LeaseSeen, now_ms: u64) -> Option<Leased> {
        if self.seen() != *seen {
            return None;
        }
        (self.owner, self.count) = (Some(owner.to_owned()), 0);
        self.term = (self.term + 1).max(now_ms);
        Some(Leased {
            term: self.term,
            floor: self.floor,
            running: self.running.clone(),
            loose: self.loose.clone(),
            asked: self.asked,
            now_ms,
        })
    }

    pub fn release(&mut self, term: u64) {
        if self.term == term {
            self.owner = None;
        }
    }

    pub fn commit(&mut self, commit: &Commit, now_ms: u64) -> Committed {
        if self.term == commit.term && self.count == commit.number + 1 {
            return Committed::Done { asked: self.asked, now_ms };
        }
        if self.term != commit.term || self.count != commit.number {
            return Committed::Fenced { term: self.term };
        }
        self.resume.extend(commit.points.iter().cloned());
        for (entity, number) in &commit.dropped {
            self.kept.remove(&(entity.clone(), *number));
        }
        for (entity, number, text) in &commit.kept {
            self.kept.insert((entity.clone(), *number), text.clone());
        }
        for change in &commit.heads {
            let is = self.held.get(&change.entity).map(|head| head.state);
            // What a person wished meanwhile stands.
            let wish = is.filter(|is| Some(*is) != change.was);
            if change.ends && wish.is_none() {
                self.held.remove(&change.entity);
            } else {
                let head = Head { state: wish.unwrap_or(change.head.state), ..change.head.clone() };
                self.held.insert(change.entity.clone(), head);
            }
        }
        self.floor = commit.floor;
        self.count += 1;
        (self.running, self.loose) = (commit.running.clone(), commit.loose.clone());
        Committed::Done { asked: self.asked, now_ms }
    }

    pub fn wish(&mut self, entity: &Entity, wish: Wish) -> Granted {
        let (wished, fits) = wish.changes();
        match self.held.get_mut(entity) {
            Some(head) if !fits.contains(&head.state) => return Granted::Unfit(head.state),
            Some(head) => (head.state, head.attempts, head.due_ms) = (wished, 0, 0),
            None if wish == Wish::Pause => {
                self.held.insert(entity.clone(), Head::paused());
            }
            None => return Granted::NotHeld,
        }
        self.asked += 1;
        Granted::Done
    }
}
