//! The machine by itself: what it hands out, what it wants written, what it leaves out after a
//! change of hands. Time is a number here.

mod batches;
mod desk;
mod histories;
mod holds;
mod order;

use super::*;
use crate::{
    deliver::{retry::RetryPolicy, task::What},
    order::Order,
    store::{Commit, Entry, HoldState, Read, Running},
};

fn id(number: u64) -> StreamId {
    StreamId { milliseconds: number, counter: 0 }
}

fn read(number: u64, entity: &str, sequence: u64, order: Order) -> Read {
    let entry = Entry {
        id: id(number).into(),
        entity: entity.to_owned(),
        epoch: Epoch::new(0).unwrap(),
        sequence: Sequence::new(sequence).unwrap(),
        kind: "step".to_owned(),
        order,
        attrs: "{}".to_owned(),
        data: Default::default(),
    };
    Read { id: id(number).into(), entry: Ok(entry) }
}

/// The same event at another place of its entry.
fn at(index: u32, mut read: Read) -> Read {
    read.id.index = index;
    if let Ok(entry) = &mut read.entry {
        entry.id = read.id;
    }
    read
}

/// One entry with an event of each of these.
fn together(number: u64, events: &[(&str, u64)]) -> Vec<Read> {
    (0..)
        .zip(events)
        .map(|(index, (entity, sequence))| at(index, strict(number, entity, *sequence)))
        .collect()
}

fn strict(number: u64, entity: &str, sequence: u64) -> Read {
    read(number, entity, sequence, Order::Strict)
}

fn feed_of(leased: &Leased) -> Feed {
    let limits = FeedLimits {
        window_entries: 100,
        window_bytes: 1_000,
        entry_events: 1,
        held_max: 10,
        crashes_max: 3,
        handler_max_ms: 60_000,
        idle_max: 10,
    };
    let retry =
        RetryPolicy { attempts_max: 2, jitter_percent: 0, unsafe_retry: true, ..RetryPolicy::default() };
    Feed::new(leased, Policy::default(), limits, retry, Random::from_seed(1), 0)
}

fn feed() -> Feed {
    feed_of(&Leased { term: 7, ..Leased::default() })
}

/// Reads without anything known of the entities.
fn take(feed: &mut Feed, reads: Vec<Read>) {
    let unknown = feed.unknown(&reads);
    feed.read(reads, unknown.into_iter().map(|entity| (entity, None)).collect());
}

fn names(started: &[Started]) -> Vec<String> {
    started.iter().map(|one| format!("{} {}", one.entity, one.task.sequence)).collect()
}

fn points(commit: &Commit) -> Vec<String> {
    let mut points: Vec<String> =
        commit.points.iter().map(|(entity, point)| format!("{entity} {point}")).collect();
    points.sort();
    points
}

#[test]
fn one_of_an_entity_at_a_time_and_all_entities_in_turn() {
    let mut feed = feed();
    take(&mut feed, vec![strict(1, "a", 0), strict(2, "a", 1), strict(3, "b", 0), strict(4, "c", 0)]);
    let first = feed.start(2, 0);
    assert_eq!(names(&first), ["a 0", "b 0"]);
    assert_eq!(names(&feed.start(9, 0)), ["c 0"], "the second of a waits for the first");
    assert!(feed.answer(first[0].tag, Answer::Ack, 0));
    assert_eq!(names(&feed.start(9, 0)), ["a 1"]);
    assert!(!feed.answer(first[0].tag, Answer::Ack, 0), "it was answered before");
}

#[test]
fn the_floor_stays_below_what_is_not_done_and_points_say_what_is() {
    let mut feed = feed();
    take(&mut feed, vec![strict(1, "a", 0), strict(2, "b", 0), strict(3, "b", 1)]);
    let started = feed.start(9, 0);
    feed.answer(started[1].tag, Answer::Ack, 0);
    let commit = feed.commit();
    assert_eq!(commit.floor, StreamId { milliseconds: 0, counter: u64::MAX }, "a is not done");
    assert_eq!(points(&commit), ["b 0:1"]);
    assert_eq!(commit.running, [Running { id: id(1).into(), crashes: 0 }]);
    feed.answer(started[0].tag, Answer::Ack, 0);
    let rest = feed.start(9, 0);
    feed.answer(rest[0].tag, Answer::Ack, 0);
    let commit = feed.commit();
    assert_eq!((commit.floor, commit.number), (id(3), 1));
    assert_eq!(points(&commit), ["a 0:1", "b 0:2"]);
}

#[test]
fn whoever_takes_over_leaves_out_what_the_points_cover_and_runs_suspects_alone() {
    let running = vec![Running { id: id(2).into(), crashes: 1 }];
    let mut feed = feed_of(&Leased { term: 8, running, loose: vec![id(4).into()], ..Leased::default() });
    let reads = vec![
        strict(1, "a", 0),
        strict(2, "b", 0),
        strict(3, "a", 1),
        read(4, "c", 0, Order::Late),
        strict(5, "d", 0),
    ];
    let unknown = feed.unknown(&reads);
    let point = |entity: &Entity| (entity.as_str() == "a").then(|| "0:1".parse().unwrap());
    feed.read(reads, unknown.into_iter().map(|entity| (entity.clone(), point(&entity))).collect());
    let first = feed.start(9, 0);
    assert_eq!(names(&first), ["b 0"], "nothing beside what may end its worker");
    let commit = feed.commit();
    assert_eq!(commit.running, [Running { id: id(2).into(), crashes: 2 }]);
    feed.answer(first[0].tag, Answer::Ack, 0);
    assert_eq!(names(&feed.start(9, 0)), ["a 1", "d 0"], "a 0 and what is loose are done");
}

