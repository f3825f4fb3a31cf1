//! Stages and turns, by cases and by random histories.

use tokio::sync::Semaphore;

use super::*;
use crate::random::Random;

const GIVE_UP_AFTER: Duration = Duration::from_secs(30);

fn open_events(in_flight_max: usize) -> OpenEvents {
    OpenEvents::new(in_flight_max, GIVE_UP_AFTER)
}

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn event(sequence: u64) -> Arc<pb::Event> {
    Arc::new(pb::Event { entity: "e".into(), sequence: Some(sequence), ..Default::default() })
}

fn caller() -> (Caller, oneshot::Receiver<Outcome>) {
    let (answer, answered) = oneshot::channel();
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    (Caller { answer, place }, answered)
}

fn publish(open: &mut OpenEvents, sequence: u64, now: Duration) -> oneshot::Receiver<Outcome> {
    let (caller, answered) = caller();
    open.publish(event(sequence), Some(caller), now);
    answered
}

/// Numbers and sequences of all that may go now.
fn sent(open: &mut OpenEvents, now: Duration) -> Vec<(u64, u64)> {
    std::iter::from_fn(|| open.send(now)).map(|sending| (sending.number, sending.event.sequence())).collect()
}

fn sequences(open: &mut OpenEvents, now: Duration) -> Vec<u64> {
    sent(open, now).into_iter().map(|(_, sequence)| sequence).collect()
}

fn verdict(verdict: Verdict, retry_after_ms: u32) -> Outcome {
    Ok(pb::Result { verdict: verdict.into(), retry_after_ms, ..Default::default() })
}

fn released() -> Outcome {
    verdict(Verdict::Released, 0)
}

#[test]
fn what_a_lost_connection_left_goes_first_and_in_order() {
    let mut open = open_events(3);
    let _answers: Vec<_> = (0..5).map(|sequence| publish(&mut open, sequence, at(0))).collect();
    assert_eq!(sent(&mut open, at(0)), [(0, 0), (1, 1), (2, 2)]);
    open.answered(1, released(), at(0));
    assert_eq!(sequences(&mut open, at(0)), [3]);
    open.lost();
    assert_eq!(sequences(&mut open, at(1)), [0, 2, 3]);
}

#[test]
fn the_refused_leave_the_window_to_others_and_come_back_behind_them() {
    let mut open = open_events(2);
    let _answers: Vec<_> = (0..4).map(|sequence| publish(&mut open, sequence, at(0))).collect();
    assert_eq!(sequences(&mut open, at(0)), [0, 1]);
    open.answered(0, verdict(Verdict::Refused, 50), at(0));
    open.answered(1, verdict(Verdict::Refused, 40), at(0));
    assert_eq!(sequences(&mut open, at(0)), [2, 3], "the refused do not block the window");
    assert_eq!(open.next_wake(), Some(at(40)));
    open.elapse(at(39), None);
    open.answered(2, released(), at(39));
    open.answered(3, released(), at(39));
    assert_eq!(sequences(&mut open, at(39)), [0; 0], "nobody comes too early");
    open.elapse(at(50), None);
    assert_eq!(sent(&mut open, at(50)), [(4, 1), (5, 0)], "new turns, in the order of their times");
}

#[test]
fn one_that_was_given_up_keeps_its_place_on_the_wire() {
    let mut open = open_events(1);
    let mut first = publish(&mut open, 0, at(0));
    let mut second = publish(&mut open, 1, at(10));
    assert_eq!(sequences(&mut open, at(0)), [0]);
    open.elapse(GIVE_UP_AFTER, None);
    assert!(matches!(first.try_recv(), Ok(Err(ClientError::GaveUp { .. }))));
    assert_eq!(sequences(&mut open, GIVE_UP_AFTER), [0; 0], "it may still lie in a buffer");
    assert!(open.answered(0, released(), GIVE_UP_AFTER).is_none());
    assert_eq!(sequences(&mut open, GIVE_UP_AFTER), [1]);
    assert!(second.try_recv().is_err(), "its time is not up");
}

