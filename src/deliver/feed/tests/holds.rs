//! Holds that begin and end while other things are under way: wishes, reads, look-ups, crashes.

use super::{desk::Desk, *};
use crate::store::Wish;

fn no() -> Answer {
    Answer::Nack { reason: "no".to_owned() }
}

/// A desk at which `a 0` has failed for good; so many of `a` are published in all.
fn dead(events: usize) -> Desk {
    let mut desk = Desk::new(50);
    (0..events).for_each(|_| desk.publish("a", Order::Strict));
    desk.go_on();
    desk.answer(0, no());
    for _ in 0..2 {
        desk.tick(60_000);
        desk.go_on();
        desk.go_on();
        desk.answer(0, no());
    }
    desk.go_on();
    assert_eq!((&desk.shown[..], desk.feed.tally.died), (&["a 0".to_owned(), "a 0".to_owned()][..], 1));
    desk.shown.clear();
    desk
}

#[test]
fn what_comes_while_all_that_is_held_is_dropped_comes_behind_the_gap() {
    // Few and many held: more than are fetched at once. With and without a crash in between.
    for (events, crashes) in [(3, false), (3, true), (30, false), (30, true)] {
        let mut desk = dead(events);
        desk.begin_commit(0);
        desk.wish("a", Wish::Drop);
        desk.publish("a", Order::Strict);
        // On its way while the wish is seen, and taken before the wish is done.
        desk.begin_read(1);
        desk.look_up();
        desk.apply_commit();
        desk.end_commit();
        desk.end_read();
        desk.go_on();
        desk.tick(0);
        desk.publish("a", Order::Strict);
        desk.read();
        if crashes {
            desk.begin_commit(0);
            desk.apply_commit();
            desk.crash();
        }
        for _ in 0..4 {
            desk.go_on();
            desk.tick(0);
        }
        let last = events;
        assert_eq!(desk.shown, [format!("a gap 0-{last}")], "crash: {crashes}");
        desk.publish("a", Order::Strict);
        desk.finish();
        assert_eq!(
            desk.shown,
            [format!("a gap 0-{last}"), format!("a {}", last + 1), format!("a {}", last + 2)]
        );
    }
}

#[test]
fn a_point_that_was_looked_up_before_held_events_were_done_does_not_go_back() {
    let mut desk = Desk::new(50);
    (0..3).for_each(|_| desk.publish("a", Order::Strict));
    desk.go_on();
    desk.answer(0, no());
    desk.go_on();
    // Whoever takes over knows the entity by what is held of it, and by nothing else.
    desk.crash();
    desk.tick(60_000);
    for _ in 0..3 {
        desk.go_on();
        desk.go_on();
        desk.answer(0, Answer::Ack);
    }
    // The last two are done, but not in the store, when the next one's point is looked up.
    desk.publish("a", Order::Strict);
    desk.begin_read(1);
    desk.look_up();
    desk.commit();
    desk.end_read();
    desk.finish();
    assert_eq!(desk.shown, ["a 0", "a 0", "a 1", "a 2", "a 3"]);
}

#[test]
fn the_same_if_a_commit_ends_in_between() {
    let mut desk = Desk::new(50);
    (0..2).for_each(|_| desk.publish("a", Order::Strict));
    desk.go_on();
    desk.answer(0, no());
    desk.go_on();
    desk.crash();
    desk.tick(60_000);
    desk.go_on();
    desk.go_on();
    desk.answer(0, Answer::Ack);
    desk.go_on();
    // The last one is done while a commit that does not say so is on its way.
    desk.begin_commit(9);
    desk.apply_commit();
    desk.answer(0, Answer::Ack);
    desk.end_commit();
    desk.publish("a", Order::Strict);
    desk.read();
    desk.finish();
    assert_eq!(desk.shown, ["a 0", "a 0", "a 1", "a 2"]);
}

#[test]
fn the_same_of_many_entities_at_once() {
    let mut desk = Desk::new(50);
    for name in ["a", "b", "c"] {
        (0..2).for_each(|_| desk.publish(name, Order::Strict));
    }
    desk.go_on();
    (0..3).for_each(|_| desk.answer(0, no()));
    desk.go_on();
    desk.crash();
    desk.tick(60_000);
    desk.go_on();
    desk.go_on();
    (0..3).for_each(|_| desk.answer(0, Answer::Ack));
    desk.go_on();
    // The first one's next event is on its way when the others' points move.
    ["a", "b", "c"].into_iter().for_each(|name| desk.publish(name, Order::Strict));
    desk.begin_read(3);
    desk.look_up();
    (0..3).for_each(|_| desk.answer(0, Answer::Ack));
    desk.end_read();
    desk.finish();
    assert_eq!(desk.shown.len(), 12, "three failed once: {:?}", desk.shown);
}

#[test]
fn what_is_known_when_a_read_begins_is_known_when_it_ends() {
    let mut desk = Desk::new(50);
    ["a", "b", "c"].into_iter().for_each(|name| desk.publish(name, Order::Passed));
    desk.go_on();
    (0..3).for_each(|_| desk.answer(0, Answer::Ack));
    desk.begin_commit(9);
    desk.apply_commit();
    ["a", "b", "c"].into_iter().for_each(|name| desk.publish(name, Order::Passed));
    desk.begin_read(3);
    desk.look_up();
    // More are idle than are remembered: they are forgotten only when nobody looks them up.
    desk.end_commit();
    desk.end_read();
    desk.commit();
    let shown: Vec<&str> = desk.shown[3..].iter().map(String::as_str).collect();
    assert_eq!(shown, ["a 1", "b 1", "c 1"], "nobody waits for what came before");
    desk.finish();
    assert!(desk.feed.lines.len() <= 1, "the bound on what is remembered holds");
}

