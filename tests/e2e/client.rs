//! The producer's client and a sidecar that is killed under it: no event is lost, none
//! comes twice, and the caller notices nothing.

use std::collections::BTreeMap;

use seriatim::{
    client::{Answer, Numbers, Producer, ProducerOptions},
    grpc::pb,
};

use super::{
    producer::{event, is_success},
    sidecar::{BOUND, Sidecar, eventually},
    streams,
    support::{redis_server, signal},
};

const CONFIG: &str = "[topics.jobs]\npartitions = 4\n";
const ENTITIES: u64 = 20;
/// 1,000 in all, one half before the kill and one half around it.
const EVENTS: u64 = 50;
const IN_FLIGHT: usize = 64;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_outlives_its_sidecar() {
    let redis = redis_server(&[]);
    let mut killed = Sidecar::start(&redis.url(), CONFIG);
    let options = ProducerOptions { in_flight_max: IN_FLIGHT, ..Default::default() };
    let target = format!("unix:{}", killed.socket.display());
    let producer = Producer::start(&target, "jobs", options);
    let mut verdicts = BTreeMap::new();
    count(publish(&producer, 0..EVENTS / 2), &mut verdicts).await;

    // The store stands still, so that the kill finds events without an answer: some are on
    // their way to the store and will be in it, most have not left the producer.
    signal(redis.pid(), "STOP");
    let around_the_kill = publish(&producer, EVENTS / 2..EVENTS);
    eventually("the window is full", || async {
        killed.metric("seriatim_in_flight_events ").await >= IN_FLIGHT as f64
    })
    .await;
    killed.kill();
    signal(redis.pid(), "CONT");
    let other = Sidecar::start_in_place_of(&killed, &redis.url(), CONFIG);
    count(around_the_kill, &mut verdicts).await;
    println!("verdicts: {verdicts:?}");
    tokio::time::timeout(BOUND, producer.close()).await.expect("nothing is open");

    let mut connection = streams::connect(&redis.url()).await;
    let entries = streams::entries(&mut connection, "jobs", 4).await;
    assert_eq!(entries.len() as u64, ENTITIES * EVENTS, "each event once");
    for entity in 0..ENTITIES {
        let read = streams::of(&entries, &name(entity));
        assert!(read.iter().map(|entry| entry.sequence.get()).eq(0..EVENTS), "{} in order", name(entity));
    }
    go_on(&other).await;
}

/// A message that the sidecar does not read ends the stream. The event in it fails, and
/// nobody else's.
#[tokio::test]
async fn an_event_too_large_to_be_read_fails_alone() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let producer = Producer::start(&format!("http://{}", sidecar.grpc), "jobs", ProducerOptions::default());
    let too_large = pb::Event { data: vec![0; 5 << 20].into(), ..event("large", 0) };
    let before = publish(&producer, 0..2);
    let large = producer.publish(too_large);
    let after = publish(&producer, 2..4);
    let error = tokio::time::timeout(BOUND, large).await.expect("it is answered").unwrap_err();
    assert!(error.to_string().contains("limits.request_bytes"), "{error}");
    let mut verdicts = BTreeMap::new();
    count(before, &mut verdicts).await;
    count(after, &mut verdicts).await;
    assert_eq!(verdicts.values().sum::<u64>(), ENTITIES * 4);
}

fn name(entity: u64) -> String {
    format!("job-{entity}")
}

fn publish(producer: &Producer, sequences: std::ops::Range<u64>) -> Vec<Answer> {
    let events = sequences.flat_map(|sequence| (0..ENTITIES).map(move |entity| (entity, sequence)));
    events.map(|(entity, sequence)| producer.publish(event(&name(entity), sequence))).collect()
}

async fn count(answers: Vec<Answer>, verdicts: &mut BTreeMap<&'static str, u64>) {
    for answer in answers {
        let result = tokio::time::timeout(BOUND, answer).await.expect("every event is answered").unwrap();
        assert!(is_success(result.verdict()), "{result:?}");
        *verdicts.entry(result.verdict().as_str_name()).or_default() += 1;
    }
}

/// A producer that was started anew asks where its entities stand.
async fn go_on(sidecar: &Sidecar) {
    let (mut client, mut numbers) = (sidecar.client().await, Numbers::new(0));
    let known = numbers.resume(&mut client, "jobs", &name(0)).await.unwrap();
    assert!(known.known && !known.closed && known.parked.is_empty(), "{known:?}");
    assert_eq!(numbers.next(&name(0), known.epoch), EVENTS);
    let unknown = numbers.resume(&mut client, "jobs", "nobody").await.unwrap();
    assert_eq!((unknown, numbers.next("nobody", 0)), (pb::ResumeResponse::default(), 0));
    let error = numbers.resume(&mut client, "nowhere", "nobody").await.unwrap_err();
    assert!(error.to_string().contains("there is no topic"), "{error}");
}
