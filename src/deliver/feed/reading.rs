//! From entries to tasks, through the reorder buffer.

use serde::Deserialize;

use super::{Feed, LARGE_GAP, Line, hold::higher};
use crate::{
    deliver::task::{Content, Task, What},
    order::{
        Action, Effects, Entity, Event, Lengths, Marker, MarkerKind, Order, Position, Sequence, SkipReason,
        Verdict,
    },
    store::{Entry, Point, Read},
};

/// What a marker says besides its fields.
#[derive(Deserialize)]
struct GapAttrs<'a> {
    #[serde(default)]
    reason: &'a str,
    from: Option<u64>,
    waited: Option<u64>,
}

impl Feed {
    /// Entities of these events whose points have to be looked up first.
    pub fn unknown(&self, reads: &[Read]) -> Vec<Entity> {
        let mut unknown: Vec<Entity> = reads
            .iter()
            .filter_map(|read| read.entry.as_ref().ok())
            .filter(|entry| !self.lines.contains_key(entry.entity.as_str()))
            .filter_map(|entry| Entity::new(&entry.entity).ok())
            .collect();
        unknown.sort();
        unknown.dedup();
        unknown
    }

    /// Takes whole entries, in stream order, with the points of those entities that were unknown.
    pub fn read(&mut self, reads: Vec<Read>, points: Vec<(Entity, Option<Point>)>) {
        for (entity, point) in points {
            self.meet(entity, point);
        }
        self.widen(&reads);
        let (floor, position) = (self.floor(), self.position);
        for Read { id, entry } in reads {
            if id.entry <= position {
                continue;
            }
            self.position = id.entry;
            if self.loose.contains(&id) {
                self.tally.known += 1;
                self.suspects.remove(&id);
                continue;
            }
            match entry {
                Ok(entry) => self.take(entry),
                Err(error) => {
                    self.tally.malformed += 1;
                    self.warn(|| format!("left out, because it cannot be read: {error}"));
                }
            }
        }
        // What was only read is nothing new to the store.
        self.staged.changed |= self.floor() != floor;
    }

    /// Expects entries as wide as the widest of these, or half as wide as before: one that is
    /// wide among many that are not does not keep reads small for long.
    fn widen(&mut self, reads: &[Read]) {
        let of_entry = |events: &[Read]| events.len();
        let widest = reads.chunk_by(|a, b| a.id.entry == b.id.entry).map(of_entry).max();
        self.widest = widest.map_or(self.widest, |widest| widest.max(self.widest / 2));
    }

    /// An entity comes into view: its lane goes on where it is acknowledged, or held.
    fn meet(&mut self, entity: Entity, point: Option<Point>) {
        let point = higher(point, self.lineless.remove(&entity));
        let line = Line { point: point.as_ref().map(|point| (point.epoch, point.next)), ..Line::default() };
        let held = self.holds.get(&entity).and_then(|hold| hold.head.reached.clone());
        // What is held may fill what was missing below the point.
        if let Some(reached) = higher(point, held) {
            self.lanes.restore_lane(entity.clone(), reached);
        }
        self.lines.insert(entity, line);
    }

    fn take(&mut self, entry: Entry) {
        let id = entry.id;
        let bytes = (entry.kind.len() + entry.attrs.len() + entry.data.len()) as u64;
        self.unfinished.insert(id, bytes);
        self.unfinished_bytes += bytes;
        // Markers of the whole partition have no entity; others wrote what has a bad one.
        let known = self.lines.get_key_value(entry.entity.as_str());
        let Ok(entity) = known.map_or_else(|| Entity::new(&entry.entity), |(entity, _)| Ok(entity.clone()))
        else {
            self.finish_event(id);
            return;
        };
        match entry.order {
            Order::Marker => self.take_marker(&entity, &entry),
            Order::Strict => {
                self.reach(&entity, &entry, entry.sequence, SkipReason::Overtaken);
                self.admit(&entity, entry);
            }
            Order::Passed => self.admit(&entity, entry),
            Order::Late | Order::Replay => {
                let order = entry.order;
                self.enqueue(&entity, out_of_order(entry, order));
            }
        }
    }

    fn take_marker(&mut self, entity: &Entity, entry: &Entry) {
        if entry.kind != "seriatim.gap" {
            if entry.kind == "seriatim.epoch" {
                self.reach(entity, entry, self.policy.first, SkipReason::Epoch);
            }
            self.finish_event(entry.id);
            return;
        }
        let nothing = GapAttrs { reason: "", from: None, waited: None };
        let attrs: GapAttrs<'_> = serde_json::from_str(&entry.attrs).unwrap_or(nothing);
        let from = attrs.from.and_then(|from| Sequence::new(from).ok()).unwrap_or(entry.sequence);
        self.reach(entity, entry, from, SkipReason::Overtaken);
        let mut effects = Effects::new(u64::MAX);
        let (epoch, to) = (entry.epoch, entry.sequence.after());
        self.lanes.reach(entity, epoch, to, SkipReason::Operator, self.seen_at, &self.policy, &mut effects);
        let mut tasks = self.tasks(effects);
        // The last gap stands for the marker, and says what it says.
        let is_gap = |task: &(Entity, Task)| matches!(task.1.what, What::Gap { .. });
        for (_, task) in tasks.iter_mut().filter(|task| is_gap(task)) {
            let What::Gap { reason, waited_ms, .. } = &mut task.what else { continue };
            (*reason, *waited_ms) = (attrs.reason.into(), attrs.waited);
        }
        match tasks.iter().rposition(is_gap) {
            Some(last) => tasks[last].1.id = Some(entry.id),
            None => self.finish_event(entry.id),
        }
        tasks.into_iter().for_each(|(entity, task)| self.enqueue(&entity, task));
    }

