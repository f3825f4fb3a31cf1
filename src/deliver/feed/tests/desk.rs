//! One partition with its store, driven step by step: what the driver does, in an order that a
//! test chooses. Whatever is handed out must be in its turn.

use std::{collections::BTreeMap, ops::Range};

use futures_util::FutureExt;

use super::*;
use crate::{
    deliver::task::What,
    store::{Committed, GroupId, GroupStore, MemoryStore, PartitionId, Start, Wish},
};

pub const ENTITIES: [&str; 4] = ["a", "b", "c", "d"];

fn at_once<T>(call: impl Future<Output = Result<T, crate::store::StoreError>>) -> T {
    call.now_or_never().expect("the embedded store answers at once").unwrap()
}

/// A commit on its way: it is applied, perhaps more than once, then answered.
struct Committing {
    commit: Commit,
    /// How far the handlers were when it was made.
    handled: BTreeMap<String, u64>,
    started: Vec<Started>,
    asked_before: u64,
    answer: Option<(u64, Option<Heads>)>,
}

/// Entries on their way, with the points of the unknown ones once they were looked up.
struct Reading {
    reads: Vec<Read>,
    unknown: Vec<Entity>,
    points: Option<Vec<(Entity, Option<Point>)>>,
    /// When the stream had no more than that.
    ends_at: Option<u64>,
}

type Heads = Vec<(Entity, Head)>;
type Fetching = (Entity, Range<u64>, Option<Vec<(u64, Task)>>);

/// What the driver does, one step at a time.
pub struct Desk {
    pub store: MemoryStore,
    pub feed: Feed,
    /// How much may be in hand, and how much held.
    window: usize,
    pub now: u64,
    stream: Vec<Read>,
    published: BTreeMap<String, u64>,
    /// The next that is to be handled of each entity.
    pub handled: BTreeMap<String, u64>,
    /// The same, as far as it is in the store.
    pub durable: BTreeMap<String, u64>,
    committing: Option<Committing>,
    reading: Option<Reading>,
    fetching: Vec<Fetching>,
    pub out: Vec<Started>,
    /// All that was handed out, in its order.
    pub shown: Vec<String>,
    story: Vec<String>,
}

fn partition() -> PartitionId {
    PartitionId { topic: "jobs".into(), index: 0 }
}

fn group() -> GroupId {
    GroupId { topic: "jobs".into(), group: "g".into() }
}

fn leased(store: &MemoryStore, window: usize, now: u64) -> Feed {
    let seen = at_once(store.leases(&group(), 1)).remove(0);
    let leased = at_once(store.lease(&partition(), "g", "me", &seen)).expect("nobody else wants it");
    let mut feed = feed_of(&Leased { now_ms: now, ..leased });
    feed.limits = FeedLimits { window_entries: window, held_max: window as u64, idle_max: 1, ..feed.limits };
    feed.limits.handler_max_ms = u64::MAX;
    feed.store_clock = (now, now);
    feed.heads(at_once(store.heads(&partition(), "g")));
    feed
}

impl Desk {
    pub fn new(window: usize) -> Self {
        let store = MemoryStore::default();
        at_once(store.register(&group(), 1, Start::Beginning));
        let none: BTreeMap<String, u64> = ENTITIES.iter().map(|name| (name.to_string(), 0)).collect();
        Desk {
            feed: leased(&store, window, 0),
            store,
            window,
            now: 0,
            stream: Vec::new(),
            published: none.clone(),
            handled: none.clone(),
            durable: none,
            committing: None,
            reading: None,
            fetching: Vec::new(),
            out: Vec::new(),
            shown: Vec::new(),
            story: Vec::new(),
        }
    }

    pub fn publish(&mut self, entity: &str, order: Order) {
        self.publish_together(&[entity], order);
    }

    /// One entry with an event of each of these.
    pub fn publish_together(&mut self, entities: &[&str], order: Order) {
        let entry = self.stream.last().map_or(1, |last| last.id.entry.milliseconds + 1);
        for (index, entity) in (0..).zip(entities) {
            let next = self.published.get_mut(*entity).unwrap();
            self.stream.push(at(index, read(entry, entity, *next, order)));
            *next += 1;
        }
    }

