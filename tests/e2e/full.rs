//! A group of workers that stands still: its events are kept, the stream stops at its limit,
//! and everything flows again once the group goes on.

use std::time::{Duration, Instant};

use redis::AsyncCommands;
use seriatim::{
    grpc::pb::{self, Verdict},
    store::{PartitionId, PartitionKeys, RedisStore, Store},
};

use super::{
    producer::{event, publish_one, publisher},
    sidecar::{BOUND, Sidecar, eventually},
    streams,
    support::{redis_server, redis_store},
};

const ENTRIES_MAX: u64 = 1_000;
const CONFIG: &str = "[topics.jobs]\npartitions = 1\nentries_max = 1000\nretain_entries = 100\n";

fn partition() -> PartitionId {
    PartitionId { topic: "jobs".into(), index: 0 }
}

/// Entries that are there, and entries that were.
async fn lengths(store: &RedisStore) -> (u64, u64) {
    let measure = store.measure(&partition()).await.unwrap();
    (measure.entries, measure.trimmed)
}

#[tokio::test]
async fn a_stalled_group_stops_publishing_and_loses_nothing() {
    let redis = redis_server(&[]);
    let (first, second) = (Sidecar::start(&redis.url(), CONFIG), Sidecar::start(&redis.url(), CONFIG));
    let (mut connection, store) = (streams::connect(&redis.url()).await, redis_store(&redis.url()));
    let groups = PartitionKeys::new(&partition()).groups;
    let _: () = connection.hset(&groups, "slow", "0-0").await.unwrap();

    let stream = publisher(&first, "jobs").await;
    let (mut released, begun) = (0_u64, Instant::now());
    let refused = 'refused: loop {
        let events = (released..released + 50).map(|sequence| event("job", sequence)).collect();
        for result in stream.submit(events).await.unwrap() {
            match result.verdict() {
                Verdict::Released => released += 1,
                _ => break 'refused result,
            }
        }
        assert!(begun.elapsed() < BOUND, "it is never full: {released} entries");
        // As slow as a tick allows for: 50 events in 10 ms would be 1,250 in a tick.
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let pb::Result { reason, detail, retry_after_ms, .. } = &refused;
    assert_eq!(
        (refused.verdict(), reason.as_str(), *retry_after_ms),
        (Verdict::Refused, "entries_max", 1_000)
    );
    assert!(detail.contains("`seriatim group list`"), "{detail}");
    assert!(released >= ENTRIES_MAX, "{released}");
    // Nothing was trimmed: the group has done none of it. And nothing more comes in.
    assert_eq!(lengths(&store).await, (released, 0));
    for sidecar in [&first, &second] {
        let full = || async { sidecar.metric(r#"seriatim_full{topic="jobs",stream="events"}"#).await == 1.0 };
        eventually("it is told that a partition is full", full).await;
        assert!(sidecar.metric(r#"seriatim_fill_ratios{topic="jobs"}"#).await >= 1.0);
        let other = publish_one(sidecar, "jobs", event("another", 0)).await;
        assert_eq!((other.verdict(), other.reason.as_str()), (Verdict::Refused, "entries_max"));
        let known = publish_one(sidecar, "jobs", event("job", 0)).await;
        assert_eq!(known.verdict(), Verdict::Duplicate);
    }
    assert_eq!(lengths(&store).await, (released, 0));

    // The group has done most of it: that much goes, and no more.
    let all = streams::entries(&mut connection, "jobs", 1).await;
    let most = all[all.len() - ENTRIES_MAX as usize / 2].id;
    let _: () = connection.hset(&groups, "slow", most.to_string()).await.unwrap();
    let flows =
        || async { publish_one(&second, "jobs", event("job", released)).await.verdict() != Verdict::Refused };
    eventually("events are taken again", flows).await;
    let left = streams::entries(&mut connection, "jobs", 1).await;
    let expected: Vec<_> = all.iter().filter(|entry| entry.id > most).map(|entry| entry.id).collect();
    let kept: Vec<_> = left.iter().filter(|entry| entry.id > most).map(|entry| entry.id).collect();
    assert_eq!(kept[..expected.len()], expected, "what it has not done is all there");
    assert!((left.len() as u64) < released, "{} entries are left of {released}", left.len());

    // It has done everything: what is left is what the topic wants to keep, and a node at most.
    let _: () = connection.hset(&groups, "slow", left.last().unwrap().id.to_string()).await.unwrap();
    eventually("the rest is trimmed", || async { lengths(&store).await.0 < 200 }).await;
    let (length, gone) = lengths(&store).await;
    assert!(length >= 100, "{length} entries are left");
    let trimmed = async |sidecar: &Sidecar| {
        sidecar.metric(r#"seriatim_trimmed_total{topic="jobs",stream="events"}"#).await as u64
    };
    eventually("every entry that went was counted by one of them", || async {
        trimmed(&first).await + trimmed(&second).await == gone
    })
    .await;
}
