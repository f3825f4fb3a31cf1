//! Trouble: the store goes away, forgets, refuses; clients vanish; the sidecar is told
//! to stop. Nothing accepted is lost, nothing comes twice, nobody waits for ever.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use seriatim::grpc::pb::{self, Verdict};
use tonic::Code;
use tonic_types::StatusExt;

use super::{
    producer::{event, publish_one, publisher},
    sidecar::{Sidecar, eventually},
    streams,
    support::{redis_server, signal},
};

/// Waits for the store are short here, so that the tests are.
const CONFIG: &str = "[store]\nresponse_timeout_ms = 200\nwait_ms = 600\n[topics.jobs]\npartitions = 2\n";

async fn command(connection: &mut MultiplexedConnection, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let _: redis::Value = command.query_async(connection).await.unwrap();
}

async fn publish(sidecar: &Sidecar, event: pb::Event) -> Result<Verdict, tonic::Status> {
    let request = pb::PublishRequest { topic: "jobs".into(), events: vec![event] };
    let response = sidecar.client().await.publish(request).await?;
    Ok(response.into_inner().results[0].verdict())
}

#[tokio::test]
async fn while_redis_hangs_clients_are_told_to_come_back_and_then_all_is_well() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let mut connection = streams::connect(&redis.url()).await;
    assert_eq!(publish(&sidecar, event("e", 0)).await.unwrap(), Verdict::Released);

    signal(redis.pid(), "STOP");
    let status = publish(&sidecar, event("e", 1)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert!(status.message().contains("publishing the same request again is safe"), "{status:?}");
    assert!(status.get_details_retry_info().unwrap().retry_delay.unwrap() > Duration::ZERO);
    eventually("the sidecar is not ready", || async { sidecar.get("/readyz").await.0 == 503 }).await;
    assert!(sidecar.metric(r#"seriatim_store_errors_total{class="ambiguous"}"#).await > 0.0);

    signal(redis.pid(), "CONT");
    eventually("the sidecar is ready", || async { sidecar.get("/readyz").await.0 == 200 }).await;
    // The calls that timed out may have run after all: both answers are true.
    let verdict = publish(&sidecar, event("e", 1)).await.unwrap();
    assert!(matches!(verdict, Verdict::Released | Verdict::Duplicate), "{verdict:?}");
    assert_eq!(streams::entries(&mut connection, "jobs", 2).await.len(), 2);
}

#[tokio::test]
async fn a_lost_script_is_sent_again_with_the_batch_whole() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let mut connection = streams::connect(&redis.url()).await;
    for sequence in 0..20 {
        command(&mut connection, &["SCRIPT", "FLUSH"]).await;
        assert_eq!(publish(&sidecar, event("e", sequence)).await.unwrap(), Verdict::Released);
    }
    assert_eq!(streams::entries(&mut connection, "jobs", 2).await.len(), 20);
}

#[tokio::test]
async fn an_emptied_store_is_opened_anew() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let mut connection = streams::connect(&redis.url()).await;
    assert_eq!(publish(&sidecar, event("e", 0)).await.unwrap(), Verdict::Released);
    command(&mut connection, &["FLUSHALL"]).await;
    // The store has forgotten sequence 0, so the next one waits for it.
    assert_eq!(publish(&sidecar, event("e", 1)).await.unwrap(), Verdict::Parked);
    assert_eq!(publish(&sidecar, event("e", 0)).await.unwrap(), Verdict::Released);
    assert_eq!(streams::entries(&mut connection, "jobs", 2).await.len(), 2);
}

