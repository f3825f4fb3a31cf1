//! What failed, and what comes behind it: held in the store, so that nobody else waits.
//!
//! The worker that has the partition writes all of it but one letter: a person's wish
//! (`seriatim dead`, `seriatim group pause`) is noted as the entity's state, and done here.

use std::{collections::VecDeque, ops::Range};

use super::{Feed, dispatch::Started};
use crate::{
    deliver::task::{Task, What},
    order::{Entity, LaneState, Sequence},
    store::{FIRST_NUMBER, Head, HeadChange, HoldState, Point, REASON_BYTES_MAX},
};

/// Events of one held entity that are fetched at once.
const FETCH_MAX: u64 = 16;

#[derive(Debug)]
pub struct Hold {
    pub head: Head,
    /// As it is in the store, as far as is known.
    stored: Option<HoldState>,
    /// The first of what is held, as far as it was fetched.
    fetched: VecDeque<(u64, Task)>,
    is_fetching: bool,
    /// A delivery is out, or in line to be.
    busy: bool,
}

impl Hold {
    pub fn is_dead(&self) -> bool {
        self.head.state == HoldState::Dead
    }

    fn is_empty(&self) -> bool {
        self.head.first == self.head.next
    }

    /// Where the entity's lane is: behind all that is held.
    pub fn reached(&self) -> Option<Point> {
        let Head { epoch, reached, .. } = self.head;
        (self.head.next > FIRST_NUMBER).then(|| LaneState::healthy(epoch, reached))
    }
}

impl Feed {
    pub(super) fn is_held_full(&self) -> bool {
        self.held.2 >= self.limits.held_max
    }

    /// A first failure: the event and what is in line behind it are held from now on.
    pub(super) fn hold_failed(&mut self, entity: &Entity, task: Task, reason: String, now: u64) {
        let wait = self.retry.wait_ms(1, &mut self.random);
        let due_ms = self.store_now(now) + wait.unwrap_or(0);
        let state = if wait.is_some() { HoldState::Retrying } else { HoldState::Dead };
        self.hold(entity, task, state, 1, due_ms, reason);
    }

    pub(super) fn hold_dead(&mut self, entity: &Entity, task: Task, reason: String, now: u64) {
        let due_ms = self.store_now(now);
        self.hold(entity, task, HoldState::Dead, 0, due_ms, reason);
    }

    fn hold(
        &mut self,
        entity: &Entity,
        task: Task,
        state: HoldState,
        attempts: u32,
        due_ms: u64,
        reason: String,
    ) {
        self.note_death(entity, state, &reason);
        if self.holds.contains_key(entity) {
            self.keep_before(entity, task, state, attempts, due_ms, reason);
            return;
        }
        let head = Head { state, attempts, due_ms, reason: cut(reason), ..empty_head(&task) };
        self.begin_hold(entity, head, None);
        let line = self.lines.entry(entity.clone()).or_default();
        line.busy = false;
        let behind = std::mem::take(&mut line.queue);
        [task].into_iter().chain(behind).for_each(|task| self.keep(entity, task));
    }

    /// A person paused the entity while this was handled: it stands before what is held.
    fn keep_before(
        &mut self,
        entity: &Entity,
        task: Task,
        state: HoldState,
        attempts: u32,
        due_ms: u64,
        reason: String,
    ) {
        let hold = self.holds.get_mut(entity).expect("the entity is held");
        if hold.is_empty() && task.moves {
            (hold.head.epoch, hold.head.reached) = (task.epoch, task.sequence.after());
        }
        hold.head.first -= 1;
        hold.head.bytes += task.bytes();
        hold.fetched.clear();
        (hold.head.attempts, hold.head.due_ms, hold.head.reason) = (attempts, due_ms, cut(reason));
        if hold.head.state == HoldState::Retrying {
            hold.head.state = state;
        }
        let number = hold.head.first;
        self.staged.kept.insert((entity.clone(), number), task.to_text());
        self.staged.heads.insert(entity.clone());
        self.finish(&task);
        if let Some(line) = self.lines.get_mut(entity) {
            line.busy = false;
        }
    }

    fn begin_hold(&mut self, entity: &Entity, head: Head, stored: Option<HoldState>) {
        let hold = Hold { head, stored, fetched: VecDeque::new(), is_fetching: false, busy: false };
        self.holds.insert(entity.clone(), hold);
    }

    /// Puts a task behind what is held of its entity.
    pub(super) fn keep(&mut self, entity: &Entity, task: Task) {
        let hold = self.holds.get_mut(entity).expect("the entity is held");
        let number = hold.head.next;
        hold.head.next += 1;
        hold.head.bytes += task.bytes();
        if task.moves {
            (hold.head.epoch, hold.head.reached) = (task.epoch, task.sequence.after());
        }
        self.staged.kept.insert((entity.clone(), number), task.to_text());
        self.staged.heads.insert(entity.clone());
        self.finish(&task);
    }

