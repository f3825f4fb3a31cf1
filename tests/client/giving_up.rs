//! No event waits for ever, and what is given up says why.

use std::time::Duration;

use seriatim::{
    client::{ClientError, Producer, ProducerOptions},
    grpc::pb::{self, Verdict},
};

use super::adversary::{Adversary, ManualClock, TOPIC, event, result_of, within};

const GIVE_UP_AFTER: Duration = Duration::from_secs(20);

fn options() -> ProducerOptions {
    ProducerOptions { give_up_after: GIVE_UP_AFTER, ..Default::default() }
}

fn why(error: &ClientError) -> &str {
    match error {
        ClientError::GaveUp { after, last } if *after == GIVE_UP_AFTER => last,
        other => panic!("it did not give up: {other}"),
    }
}

#[tokio::test]
async fn an_event_that_is_never_answered_is_given_up() {
    let mut adversary = Adversary::start().await;
    let clock = ManualClock::default();
    let producer = adversary.producer_with(&clock, options());
    let never = producer.publish(event("e", 0));
    let mut wire = adversary.accept().await;
    let (number, _) = wire.read().await;
    clock.advance(GIVE_UP_AFTER);
    let error = within("it is given up", never).await.unwrap_err();
    assert!(why(&error).contains("no answer came"), "{error}");

    // Its answer comes after all, and disturbs nobody.
    wire.answer(number, Verdict::Released);
    let next = producer.publish(event("e", 1));
    assert_eq!(wire.release().await.sequence(), 1);
    assert_eq!(within("it is answered", next).await.unwrap().verdict(), Verdict::Released);
}

#[tokio::test]
async fn an_event_that_is_always_refused_is_given_up_with_the_reason() {
    let mut adversary = Adversary::start().await;
    let clock = ManualClock::default();
    let producer = adversary.producer_with(&clock, options());
    let answer = producer.publish(event("e", 5));
    let mut wire = adversary.accept().await;
    for attempt in 0..3 {
        let (number, read) = wire.read().await;
        assert_eq!(read, event("e", 5), "attempt {attempt}");
        let refused = pb::Result {
            verdict: Verdict::Refused.into(),
            reason: "parked_max".into(),
            retry_after_ms: 1000,
            ..Default::default()
        };
        wire.respond(vec![result_of(number, refused)], Vec::new());
        // Once another is answered, so is this one.
        let other = producer.publish(event("other", attempt));
        wire.release().await;
        within("the other is answered", other).await.unwrap();
        clock.advance(Duration::from_secs(1));
    }
    clock.advance(GIVE_UP_AFTER);
    let error = within("it is given up", answer).await.unwrap_err();
    assert!(why(&error).contains("REFUSED (parked_max)"), "{error}");
}

/// The peer is alive as far as anybody can see, but does not answer: another stream may.
#[tokio::test]
async fn a_stream_that_falls_silent_is_replaced() {
    let mut adversary = Adversary::start().await;
    let clock = ManualClock::default();
    let a_day = ProducerOptions { give_up_after: Duration::from_secs(86_400), ..Default::default() };
    let producer = adversary.producer_with(&clock, a_day);
    let answer = producer.publish(event("e", 0));
    let mut silent = adversary.accept().await;
    silent.read().await;
    let mut wire = clock.advance_until(adversary.accept()).await;
    assert_eq!(wire.release().await, event("e", 0));
    assert_eq!(within("it is answered", answer).await.unwrap().verdict(), Verdict::Released);
}

#[tokio::test]
async fn a_sidecar_that_is_not_there_is_named() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let options = ProducerOptions { give_up_after: Duration::from_millis(100), ..Default::default() };
    let producer = Producer::start(&target, TOPIC, options);
    let error = within("it is given up", producer.publish(event("e", 0))).await.unwrap_err();
    assert!(matches!(error, ClientError::GaveUp { .. }) && error.to_string().contains(&target), "{error}");
    within("nothing is open", producer.close()).await;
}

#[tokio::test]
async fn what_is_no_address_fails_at_once() {
    let producer = Producer::start("neither a host nor a path", TOPIC, ProducerOptions::default());
    let first = within("it fails", producer.publish(event("e", 0))).await.unwrap_err();
    let second = within("it fails", producer.publish(event("e", 1))).await.unwrap_err();
    for error in [first, second] {
        assert!(matches!(error, ClientError::Target { .. }), "{error}");
    }
}
