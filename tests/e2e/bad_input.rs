//! Bad input: the event, the request or the connection that is wrong suffers, with a
//! precise answer; nobody else does.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use seriatim::grpc::pb::{self, Verdict};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::{
    Code, Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    codegen::http::uri::PathAndQuery,
    transport::Endpoint,
};
use tonic_types::StatusExt;

use super::{
    producer::{event, publish_all, publisher},
    sidecar::Sidecar,
    streams,
    support::{Random, redis_server},
};

const TOPICS: &str = "[topics.jobs]\npartitions = 2\nfirst_sequence = 0\n[topics.counted]\nnumbering = \"assigned\"\n\
    partitions = 2\n[topics.from-one]\nfirst_sequence = 1\npartitions = 1\n";

#[tokio::test]
async fn an_invalid_event_is_answered_with_its_field_and_its_neighbours_are_released() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPICS);
    let bad = |change: &dyn Fn(&mut pb::Event)| {
        let mut event = event("bad", 0);
        change(&mut event);
        event
    };
    let long = "x".repeat(300);
    type Case = (pb::Event, &'static str, &'static str);
    let cases: Vec<Case> = vec![
        (bad(&|e| e.entity.clear()), "entity", "an entity has at least 1 byte, this one is empty"),
        (bad(&|e| e.entity.clone_from(&long)), "entity", "an entity has at most 256 bytes, this one has 300"),
        (bad(&|e| e.sequence = Some(1 << 53)), "sequence", "9007199254740992 is above 2^53 - 1"),
        (bad(&|e| e.epoch = u64::MAX), "epoch", "18446744073709551615 is above 2^53 - 1"),
        (bad(&|e| e.sequence = None), "sequence", "numbered by its producers: every event needs a sequence"),
        (bad(&|e| e.r#type.clear()), "type", "a type has 1 to 64 bytes, this one has 0"),
        (bad(&|e| e.r#type = "seriatim.gap".into()), "type", "reserved for markers"),
        (bad(&|e| e.data = vec![0; (256 << 10) + 1].into()), "data", "limits.event_bytes allows 262144"),
        (bad(&|e| e.source = "s".repeat(9000)), "attributes", "limits.attribute_bytes allows 8192"),
        (
            bad(&|e| drop(e.attributes.insert("Bad!".into(), "x".into()))),
            "attributes",
            "is no attribute name",
        ),
        (
            bad(&|e| drop(e.attributes.insert("terminal".into(), "x".into()))),
            "attributes",
            "meaning of its own",
        ),
    ];
    // Each bad event between two good ones, all in one request.
    let mut events = vec![event("good", 0)];
    for (i, (bad, _, _)) in cases.iter().enumerate() {
        events.extend([bad.clone(), event("good", i as u64 + 1)]);
    }
    let request = pb::PublishRequest { topic: "jobs".into(), events };
    let results = sidecar.client().await.publish(request).await.unwrap().into_inner().results;
    assert_eq!(results.len(), cases.len() * 2 + 1);
    for (i, result) in results.iter().enumerate() {
        if i % 2 == 0 {
            assert_eq!((result.verdict(), result.sequence), (Verdict::Released, i as u64 / 2));
            continue;
        }
        let (_, field, text) = &cases[i / 2];
        assert_eq!((result.verdict(), result.field.as_str()), (Verdict::Invalid, *field), "{result:?}");
        assert!(result.detail.contains(text), "{result:?} should say {text:?}");
        assert!(!result.reason.is_empty());
    }
    let invalid = sidecar.metric(r#"seriatim_events_total{topic="jobs",verdict="invalid"}"#).await;
    assert_eq!(invalid, cases.len() as f64);
}

#[tokio::test]
async fn numbering_is_the_topics_choice() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPICS);
    let one =
        async |topic: &str, event: pb::Event| super::producer::publish_one(&sidecar, topic, event).await;

    let numbered = one("counted", pb::Event { id: "a".into(), ..event("e", 0) }).await;
    assert_eq!((numbered.verdict(), numbered.field.as_str()), (Verdict::Invalid, "sequence"));
    assert!(numbered.detail.contains("leave the sequence out"), "{numbered:?}");

    let nameless = one("counted", pb::Event { sequence: None, ..event("e", 0) }).await;
    assert_eq!((nameless.verdict(), nameless.field.as_str()), (Verdict::Invalid, "id"));

    let early = one("from-one", event("e", 0)).await;
    assert_eq!((early.verdict(), early.reason.as_str()), (Verdict::Invalid, "first_sequence"), "{early:?}");
}

#[tokio::test]
async fn a_request_that_is_wrong_as_a_whole_gets_a_status() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPICS);
    let mut client = sidecar.client().await;
    let mut publish = async |topic: &str, events: Vec<pb::Event>| {
        client.publish(pb::PublishRequest { topic: topic.into(), events }).await.unwrap_err()
    };

    let unknown = publish("nope", vec![event("e", 0)]).await;
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(unknown.message(), "there is no topic \"nope\" here; configured are: counted, from-one, jobs");

    let empty = publish("jobs", vec![]).await;
    assert_eq!(empty.code(), Code::InvalidArgument);
    assert_eq!(empty.get_details_bad_request().unwrap().field_violations[0].field, "events");

    let many = publish("jobs", vec![event("e", 0); 1025]).await;
    assert_eq!(many.code(), Code::InvalidArgument);
    assert!(many.message().contains("1025 events, limits.request_events allows 1024"), "{many:?}");

    let mut client = sidecar.client().await;
    let request = pb::ResumeRequest { topic: "jobs".into(), entity: String::new() };
    let nobody = client.resume(request).await.unwrap_err();
    assert_eq!(nobody.code(), Code::InvalidArgument);
    assert_eq!(nobody.get_details_bad_request().unwrap().field_violations[0].field, "entity");
}

