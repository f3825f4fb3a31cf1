//! Work that was lost: entities that never began or never ended, partitions in trouble,
//! transitions that make no sense. All of it is told, none of it is stuck.

use seriatim::{
    grpc::pb::{self, Verdict},
    order::Order,
};
use tonic::Code;

use crate::{
    producer::{event, publish_one},
    sidecar::{Sidecar, eventually},
    streams,
    support::redis_server,
};

const FLEET: &str = "[fleet]\nheartbeat_interval_ms = 100\norphan_threshold_ms = 500\nreconcile_interval_ms = 200\n\
    reconcile_pause_ms = 0\n";

async fn announce(sidecar: &Sidecar, entity: &str, within: u64) -> Result<bool, tonic::Status> {
    let request =
        pb::AnnounceRequest { topic: "jobs".into(), entity: entity.into(), first_event_by_ms: within };
    Ok(sidecar.client().await.announce(request).await?.into_inner().begun)
}

#[tokio::test]
async fn an_announced_entity_that_never_begins_is_reported_once() {
    let redis = redis_server(&[]);
    let config = format!("{FLEET}[topics.jobs]\npartitions = 2\nannounced_max = 2\n");
    let sidecar = Sidecar::start(&redis.url(), &config);
    assert!(!announce(&sidecar, "lost", 300).await.unwrap());
    assert!(!announce(&sidecar, "comes", 300).await.unwrap());
    publish_one(&sidecar, "jobs", event("comes", 0)).await;
    assert!(announce(&sidecar, "comes", 300).await.unwrap(), "it has begun");
    let missing = || async { sidecar.metric("seriatim_missing_total{topic=\"jobs\"}").await };
    eventually("it is reported", || async { missing().await >= 1.0 }).await;
    // Some more looks: it stays one.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(missing().await, 1.0);

    for (entity, within, code) in [("", 300, Code::InvalidArgument), ("e", 0, Code::InvalidArgument)] {
        assert_eq!(announce(&sidecar, entity, within).await.unwrap_err().code(), code);
    }
    let full = async {
        for number in 0.. {
            if let Err(status) = announce(&sidecar, &format!("more-{number}"), 300_000).await {
                return status;
            }
        }
        unreachable!("the limit is small")
    };
    let status = full.await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("announced_max"), "{status:?}");
}

