//! Epochs, and who takes the promise of order away and gives it back.

use super::*;

fn in_epoch(number: u64, entity: &str, epoch: u64, sequence: u64) -> Read {
    let mut read = strict(number, entity, sequence);
    read.entry.as_mut().unwrap().epoch = Epoch::new(epoch).unwrap();
    read
}

#[test]
fn what_stands_in_its_turn_below_a_higher_epoch_was_done_before_it() {
    let mut feed = feed();
    // Taken over: the floor is below what the point covers.
    let reads = vec![in_epoch(1, "a", 0, 5), in_epoch(2, "a", 1, 0), in_epoch(3, "a", 1, 1)];
    let entity = Entity::new("a").unwrap();
    assert_eq!(feed.unknown(&reads).len(), 1);
    feed.read(reads, vec![(entity, Some("1:1".parse().unwrap()))]);
    assert_eq!(feed.tally.known, 2);
    let started = feed.start(9, 0);
    assert_eq!(names(&started), ["a 1"]);
    assert_eq!(started[0].task.epoch, Epoch::new(1).unwrap());
    assert_eq!(feed.floor(), before(id(3)), "what is known does not hold the floor");
    feed.answer(started[0].tag, Answer::Ack, 0);
    let commit = feed.commit();
    assert_eq!((commit.floor, points(&commit)), (id(3), vec!["a 1:2".to_owned()]));
    assert_eq!(commit.loose, [], "nor is it noted as done by itself");
}

/// So many are ahead of their turn that order is given up for now.
fn tripped() -> Feed {
    let mut feed = feed();
    feed.policy.partition_parked_max = 2;
    take(&mut feed, (1..=3).map(|n| read(n, &format!("job-{n}"), 1, Order::Passed)).collect());
    assert!(feed.is_degraded() && !feed.lanes.is_degraded_by_operator());
    feed
}

/// Time passes for a worker that has read everything.
fn pass(feed: &mut Feed, now: u64) {
    feed.seen_to_end(now);
    feed.tick(now);
}

/// Long enough for the breaker, in steps that a clock counts.
fn calm(feed: &mut Feed) -> u64 {
    let breaker = feed.policy.breaker;
    let long = 2 * (breaker.hold + breaker.window);
    (0..=long / 250).for_each(|tick| pass(feed, tick * 250));
    long
}

#[test]
fn a_feed_that_gave_order_up_by_itself_returns_by_itself() {
    let mut feed = tripped();
    // Nobody asked for it: that the group is not degraded changes nothing.
    feed.set_degraded(false);
    assert!(feed.is_degraded());
    calm(&mut feed);
    assert!(!feed.is_degraded());
}

#[test]
fn a_person_who_degrades_what_is_degraded_already_has_the_last_word() {
    let mut feed = tripped();
    feed.set_degraded(true);
    let now = calm(&mut feed);
    assert!(feed.is_degraded(), "only a person gives back what a person took");
    feed.set_degraded(false);
    assert!(!feed.is_degraded());
    // Its counters begin anew: nothing is left of what tripped it.
    pass(&mut feed, now);
    assert!(!feed.is_degraded());
    take(&mut feed, vec![read(9, "late", 1, Order::Passed)]);
    assert!(!names(&feed.start(9, now)).contains(&"late 1".to_owned()), "it waits for its turn again");
}

/// So many looks half a second apart; does anything come of them?
fn starts(feed: &mut Feed, from: u64, looks: u64, is_read: bool) -> bool {
    (1..=looks).map(|look| from + 500 * look).any(|now| {
        if is_read {
            feed.seen_to_end(now);
        }
        feed.tick(now);
        !feed.start(9, now).is_empty()
    })
}

#[test]
fn a_gap_is_not_given_up_while_what_is_missing_may_stand_in_what_was_not_read() {
    let ahead = || {
        let mut feed = feed();
        // Far shorter than what a reader may be behind.
        feed.policy.gap_waits = vec![1_000];
        take(&mut feed, vec![read(1, "job", 1, Order::Passed)]);
        feed
    };
    let waits = 4;
    let patience = BEHIND_MAX_MS / 500;
    let mut reading = ahead();
    assert!(!starts(&mut reading, 0, patience, false), "the end of the stream was not seen");
    assert!(starts(&mut reading, BEHIND_MAX_MS, waits, true));
    assert!(
        starts(&mut ahead(), 0, patience + waits, false),
        "who is behind for ever does not wait for ever"
    );
}

#[test]
fn what_passed_out_of_turn_and_is_in_line_still_is_a_gap_that_nobody_was_told_of() {
    let mut feed = feed();
    feed.set_degraded(true);
    let passed = |number, sequence| read(number, "a", sequence, Order::Passed);
    // The lane knows nothing of the old epoch any more.
    take(&mut feed, vec![passed(1, 1), passed(2, 2), passed(3, 0), in_epoch(4, "a", 1, 0)]);
    let started = feed.start(9, 0);
    assert_eq!(names(&started), ["a 1"]);
    feed.answer(started[0].tag, Answer::Ack, 0);
    assert_eq!(points(&feed.commit()), ["a 0:2;m0;u0"]);
}

#[test]
fn what_is_missing_of_a_lane_that_was_degraded_is_not_told_before_the_stream_was_read() {
    let met = || {
        let mut feed = feed();
        let entity = Entity::new("a").unwrap();
        feed.read(vec![read(5, "a", 2, Order::Passed)], vec![(entity, Some("0:2;m0;u0".parse().unwrap()))]);
        pass_behind(&mut feed);
        let started = feed.start(9, 0);
        assert_eq!(names(&started), ["a 2"], "no gap comes before it");
        feed.answer(started[0].tag, Answer::Ack, 0);
        feed
    };
    let mut filled = met();
    take(&mut filled, vec![read(6, "a", 0, Order::Passed)]);
    let started = filled.start(9, 0);
    assert!(matches!(&started[..], [Started { task, .. }] if matches!(task.what, What::Event { .. })));
    let mut missing = met();
    pass(&mut missing, 500);
    let started = missing.start(9, 500);
    assert!(matches!(&started[..], [Started { task, .. }] if matches!(task.what, What::Gap { .. })));
}

/// Time passes, and the end of the stream was not seen.
fn pass_behind(feed: &mut Feed) {
    feed.fall_behind();
    (1..=8).for_each(|tick| feed.tick(tick * 250));
}
