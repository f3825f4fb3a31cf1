//! Entries of many events: done when all of them are, taken over in the middle.

use super::*;
use crate::store::RecordError;

fn ack(feed: &mut Feed, started: &[Started], name: &str) {
    let at = names(started).iter().position(|one| one == name).expect("it was started");
    assert!(feed.answer(started[at].tag, Answer::Ack, 0));
}

fn event(number: u64, index: u32) -> EventId {
    EventId { entry: id(number), index }
}

#[test]
fn the_floor_stays_below_an_entry_until_all_its_events_are_done() {
    let mut feed = feed();
    take(&mut feed, [together(1, &[("a", 0), ("b", 0), ("c", 0)]), together(2, &[("d", 0)])].concat());
    let started = feed.start(9, 0);
    for name in ["a 0", "c 0", "d 0"] {
        ack(&mut feed, &started, name);
    }
    let commit = feed.commit();
    assert_eq!(commit.floor, before(id(1)), "b is not done");
    assert_eq!(points(&commit), ["a 0:1", "c 0:1", "d 0:1"]);
    assert_eq!(commit.running, [Running { id: event(1, 1), crashes: 0 }]);
    ack(&mut feed, &started, "b 0");
    assert_eq!(feed.commit().floor, id(2));
}

#[test]
fn whoever_takes_over_in_the_middle_of_an_entry_leaves_out_its_events_that_are_done() {
    let running = vec![Running { id: event(1, 2), crashes: 1 }];
    let mut feed = feed_of(&Leased { term: 8, running, loose: vec![event(1, 1)], ..Leased::default() });
    let mut reads = together(1, &[("a", 0), ("b", 7), ("c", 0), ("a", 1)]);
    reads[1].entry.as_mut().unwrap().order = Order::Late;
    let unknown = feed.unknown(&reads);
    let point = |entity: &Entity| (entity.as_str() == "a").then(|| "0:1".parse().unwrap());
    feed.read(reads, unknown.into_iter().map(|entity| (entity.clone(), point(&entity))).collect());
    assert_eq!(feed.tally.known, 2, "a 0 by its point, b 7 by itself");
    let suspect = feed.start(9, 0);
    assert_eq!(names(&suspect), ["c 0"], "only the event is suspected, not its entry");
    let commit = feed.commit();
    assert_eq!((commit.floor, &commit.loose[..]), (before(id(1)), &[event(1, 1)][..]));
    assert_eq!(commit.running, [Running { id: event(1, 2), crashes: 2 }]);
    ack(&mut feed, &suspect, "c 0");
    let rest = feed.start(9, 0);
    assert_eq!(names(&rest), ["a 1"]);
    ack(&mut feed, &rest, "a 1");
    let commit = feed.commit();
    assert_eq!((commit.floor, commit.loose.len(), commit.running.len()), (id(1), 0, 0));
}

#[test]
fn an_event_that_ended_its_worker_too_often_is_held_and_its_neighbours_are_delivered() {
    let running = vec![Running { id: event(1, 1), crashes: 3 }];
    let mut feed = feed_of(&Leased { term: 8, running, ..Leased::default() });
    take(&mut feed, together(1, &[("a", 0), ("b", 0), ("c", 0), ("b", 1)]));
    let started = feed.start(9, 0);
    assert_eq!(names(&started), ["a 0", "c 0"]);
    let commit = feed.commit();
    assert_eq!((commit.heads[0].head.state, commit.kept.len()), (HoldState::Dead, 2));
    assert_eq!(commit.floor, before(id(1)), "the others of the entry run");
    ack(&mut feed, &started, "a 0");
    ack(&mut feed, &started, "c 0");
    assert_eq!(feed.commit().floor, id(1), "what is held is done, as far as the stream is concerned");
}

#[test]
fn what_fails_is_held_with_what_follows_in_its_entry_and_in_the_next() {
    let mut feed = feed();
    take(
        &mut feed,
        [together(1, &[("a", 0), ("b", 0), ("a", 1)]), together(2, &[("b", 1), ("a", 2)])].concat(),
    );
    let started = feed.start(9, 0);
    assert!(feed.answer(started[0].tag, Answer::Nack { reason: "no".to_owned() }, 0));
    let commit = feed.commit();
    assert_eq!(commit.kept.iter().map(|(_, number, _)| *number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(commit.floor, before(id(1)), "b runs");
    ack(&mut feed, &started, "b 0");
    assert_eq!(feed.commit().floor, before(id(2)));
}

#[test]
fn what_is_loose_in_an_entry_is_noted_until_all_of_it_is_done() {
    let mut feed = feed();
    let mut reads = together(1, &[("a", 0), ("b", 3), ("c", 0)]);
    reads[1].entry.as_mut().unwrap().order = Order::Replay;
    take(&mut feed, [reads, together(2, &[("d", 0)])].concat());
    let started = feed.start(9, 0);
    ack(&mut feed, &started, "b 3");
    ack(&mut feed, &started, "c 0");
    assert_eq!(feed.commit().loose, [event(1, 1)]);
    ack(&mut feed, &started, "a 0");
    let commit = feed.commit();
    assert_eq!((commit.floor, commit.loose.len()), (before(id(2)), 0), "the floor covers it");
}

#[test]
fn an_event_that_cannot_be_read_costs_no_other_of_its_entry() {
    let mut feed = feed();
    let mut reads = together(1, &[("a", 0), ("b", 0), ("a", 1)]);
    reads[1].entry = Err(RecordError::Malformed { id: event(1, 1), field: "value", value: "?".to_owned() });
    take(&mut feed, reads);
    assert_eq!((feed.tally.malformed, feed.warnings.len()), (1, 1));
    for name in ["a 0", "a 1"] {
        let started = feed.start(9, 0);
        ack(&mut feed, &started, name);
    }
    assert_eq!(feed.commit().floor, id(1));
}

#[test]
fn reads_ask_for_as_many_entries_as_fit_by_what_was_seen() {
    let mut feed = feed();
    feed.widest = 64;
    assert_eq!(feed.entries_of(feed.room()), 1, "100 events may be read, and an entry may have 64");
    let wide: Vec<(&str, u64)> = (0..10).map(|sequence| ("a", sequence)).collect();
    take(&mut feed, together(1, &wide));
    assert_eq!((feed.room(), feed.entries_of(90)), (90, 2), "at most 32 in each");
    for number in 2..5 {
        take(&mut feed, together(number, &[("b", number - 2)]));
    }
    assert_eq!((feed.room(), feed.entries_of(87)), (87, 21), "it is forgotten by halves");
    assert_eq!((feed.entries_of(3), feed.entries_of(0)), (1, 0), "one, however wide it may be");
    take(&mut feed, together(9, &(0..90).map(|sequence| ("c", sequence)).collect::<Vec<_>>()));
    assert_eq!(feed.room(), 0, "what is wider than there is room is taken all the same, and then nothing");
    assert_eq!(feed.entries_of(256), 2, "the widest counts at once");
}