#[test]
fn what_is_done_but_not_in_the_store_is_not_forgotten() {
    let mut desk = Desk::new(50);
    for round in 0..2 {
        ["a", "b", "c"].into_iter().for_each(|name| desk.publish(name, Order::Strict));
        desk.go_on();
        desk.begin_commit(9);
        desk.apply_commit();
        (0..3).for_each(|_| desk.answer(0, Answer::Ack));
        // More are idle than are remembered.
        desk.end_commit();
        if round == 0 {
            desk.commit();
        }
    }
    ["a", "b", "c"].into_iter().for_each(|name| desk.publish(name, Order::Strict));
    desk.read();
    desk.finish();
    assert_eq!(desk.shown.len(), 9, "each once: {:?}", desk.shown);
}

/// A desk at which the hold of `a` has just ended, but not in the store: `a 0` failed once.
fn ending(desk: &mut Desk) {
    desk.publish("a", Order::Strict);
    desk.go_on();
    desk.answer(0, no());
    desk.go_on();
    desk.tick(60_000);
    desk.go_on();
    assert_eq!(desk.shown, ["a 0", "a 0"]);
}

/// What is paused is not handed out; then it is, in order.
fn is_paused_until_it_is_resumed(desk: &mut Desk) {
    desk.publish("a", Order::Strict);
    desk.publish("b", Order::Strict);
    for _ in 0..3 {
        desk.go_on();
        desk.tick(60_000);
    }
    assert_eq!(desk.shown.last().unwrap(), "b 0", "only a is paused: {:?}", desk.shown);
    desk.wish("a", Wish::Resume);
    desk.finish();
}

#[test]
fn a_pause_that_crosses_the_commit_which_ends_a_hold_stands() {
    let mut desk = Desk::new(50);
    ending(&mut desk);
    desk.answer(0, Answer::Ack);
    desk.begin_commit(9);
    desk.wish("a", Wish::Pause);
    // In line already when the pause is seen.
    desk.publish("a", Order::Strict);
    desk.read();
    desk.apply_commit();
    desk.end_commit();
    is_paused_until_it_is_resumed(&mut desk);
    assert_eq!(desk.shown, ["a 0", "a 0", "b 0", "a 1", "a 2"]);
}

#[test]
fn a_pause_that_is_seen_just_after_a_hold_has_ended_stands() {
    let mut desk = Desk::new(50);
    ending(&mut desk);
    desk.begin_commit(9);
    desk.wish("a", Wish::Pause);
    desk.apply_commit();
    // The hold ends here, while the answer that tells of the pause is on its way.
    desk.answer(0, Answer::Ack);
    desk.end_commit();
    is_paused_until_it_is_resumed(&mut desk);
    assert_eq!(desk.shown, ["a 0", "a 0", "b 0", "a 1"]);
}

#[test]
fn a_pause_that_comes_when_a_hold_is_over_stands() {
    let mut desk = Desk::new(50);
    ending(&mut desk);
    desk.answer(0, Answer::Ack);
    desk.begin_commit(9);
    desk.apply_commit();
    desk.wish("a", Wish::Pause);
    desk.end_commit();
    // The next commit tells of it.
    desk.commit();
    is_paused_until_it_is_resumed(&mut desk);
    assert_eq!(desk.shown, ["a 0", "a 0", "b 0", "a 1"]);
}

#[test]
fn what_is_held_reaches_as_far_as_what_was_acknowledged() {
    let mut feed = feed();
    feed.set_degraded(true);
    take(&mut feed, vec![read(1, "a", 1, Order::Passed), read(2, "a", 0, Order::Passed)]);
    let started = feed.start(9, 0);
    feed.answer(started[0].tag, Answer::Ack, 0);
    let started = feed.start(9, 0);
    assert_eq!(names(&started), ["a 0"]);
    feed.answer(started[0].tag, no(), 0);
    let reached = feed.commit().heads[0].head.reached.clone().unwrap();
    // Or whoever takes over takes the point for more, and what is held for missing.
    assert_eq!(reached.to_string(), "0:2");
}

#[test]
fn a_point_does_not_go_back_with_held_events_that_were_not_in_order() {
    let mut feed = feed();
    let entity = Entity::new("a").unwrap();
    feed.heads(vec![(entity.clone(), "r,0,0,0,2,9|0:5;m3;u0|".parse().unwrap())]);
    let passed = |sequence| Task {
        id: None,
        epoch: Epoch::new(0).unwrap(),
        sequence: Sequence::new(sequence).unwrap(),
        moves: true,
        what: What::Event {
            order: Order::Passed,
            kind: "t".into(),
            attrs: "{}".into(),
            data: Default::default(),
        },
    };
    feed.tick(0);
    let wanted = feed.wanted(0);
    assert_eq!(wanted, [(entity.clone(), 0..2)]);
    feed.fetched(&entity, 0..2, Some(vec![(0, passed(4)), (1, passed(2))]), 0);
    for name in ["a 4", "a 2"] {
        feed.tick(0);
        let started = feed.start(9, 0);
        assert_eq!(names(&started), [name]);
        feed.answer(started[0].tag, Answer::Ack, 0);
        assert_eq!(points(&feed.commit()), ["a 0:5;m3;u0"]);
        feed.committed(0, 0, 0, false);
    }
}