    pub fn begin_commit(&mut self, max: usize) {
        if self.committing.is_some() {
            return;
        }
        let started = self.feed.start(max, self.now);
        let asked_before = self.feed.asked();
        let (commit, handled) = (self.feed.commit(), self.handled.clone());
        self.story.push(format!("commit {commit:?}"));
        self.committing = Some(Committing { commit, handled, started, asked_before, answer: None });
    }

    /// Once more, if its answer was lost.
    pub fn apply_commit(&mut self) {
        let Some(committing) = &mut self.committing else { return };
        let Committed::Done { asked, .. } = at_once(self.store.commit(&partition(), "g", &committing.commit))
        else {
            panic!("nobody else has the lease: {:#?}", self.story);
        };
        self.durable = committing.handled.clone();
        let is_asked = asked != committing.asked_before;
        let heads = is_asked.then(|| at_once(self.store.heads(&partition(), "g")));
        self.story.push(format!("applied; {heads:?}"));
        committing.answer = Some((asked, heads));
    }

    pub fn end_commit(&mut self) {
        let Some(committing) = self.committing.take_if(|committing| committing.answer.is_some()) else {
            return;
        };
        let (asked, heads) = committing.answer.expect("it was seen a moment ago");
        self.feed.committed(asked, self.now, self.now, self.reading.is_some());
        if let Some(heads) = heads {
            self.feed.heads(heads);
        }
        committing.started.into_iter().for_each(|started| self.hand_out(started));
    }

    fn hand_out(&mut self, started: Started) {
        let from = match &started.task.what {
            What::Event { .. } => started.task.sequence,
            What::Gap { from, reason, .. } => {
                assert!(["skipped", "dropped"].contains(&&**reason), "{started:?}: {:#?}", self.story);
                *from
            }
        };
        let shown = match started.task.what {
            What::Event { .. } => format!("{} {from}", started.entity),
            What::Gap { .. } => format!("{} gap {from}-{}", started.entity, started.task.sequence),
        };
        self.story.push(format!("hand out {shown}"));
        self.shown.push(shown);
        let next = self.handled[started.entity.as_str()];
        assert_eq!(from.get(), next, "{started:?} is not in its turn: {:#?}", self.story);
        self.out.push(started);
    }

    /// Of what is out the one at this place.
    pub fn answer(&mut self, at: usize, answer: Answer) {
        if self.out.is_empty() {
            return;
        }
        let started = self.out.swap_remove(at % self.out.len());
        self.story.push(format!("{answer:?} {} {}", started.entity, started.task.sequence));
        if answer == Answer::Ack {
            let next = started.task.sequence.get() + 1;
            self.handled.insert(started.entity.to_string(), next);
        }
        assert!(self.feed.answer(started.tag, answer, self.now), "it was out");
    }

    pub fn begin_read(&mut self, max: usize) {
        let count = self.feed.entries_of(self.feed.room().min(max));
        if self.reading.is_some() || count == 0 {
            return;
        }
        let position = self.feed.position();
        let new = self.stream.partition_point(|read| read.id.entry <= position);
        let entries = self.stream[new..].chunk_by(|one, next| one.id.entry == next.id.entry);
        let reads: Vec<Read> = entries.take(count).flatten().cloned().collect();
        if !reads.is_empty() {
            let unknown = self.feed.unknown(&reads);
            self.story.push(format!("read up to {}, unknown: {unknown:?}", reads.last().unwrap().id));
            let ends_at = (reads.len() < count).then_some(self.now);
            self.reading = Some(Reading { reads, unknown, points: None, ends_at });
        }
    }

    pub fn look_up(&mut self) {
        if let Some(reading) = &mut self.reading
            && reading.points.is_none()
        {
            let points = at_once(self.store.points(&partition(), "g", &reading.unknown));
            let points: Vec<_> = reading.unknown.iter().cloned().zip(points).collect();
            self.story.push(format!("looked up {points:?}"));
            reading.points = Some(points);
        }
    }

