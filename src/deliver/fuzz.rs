//! Events of held entities as text, damaged; and streams as other programs may write them,
//! which no worker may fall over.

use bytes::Bytes;

use super::{
    feed::{Answer, Feed, FeedLimits},
    retry::RetryPolicy,
    task::{KeptEvent, Task, What},
};
use crate::{
    fuzz::{Seen, cases, check_message, damaged, number, percent, pick, small_number, text},
    order::{ADVANCE_MAX_MS, Epoch, NUMBER_MAX, Order, Policy, Sequence},
    random::Random,
    store::{Entry, EventId, Leased, Read, RecordError, StreamId},
};

fn task(random: &mut Random) -> Task {
    let is_gap = percent(random, 40);
    let from = Sequence::new(small_number(random)).unwrap();
    let waited_ms = percent(random, 50).then(|| number(random));
    Task {
        id: percent(random, 70).then(|| EventId {
            entry: StreamId { milliseconds: number(random), counter: number(random) },
            index: random.below(3) as u32,
        }),
        epoch: Epoch::new(small_number(random)).unwrap(),
        sequence: Sequence::new(small_number(random)).unwrap(),
        what: if is_gap {
            What::Gap { from, reason: text(random).into(), waited_ms }
        } else {
            let (kind, attrs) = (text(random).into(), text(random).into());
            let data = damaged(random, "data").into();
            What::Event { order: *pick(random, &Order::ALL), kind, attrs, data }
        },
        moves: percent(random, 50),
    }
}

#[test]
fn texts_of_held_events() {
    let mut seen = Seen::default();
    cases("texts of held events", |random| {
        let task = task(random);
        assert_eq!(Task::from_text(&task.to_text()), Ok(task.clone()));
        let near = damaged(random, task.to_text());
        let read = Task::from_text(&near);
        seen.count(read.is_ok());
        assert_eq!(KeptEvent::parse(&near).is_ok(), read.is_ok());
        match read {
            Ok(read) => assert_eq!(Task::from_text(&read.to_text()), Ok(read)),
            Err(error) => check_message(&error.to_string()),
        }
    });
    seen.check("texts of held events");
}

/// Few entities and numbers that are near each other, or at the ends of what there is.
fn foreign_event(random: &mut Random, id: EventId) -> Read {
    let edge = |random: &mut Random| match random.below(8) {
        0 => NUMBER_MAX - random.below(2),
        1 => small_number(random),
        _ => random.below(6),
    };
    if percent(random, 5) {
        return Read { id, entry: Err(RecordError::Absent { id, field: "entity" }) };
    }
    let (from, waited) = (edge(random), number(random));
    let attrs = format!(r#"{{"reason":"timeout","from":{from},"waited":{waited}}}"#);
    let entry = Entry {
        id,
        entity: pick(random, &["a", "b", "c", ""]).to_string(),
        epoch: Epoch::new(if percent(random, 90) { random.below(2) } else { edge(random) }).unwrap(),
        sequence: Sequence::new(edge(random)).unwrap(),
        kind: pick(random, &["step", "seriatim.gap", "seriatim.epoch", "seriatim.degraded"]).to_string(),
        order: *pick(random, &Order::ALL),
        attrs: String::from_utf8_lossy(&damaged(random, attrs)).into_owned(),
        data: Bytes::new(),
    };
    Read { id, entry: Ok(entry) }
}

const ENTRIES: u64 = 12;
/// More than any feed of so few entries needs.
const STEPS_MAX: u64 = 10_000;

#[test]
fn streams_that_anybody_may_have_written() {
    cases("foreign streams", |random| {
        let limits = FeedLimits {
            window_entries: 100,
            window_bytes: 1 << 20,
            entry_events: 1,
            held_max: 10,
            crashes_max: 3,
            handler_max_ms: 60_000,
            idle_max: 10,
        };
        let leased = Leased { term: 1, ..Leased::default() };
        let seed = Random::from_seed(random.draw());
        let mut feed = Feed::new(&leased, Policy::default(), limits, RetryPolicy::default(), seed, 0);
        let mut now = 0;
        for number in 1..=ENTRIES {
            let entry = StreamId { milliseconds: number, counter: 0 };
            let events = if percent(random, 70) { 1 } else { 1 + random.below(6) as u32 };
            let read: Vec<Read> =
                (0..events).map(|index| foreign_event(random, EventId { entry, index })).collect();
            let unknown = feed.unknown(&read).into_iter().map(|entity| (entity, None)).collect();
            feed.read(read, unknown);
            now += random.below(100_000);
            if percent(random, 50) {
                feed.seen_to_end(now);
            }
            feed.tick(now);
            if percent(random, 5) {
                feed.set_degraded(percent(random, 50));
            }
            if percent(random, 50) {
                acknowledge(&mut feed, now);
            }
        }
        // Whatever waits for something that never comes is given up in time.
        for _ in 0..STEPS_MAX {
            if feed.is_idle() {
                break;
            }
            now += ADVANCE_MAX_MS;
            feed.tick(now);
            acknowledge(&mut feed, now);
        }
        assert!(feed.is_idle(), "something of a foreign stream stays for ever: {}", feed.describe());
    });
}

fn acknowledge(feed: &mut Feed, now: u64) {
    for started in feed.start(usize::MAX, now) {
        Task::from_text(&started.task.to_text()).expect("what is delivered can be held");
        assert!(feed.answer(started.tag, Answer::Ack, now));
    }
    for (_, point) in feed.commit().points {
        assert_eq!(point.to_string().parse(), Ok(point), "a point can be read back");
    }
    feed.committed(0, now, now, false);
}