#[test]
fn what_ended_its_worker_too_often_is_dead_and_its_entity_is_held_behind_it() {
    let running = vec![Running { id: id(1).into(), crashes: 3 }];
    let mut feed = feed_of(&Leased { term: 8, running, ..Leased::default() });
    take(&mut feed, vec![strict(1, "a", 0), strict(2, "a", 1), strict(3, "b", 0)]);
    assert_eq!(names(&feed.start(9, 0)), ["b 0"]);
    let commit = feed.commit();
    assert_eq!((commit.heads[0].head.state, commit.kept.len()), (HoldState::Dead, 2));
    assert!(commit.floor >= id(2), "what is held is done, as far as the stream is concerned");
}

#[test]
fn what_fails_is_held_with_all_that_follows_and_comes_back_when_it_is_due() {
    let mut feed = feed();
    take(&mut feed, vec![strict(1, "a", 0), strict(2, "a", 1)]);
    let started = feed.start(9, 0);
    feed.answer(started[0].tag, Answer::Nack { reason: "no".to_owned() }, 0);
    take(&mut feed, vec![strict(3, "a", 2)]);
    let commit = feed.commit();
    assert_eq!(commit.kept.iter().map(|(_, number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(commit.heads[0].head.to_string(), "r,1,60000,0,3,18|0:3|no");
    assert_eq!((commit.floor, commit.points.len()), (id(3), 0));
    feed.tick(59_000);
    assert_eq!(feed.wanted(59_000), []);
    feed.tick(60_000);
    let wanted = feed.wanted(60_000);
    let entity = Entity::new("a").unwrap();
    assert_eq!(wanted, [(entity.clone(), 0..3)]);
    let kept =
        commit.kept.iter().map(|(_, number, text)| (*number, Task::from_text(text).unwrap())).collect();
    feed.fetched(&entity, 0..3, Some(kept), 60_000);
    for sequence in 0..3 {
        let again = feed.start(9, 60_000);
        assert_eq!(names(&again), [format!("a {sequence}")]);
        feed.answer(again[0].tag, Answer::Ack, 60_000);
    }
    let commit = feed.commit();
    assert!(commit.heads.iter().any(|change| change.ends));
    assert_eq!((points(&commit), commit.dropped.len()), (vec!["a 0:3".to_owned()], 3));
    take(&mut feed, vec![strict(4, "a", 3)]);
    assert_eq!(names(&feed.start(9, 60_000)), ["a 3"]);
}

/// Not even by less than the longest of all waits: it is the first one, which is short.
#[test]
fn a_retry_does_not_wait_for_a_clock_that_was_set_back() {
    const NOON: u64 = 100_000_000;
    let mut feed = feed();
    feed.store_clock = (NOON, 0);
    take(&mut feed, vec![strict(1, "a", 0)]);
    let started = feed.start(9, 0);
    feed.answer(started[0].tag, Answer::Nack { reason: "no".to_owned() }, 0);
    feed.commit();
    feed.tick(1_000);
    assert_eq!(feed.wanted(1_000), [], "its first wait is a minute");
    feed.store_clock = (NOON - 1_800_000, 1_000);
    feed.tick(1_000);
    assert_eq!(feed.wanted(1_000).len(), 1, "its wait would be half an hour");
}

#[test]
fn there_is_no_room_when_the_window_is_full_and_room_again_when_it_is_not() {
    let mut feed = feed();
    take(&mut feed, (1..=100).map(|n| strict(n, &format!("job-{n}"), 0)).collect());
    assert_eq!(feed.room(), 0);
    let started = feed.start(10, 0);
    started.iter().for_each(|one| assert!(feed.answer(one.tag, Answer::Ack, 0)));
    assert_eq!(feed.room(), 10);
}

#[test]
fn entities_that_went_by_leave_no_more_behind_than_a_few() {
    let mut feed = feed();
    for round in 0..50 {
        take(&mut feed, (1..=100).map(|n| strict(100 * round + n, &format!("job-{round}-{n}"), 0)).collect());
        feed.start(100, 0).iter().for_each(|one| assert!(feed.answer(one.tag, Answer::Ack, 0)));
        feed.commit();
        feed.committed(0, 0, 0, false);
    }
    assert!(feed.lines.len() <= feed.limits.idle_max, "{}", feed.lines.len());
    assert!(feed.lines.capacity() < 100, "{}: a burst's table is given back", feed.lines.capacity());
}

#[test]
fn a_late_event_that_is_in_line_is_still_missing_for_the_point() {
    let mut feed = feed();
    take(&mut feed, vec![strict(1, "a", 0), strict(2, "a", 3)]);
    // 1 and 2 were overtaken; then 2 comes without order, behind 3.
    take(&mut feed, vec![read(3, "a", 2, Order::Passed)]);
    let mut shown = Vec::new();
    for _ in 0..3 {
        let started = feed.start(9, 0);
        shown.extend(names(&started));
        feed.answer(started[0].tag, Answer::Ack, 0);
    }
    assert_eq!(shown, ["a 0", "a 2", "a 3"], "the gap 1-2 is called by its last");
    let commit = feed.commit();
    assert_eq!(points(&commit), ["a 0:4;m1-2"], "2 is not acknowledged yet");
}