    pub fn end_read(&mut self) {
        let Some(reading) = self.reading.take_if(|reading| reading.points.is_some()) else { return };
        self.story.push("took what was read".to_owned());
        self.feed.read(reading.reads, reading.points.unwrap_or_default());
        reading.ends_at.into_iter().for_each(|at| self.feed.seen_to_end(at));
    }

    pub fn begin_fetch(&mut self) {
        if self.committing.is_none() {
            let wanted = self.feed.wanted(self.now);
            self.fetching.extend(wanted.into_iter().map(|(entity, numbers)| (entity, numbers, None)));
        }
    }

    pub fn fetch(&mut self) {
        for (entity, numbers, tasks) in &mut self.fetching {
            let kept = at_once(self.store.kept(&partition(), "g", entity, numbers.clone()));
            *tasks = Some(
                kept.into_iter().map(|(number, text)| (number, Task::from_text(&text).unwrap())).collect(),
            );
        }
    }

    pub fn end_fetch(&mut self) {
        for (entity, numbers, tasks) in self.fetching.extract_if(.., |fetch| fetch.2.is_some()) {
            self.story.push(format!("fetched {entity} {tasks:?}"));
            self.feed.fetched(&entity, numbers, tasks, self.now);
            let is_lost = self.feed.warnings.iter().any(|said| said.contains("not in the store any more"));
            assert!(!is_lost, "nobody deleted anything: {:#?}", self.story);
        }
    }

    pub fn wish(&mut self, entity: &str, wish: Wish) {
        let entity = Entity::new(entity).unwrap();
        let granted = at_once(self.store.wish(&partition(), "g", &entity, wish));
        self.story.push(format!("{wish:?} {entity}: {granted:?}"));
    }

    /// The worker ends. A commit of it that is still on its way comes to nothing.
    pub fn crash(&mut self) {
        self.story.push("crash".to_owned());
        self.feed = leased(&self.store, self.window, self.now);
        if let Some(late) = self.committing.take() {
            let outcome = at_once(self.store.commit(&partition(), "g", &late.commit));
            assert!(matches!(outcome, Committed::Fenced { .. }));
        }
        (self.reading, self.fetching, self.out) = (None, Vec::new(), Vec::new());
        self.handled = self.durable.clone();
    }

    pub fn tick(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        self.feed.tick(self.now);
    }

    pub fn read(&mut self) {
        self.begin_read(usize::MAX);
        self.look_up();
        self.end_read();
    }

    pub fn commit(&mut self) {
        self.begin_commit(usize::MAX);
        self.apply_commit();
        self.end_commit();
    }

    /// One round of everything.
    pub fn go_on(&mut self) {
        self.read();
        self.begin_fetch();
        self.fetch();
        self.end_fetch();
        self.commit();
    }

    /// Nobody fails and nobody wishes anything but that all goes on.
    pub fn finish(&mut self) {
        for _ in 0..500 {
            for (entity, head) in at_once(self.store.heads(&partition(), "g")) {
                match head.state {
                    HoldState::Dead => self.wish(entity.as_str(), Wish::Redrive),
                    HoldState::Paused => self.wish(entity.as_str(), Wish::Resume),
                    _ => {}
                }
            }
            self.go_on();
            while !self.out.is_empty() {
                self.answer(0, Answer::Ack);
            }
            self.tick(30_000);
        }
        assert_eq!(self.handled, self.published, "something is lost, or stuck: {:#?}", self.story);
        assert_eq!(self.durable, self.published);
        assert_eq!(self.feed.floor(), self.stream.last().map_or(StreamId::default(), |read| read.id.entry));
        assert_eq!(at_once(self.store.heads(&partition(), "g")), []);
        for name in ENTITIES {
            let entity = Entity::new(name).unwrap();
            let kept = at_once(self.store.kept(&partition(), "g", &entity, 0..1_000));
            assert_eq!(kept, [], "nothing is left behind: {:#?}", self.story);
            let point = at_once(self.store.points(&partition(), "g", &[entity])).remove(0);
            let next = self.published[name];
            assert_eq!(point.map(|point| point.next.get()).unwrap_or(0), next, "{name}: {:#?}", self.story);
        }
    }
}
