//! What the sidecar misses and asks for is published again, if it is still there.

use seriatim::{
    client::{Producer, ProducerOptions},
    grpc::pb::{self, Verdict},
};

use super::adversary::{Adversary, Wire, ask, event, eventually, within};

/// A producer whose events 0.. of "e" were released.
async fn published(count: u64, options: ProducerOptions) -> (Adversary, Producer, Wire) {
    let mut adversary = Adversary::start().await;
    let producer = adversary.producer(options);
    let mut wire = adversary.accept().await;
    for sequence in 0..count {
        let answer = producer.publish(event("e", sequence));
        wire.release().await;
        within("it is answered", answer).await.unwrap();
    }
    (adversary, producer, wire)
}

async fn sequences(wire: &mut Wire, count: usize) -> Vec<u64> {
    let mut read = Vec::new();
    for _ in 0..count {
        let event = wire.release().await;
        assert_eq!(event, self::event("e", event.sequence()), "as it was published");
        read.push(event.sequence());
    }
    read
}

/// What is published now comes next: nothing was sent before it.
async fn nothing_else_came(producer: &Producer, wire: &mut Wire) {
    let answer = producer.publish(event("fence", 0));
    assert_eq!(wire.release().await.entity, "fence");
    within("it is answered", answer).await.unwrap();
}

#[tokio::test]
async fn what_is_asked_for_comes_again_and_only_that() {
    let (_adversary, producer, mut wire) = published(6, ProducerOptions::default()).await;
    wire.ask(vec![ask("e", 1, 3), ask("e", 5, 900)]);
    assert_eq!(sequences(&mut wire, 4).await, [1, 2, 3, 5]);
    nothing_else_came(&producer, &mut wire).await;
    assert_eq!((producer.resends_asked(), producer.resent()), (2, 4));
}

#[tokio::test]
async fn what_is_unknown_is_not_invented() {
    let (_adversary, producer, mut wire) = published(3, ProducerOptions::default()).await;
    let unknown = vec![
        pb::Resend { topic: "another".into(), ..ask("e", 0, 2) },
        pb::Resend { topic: String::new(), ..ask("e", 0, 2) },
        pb::Resend { epoch: 1, ..ask("e", 0, 2) },
        ask("another", 0, 2),
        ask("", 0, u64::MAX),
        ask("e", 3, u64::MAX),
        ask("e", 2, 0),
    ];
    let count = unknown.len() as u64;
    wire.ask(unknown);
    eventually("all were read", || producer.resends_asked() == count).await;
    nothing_else_came(&producer, &mut wire).await;
    assert_eq!(producer.resent(), 0);
}

#[tokio::test]
async fn what_has_left_the_ring_does_not_come() {
    let options = ProducerOptions { ring_events: 2, ..Default::default() };
    let (_adversary, producer, mut wire) = published(5, options).await;
    wire.ask(vec![ask("e", 0, 4)]);
    assert_eq!(sequences(&mut wire, 2).await, [3, 4]);
    nothing_else_came(&producer, &mut wire).await;
    assert_eq!(producer.resent(), 2);
}

#[tokio::test]
async fn what_went_another_way_can_be_asked_for() {
    let (_adversary, producer, mut wire) = published(1, ProducerOptions::default()).await;
    producer.remember(event("e", 7));
    wire.ask(vec![ask("e", 5, 9)]);
    assert_eq!(sequences(&mut wire, 1).await, [7]);
    nothing_else_came(&producer, &mut wire).await;
}

#[tokio::test]
async fn who_does_not_want_to_answer_does_not() {
    let options = ProducerOptions { answer_resend: false, ..Default::default() };
    let (_adversary, producer, mut wire) = published(3, options).await;
    producer.remember(event("e", 3));
    wire.ask(vec![ask("e", 0, 9)]);
    eventually("it was read", || producer.resends_asked() == 1).await;
    nothing_else_came(&producer, &mut wire).await;
    assert_eq!(producer.resent(), 0);
}

/// More than is open at once for it, and new events come through between them.
#[tokio::test]
async fn a_long_run_comes_whole_and_holds_nobody_up() {
    const RUN: u64 = 2000;
    let (_adversary, producer, mut wire) = published(RUN, ProducerOptions::default()).await;
    wire.ask(vec![ask("e", 0, RUN)]);
    eventually("it was read", || producer.resends_asked() == 1).await;
    let new = producer.publish(event("new", 0));
    let (mut resent, mut before_new) = (Vec::new(), None);
    while resent.len() < usize::try_from(RUN).unwrap() || before_new.is_none() {
        let event = wire.release().await;
        match event.entity.as_str() {
            "new" => before_new = Some(resent.len()),
            _ => resent.push(event.sequence()),
        }
    }
    assert!(resent.iter().copied().eq(0..RUN));
    assert!(before_new.unwrap() < resent.len() / 2, "{before_new:?} of {RUN} went first");
    within("it is answered", new).await.unwrap();
    nothing_else_came(&producer, &mut wire).await;
    assert_eq!(producer.resent(), RUN);
}

/// Resending is publishing: refused or lost, it is done again.
#[tokio::test]
async fn a_resend_that_fails_is_repeated() {
    let (mut adversary, producer, mut wire) = published(3, ProducerOptions::default()).await;
    wire.ask(vec![ask("e", 0, 2)]);
    let read = wire.read_many(3).await;
    wire.answer(read[0].0, Verdict::Duplicate);
    wire.answer(read[1].0, Verdict::Refused);
    adversary.cut();
    let mut wire = adversary.accept().await;
    let mut again = sequences(&mut wire, 2).await;
    // The cut may have come before the answers.
    if again[0] == 0 {
        again = vec![again[1], sequences(&mut wire, 1).await[0]];
    }
    again.sort_unstable();
    assert_eq!(again, [1, 2]);
    nothing_else_came(&producer, &mut wire).await;
    assert_eq!(producer.resent(), 3, "counted once each");
}

/// An event that no lane will ever have gives its place to the one that corrects it.
#[tokio::test]
async fn an_invalid_event_is_not_kept() {
    let (_adversary, producer, mut wire) = published(0, ProducerOptions::default()).await;
    let wrong = pb::Event { r#type: "seriatim.reserved".into(), ..event("e", 0) };
    for (event, verdict) in [(wrong, Verdict::Invalid), (event("e", 0), Verdict::Released)] {
        let answer = producer.publish(event);
        let (number, _) = wire.read().await;
        wire.answer(number, verdict);
        assert_eq!(within("it is answered", answer).await.unwrap().verdict(), verdict);
    }
    wire.ask(vec![ask("e", 0, 0)]);
    assert_eq!(sequences(&mut wire, 1).await, [0], "the corrected one");
}