    fn reach(&mut self, entity: &Entity, entry: &Entry, to: Sequence, reason: SkipReason) {
        let mut effects = Effects::new(u64::MAX);
        self.lanes.reach(entity, entry.epoch, to, reason, self.seen_at, &self.policy, &mut effects);
        self.enqueue_all(effects);
    }

    fn admit(&mut self, entity: &Entity, entry: Entry) {
        if self.lanes.is_stale(entity, entry.epoch) && entry.order == Order::Strict {
            // In its turn it came before the higher epoch: it is done.
            self.tally.known += 1;
            self.finish_event(entry.id);
            return;
        }
        if self.lanes.is_stale(entity, entry.epoch) {
            self.enqueue(entity, out_of_order(entry, Order::Late));
            return;
        }
        let Entry { id, epoch, sequence, kind, attrs, data, order, .. } = entry;
        let payload = Content { id, kind: kind.into(), attrs: attrs.into(), data };
        let event = Event { epoch, position: Position::Given(sequence), terminal: false, payload };
        // What is in order is never refused, and need not be offered twice.
        let again = (order != Order::Strict).then(|| event.clone());
        let mut effects = Effects::new(u64::MAX);
        let mut verdict = self.offer(entity, event, &mut effects);
        if let (Verdict::Refused(_), Some(event)) = (verdict, again) {
            self.warn(|| "more waits for missing events than may: order is not promised for now".to_owned());
            self.lanes.trip(self.seen_at, &self.policy);
            verdict = self.offer(entity, event, &mut effects);
        }
        self.enqueue_all(effects);
        match verdict {
            Verdict::Duplicate { .. } | Verdict::Conflict | Verdict::Retired { .. } => {
                self.tally.known += 1;
                self.finish_event(id);
            }
            Verdict::Released { .. }
            | Verdict::Parked { .. }
            | Verdict::Passed { .. }
            | Verdict::Late { .. } => {}
            Verdict::Refused(_) | Verdict::Again | Verdict::Stale { .. } => {
                unreachable!("a degraded lane with room takes everything")
            }
        }
    }

    fn offer(&mut self, entity: &Entity, event: Event<Content>, effects: &mut Effects<Content>) -> Verdict {
        let (mut verdict, now) = (Verdict::Again, self.seen_at);
        self.lanes.admit([(entity, event)], now, &self.policy, effects, |decided, _| verdict = decided);
        verdict
    }

    /// All that was in the stream at this time was read: what is missing then is missing indeed.
    pub fn seen_to_end(&mut self, at: u64) {
        if at >= self.seen_at {
            self.seen_at = at;
            self.lanes.set_stays(false);
        }
    }

    /// There is more in the stream than was read.
    pub fn fall_behind(&mut self) {
        self.lanes.set_stays(true);
    }

    /// Lets time pass: gaps end, what is told to pass passes.
    pub(super) fn elapse_lanes(&mut self) {
        let mut effects = Effects::new(u64::MAX);
        // A worker's lanes append to no stream that could be full.
        self.lanes.elapse(self.seen_at, &self.policy, usize::MAX, Lengths::default(), &mut effects);
        self.enqueue_all(effects);
    }

    /// A person takes the promise of order away, or gives it back.
    pub fn set_degraded(&mut self, degraded: bool) {
        let now = self.seen_at;
        let mut effects = Effects::new(u64::MAX);
        if degraded && !self.lanes.is_degraded_by_operator() {
            self.lanes.degrade(now, &mut effects);
        } else if !degraded && self.lanes.is_degraded_by_operator() {
            self.lanes.restore(now, &mut effects);
        }
        self.enqueue_all(effects);
    }

    fn enqueue_all(&mut self, effects: Effects<Content>) {
        for (entity, task) in self.tasks(effects) {
            self.enqueue(&entity, task);
        }
    }

    fn tasks(&mut self, effects: Effects<Content>) -> Vec<(Entity, Task)> {
        let mut tasks = Vec::with_capacity(effects.actions.len());
        for action in effects.actions {
            match action {
                Action::Append(append) => {
                    let Content { id, kind, attrs, data } = append.payload;
                    let order = append.order;
                    tasks.push((
                        append.entity,
                        Task {
                            id: Some(id),
                            epoch: append.epoch,
                            sequence: append.sequence,
                            moves: order != Order::Late,
                            what: What::Event { order, kind, attrs, data },
                        },
                    ));
                }
                Action::Mark(Marker {
                    entity,
                    epoch,
                    sequence,
                    kind: MarkerKind::Gap { reason, from, waited },
                }) => {
                    let missed = sequence.ahead_of(from) + 1;
                    self.tally.gaps += 1;
                    self.tally.missed += missed;
                    if missed > LARGE_GAP {
                        self.warn(|| format!("{missed} events of {entity:?} are missing, from {from} on"));
                    }
                    let what = What::Gap { from, reason: reason.name().into(), waited_ms: waited };
                    tasks.push((entity, Task { id: None, epoch, sequence, what, moves: true }));
                }
                Action::Mark(Marker { kind: MarkerKind::Epoch { .. }, .. }) | Action::Edge(_) => {}
            }
        }
        tasks
    }
}

/// What comes when its turn is over, or without one.
fn out_of_order(entry: Entry, order: Order) -> Task {
    let Entry { id, epoch, sequence, kind, attrs, data, .. } = entry;
    let what = What::Event { order, kind: kind.into(), attrs: attrs.into(), data };
    Task { id: Some(id), epoch, sequence, what, moves: false }
}