#[tokio::test]
async fn an_entity_that_never_ends_is_reported_and_one_that_ended_is_retired() {
    let redis = redis_server(&[]);
    let config = format!(
        "{FLEET}[topics.jobs]\npartitions = 1\nterminal_types = [\"done\"]\nstuck_after_ms = 300\n\
         retire_after_ms = 300\n"
    );
    let sidecars = [Sidecar::start(&redis.url(), &config), Sidecar::start(&redis.url(), &config)];
    publish_one(&sidecars[0], "jobs", event("stuck", 0)).await;
    let done = pb::Event { r#type: "done".into(), ..event("ended", 0) };
    publish_one(&sidecars[1], "jobs", done.clone()).await;
    // One of the two looks at a time; which of them does not matter.
    let of = async |metric: &str| {
        let line = format!("seriatim_{metric}{{topic=\"jobs\"}}");
        sidecars[0].metric(&line).await + sidecars[1].metric(&line).await
    };
    eventually("it is reported as stuck", || async { of("stuck").await >= 1.0 }).await;
    eventually("the other is retired", || async { of("retired_total").await == 1.0 }).await;
    let duplicate = publish_one(&sidecars[0], "jobs", done).await;
    assert_eq!((duplicate.verdict(), duplicate.reason.as_str()), (Verdict::Duplicate, "retired"));
    // A higher epoch starts it again, and the stream says so.
    let again = pb::Event { epoch: 1, ..event("ended", 0) };
    assert_eq!(publish_one(&sidecars[0], "jobs", again).await.verdict(), Verdict::Released);
    let entries = streams::entries(&mut streams::connect(&redis.url()).await, "jobs", 1).await;
    let kinds: Vec<&str> = streams::of(&entries, "ended").iter().map(|entry| entry.kind.as_str()).collect();
    assert_eq!(kinds, ["done", "seriatim.epoch", "step"]);
    // The stuck one goes on where it was.
    assert_eq!(publish_one(&sidecars[1], "jobs", event("stuck", 1)).await.verdict(), Verdict::Released);
}

#[tokio::test]
async fn sidecars_see_each_other_and_miss_the_one_that_was_killed() {
    let redis = redis_server(&[]);
    let config = format!("{FLEET}[topics.jobs]\npartitions = 1\n");
    let one = Sidecar::start(&redis.url(), &config);
    let mut killed = Sidecar::start(&redis.url(), &config);
    let alive = async |count: f64| one.metric("seriatim_sidecars ").await == count;
    eventually("both are seen", || async { alive(2.0).await }).await;
    killed.kill();
    eventually("one is missed", || async { alive(1.0).await }).await;
    let mut leaving = Sidecar::start(&redis.url(), &config);
    eventually("a third is seen", || async { alive(2.0).await }).await;
    leaving.signal("TERM");
    assert_eq!(leaving.ended().await, Some(0));
    eventually("it took its leave", || async { alive(1.0).await }).await;
}

#[tokio::test]
async fn a_partition_in_trouble_passes_events_and_returns_by_itself() {
    let redis = redis_server(&[]);
    let config = "[topics.jobs]\npartitions = 1\ngap_waits_ms = [50]\nbreaker_skips = 5\n\
        breaker_window_ms = 2000\nbreaker_hold_ms = 500\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    for number in 0..8 {
        publish_one(&sidecar, "jobs", event(&format!("lost-{number}"), 1)).await;
    }
    let degraded =
        async |is: f64| sidecar.metric("seriatim_degraded{topic=\"jobs\",partition=\"0\"}").await == is;
    eventually("the breaker trips", || async { degraded(1.0).await }).await;
    // Nobody waits now.
    assert_eq!(publish_one(&sidecar, "jobs", event("passing", 1)).await.verdict(), Verdict::Passed);
    eventually("it returns", || async { degraded(0.0).await }).await;
    let late = publish_one(&sidecar, "jobs", event("passing", 0)).await;
    assert_eq!(late.verdict(), Verdict::Late, "what was missed is marked, and late if it comes");
    assert_eq!(publish_one(&sidecar, "jobs", event("passing", 3)).await.verdict(), Verdict::Parked);
    let entries = streams::entries(&mut streams::connect(&redis.url()).await, "jobs", 1).await;
    let edges: Vec<&str> =
        entries.iter().filter(|entry| entry.entity.is_empty()).map(|entry| entry.kind.as_str()).collect();
    assert_eq!(edges, ["seriatim.degraded", "seriatim.restored"]);
    let of_passing: Vec<(Order, u64)> =
        streams::of(&entries, "passing").iter().map(|entry| (entry.order, entry.sequence.get())).collect();
    assert_eq!(of_passing, [(Order::Passed, 1), (Order::Marker, 0)]);
}

#[tokio::test]
async fn a_transition_that_makes_no_sense_is_marked_counted_and_listed() {
    let redis = redis_server(&[]);
    let config = "[topics.jobs]\npartitions = 1\n[topics.jobs.lifecycle]\ninitial = [\"provisioning\"]\n\
        terminal = [\"completed\"]\n[topics.jobs.lifecycle.transitions]\nprovisioning = [\"running\"]\n\
        running = [\"completed\"]\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    let typed =
        |entity: &str, sequence, kind: &str| pb::Event { r#type: kind.into(), ..event(entity, sequence) };
    for (sequence, kind) in [(0, "provisioning"), (2, "completed"), (1, "running")] {
        publish_one(&sidecar, "jobs", typed("legal", sequence, kind)).await;
    }
    for (sequence, kind) in [(0, "provisioning"), (1, "completed")] {
        publish_one(&sidecar, "jobs", typed("illegal", sequence, kind)).await;
    }
    assert_eq!(sidecar.metric("seriatim_illegal_total{topic=\"jobs\"}").await, 1.0);
    let entries = streams::entries(&mut streams::connect(&redis.url()).await, "jobs", 1).await;
    assert!(streams::of(&entries, "legal").iter().all(|entry| !entry.attrs.contains("illegal")));
    let marked: serde_json::Value = serde_json::from_str(&streams::of(&entries, "illegal")[1].attrs).unwrap();
    assert_eq!(marked["illegal"], "provisioning");
    let listed = std::process::Command::new(env!("CARGO_BIN_EXE_seriatim"))
        .args(["verify", "--topic", "jobs", "--redis", &redis.url()])
        .output()
        .unwrap();
    let said = String::from_utf8(listed.stdout).unwrap();
    assert!(said.contains("illegal transitions  1\n"), "{said}");
    assert!(said.contains("entity \"illegal\", epoch 0, sequence 1"), "{said}");
    assert!(listed.status.success(), "order is kept all the same");
}