#[test]
fn silence_is_counted_from_the_last_answer_while_something_is_in_flight() {
    let mut open = open_events(9);
    assert_eq!(open.silent_since(), None);
    let _answers = [publish(&mut open, 0, at(0)), publish(&mut open, 1, at(0))];
    assert_eq!(sent(&mut open, at(5)).len(), 2);
    assert_eq!(open.silent_since(), Some(at(5)));
    open.answered(0, released(), at(7));
    assert_eq!(open.silent_since(), Some(at(7)));
    open.answered(1, released(), at(8));
    assert_eq!(open.silent_since(), None);
}

#[test]
fn who_gives_up_says_why() {
    let reason = |prepare: fn(&mut OpenEvents), down: Option<&str>| {
        let mut open = open_events(1);
        let mut first = publish(&mut open, 0, at(0));
        prepare(&mut open);
        open.elapse(GIVE_UP_AFTER, down);
        assert!(open.is_empty() && open.line.is_empty() && open.away.is_empty());
        first.try_recv().unwrap().unwrap_err().to_string()
    };
    assert!(reason(|_| {}, Some("cannot reach x")).contains("cannot reach x"));
    assert!(reason(|open| drop(open.send(at(0))), None).contains("it was sent, but no answer came"));
    assert!(reason(|_| {}, None).contains("in_flight_max (1)"));
    let refused = |open: &mut OpenEvents| {
        open.send(at(0));
        let refused = pb::Result {
            verdict: Verdict::Refused.into(),
            reason: "parked_max".into(),
            retry_after_ms: u32::MAX,
            ..Default::default()
        };
        open.answered(0, Ok(refused), at(0));
    };
    assert!(reason(refused, None).contains("REFUSED (parked_max)"));
}

/// Whatever happens, in whatever order: each event is in one stage, no window is exceeded,
/// and each caller is answered once.
#[test]
fn every_event_ends_once() {
    for seed in 1..=20 {
        let mut random = Random::from_seed(seed);
        let mut open = open_events(8);
        let (mut now, mut answers, mut numbers) = (at(0), Vec::new(), Vec::new());
        for sequence in 0..2000 {
            match random.below(12) {
                0..=3 => answers.push(publish(&mut open, sequence, now)),
                4 => open.publish(event(sequence), None, now),
                5 | 6 => numbers.extend(sent(&mut open, now).into_iter().map(|(number, _)| number)),
                7..=9 if !numbers.is_empty() => {
                    let at = random.below(numbers.len() as u64);
                    let number = numbers.swap_remove(usize::try_from(at).unwrap());
                    let outcome = match random.below(4) {
                        0 => verdict(Verdict::Refused, 500),
                        1 => Err(ClientError::Failed { code: 14, message: String::new(), retry_after_ms: 0 }),
                        2 => verdict(Verdict::Invalid, 0),
                        _ => released(),
                    };
                    open.answered(number, outcome, now);
                }
                10 => {
                    open.fail_first_in_flight(ClientError::Lost);
                    open.lost();
                }
                _ => {
                    now += at(random.below(3000));
                    open.elapse(now, None);
                }
            }
            check(&open, seed);
        }
        open.fail_all(|| ClientError::Closed);
        check(&open, seed);
        assert!(open.is_empty() && open.resends() == 0, "seed {seed}");
        assert!(answers.iter_mut().all(|answer| answer.try_recv().is_ok()), "seed {seed}");
    }
}

fn check(open: &OpenEvents, seed: u64) {
    let staged = |stage: fn(Stage) -> bool| open.open.values().filter(|open| stage(open.stage)).count();
    let in_flight = open.in_flight.values().filter(|id| open.open.contains_key(id)).count();
    assert_eq!(staged(|stage| matches!(stage, Stage::InLine { .. })), open.line.len(), "seed {seed}");
    assert_eq!(staged(|stage| matches!(stage, Stage::InFlight)), in_flight, "seed {seed}");
    assert_eq!(staged(|stage| matches!(stage, Stage::Away { .. })), open.away.len(), "seed {seed}");
    assert_eq!(open.open.values().filter(|open| open.caller.is_none()).count(), open.resends, "seed {seed}");
    assert!(open.in_flight.len() <= open.in_flight_max, "seed {seed}");
    assert_eq!(open.silent_since.is_some(), !open.in_flight.is_empty(), "seed {seed}");
    assert!(open.open.values().is_sorted_by_key(|open| open.deadline), "seed {seed}");
}
