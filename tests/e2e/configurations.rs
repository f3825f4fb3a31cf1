//! Sidecars that disagree: other partitions, other policies, another one's socket.

use seriatim::grpc::pb::{self, Verdict};
use tonic::Code;

use super::{
    producer::{event, publish_one, publisher},
    sidecar::{Sidecar, eventually},
    streams,
    support::{redis_server, redis_store},
};
use seriatim::store::Store;

async fn publish(sidecar: &Sidecar, event: pb::Event) -> Result<pb::Result, tonic::Status> {
    let request = pb::PublishRequest { topic: "jobs".into(), events: vec![event] };
    Ok(sidecar.client().await.publish(request).await?.into_inner().results.remove(0))
}

/// Its entities belong to other partitions now: it must not touch one of them.
#[tokio::test]
async fn a_sidecar_does_not_go_on_in_a_topic_that_was_made_anew_with_other_partitions() {
    let redis = redis_server(&[]);
    let old = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 8\n");
    for n in 0..20 {
        publish_one(&old, "jobs", event(&format!("before-{n}"), 0)).await;
    }
    redis_store(&redis.url()).delete_topic("jobs").await.unwrap();
    let new = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 12\n");
    for n in 0..20 {
        let status = publish(&old, event(&format!("job-{n}"), 0)).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status:?}");
        assert!(status.message().contains("partitions is fixed at 12"), "{status:?}");
        let result = publish(&new, event(&format!("job-{n}"), 0)).await.unwrap();
        assert_eq!(result.verdict(), Verdict::Released);
    }
    let mut connection = streams::connect(&redis.url()).await;
    assert_eq!(streams::entries(&mut connection, "jobs", 12).await.len(), 20);
}

#[tokio::test]
async fn a_topic_that_was_made_anew_alike_is_used_on() {
    let redis = redis_server(&[]);
    let config = "[topics.jobs]\npartitions = 4\n";
    let one = Sidecar::start(&redis.url(), config);
    publish_one(&one, "jobs", event("e", 0)).await;
    redis_store(&redis.url()).delete_topic("jobs").await.unwrap();
    let other = Sidecar::start(&redis.url(), config);
    assert_eq!(publish_one(&other, "jobs", event("e", 0)).await.verdict(), Verdict::Released);
    assert_eq!(publish_one(&one, "jobs", event("e", 1)).await.verdict(), Verdict::Released);
}

/// The policy in force is the store's: a lane's mode must not depend on who brought
/// its first event.
#[tokio::test]
async fn a_sidecar_with_an_older_policy_applies_the_one_in_force() {
    let redis = redis_server(&[]);
    let enforcing = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 1\n");
    assert_eq!(publish_one(&enforcing, "jobs", event("first", 0)).await.verdict(), Verdict::Released);
    let passing = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 1\nordering = \"off\"\n");
    for (sidecar, name) in [(&enforcing, "through the older"), (&passing, "through the newer")] {
        for round in 0..3 {
            let entity = format!("{name} {round}");
            for sequence in [0, 5, 2] {
                let verdict = publish_one(sidecar, "jobs", event(&entity, sequence)).await.verdict();
                assert_eq!(verdict, Verdict::Passed, "{entity}/{sequence}");
            }
        }
    }
    // A lane that was born before keeps its mode.
    assert_eq!(publish_one(&passing, "jobs", event("first", 2)).await.verdict(), Verdict::Parked);
}

#[tokio::test]
async fn a_draining_sidecar_leaves_its_successors_socket_alone() {
    let redis = redis_server(&[]);
    let config = "[store]\nresponse_timeout_ms = 5000\n[topics.jobs]\npartitions = 1\n";
    let mut old = Sidecar::start(&redis.url(), config);
    let stream = publisher(&old, "jobs").await;
    let mut connection = streams::connect(&redis.url()).await;
    let pause = redis::cmd("CLIENT").arg("PAUSE").arg(1500).arg("WRITE").to_owned();
    let _: () = pause.query_async(&mut connection).await.unwrap();
    let answer = stream.submit(vec![event("e", 0)]);
    eventually("it is in flight", || async { old.metric("seriatim_in_flight_events ").await == 1.0 }).await;
    old.signal("TERM");
    eventually("the old socket is gone", || async { !old.socket.exists() }).await;
    let new = tokio::net::UnixListener::bind(&old.socket).expect("a successor takes the path");
    assert_eq!(answer.await.unwrap()[0].verdict(), Verdict::Released);
    assert_eq!(old.ended().await, Some(0));
    assert!(old.socket.exists(), "the successor's socket is still there");
    drop(new);
}
