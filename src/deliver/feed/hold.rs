//! What failed, and what comes behind it: held in the store, so that nobody else waits.

use std::{collections::VecDeque, ops::Range};

use super::{Feed, dispatch::Started};
use crate::{
    deliver::{retry::RetryPolicy, task::Task},
    order::Entity,
    store::{Head, HeadChange, HoldState, Point, REASON_BYTES_MAX},
};

/// Events of one held entity that are fetched at once.
const FETCH_MAX: u64 = 16;

#[derive(Clone, Debug)]
pub struct Hold {
    pub head: Head,
    /// As it is in the store, as far as is known.
    pub(super) stored: Option<HoldState>,
    /// The first of what is held, as far as it was fetched.
    pub(super) fetched: VecDeque<(u64, Task)>,
    is_fetching: bool,
    /// In line to be delivered.
    is_in_line: bool,
    /// Its first event is being handled.
    pub(super) is_out: bool,
}

impl Hold {
    fn new(head: Head, stored: Option<HoldState>) -> Self {
        let fetched = VecDeque::new();
        Hold { head, stored, fetched, is_fetching: false, is_in_line: false, is_out: false }
    }

    pub fn is_dead(&self) -> bool {
        self.head.state == HoldState::Dead
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.first == self.head.next
    }

    /// May its first event be put in line?
    fn is_ready(&self, store_now: u64, retry: &RetryPolicy) -> bool {
        let is_due = is_due(&self.head, store_now, retry);
        is_due && !self.is_in_line && !self.is_out && !self.fetched.is_empty()
    }
}

