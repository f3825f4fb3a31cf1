//! Ordering, rolled out a percent at a time and taken back, while events flow; and a
//! configuration that is read again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use redis::AsyncCommands;
use seriatim::{
    grpc::pb::Verdict,
    operate::verify_topic,
    order::Order,
    store::{PartitionId, PartitionKeys, Store, TopicRecord},
};

use crate::{
    producer::{event, publish_one, publisher},
    sidecar::{Sidecar, eventually},
    streams,
    support::{Random, redis_server, redis_store},
};

fn config(percent: u32) -> String {
    format!(
        "reload_ms = 50\n[topics.jobs]\npartitions = 4\nrollout_percent = {percent}\n\
         rollout_allow = [\"always-*\"]\nrollout_deny = [\"never-*\"]\n"
    )
}

/// Publishes entities of ten events, shuffled by a few places, until told to stop.
async fn publish_on(sidecar: &Sidecar, name: &str, stop: &AtomicBool, published: &AtomicU64) {
    let stream = publisher(sidecar, "jobs").await;
    let mut random = Random::new(7);
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        // A few are on the lists, so that there are some of each kind at 0 and at 100 %.
        let prefix = match number % 20 {
            7 => "always-",
            13 => "never-",
            _ => "",
        };
        let entity = format!("{prefix}{name}-{number}");
        let mut order: Vec<u64> = (0..10).collect();
        for at in 0..8 {
            order.swap(at, at + random.below(3) as usize);
        }
        let answers: Vec<_> =
            order.iter().map(|sequence| stream.submit(vec![event(&entity, *sequence)])).collect();
        for answer in answers {
            let verdict = answer.await.unwrap()[0].verdict();
            assert!(matches!(verdict, Verdict::Released | Verdict::Parked | Verdict::Passed), "{verdict:?}");
        }
        published.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn ordering_is_rolled_out_and_back_while_events_flow() {
    let redis = redis_server(&[]);
    // Two sidecars that read the new file at different moments.
    let sidecars =
        Arc::new([Sidecar::start(&redis.url(), &config(0)), Sidecar::start(&redis.url(), &config(0))]);
    let (stop, published) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let publishing: Vec<_> = (0..2)
        .map(|at| {
            let (sidecars, stop, published) = (sidecars.clone(), stop.clone(), published.clone());
            tokio::spawn(async move {
                publish_on(&sidecars[at], &format!("by-{at}"), &stop, &published).await;
            })
        })
        .collect();
    let mut connection = streams::connect(&redis.url()).await;
    let mut counted: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    let mut before: BTreeSet<String> = BTreeSet::new();
    for (step, percent) in [(0, 0), (1, 25), (2, 60), (3, 100), (4, 40), (5, 0)] {
        if step > 0 {
            sidecars[0].rewrite(&config(percent));
            sidecars[0].reloaded("done", step).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            sidecars[1].rewrite(&config(percent));
            sidecars[1].reloaded("done", step).await;
        }
        let target = published.load(Ordering::Relaxed) + 400;
        eventually("events flow", || async { published.load(Ordering::Relaxed) >= target }).await;
        // Entities that began since the last step, by how their entries came out.
        let entries = streams::entries(&mut connection, "jobs", 4).await;
        let mut modes: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.order != Order::Marker) {
            modes.entry(entry.entity.clone()).or_default().insert(entry.order.name());
        }
        let changed: Vec<_> = modes.iter().filter(|(_, modes)| modes.len() > 1).collect();
        assert!(changed.is_empty(), "changed their mode in mid-life: {changed:?}");
        let new: Vec<_> = modes.iter().filter(|(entity, _)| !before.contains(*entity)).collect();
        let count = |mode: &str| new.iter().filter(|(_, modes)| modes.contains(mode)).count();
        let (enforced, passed) = (count("strict"), count("passed"));
        println!("{percent:>3} %: {enforced} entities enforced, {passed} passed");
        counted.insert(step, (enforced, passed));
        assert!(enforced > 0 && passed > 0, "at {percent} %: {enforced} enforced, {passed} passed");
        let wrong = |prefix: &str, mode: &str| {
            modes.iter().any(|(entity, modes)| entity.starts_with(prefix) && modes.contains(mode))
        };
        assert!(
            !wrong("always-", "passed") && !wrong("never-", "strict"),
            "the lists stand above the percentage"
        );
        before = modes.into_keys().collect();
    }
    stop.store(true, Ordering::Relaxed);
    for task in publishing {
        task.await.unwrap();
    }
    assert!(counted[&3].0 > 5 * counted[&3].1, "at 100 % nearly all are enforced: {counted:?}");
    assert!(counted[&5].1 > 5 * counted[&5].0, "and at 0 % nearly all pass: {counted:?}");
    let store = redis_store(&redis.url());
    let record: TopicRecord = store.record("jobs").await.unwrap().unwrap();
    let report = verify_topic(&store, "jobs", &record, |_| {}).await.unwrap();
    assert!(report.ok, "{report:?}");
    assert!(report.passed > 0 && report.entries > report.passed);
}

