//! Answers find their callers, whatever their order; the window and the line are bounded;
//! what was turned away comes again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use seriatim::{
    client::{ClientError, ProducerOptions},
    grpc::pb::{self, Verdict},
    random::Random,
};
use tokio::sync::mpsc;
use tonic::Code;

use super::adversary::{Adversary, ManualClock, event, failure_of, result_of, verdict_of, within};

#[tokio::test]
async fn answers_in_any_order_find_their_callers() {
    let mut adversary = Adversary::start().await;
    let producer = adversary.producer(ProducerOptions::default());
    let answers: Vec<_> = (0..4).map(|sequence| producer.publish(event("e", sequence))).collect();
    let mut wire = adversary.accept().await;
    let read = wire.read_many(4).await;
    assert!(read.iter().map(|(_, event)| event.sequence()).eq(0..4), "sent in the order of the calls");
    let told = |at: usize| {
        let stream_id = read[at].1.sequence().to_string();
        result_of(
            read[at].0,
            pb::Result { verdict: Verdict::Released.into(), stream_id, ..Default::default() },
        )
    };
    // One alone, two together, one that answers nothing that was asked, one twice.
    wire.respond(vec![told(2)], Vec::new());
    wire.respond(vec![verdict_of(u64::MAX, Verdict::Released), told(3), told(0)], Vec::new());
    wire.respond(vec![told(0), told(1), told(2)], Vec::new());
    for (sequence, answer) in answers.into_iter().enumerate() {
        let result = within("it is answered", answer).await.unwrap();
        assert_eq!(result.stream_id, sequence.to_string());
    }
}

#[tokio::test]
async fn verdicts_that_are_final_are_not_questioned() {
    let mut adversary = Adversary::start().await;
    let producer = adversary.producer(ProducerOptions::default());
    let mut wire = adversary.accept().await;
    for verdict in [
        Verdict::Released,
        Verdict::Parked,
        Verdict::Passed,
        Verdict::Duplicate,
        Verdict::Late,
        Verdict::Spooled,
        Verdict::Conflict,
        Verdict::Stale,
        Verdict::Invalid,
    ] {
        let answer = producer.publish(event("e", 0));
        let (number, _) = wire.read().await;
        wire.answer(number, verdict);
        assert_eq!(within("it is answered", answer).await.unwrap().verdict(), verdict);
    }
    for code in [Code::NotFound, Code::InvalidArgument, Code::Internal] {
        let answer = producer.publish(event("e", 0));
        let (number, _) = wire.read().await;
        wire.respond(vec![failure_of(number, code, 0)], Vec::new());
        let error = within("it is answered", answer).await.unwrap_err();
        assert!(matches!(error, ClientError::Failed { code: found, .. } if found == code as u32), "{error}");
    }
    let answer = producer.publish(event("e", 0));
    let (number, _) = wire.read().await;
    wire.respond(vec![pb::Answer { number, ..Default::default() }], Vec::new());
    let error = within("it is answered", answer).await.unwrap_err();
    assert!(error.to_string().contains("answered without a result"), "{error}");
}

/// After the time that was named, and not earlier; others go on meanwhile.
#[tokio::test]
async fn what_was_turned_away_comes_again_when_it_was_told_to() {
    let refused = |number| {
        let verdict = Verdict::Refused.into();
        result_of(number, pb::Result { verdict, retry_after_ms: 60_000, ..Default::default() })
    };
    let ways: [&dyn Fn(u64) -> pb::Answer; 4] = [
        &refused,
        &|number| failure_of(number, Code::Unavailable, 60_000),
        &|number| failure_of(number, Code::Internal, 60_000),
        // Without a time a minute is more than enough.
        &|number| failure_of(number, Code::Unavailable, 0),
    ];
    for (way, turned_away) in ways.iter().enumerate() {
        let mut adversary = Adversary::start().await;
        let clock = ManualClock::default();
        let options = ProducerOptions { give_up_after: Duration::from_secs(3600), ..Default::default() };
        let producer = adversary.producer_with(&clock, options);
        let answer = producer.publish(event("e", 0));
        let mut wire = adversary.accept().await;
        let (number, _) = wire.read().await;
        wire.respond(vec![turned_away(number)], Vec::new());

        let others = producer.publish(event("other", 0));
        assert_eq!(wire.release().await.entity, "other", "way {way}");
        within("the other is answered", others).await.unwrap();
        if way < 3 {
            clock.advance(Duration::from_millis(59_999));
            let others = producer.publish(event("other", 1));
            assert_eq!(wire.release().await.entity, "other", "way {way}: nobody comes too early");
            within("the other is answered", others).await.unwrap();
        }
        clock.advance(Duration::from_secs(60));
        assert_eq!(wire.release().await, event("e", 0), "way {way}");
        assert_eq!(within("it is answered", answer).await.unwrap().verdict(), Verdict::Released);
    }
}

