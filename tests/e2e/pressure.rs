//! More than there is room for: it waits or is refused, by name, and memory is bounded.

use std::{fs, time::Duration};

use seriatim::{
    client::ClientError,
    grpc::pb::{self, Verdict},
};
use tonic::{Code, transport::Endpoint};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::{
    producer::{event, publish_one, publisher},
    sidecar::{Sidecar, eventually},
    streams,
    support::{redis_server, signal},
};

fn resident_mb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// 4 MiB of empty events would be half a gigabyte once decoded.
#[tokio::test]
async fn a_message_of_countless_events_is_refused_before_it_is_decoded() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 1\n");
    let before = resident_mb(sidecar.pid());
    let events = vec![pb::Event::default(); 2_000_000];
    let request = pb::PublishRequest { topic: "jobs".into(), events };
    let status = sidecar.client().await.publish(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("more than 65536 events"), "{status:?}");
    let grown = resident_mb(sidecar.pid()).saturating_sub(before);
    assert!(grown < 64, "it grew by {grown} MB");
    assert_eq!(publish_one(&sidecar, "jobs", event("e", 0)).await.verdict(), Verdict::Released);
}

/// While the store hangs, what clients send is held up to the limits and not beyond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_store_hangs_memory_is_bounded_and_the_rest_is_refused() {
    let redis = redis_server(&[]);
    let config = "[store]\nwait_ms = 20000\nresponse_timeout_ms = 20000\n[limits]\nin_flight_bytes = 8388608\n\
        [topics.jobs]\npartitions = 1\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    publish_one(&sidecar, "jobs", event("warm", 0)).await;
    let before = resident_mb(sidecar.pid());
    signal(redis.pid(), "STOP");
    let mut streams = Vec::new();
    let mut answers = Vec::new();
    for n in 0..60_u64 {
        let stream = publisher(&sidecar, "jobs").await;
        for sequence in 0..4 {
            let large =
                pb::Event { data: vec![7; 250 << 10].into(), ..event(&format!("large-{n}"), sequence) };
            answers.push(stream.submit(vec![large]));
        }
        streams.push(stream);
    }
    // 60 MB were sent; 8 may be in flight, as much may wait, and a quarter of a megabyte
    // of each stream may stand in its HTTP/2 window.
    let refused = async || sidecar.metric(r#"seriatim_refused_total{topic="jobs",reason="in_flight"}"#).await;
    eventually("some are refused", || async { refused().await > 0.0 }).await;
    assert!(sidecar.metric("seriatim_in_flight_bytes ").await <= 8_388_608.0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let grown = resident_mb(sidecar.pid()).saturating_sub(before);
    assert!(grown < 64, "it grew by {grown} MB");

    signal(redis.pid(), "CONT");
    let (mut released, mut refused) = (0, 0);
    for answer in answers {
        match answer.await.unwrap()[0].verdict() {
            Verdict::Released | Verdict::Parked => released += 1,
            Verdict::Refused => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(released > 0 && refused > 0, "{released} released, {refused} refused");
}

/// Unary callers queue with the streams, not behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_streams_do_not_starve_a_unary_caller() {
    let redis = redis_server(&[]);
    let config = "[limits]\nin_flight_events = 1024\n[topics.jobs]\npartitions = 4\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    let mut busy = Vec::new();
    for n in 0..4_u64 {
        let stream = publisher(&sidecar, "jobs").await;
        busy.push(tokio::spawn(async move {
            let events = (0..u64::MAX).map(|i| event(&format!("busy-{n}-{}", i % 100), i / 100));
            super::producer::publish_all(&stream, events, 1024).await;
        }));
    }
    eventually("the streams fill what may be in flight", || async {
        sidecar.metric("seriatim_in_flight_events ").await > 900.0
    })
    .await;
    for sequence in 0..20 {
        let verdict = publish_one(&sidecar, "jobs", event("unary", sequence)).await.verdict();
        assert_eq!(verdict, Verdict::Released);
    }
    busy.iter().for_each(tokio::task::JoinHandle::abort);
}

/// The wait is an event's own: it does not add up along the queue.
#[tokio::test]
async fn an_event_waits_for_the_store_no_longer_than_its_own_time() {
    let redis = redis_server(&[]);
    let config = "[store]\nwait_ms = 500\nresponse_timeout_ms = 100\n[limits]\nbatch_events = 1\n\
        [topics.jobs]\npartitions = 1\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    let stream = publisher(&sidecar, "jobs").await;
    signal(redis.pid(), "STOP");
    let begun = std::time::Instant::now();
    let answers: Vec<_> = (0..100).map(|sequence| stream.submit(vec![event("e", sequence)])).collect();
    for answer in answers {
        assert!(matches!(answer.await, Err(ClientError::Failed { code: 14, .. })));
    }
    // One after the other they would take 100 times 500 ms.
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    signal(redis.pid(), "CONT");
}

#[tokio::test]
async fn a_store_that_takes_no_writes_is_not_ready() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 1\n");
    let mut connection = streams::connect(&redis.url()).await;
    let maxmemory = |bytes: &str| redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).to_owned();
    let _: () = maxmemory("1").query_async(&mut connection).await.unwrap();
    eventually("it is not ready", || async { sidecar.get("/readyz").await.0 == 503 }).await;
    let _: () = maxmemory("0").query_async(&mut connection).await.unwrap();
    eventually("it is ready", || async { sidecar.get("/readyz").await.0 == 200 }).await;
}

/// Whoever only watches our health does not keep us.
#[tokio::test]
async fn a_drain_ends_streams_with_unavailable_and_does_not_wait_for_watchers() {
    let redis = redis_server(&[]);
    let config = "[limits]\ndrain_ms = 50000\n[topics.jobs]\npartitions = 1\n";
    let mut sidecar = Sidecar::start(&redis.url(), config);
    let channel = Endpoint::from_shared(format!("http://{}", sidecar.grpc)).unwrap().connect().await.unwrap();
    let watch =
        HealthClient::new(channel).watch(HealthCheckRequest { service: String::new() }).await.unwrap();
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let request = pb::PublishStreamRequest { number: 1, topic: "jobs".into(), events: vec![event("e", 0)] };
    requests.send(request).await.unwrap();
    let mut answers = sidecar.client().await.publish_stream(stream).await.unwrap().into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().answers.len(), 1);
    let begun = std::time::Instant::now();
    sidecar.signal("TERM");
    let status = answers.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("publish what was not answered again"), "{status:?}");
    assert_eq!(sidecar.ended().await, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(45), "the watcher kept it");
    drop(watch);
}

#[tokio::test]
async fn a_connection_that_says_nothing_loses_its_place() {
    let redis = redis_server(&[]);
    let config = "[limits]\nconnections = 2\n[topics.jobs]\npartitions = 1\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    let mut silent = Vec::new();
    for _ in 0..2 {
        silent.push(tokio::net::TcpStream::connect(sidecar.grpc).await.unwrap());
    }
    eventually("both places are taken", || async { sidecar.metric("seriatim_connections ").await == 2.0 })
        .await;
    eventually("the places are free again", || async {
        sidecar.metric("seriatim_connections ").await == 0.0
    })
    .await;
    assert_eq!(publish_one(&sidecar, "jobs", event("e", 0)).await.verdict(), Verdict::Released);
    drop(silent);
}