#[tokio::test]
async fn a_bad_new_file_is_refused_whole_and_the_old_one_stays() {
    let redis = redis_server(&[]);
    let topic = |more: &str| format!("reload_ms = 50\n[topics.jobs]\npartitions = 1\n{more}");
    let sidecar = Sidecar::start(&redis.url(), &topic(""));
    assert_eq!(publish_one(&sidecar, "jobs", event("before", 0)).await.verdict(), Verdict::Released);
    for (times, bad) in [
        (1, topic("ordering = \"off\"\nparked_max = 0\n")),
        (2, topic("ordering = \"off\"\nthis is no TOML")),
        (3, topic("ordering = \"off\"\n").replace("partitions = 1", "partitions = 2")),
        (4, topic("ordering = \"off\"\n").replace("[topics", "[limits]\nbatch_events = 7\n[topics")),
    ] {
        sidecar.rewrite(&bad);
        sidecar.reloaded("refused", times).await;
        let entity = format!("after-{times}");
        assert_eq!(
            publish_one(&sidecar, "jobs", event(&entity, 0)).await.verdict(),
            Verdict::Released,
            "{bad}"
        );
    }
    sidecar.rewrite(&topic("ordering = \"off\"\n"));
    sidecar.reloaded("done", 1).await;
    assert_eq!(publish_one(&sidecar, "jobs", event("new", 0)).await.verdict(), Verdict::Passed);
    assert_eq!(publish_one(&sidecar, "jobs", event("before", 1)).await.verdict(), Verdict::Released);
    // By signal as well, without any change.
    sidecar.signal("HUP");
    sidecar.reloaded("done", 2).await;
}

/// One of two sidecars has read a new policy; whoever carries an event, it is decided by
/// that one, and both are fast again once both have it.
#[tokio::test]
async fn sidecars_that_reload_at_different_moments_apply_one_policy() {
    let redis = redis_server(&[]);
    let topic = |parked_max: u32| {
        format!(
            "reload_ms = 0\n[topics.jobs]\npartitions = 1\noverflow = \"refuse\"\nparked_max = {parked_max}\n"
        )
    };
    let (first, second) = (Sidecar::start(&redis.url(), &topic(8)), Sidecar::start(&redis.url(), &topic(8)));
    first.rewrite(&topic(1));
    first.signal("HUP");
    first.reloaded("done", 1).await;
    for (sidecar, name) in [(&first, "new"), (&second, "old")] {
        assert_eq!(publish_one(sidecar, "jobs", event(name, 1)).await.verdict(), Verdict::Parked);
        let refused = publish_one(sidecar, "jobs", event(name, 2)).await;
        assert_eq!((refused.verdict(), refused.reason.as_str()), (Verdict::Refused, "parked_max"), "{name}");
    }
    let slow = || async { second.metric("seriatim_store_call_seconds_count{path=\"slow\"}").await };
    publish_one(&second, "jobs", event("under the old file", 0)).await;
    second.rewrite(&topic(1));
    second.signal("HUP");
    second.reloaded("done", 1).await;
    let before = slow().await;
    for (at, sidecar) in [&first, &second].into_iter().enumerate() {
        publish_one(sidecar, "jobs", event(&format!("fast-{at}"), 0)).await;
    }
    assert_eq!(slow().await, before, "its calls are fast again");
}

/// A store that takes a new policy in some partitions only: it is offered until it is in
/// force in all of them, whatever the file says meanwhile.
#[tokio::test]
async fn a_reload_that_fails_halfway_is_finished_later() {
    let redis = redis_server(&[]);
    let topic = |ordering: &str| {
        format!("reload_ms = 50\n[topics.jobs]\npartitions = 2\nordering = \"{ordering}\"\n")
    };
    let sidecar = Sidecar::start(&redis.url(), &topic("enforce"));
    let meta = |index| PartitionKeys::new(&PartitionId { topic: "jobs".into(), index }).meta;
    let mut connection = streams::connect(&redis.url()).await;
    let header: String = connection.hget(meta(1), "header").await.unwrap();
    let () = connection.hset(meta(1), "header", header.replace('w', "w9")).await.unwrap();
    sidecar.rewrite(&topic("off"));
    sidecar.reloaded("unfinished", 2).await;
    // The file goes back to what it was; one of the partitions did not.
    sidecar.rewrite(&topic("enforce"));
    let () = connection.hset(meta(1), "header", header).await.unwrap();
    sidecar.reloaded("done", 1).await;
    let policy = |index| {
        let mut connection = connection.clone();
        async move { connection.hget::<_, _, String>(meta(index), "policy").await.unwrap() }
    };
    assert_eq!(policy(0).await, policy(1).await);
    for entity in ["a", "b", "c", "d"] {
        assert_eq!(publish_one(&sidecar, "jobs", event(entity, 1)).await.verdict(), Verdict::Parked);
    }
}
