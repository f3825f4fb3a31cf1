//! What an event costs on its way in and its answer on the way out, in instructions.

use prost::Message;

use super::{
    fuzz::{World, limits},
    pb, wire,
};
use crate::{
    cost::is_still,
    ingest::Outcome,
    order::{Sequence, Verdict},
    store::{Decision, StreamId},
};

#[test]
fn a_message_becomes_an_offer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = runtime.block_on(World::start());
    let (topic, limits) = (world.ingest.topic("jobs").unwrap(), limits());
    let event = pb::Event {
        entity: "8b2f1c9e-5d7a-4f30-9c61-000000000001".into(),
        sequence: Some(2),
        r#type: "running".into(),
        data: vec![b'x'; 300].into(),
        ..Default::default()
    };
    let request = pb::PublishStreamRequest { number: 7, topic: "jobs".into(), events: vec![event] };
    let message = bytes::Bytes::from(request.encode_to_vec());
    is_still("grpc::cost::a_message_becomes_an_offer", 3_500, || {
        let request = pb::PublishStreamRequest::decode(message.clone()).unwrap();
        let event = request.events.into_iter().next().unwrap();
        wire::offer(event, topic, &limits).unwrap()
    });
}

#[test]
fn a_decision_becomes_an_answer() {
    is_still("grpc::cost::a_decision_becomes_an_answer", 2_400, || {
        let verdict = Verdict::Released { sequence: Sequence::new(2).unwrap() };
        let id = Some(StreamId { milliseconds: 1_794_927_602_461, counter: 3 });
        let results = wire::results(&mut std::iter::once(Outcome::Decided(Decision { verdict, id })));
        let answers = vec![pb::Answer { number: 7, results: results.ok().unwrap(), failure: None }];
        pb::PublishStreamResponse { answers, ..Default::default() }.encode_to_vec()
    });
}
