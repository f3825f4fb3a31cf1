//! One task of an entity at a time, fair across entities.

use super::{BEHIND_MAX_MS, Feed, Out};
use crate::{
    deliver::task::{Task, What},
    order::{Entity, Epoch, LaneState, Order, Range, Ranges, Sequence},
};

/// A task that was started: it may be handed out once the commit that says so is in the
/// store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub tag: u64,
    pub entity: Entity,
    pub task: Task,
    /// 1 at first.
    pub attempt: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Ack,
    Nack {
        reason: String,
    },
    /// It was not handled, nor tried: deliver it as if it had not been.
    Returned,
    /// Nobody will answer: it is noted as running when the partition changes hands.
    Abandoned,
}

impl Feed {
    /// Puts a task at its entity's end, or to what is held of it.
    pub(super) fn enqueue(&mut self, entity: &Entity, task: Task) {
        if self.holds.contains_key(entity) {
            self.keep(entity, task);
            return;
        }
        let line = self.lines.entry(entity.clone()).or_default();
        if line.is_idle() {
            self.ready.push_back(entity.clone());
        }
        line.out_of_turn += usize::from(task.is_out_of_turn());
        line.queue.push_back(task);
    }

    /// Starts at most `max` tasks.
    pub fn start(&mut self, max: usize, now: u64) -> Vec<Started> {
        let mut started = Vec::new();
        // A suspect runs alone: nothing beside it, and nothing before it ends.
        while started.len() < max && !self.is_alone {
            let Some(entity) = self.ready.pop_front() else { break };
            if self.holds.contains_key(&entity) {
                started.extend(self.start_held(entity, now));
                continue;
            }
            let Some(line) = self.lines.get_mut(&entity) else { continue };
            let Some(task) = line.queue.front() else { continue };
            let suspected = task.id.and_then(|id| self.suspects.get(&id)).copied();
            match suspected {
                Some(crashes) if crashes >= self.limits.crashes_max => {
                    let task = line.queue.pop_front().expect("it was there a moment ago");
                    line.out_of_turn -= usize::from(task.is_out_of_turn());
                    let reason = format!("{crashes} times its worker ended while it alone was handled");
                    self.hold_dead(&entity, task, reason);
                }
                Some(_) if !self.out.is_empty() => {
                    self.ready.push_front(entity);
                    break;
                }
                Some(_) | None => {
                    let task = line.queue.pop_front().expect("it was there a moment ago");
                    line.out_of_turn -= usize::from(task.is_out_of_turn());
                    line.busy = true;
                    let crashes = suspected.map(|crashes| crashes + 1);
                    started.push(self.hand_out(entity, task, 1, None, crashes, now));
                }
            }
        }
        started
    }

    pub(super) fn hand_out(
        &mut self,
        entity: Entity,
        task: Task,
        attempt: u32,
        held: Option<u64>,
        crashes: Option<u32>,
        now: u64,
    ) -> Started {
        let tag = self.next_tag;
        self.next_tag += 1;
        self.tally.started += 1;
        self.staged.changed = true;
        self.is_alone |= crashes.is_some();
        let out = Out {
            entity: entity.clone(),
            task: task.clone(),
            since: now,
            held,
            crashes,
            is_abandoned: false,
        };
        self.out.insert(tag, out);
        Started { tag, entity, task, attempt }
    }

    /// What became of a delivery. An answer to one that is not out does not count (false): it
    /// took too long, or was answered before.
    pub fn answer(&mut self, tag: u64, answer: Answer, now: u64) -> bool {
        if answer == Answer::Abandoned {
            if let Some(out) = self.out.get_mut(&tag) {
                self.abandoned += usize::from(!std::mem::replace(&mut out.is_abandoned, true));
            }
            return true;
        }
        let Some(out) = self.out.remove(&tag) else { return false };
        self.is_alone &= out.crashes.is_none();
        self.abandoned -= usize::from(out.is_abandoned);
        self.staged.changed = true;
        if answer == Answer::Returned {
            self.take_back(out);
            return true;
        }
        match (&answer, out.held) {
            (Answer::Ack, None) => {
                self.tally.acked += 1;
                self.move_point(&out.entity, &out.task);
                self.finish(&out.task);
                self.free(&out.entity);
            }
            (Answer::Nack { reason }, None) => {
                self.tally.nacked += 1;
                self.hold_failed(&out.entity, out.task, reason.clone(), now);
            }
            (Answer::Ack, Some(number)) => {
                self.tally.acked += 1;
                self.move_point(&out.entity, &out.task);
                self.held_done(&out.entity, number);
            }
            (Answer::Nack { reason }, Some(_)) => {
                self.tally.nacked += 1;
                self.held_failed(&out.entity, reason.clone(), now);
            }
            (Answer::Returned | Answer::Abandoned, _) => unreachable!("it was seen to above"),
        }
        self.do_deferred(&out.entity);
        true
    }