#[tokio::test]
async fn a_full_redis_refuses_producers_and_loses_nothing() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let mut connection = streams::connect(&redis.url()).await;
    assert_eq!(publish(&sidecar, event("e", 0)).await.unwrap(), Verdict::Released);
    command(&mut connection, &["CONFIG", "SET", "maxmemory", "1"]).await;
    let status = publish(&sidecar, event("e", 1)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("OOM"), "{status:?}");
    assert!(sidecar.metric(r#"seriatim_store_errors_total{class="not_executed"}"#).await > 0.0);
    command(&mut connection, &["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(publish(&sidecar, event("e", 1)).await.unwrap(), Verdict::Released);
}

#[tokio::test]
async fn a_store_that_others_broke_is_named_and_its_neighbours_go_on() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let mut connection = streams::connect(&redis.url()).await;
    // Entities of both partitions, then one partition's stream is overwritten.
    let entities: Vec<String> = (0..20).map(|n| format!("job-{n}")).collect();
    command(&mut connection, &["SET", &streams::events_key("jobs", 0), "oops"]).await;
    let (mut released, mut broken) = (0, 0);
    for entity in &entities {
        match publish(&sidecar, event(entity, 0)).await {
            Ok(verdict) => {
                assert_eq!(verdict, Verdict::Released);
                released += 1;
            }
            Err(status) => {
                assert_eq!(status.code(), Code::Internal, "{status:?}");
                assert!(status.message().contains("WRONGTYPE"), "{status:?}");
                broken += 1;
            }
        }
    }
    assert!(released > 0 && broken > 0, "{released} released, {broken} broken");
    // Nothing was half written: once the key is repaired the events are released.
    command(&mut connection, &["DEL", &streams::events_key("jobs", 0)]).await;
    for entity in &entities {
        let verdict = publish(&sidecar, event(entity, 0)).await.unwrap();
        assert!(matches!(verdict, Verdict::Released | Verdict::Duplicate));
    }
    assert_eq!(streams::entries(&mut connection, "jobs", 2).await.len(), entities.len());
}

/// The call goes on without its client, and the sidecar gives everything back.
#[tokio::test]
async fn a_client_that_goes_away_in_mid_call_harms_nobody() {
    let redis = redis_server(&[]);
    let config = "[store]\nresponse_timeout_ms = 5000\n[topics.jobs]\npartitions = 1\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    let mut connection = streams::connect(&redis.url()).await;
    publish_one(&sidecar, "jobs", event("warm", 0)).await;
    for round in 0..20 {
        command(&mut connection, &["CLIENT", "PAUSE", "50", "WRITE"]).await;
        let mut client = sidecar.client().await;
        let entity = format!("left-{round}");
        let request = pb::PublishRequest { topic: "jobs".into(), events: vec![event(&entity, 0)] };
        let call = tokio::spawn(async move { client.publish(request).await });
        let stream = publisher(&sidecar, "jobs").await;
        let answer = stream.submit(vec![event(&entity, 1)]);
        eventually("both are in flight", || async {
            sidecar.metric("seriatim_in_flight_events ").await >= 2.0
        })
        .await;
        call.abort();
        drop((answer, stream));
    }
    eventually("nothing is in flight", || async {
        sidecar.metric("seriatim_in_flight_events ").await == 0.0
    })
    .await;
    eventually("no stream is open", || async { sidecar.metric("seriatim_streams ").await == 0.0 }).await;
    for round in 0..20 {
        let entity = format!("left-{round}");
        assert_eq!(publish_one(&sidecar, "jobs", event(&entity, 0)).await.verdict(), Verdict::Duplicate);
        assert_eq!(publish_one(&sidecar, "jobs", event(&entity, 1)).await.verdict(), Verdict::Duplicate);
    }
}

#[tokio::test]
async fn on_sigterm_open_requests_are_answered_and_the_process_ends() {
    let redis = redis_server(&[]);
    let config = "[store]\nresponse_timeout_ms = 5000\n[topics.jobs]\npartitions = 1\n";
    let mut sidecar = Sidecar::start(&redis.url(), config);
    let mut connection = streams::connect(&redis.url()).await;
    let stream = publisher(&sidecar, "jobs").await;
    command(&mut connection, &["CLIENT", "PAUSE", "300", "WRITE"]).await;
    let answers: Vec<_> = (0..50).map(|sequence| stream.submit(vec![event("e", sequence)])).collect();
    eventually("all are in flight", || async { sidecar.metric("seriatim_in_flight_events ").await == 50.0 })
        .await;
    sidecar.signal("TERM");
    for answer in answers {
        assert_eq!(answer.await.unwrap()[0].verdict(), Verdict::Released);
    }
    // The client still holds its connection; that must not keep the process.
    assert_eq!(sidecar.ended().await, Some(0));
    assert_eq!(streams::entries(&mut connection, "jobs", 1).await.len(), 50);
}

#[tokio::test]
async fn a_client_that_never_leaves_cannot_stop_the_drain() {
    let redis = redis_server(&[]);
    let config = "[limits]\ndrain_ms = 300\n[topics.jobs]\npartitions = 1\n";
    let mut sidecar = Sidecar::start(&redis.url(), config);
    // One that says nothing at all, and one that never closes its stream.
    let _silent = tokio::net::TcpStream::connect(sidecar.grpc).await.unwrap();
    let stream = publisher(&sidecar, "jobs").await;
    assert_eq!(stream.submit(vec![event("e", 0)]).await.unwrap()[0].verdict(), Verdict::Released);
    sidecar.signal("TERM");
    assert_eq!(sidecar.ended().await, Some(0));
}

/// What one sidecar left half drained the next one finishes, without being asked.
#[tokio::test]
async fn a_half_drained_lane_is_finished_by_whoever_comes_next() {
    let redis = redis_server(&[]);
    let config = "[topics.jobs]\npartitions = 1\nparked_max = 2000\n";
    let mut reader = streams::connect(&redis.url()).await;
    let mut first = Sidecar::start(&redis.url(), config);
    let stream = publisher(&first, "jobs").await;
    let parked: Vec<_> = (1..1500).map(|sequence| stream.submit(vec![event("e", sequence)])).collect();
    for answer in parked {
        assert_eq!(answer.await.unwrap()[0].verdict(), Verdict::Parked);
    }
    first.kill();
    // The missing event, by a call that ends when 512 entries are appended.
    let second = Sidecar::start(&redis.url(), config);
    assert_eq!(publish_one(&second, "jobs", event("e", 0)).await.verdict(), Verdict::Released);
    eventually("all 1500 are released", || {
        let mut connection = reader.clone();
        async move { streams::entries(&mut connection, "jobs", 1).await.len() == 1500 }
    })
    .await;
    let entries = streams::entries(&mut reader, "jobs", 1).await;
    assert!(entries.iter().map(|entry| entry.sequence.get()).eq(0..1500));
}

/// A new epoch first releases what is parked of the old one: more than one call may
/// append. The producer sees one verdict.
#[tokio::test]
async fn an_event_that_needs_several_calls_gets_one_answer() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 1\nparked_max = 2000\n");
    let stream = publisher(&sidecar, "jobs").await;
    let parked: Vec<_> = (1..1500).map(|sequence| stream.submit(vec![event("e", sequence)])).collect();
    for answer in parked {
        assert_eq!(answer.await.unwrap()[0].verdict(), Verdict::Parked);
    }
    let restarted = pb::Event { epoch: 1, ..event("e", 0) };
    assert_eq!(stream.submit(vec![restarted]).await.unwrap()[0].verdict(), Verdict::Released);
    let mut connection = streams::connect(&redis.url()).await;
    let entries = streams::entries(&mut connection, "jobs", 1).await;
    let kinds: Vec<&str> = entries.iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!((kinds[0], kinds[1500], entries.len()), ("seriatim.gap", "seriatim.epoch", 1502));
    assert!(entries[1..1500].iter().map(|entry| entry.sequence.get()).eq(1..1500));
}