/// Is it time to try again? One that would have to wait longer than anybody waits after so many
/// attempts was noted before the store's clock was set back.
fn is_due(head: &Head, store_now: u64, retry: &RetryPolicy) -> bool {
    let is_time = head.due_ms <= store_now || head.due_ms - store_now > retry.longest_ms(head.attempts);
    head.state == HoldState::Retrying && is_time
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
        let head = Head { state, attempts: 1, due_ms, reason: cut(reason), ..Head::default() };
        self.hold(entity, task, head);
    }

    pub(super) fn hold_dead(&mut self, entity: &Entity, task: Task, reason: String) {
        let head = Head { state: HoldState::Dead, reason: cut(reason), ..Head::default() };
        self.hold(entity, task, head);
    }

    fn hold(&mut self, entity: &Entity, task: Task, head: Head) {
        self.note_death(entity, head.state, &head.reason);
        let line = self.lines.entry(entity.clone()).or_default();
        line.busy = false;
        line.queue.push_front(task);
        self.begin_hold(entity, head, None);
    }

    /// From now on the entity is held, with what is in line of it.
    pub(super) fn begin_hold(&mut self, entity: &Entity, head: Head, stored: Option<HoldState>) {
        self.holds.insert(entity.clone(), Hold::new(head, stored));
        self.ready.retain(|ready| ready != entity);
        let queue = self.lines.get_mut(entity).map(|line| {
            line.out_of_turn = 0;
            std::mem::take(&mut line.queue)
        });
        queue.into_iter().flatten().for_each(|task| self.keep(entity, task));
    }

    /// Puts a task behind what is held of its entity.
    pub(super) fn keep(&mut self, entity: &Entity, task: Task) {
        let reached = self.reached_with(entity, &task);
        let hold = self.holds.get_mut(entity).expect("the entity is held");
        let number = hold.head.next;
        hold.head.next += 1;
        hold.head.bytes += task.bytes();
        hold.head.reached = reached;
        self.staged.kept.insert((entity.clone(), number), task.to_text());
        self.staged.heads.insert(entity.clone());
        self.finish(&task);
    }

    /// Up to where everything is held once this task is. One that fills what was missing below
    /// changes what is still missing there.
    fn reached_with(&self, entity: &Entity, task: &Task) -> Option<Point> {
        let reached = &self.holds.get(entity).expect("the entity is held").head.reached;
        if !task.moves {
            return reached.clone();
        }
        let before = reached.as_ref().map(|reached| (reached.epoch, reached.next));
        let acked = self.lines.get(entity).and_then(|line| line.point);
        let (epoch, next) = before.max(acked).max(Some((task.epoch, task.sequence.after())))?;
        Some(self.point_at(entity, epoch, next))
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
        (hold.head.attempts, hold.head.due_ms, hold.is_out) = (0, 0, false);
        hold.head.reason.clear();
        // What somebody wanted to be given up was handled after all.
        if hold.head.state == HoldState::SkipAsked {
            hold.head.state = HoldState::Retrying;
        }
        self.staged.heads.insert(entity.clone());
        self.look_at_holds = true;
        self.put_in_line(entity, 0);
        self.end_if_empty(entity);
    }

    pub(super) fn held_failed(&mut self, entity: &Entity, reason: String, now: u64) {
        let store_now = self.store_now(now);
        let Some(hold) = self.holds.get_mut(entity) else { return };
        hold.is_out = false;
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
        (hold.is_out, hold.head.due_ms) = (false, 0);
        hold.head.attempts = hold.head.attempts.saturating_sub(1);
        self.staged.heads.insert(entity.clone());
    }

    fn note_death(&mut self, entity: &Entity, state: HoldState, reason: &str) {
        if state == HoldState::Dead {
            self.tally.died += 1;
            self.warn(|| format!("{entity:?} is a dead letter: {reason}; see `seriatim dead list`"));
        }
    }

    /// The hold ends with its last event; what is read from now on is delivered again.
    pub(super) fn end_if_empty(&mut self, entity: &Entity) {
        let Some(hold) = self.holds.get(entity) else { return };
        if hold.is_empty() && hold.head.state == HoldState::Retrying && !hold.is_out {
            let hold = self.holds.remove(entity).expect("it was there a moment ago");
            self.staged.heads.remove(entity);
            let change = HeadChange { entity: entity.clone(), was: hold.stored, head: hold.head, ends: true };
            self.staged.ended.push(change);
            self.staged.changed = true;
        }
    }

    fn put_in_line(&mut self, entity: &Entity, store_now: u64) {
        if let Some(hold) = self.holds.get_mut(entity)
            && hold.is_ready(store_now, &self.retry)
        {
            hold.is_in_line = true;
            self.ready.push_back(entity.clone());
        }
    }

    /// Puts what is due in line.
    pub(super) fn wake_holds(&mut self, now: u64) {
        let store_now = self.store_now(now);
        let (mut due, mut asked) = (Vec::new(), Vec::new());
        self.held = (self.holds.len(), 0, 0);
        self.look_at_holds = !self.holds.is_empty();
        for (entity, hold) in &self.holds {
            self.held.1 += usize::from(hold.is_dead());
            self.held.2 += hold.head.next - hold.head.first;
            match hold.head.state {
                HoldState::SkipAsked | HoldState::DropAsked if !hold.is_out => asked.push(entity.clone()),
                _ if hold.is_ready(store_now, &self.retry) => due.push(entity.clone()),
                _ => {}
            }
        }
        due.iter().for_each(|entity| self.put_in_line(entity, store_now));
        asked.iter().for_each(|entity| self.do_wish(entity));
    }

    pub(super) fn start_held(&mut self, entity: Entity, now: u64) -> Option<Started> {
        let store_now = self.store_now(now);
        let hold = self.holds.get_mut(&entity).expect("the entity is held");
        hold.is_in_line = false;
        let fits = hold.head.state == HoldState::Retrying && !hold.is_out;
        let (number, task) = hold.fetched.front().cloned().filter(|_| fits)?;
        self.staged.heads.insert(entity.clone());
        // Counted before the handler runs, and waited for: one that ends its worker has had
        // its try.
        let Some(wait) = self.retry.wait_after(hold.head.attempts, &mut self.random) else {
            hold.head.state = HoldState::Dead;
            let reason = format!("its worker ended while it was handled; {}", hold.head.reason);
            self.note_death(&entity, HoldState::Dead, &reason);
            return None;
        };
        hold.head.attempts += 1;
        (hold.head.due_ms, hold.is_out) = (store_now + wait, true);
        let attempt = hold.head.attempts;
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
                HoldState::Retrying => is_due(head, store_now, &self.retry),
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

    /// What was fetched, in order; what is not there was deleted by hand. Nothing at all: try
    /// again.
    pub fn fetched(
        &mut self,
        entity: &Entity,
        numbers: Range<u64>,
        events: Option<Vec<(u64, Task)>>,
        now: u64,
    ) {
        let store_now = self.store_now(now);
        let Some(hold) = self.holds.get_mut(entity) else { return };
        hold.is_fetching = false;
        let Some(events) = events else { return };
        // Somebody else's answer: what was asked for is not first any more.
        if hold.head.first != numbers.start || !hold.fetched.is_empty() {
            return;
        }
        let first = events.first().map_or(numbers.end, |(number, _)| *number);
        if first > hold.head.first {
            hold.head.first = first;
            self.staged.heads.insert(entity.clone());
            self.warn(|| format!("some of what was held of {entity:?} is not in the store any more"));
        }
        let hold = self.holds.get_mut(entity).expect("it was there a moment ago");
        let in_turn = (first..).zip(events).take_while(|(expected, (number, _))| expected == number);
        hold.fetched.extend(in_turn.map(|(_, event)| event));
        self.put_in_line(entity, store_now);
        self.end_if_empty(entity);
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

/// Of two positions the one that is further on; the second one if they are equally far.
pub(super) fn higher(one: Option<Point>, other: Option<Point>) -> Option<Point> {
    match (one, other) {
        (Some(one), Some(other)) => {
            Some(if (other.epoch, other.next) >= (one.epoch, one.next) { other } else { one })
        }
        (one, other) => one.or(other),
    }
}

/// At most as long as is kept.
fn cut(mut reason: String) -> String {
    let end = (0..=REASON_BYTES_MAX.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    reason.truncate(end.unwrap_or(0));
    reason
}