    /// A held event was handled; the next one follows at once.
    pub(super) fn held_done(&mut self, entity: &Entity, number: u64) {
        let Some(hold) = self.holds.get_mut(entity) else { return };
        if hold.head.first == number
            && let Some((_, task)) = hold.fetched.pop_front()
        {
            hold.head.first += 1;
            hold.head.bytes = hold.head.bytes.saturating_sub(task.bytes());
            self.staged.drop_kept(entity, number);
        }
        (hold.head.attempts, hold.head.due_ms, hold.busy) = (0, 0, false);
        hold.head.reason.clear();
        // The next one follows at once.
        if hold.fetched.is_empty() {
            self.look_at_holds = true;
        } else if hold.head.state == HoldState::Retrying {
            hold.busy = true;
            self.ready.push_back(entity.clone());
        }
        self.staged.heads.insert(entity.clone());
        self.end_if_empty(entity);
    }

    pub(super) fn held_failed(&mut self, entity: &Entity, reason: String, now: u64) {
        let store_now = self.store_now(now);
        let Some(hold) = self.holds.get_mut(entity) else { return };
        hold.busy = false;
        hold.head.reason = cut(reason.clone());
        match self.retry.wait_ms(hold.head.attempts, &mut self.random) {
            Some(wait) => hold.head.due_ms = store_now + wait,
            // A person may have decided meanwhile.
            None if hold.head.state == HoldState::Retrying => hold.head.state = HoldState::Dead,
            None => {}
        }
        let state = hold.head.state;
        self.note_death(entity, state, &reason);
        self.staged.heads.insert(entity.clone());
    }

    /// A delivery that nobody tried does not count.
    pub(super) fn held_returned(&mut self, entity: &Entity) {
        let Some(hold) = self.holds.get_mut(entity) else { return };
        (hold.busy, hold.head.attempts) = (false, hold.head.attempts.saturating_sub(1));
        self.staged.heads.insert(entity.clone());
    }

    fn note_death(&mut self, entity: &Entity, state: HoldState, reason: &str) {
        if state == HoldState::Dead {
            self.tally.died += 1;
            self.warn(|| format!("{entity:?} is a dead letter: {reason}; see `seriatim dead list`"));
        }
    }

    /// The hold ends with its last event; what is read from now on is delivered again.
    fn end_if_empty(&mut self, entity: &Entity) {
        let Some(hold) = self.holds.get(entity) else { return };
        if hold.is_empty() && hold.head.state == HoldState::Retrying && !hold.busy {
            let hold = self.holds.remove(entity).expect("it was there a moment ago");
            self.staged.heads.remove(entity);
            let change = HeadChange { entity: entity.clone(), was: hold.stored, head: hold.head, ends: true };
            self.staged.ended.push(change);
            self.staged.changed = true;
        }
    }

    /// Puts what is due in line.
    pub(super) fn wake_holds(&mut self, now: u64) {
        let store_now = self.store_now(now);
        let mut asked = Vec::new();
        self.held = (self.holds.len(), 0, 0);
        self.look_at_holds = !self.holds.is_empty();
        for (entity, hold) in &mut self.holds {
            self.held.1 += usize::from(hold.is_dead());
            self.held.2 += hold.head.next - hold.head.first;
            let Hold { head, fetched, busy, .. } = hold;
            match head.state {
                HoldState::SkipAsked | HoldState::DropAsked if !*busy => asked.push(entity.clone()),
                HoldState::Retrying if !*busy && head.due_ms <= store_now && !fetched.is_empty() => {
                    *busy = true;
                    self.ready.push_back(entity.clone());
                }
                _ => {}
            }
        }
        asked.iter().for_each(|entity| self.do_wish(entity));
    }

    pub(super) fn start_held(&mut self, entity: Entity, now: u64) -> Option<Started> {
        let hold = self.holds.get_mut(&entity).expect("the entity is held");
        // What was handed out before the entity was held comes first.
        let is_out = self.lines.get(&entity).is_some_and(|line| line.busy);
        let fits = hold.head.state == HoldState::Retrying && !is_out;
        let Some((number, task)) = hold.fetched.front().cloned().filter(|_| fits) else {
            hold.busy = false;
            return None;
        };
        // Counted before the handler runs: one that ends its worker has had its try.
        hold.head.attempts += 1;
        let attempt = hold.head.attempts;
        self.staged.heads.insert(entity.clone());
        self.tally.retried += 1;
        Some(self.hand_out(entity, task, attempt, Some(number), None, now))
    }

    /// Held events that are wanted soon: of which entity, which numbers.
    pub fn wanted(&mut self, now: u64) -> Vec<(Entity, Range<u64>)> {
        if !std::mem::take(&mut self.look_at_holds) {
            return Vec::new();
        }
        let store_now = self.store_now(now);
        let mut wanted = Vec::new();
        for (entity, hold) in &mut self.holds {
            let Hold { head, fetched, is_fetching, .. } = hold;
            let is_soon = match head.state {
                HoldState::Retrying => head.due_ms <= store_now,
                HoldState::SkipAsked | HoldState::DropAsked => true,
                HoldState::Dead | HoldState::Paused => false,
            };
            // What is not in the store yet is fetched after it is.
            let is_stored = !self.staged.kept.contains_key(&(entity.clone(), head.first));
            if is_soon && fetched.is_empty() && head.first < head.next && !*is_fetching && is_stored {
                *is_fetching = true;
                wanted.push((entity.clone(), head.first..head.next.min(head.first + FETCH_MAX)));
            }
        }
        wanted
    }