#[tokio::test]
async fn a_message_above_the_decode_limit_is_told_the_limit_and_its_setting() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPICS);
    let huge = || pb::Event { data: vec![0; 5 << 20].into(), ..event("huge", 0) };
    let says_it = |status: &Status| {
        assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
        assert!(status.message().contains("limits.request_bytes allows (4194304 bytes)"), "{status:?}");
    };
    let request = pb::PublishRequest { topic: "jobs".into(), events: vec![huge()] };
    says_it(&sidecar.client().await.publish(request).await.unwrap_err());

    let request = pb::PublishStreamRequest { number: 1, topic: "jobs".into(), events: vec![huge()] };
    let stream = tokio_stream::iter([request]);
    let mut answers = sidecar.client().await.publish_stream(stream).await.unwrap().into_inner();
    says_it(&answers.message().await.unwrap_err());
}

#[tokio::test]
async fn a_bad_request_in_a_stream_fails_alone() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPICS);
    let request =
        |number, topic: &str, events| pb::PublishStreamRequest { number, topic: topic.into(), events };
    let requests = [
        request(1, "jobs", vec![event("e", 0)]),
        request(2, "nope", vec![event("e", 1)]),
        request(3, "jobs", vec![]),
        request(4, "", vec![event("e", 1)]),
    ];
    let mut answers =
        sidecar.client().await.publish_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
    let mut by_number = std::collections::BTreeMap::new();
    while let Some(response) = answers.message().await.unwrap() {
        by_number.extend(response.answers.into_iter().map(|answer| (answer.number, answer)));
    }
    let failure = |number| by_number[&number].failure.clone().unwrap();
    assert_eq!(by_number[&1].results[0].verdict(), Verdict::Released);
    assert_eq!(failure(2).code, Code::NotFound as u32);
    assert_eq!(failure(3).code, Code::InvalidArgument as u32);
    // An empty topic repeats the one before.
    assert_eq!(by_number[&4].results[0].verdict(), Verdict::Released);
}

/// While everything below happens a good producer publishes on a stream of its own;
/// it must miss nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_harms_only_the_connection_it_came_on() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), TOPICS);
    let good = publisher(&sidecar, "jobs").await;
    let events: Vec<pb::Event> =
        (0..20_000_u64).map(|n| event(&format!("good-{}", n % 50), n / 50)).collect();
    let count = events.len() as u64;
    let good = tokio::spawn(async move { publish_all(&good, events, 64).await });

    malformed_protobuf(&sidecar).await;
    let mut random = Random::new(3);
    for _ in 0..50 {
        let noise: Vec<u8> = (0..random.within(1, 4000)).map(|_| random.draw() as u8).collect();
        garbage(&sidecar, &noise).await;
    }
    garbage(&sidecar, b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    garbage(&sidecar, &[&preface[..], &[0xff; 400]].concat()).await;
    // A frame that claims 16 MiB and never comes.
    garbage(&sidecar, &[&preface[..], &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat()).await;

    let verdicts = good.await.unwrap();
    assert_eq!(verdicts.get("RELEASED"), Some(&count), "{verdicts:?}");
    let mut connection = streams::connect(&redis.url()).await;
    assert_eq!(streams::entries(&mut connection, "jobs", 2).await.len() as u64, count);
}

async fn garbage(sidecar: &Sidecar, bytes: &[u8]) {
    let mut connection = TcpStream::connect(sidecar.grpc).await.unwrap();
    // The server may close at any moment; that is its right.
    let _ = connection.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_millis(20), connection.read_to_end(&mut answer)).await;
}

async fn malformed_protobuf(sidecar: &Sidecar) {
    let channel = Endpoint::from_shared(format!("http://{}", sidecar.grpc)).unwrap().connect().await.unwrap();
    let mut grpc = Grpc::new(channel);
    for bytes in [&b"\xff\xff\xff\xff"[..], b"\x0a\x7fshort", b"\x12\x02\x0a\x05", b"\x0a\x02\xc3\x28"] {
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static("/seriatim.v1.Ingest/Publish");
        let answer = grpc.unary(Request::new(Bytes::from_static(bytes)), path, RawCodec).await;
        let status = answer.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status:?}");
        assert!(status.message().contains("failed to decode"), "{status:?}");
    }
}

/// Sends bytes as they are.
struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> RawCodec {
        RawCodec
    }

    fn decoder(&mut self) -> RawCodec {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