const MANY: u64 = 10_000;
const WINDOW: usize = 256;
const OPEN_MAX: usize = 512;

/// The sidecar gets as much as the window allows, and no more, and answers in disorder, a few at a time.
#[tokio::test]
async fn many_are_sent_in_order_and_no_more_than_allowed_at_once() {
    let mut adversary = Adversary::start().await;
    let options = ProducerOptions { in_flight_max: WINDOW, open_max: OPEN_MAX, ..Default::default() };
    let producer = adversary.producer(options);
    let mut wire = adversary.accept().await;
    let (taken, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));

    let (answers, mut to_await) = mpsc::unbounded_channel();
    let (takes, answers_so_far) = (taken.clone(), answered.clone());
    let publishing = tokio::spawn(async move {
        for sequence in 0..MANY {
            let answer = producer.publish_when_room(event("e", sequence)).await;
            let taken = takes.fetch_add(1, Ordering::SeqCst) + 1;
            let open = taken - answers_so_far.load(Ordering::SeqCst);
            assert!(open <= OPEN_MAX as u64, "{open} events are open");
            answers.send((sequence, answer)).unwrap();
        }
        producer
    });

    let mut random = Random::from_seed(7);
    let (mut expected, mut unanswered) = (0..MANY, Vec::new());
    while answered.load(Ordering::SeqCst) < MANY {
        while unanswered.len() < WINDOW && !expected.is_empty() {
            let (number, event) = wire.read().await;
            assert_eq!(Some(event.sequence()), expected.next(), "in the order of the calls");
            unanswered.push((number, event.sequence()));
        }
        assert_eq!(wire.read_now().await, None, "{} events are in flight", unanswered.len());
        random.shuffle(&mut unanswered);
        let count = usize::try_from(random.below(WINDOW as u64)).unwrap().min(unanswered.len());
        for (number, sequence) in unanswered.drain(..count) {
            answered.fetch_add(1, Ordering::SeqCst);
            let result = pb::Result { verdict: Verdict::Released.into(), sequence, ..Default::default() };
            wire.respond(vec![result_of(number, result)], Vec::new());
        }
    }
    let _producer = within("all were taken", publishing).await.unwrap();
    for _ in 0..MANY {
        let (sequence, answer) = to_await.recv().await.unwrap();
        assert_eq!(within("it is answered", answer).await.unwrap().sequence, sequence);
    }
}

#[tokio::test]
async fn one_too_many_is_not_taken_and_says_so() {
    let mut adversary = Adversary::start().await;
    let options = ProducerOptions { in_flight_max: 1, open_max: 3, ..Default::default() };
    let producer = adversary.producer(options);
    let mut taken: Vec<_> = (0..3).map(|sequence| producer.publish(event("e", sequence))).collect();
    let error = within("it is answered", producer.publish(event("e", 3))).await.unwrap_err();
    assert!(matches!(error, ClientError::Full { open_max: 3 }), "{error}");
    let mut wire = adversary.accept().await;
    wire.release().await;
    within("it is answered", taken.remove(0)).await.unwrap();
    let again = producer.publish(event("e", 3));
    for sequence in 1..4 {
        assert_eq!(wire.release().await.sequence(), sequence, "what was not taken was not sent");
    }
    within("it is answered", again).await.unwrap();
}