    /// What was fetched; in their order, as far as they were there. Nothing: try again.
    pub fn fetched(&mut self, entity: &Entity, events: Option<Vec<(u64, Task)>>) {
        let Some(hold) = self.holds.get_mut(entity) else { return };
        hold.is_fetching = false;
        let Some(events) = events else { return };
        if events.is_empty() {
            // Somebody deleted them by hand: there is nothing to hold any more.
            hold.head.first = hold.head.next;
            self.staged.heads.insert(entity.clone());
            self.warn(|| format!("what was held of {entity:?} is not in the store any more"));
            self.end_if_empty(entity);
            return;
        }
        let is_due = hold.head.state == HoldState::Retrying && !hold.busy;
        let in_turn =
            (hold.head.first..).zip(events).take_while(|(expected, (number, _))| expected == number);
        hold.fetched.extend(in_turn.map(|(_, event)| event));
        if is_due && !hold.fetched.is_empty() {
            hold.busy = true;
            self.ready.push_back(entity.clone());
        }
    }

    /// What the store says of all held entities: at the beginning, and after a person's
    /// decision.
    pub fn heads(&mut self, heads: Vec<(Entity, Head)>) {
        for (entity, stored) in heads {
            let state = stored.state;
            match self.holds.get_mut(&entity) {
                Some(hold) if hold.stored != Some(state) => {
                    hold.stored = Some(state);
                    hold.head.state = state;
                    if state == HoldState::Retrying {
                        (hold.head.attempts, hold.head.due_ms) = (0, 0);
                    }
                    self.staged.heads.insert(entity.clone());
                }
                Some(_) => {}
                None if self.staged.ends(&entity) => {}
                None => {
                    self.begin_hold(&entity, stored, Some(state));
                    // What is in line waits behind what is held.
                    let queue = self.lines.get_mut(&entity).map(|line| std::mem::take(&mut line.queue));
                    queue.into_iter().flatten().for_each(|task| self.keep(&entity, task));
                }
            }
            self.end_if_empty(&entity);
        }
    }

    /// A person wants the first event, or all that is held, to be given up: a gap stands in
    /// its place.
    fn do_wish(&mut self, entity: &Entity) {
        let hold = self.holds.get_mut(entity).expect("the entity is held");
        let is_drop = hold.head.state == HoldState::DropAsked;
        if hold.is_empty() {
            hold.head.state = HoldState::Retrying;
            self.staged.heads.insert(entity.clone());
            self.end_if_empty(entity);
            return;
        }
        // Its numbers have to be known first.
        let Some((number, first)) = hold.fetched.front().cloned() else { return };
        let until = if is_drop { hold.head.next } else { number + 1 };
        let gap = if is_drop {
            let last = hold.head.reached.before().unwrap_or(first.sequence).max(first.sequence);
            let to = if hold.head.epoch == first.epoch { last } else { first.sequence };
            gap_for(&first, to, "dropped")
        } else {
            gap_for(&first, first.sequence, "skipped")
        };
        (number + 1..until).for_each(|dropped| self.staged.drop_kept(entity, dropped));
        let hold = self.holds.get_mut(entity).expect("the entity is held");
        self.staged.kept.insert((entity.clone(), number), gap.to_text());
        if is_drop {
            hold.head.next = number + 1;
            hold.fetched.clear();
            hold.head.bytes = gap.bytes();
            hold.fetched.push_back((number, gap));
        } else {
            hold.head.bytes = hold.head.bytes.saturating_sub(first.bytes()) + gap.bytes();
            hold.fetched[0] = (number, gap);
        }
        (hold.head.state, hold.head.attempts, hold.head.due_ms) = (HoldState::Retrying, 0, 0);
        self.staged.heads.insert(entity.clone());
    }

    pub(super) fn head_changes(&mut self) -> Vec<HeadChange> {
        let mut changes = std::mem::take(&mut self.staged.ended);
        for entity in std::mem::take(&mut self.staged.heads) {
            let Some(hold) = self.holds.get_mut(&entity) else { continue };
            let was = hold.stored.replace(hold.head.state);
            changes.push(HeadChange { entity, was, head: hold.head.clone(), ends: false });
        }
        changes
    }
}

fn empty_head(task: &Task) -> Head {
    Head {
        state: HoldState::Retrying,
        attempts: 0,
        due_ms: 0,
        first: FIRST_NUMBER,
        next: FIRST_NUMBER,
        bytes: 0,
        epoch: task.epoch,
        reached: task.sequence,
        reason: String::new(),
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

/// At most as long as is kept.
fn cut(mut reason: String) -> String {
    let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason.truncate(end.unwrap_or(0));
    reason
}
