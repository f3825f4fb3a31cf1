//! Connections that break and streams that end: what was not answered comes again.

use seriatim::{
    client::{ClientError, ProducerOptions},
    grpc::pb::Verdict,
};
use tonic::{Code, Status};

use super::adversary::{Adversary, ask, event, eventually, verdict_of, within};

#[tokio::test]
async fn what_was_not_answered_comes_again_and_nothing_else() {
    let ends: [fn(&Adversary, super::adversary::Wire); 4] = [
        |adversary, _wire| adversary.cut(),
        |_, wire| wire.end(Status::unavailable("this sidecar is stopping")),
        |_, wire| wire.end(Status::internal("a bug")),
        // As if all were answered.
        |_, wire| drop(wire),
    ];
    for (way, end) in ends.iter().enumerate() {
        let mut adversary = Adversary::start().await;
        let producer = adversary.producer(ProducerOptions::default());
        let answers: Vec<_> = (0..10).map(|sequence| producer.publish(event("e", sequence))).collect();
        let mut wire = adversary.accept().await;
        let read = wire.read_many(10).await;
        let done = [5, 0, 7].map(|at| verdict_of(read[at].0, Verdict::Parked));
        wire.respond(done.to_vec(), Vec::new());
        let mut answers: Vec<_> = answers.into_iter().map(Some).collect();
        for at in [0, 5, 7] {
            let answer = within("it is answered", answers[at].take().unwrap()).await;
            assert_eq!(answer.unwrap().verdict(), Verdict::Parked, "way {way}");
        }
        end(&adversary, wire);

        let mut wire = adversary.accept().await;
        for sequence in [1, 2, 3, 4, 6, 8, 9] {
            assert_eq!(wire.release().await, event("e", sequence), "way {way}: in order, each once");
        }
        for answer in answers.into_iter().flatten() {
            let answer = within("it is answered", answer).await;
            assert_eq!(answer.unwrap().verdict(), Verdict::Released, "way {way}");
        }
        let after = producer.publish(event("e", 10));
        assert_eq!(wire.release().await.sequence(), 10, "way {way}: nothing else was sent again");
        within("it is answered", after).await.unwrap();
    }
}

#[tokio::test]
async fn it_comes_back_as_often_as_it_is_lost() {
    let mut adversary = Adversary::start().await;
    let producer = adversary.producer(ProducerOptions::default());
    let answer = producer.publish(event("e", 0));
    for _ in 0..4 {
        let mut wire = adversary.accept().await;
        assert_eq!(wire.read().await.1, event("e", 0));
        adversary.cut();
    }
    adversary.accept().await.release().await;
    assert_eq!(within("it is answered", answer).await.unwrap().verdict(), Verdict::Released);
}

/// A message too large to be read ends a stream. Only the event in it fails; those behind
/// it must not be held up by it.
#[tokio::test]
async fn one_that_cannot_be_read_fails_alone() {
    let mut adversary = Adversary::start().await;
    let producer = adversary.producer(ProducerOptions::default());
    let mut answers: Vec<_> = (0..5).map(|sequence| producer.publish(event("e", sequence))).collect();
    let mut wire = adversary.accept().await;
    wire.release().await;
    wire.end(Status::out_of_range("larger than limits.request_bytes allows"));
    let error = within("it fails", answers.remove(1)).await.unwrap_err();
    assert!(matches!(&error, ClientError::Status(status) if status.code() == Code::OutOfRange), "{error}");
    let mut wire = adversary.accept().await;
    for sequence in 2..5 {
        assert_eq!(wire.release().await.sequence(), sequence);
    }
    for answer in answers {
        assert_eq!(within("it is answered", answer).await.unwrap().verdict(), Verdict::Released);
    }
    // It is not kept either, or whoever asks for it would end the stream again.
    wire.ask(vec![ask("e", 0, 2)]);
    assert_eq!([wire.release().await.sequence(), wire.release().await.sequence()], [0, 2]);
}

#[tokio::test]
async fn closing_waits_for_what_is_open_and_ends_the_stream_in_peace() {
    let mut adversary = Adversary::start().await;
    let options = ProducerOptions { in_flight_max: 1, ..Default::default() };
    let producer = adversary.producer(options);
    let answers: Vec<_> = (0..3).map(|sequence| producer.publish(event("e", sequence))).collect();
    let closing = tokio::spawn(producer.close());
    // The connection breaks meanwhile: closing still waits.
    adversary.accept().await.read().await;
    adversary.cut();
    let mut wire = adversary.accept().await;
    for sequence in 0..3 {
        assert!(!closing.is_finished());
        assert_eq!(wire.release().await.sequence(), sequence);
    }
    wire.ended().await.unwrap();
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert!(!closing.is_finished(), "the sidecar has the last word");
    drop(wire);
    within("it is closed", closing).await.unwrap();
    for answer in answers {
        assert_eq!(within("it is answered", answer).await.unwrap().verdict(), Verdict::Released);
    }
}

#[tokio::test]
async fn dropping_it_ends_everything() {
    let mut adversary = Adversary::start().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let tasks_before = tasks();
    let options = ProducerOptions { in_flight_max: 1, ..Default::default() };
    let producer = adversary.producer(options);
    let answers: Vec<_> = (0..3).map(|sequence| producer.publish(event("e", sequence))).collect();
    let mut wire = adversary.accept().await;
    wire.read().await;
    assert!(tasks() > tasks_before);
    drop(producer);
    for answer in answers {
        let error = within("it ends", answer).await.unwrap_err();
        assert!(matches!(error, ClientError::Closed), "{error}");
    }
    let _in_peace_or_not = wire.ended().await;
    drop(wire);
    eventually("no task is left", || tasks() == tasks_before).await;

    // Also while it has no connection.
    let producer = adversary.producer(ProducerOptions::default());
    drop(producer);
    eventually("no task is left", || tasks() == tasks_before).await;
}