    fn take_back(&mut self, out: Out) {
        match out.held {
            Some(_) => self.held_returned(&out.entity),
            None => {
                if let Some(line) = self.lines.get_mut(&out.entity) {
                    line.out_of_turn += usize::from(out.task.is_out_of_turn());
                    line.queue.push_front(out.task);
                }
                self.free(&out.entity);
                self.do_deferred(&out.entity);
            }
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: u64) {
        now.checked_sub(BEHIND_MAX_MS).into_iter().for_each(|at| self.seen_to_end(at));
        self.elapse_lanes();
        self.wake_holds(now);
        let limit = self.limits.handler_max_ms;
        let is_overdue = |out: &&Out| now.saturating_sub(out.since) >= limit;
        let overdue: Vec<u64> =
            self.out.iter().filter(|(_, out)| is_overdue(out)).map(|(tag, _)| *tag).collect();
        for tag in overdue {
            self.tally.overdue += 1;
            self.answer(tag, Answer::Nack { reason: format!("no answer within {limit} ms") }, now);
        }
    }

    /// Nothing of the entity is out any more.
    fn free(&mut self, entity: &Entity) {
        if let Some(line) = self.lines.get_mut(entity) {
            line.busy = false;
            if !line.queue.is_empty() {
                self.ready.push_back(entity.clone());
            }
        }
    }

    /// An acknowledgement moves how far its entity is; one of what was missing below changes
    /// what is still missing there, and who was told of it.
    pub(super) fn move_point(&mut self, entity: &Entity, task: &Task) {
        if !task.moves {
            return;
        }
        let mut to = (task.epoch, task.sequence.after());
        match self.lines.get_mut(entity) {
            Some(line) => {
                if line.point.is_some_and(|point| point >= to) {
                    let is_fill = task.is_out_of_turn() && line.point.is_some_and(|point| point.0 == to.0);
                    let Some(point) = line.point.filter(|_| is_fill) else { return };
                    to = point;
                }
                line.point = Some(to);
                let point = self.point_at(entity, to.0, to.1);
                self.staged.points.insert(entity.clone(), point);
            }
            // Only held events were seen of it: as far as those go all is acknowledged or held.
            None => {
                let reached = self.holds.get(entity).and_then(|hold| hold.head.reached.clone());
                let point = reached.unwrap_or_else(|| self.point_at(entity, to.0, to.1));
                self.staged.points.insert(entity.clone(), point.clone());
                self.lineless.insert(entity.clone(), point);
            }
        }
    }

    /// Where an entity is if everything below `next` is done, but for what is missing and for
    /// what is in line out of turn: an event below is missing still, of a gap below nobody was
    /// told yet.
    pub(super) fn point_at(&self, entity: &Entity, epoch: Epoch, next: Sequence) -> LaneState {
        let mut position = LaneState::healthy(epoch, next);
        let (missing, mut unmarked) = match self.lanes.lane(entity) {
            Some(_) => (self.lanes.missing(entity, epoch), self.lanes.unmarked(entity, epoch)),
            // Only what is held was seen of it, and that knows what it misses.
            None => {
                let reached = self.holds.get(entity).and_then(|hold| hold.head.reached.as_ref());
                let reached = reached.filter(|reached| reached.epoch == epoch);
                (reached.map(|reached| &reached.missing), reached.and_then(|reached| reached.unmarked))
            }
        };
        let below = missing.into_iter().flat_map(Ranges::iter).filter(|range| range.last < next);
        below.for_each(|range| position.missing.push(range));
        if let Some(line) = self.lines.get(entity).filter(|line| line.out_of_turn > 0) {
            let below = |task: &&Task| task.epoch == epoch && task.sequence < next;
            for task in line.queue.iter().filter(below) {
                let first = match &task.what {
                    What::Event { order: Order::Strict, .. } => continue,
                    // It fills what was missing when order was given up: nobody was told of that.
                    What::Event { order: Order::Passed, .. } => {
                        unmarked = Some(unmarked.unwrap_or(task.sequence).min(task.sequence));
                        task.sequence
                    }
                    What::Event { .. } => task.sequence,
                    What::Gap { from, .. } => {
                        unmarked = Some(unmarked.unwrap_or(*from).min(*from));
                        *from
                    }
                };
                position.missing.add(Range { first, last: task.sequence });
            }
            position.missing.merge_down();
        }
        position.unmarked = unmarked.filter(|from| position.missing.first_from(*from).is_some());
        position
    }
}
