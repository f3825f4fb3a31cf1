//! What happens when the missing event does not come: real sidecars, a real server, a
//! plain reader.

use std::time::{Duration, Instant};

use redis::{AsyncCommands, aio::MultiplexedConnection};
use seriatim::{
    grpc::pb::Verdict,
    order::{Order, TICK_MS},
    store::{PartitionId, PartitionKeys},
};

use crate::{
    producer::{event, publish_one},
    sidecar::{Sidecar, eventually},
    streams,
    support::{clock::RedisClock, redis_server},
};

const CONFIG: &str = "[topics.jobs]\npartitions = 1\ngap_waits_ms = [300, 400]\n";
/// The same waits with the largest jitter, and two ticks.
const LONGEST_MS: u64 = (300 + 400) * 12 / 10 + 2 * TICK_MS;
const SHORTEST_MS: u64 = (300 + 400) * 8 / 10;

fn keys() -> PartitionKeys {
    PartitionKeys::new(&PartitionId { topic: "jobs".into(), index: 0 })
}

/// What stands in the attributes of the only gap marker, if it is there yet.
async fn marker(connection: &mut MultiplexedConnection) -> Option<serde_json::Value> {
    let entries = streams::entries(connection, "jobs", 1).await;
    let markers: Vec<_> = entries.iter().filter(|entry| entry.order == Order::Marker).collect();
    assert!(markers.len() <= 1, "{markers:?}");
    markers.first().map(|marker| serde_json::from_str(&marker.attrs).unwrap())
}

async fn open_gap(sidecar: &Sidecar) {
    for (sequence, verdict) in [(0, Verdict::Released), (2, Verdict::Parked), (3, Verdict::Parked)] {
        assert_eq!(publish_one(sidecar, "jobs", event("e", sequence)).await.verdict(), verdict);
    }
}

#[tokio::test]
async fn an_event_lost_for_good_ends_in_a_marker_that_a_plain_reader_sees() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let mut reader = streams::connect(&redis.url()).await;
    let mut create = redis::cmd("XGROUP");
    create.arg("CREATE").arg(keys().events).arg("workers").arg("0");
    let _: () = create.query_async(&mut reader).await.unwrap();
    open_gap(&sidecar).await;

    // A reader that knows nothing of us: four entries, one after the other.
    let mut read = Vec::new();
    let begun = Instant::now();
    while read.len() < 4 {
        assert!(begun.elapsed() < crate::sidecar::BOUND, "the gap never ended: {read:?}");
        let mut take = redis::cmd("XREADGROUP");
        take.arg("GROUP").arg("workers").arg("w1").arg("COUNT").arg(10);
        take.arg("STREAMS").arg(keys().events).arg(">");
        type Entries = Vec<(String, Vec<(String, String)>)>;
        let reply: Option<Vec<(String, Entries)>> = take.query_async(&mut reader).await.unwrap();
        for (_, fields) in reply.into_iter().flatten().flat_map(|(_, entries)| entries) {
            let field = |name: &str| fields.iter().find(|(field, _)| field == name).unwrap().1.as_str();
            read.push(format!("{} {} {}", field("order"), field("type"), field("sequence")));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(read, ["strict step 0", "marker seriatim.gap 1", "strict step 2", "strict step 3"]);
    // How long it took, by the store's own count: the machine may be slow, the clock is not.
    let marker = marker(&mut reader).await.unwrap();
    assert_eq!((marker["reason"].as_str(), marker["from"].as_u64()), (Some("timeout"), Some(1)));
    let waited = marker["waited"].as_u64().unwrap();
    assert!((SHORTEST_MS..=LONGEST_MS).contains(&waited), "waited {waited} ms");

    let late = publish_one(&sidecar, "jobs", event("e", 1)).await;
    assert_eq!(late.verdict(), Verdict::Late);
    let aside: u64 = redis::cmd("XLEN").arg(keys().late).query_async(&mut reader).await.unwrap();
    assert_eq!((aside, streams::entries(&mut reader, "jobs", 1).await.len()), (1, 4));
    assert!(sidecar.metric("seriatim_skipped_total{topic=\"jobs\",reason=\"timeout\"}").await == 1.0);
}

#[tokio::test]
async fn a_gap_ends_although_all_sidecars_were_killed_in_the_middle_of_it() {
    let redis = redis_server(&[]);
    let mut sidecars = [Sidecar::start(&redis.url(), CONFIG), Sidecar::start(&redis.url(), CONFIG)];
    open_gap(&sidecars[0]).await;
    sidecars.iter_mut().for_each(Sidecar::kill);
    let mut connection = streams::connect(&redis.url()).await;
    // Nobody is there to deliver, so this time does not count.
    tokio::time::sleep(Duration::from_millis(2 * LONGEST_MS)).await;
    assert_eq!(marker(&mut connection).await, None, "nobody could have written it");
    let _successor = Sidecar::start(&redis.url(), CONFIG);
    let wait = || async { marker(&mut streams::connect(&redis.url()).await).await.is_some() };
    eventually("the gap ends", wait).await;
    let waited = marker(&mut connection).await.unwrap()["waited"].as_u64().unwrap();
    assert!((SHORTEST_MS..=LONGEST_MS).contains(&waited), "waited {waited} ms of its clock");
}

/// The wall clock of the server is set an hour ahead and back again, and the only sidecar
/// is suspended for longer than the whole schedule: no gap may expire by that.
#[tokio::test]
async fn neither_a_clock_that_is_set_nor_a_suspended_sidecar_makes_a_gap_expire() {
    const HOUR_MS: i64 = 3_600_000;
    // At the shortest 9.6 s, of which the test takes a few.
    let config = "[topics.jobs]\npartitions = 1\ngap_waits_ms = [12000]\n";
    let (clock, redis) = RedisClock::server(&[]);
    let sidecar = Sidecar::start(&redis.url(), config);
    let mut connection = streams::connect(&redis.url()).await;
    open_gap(&sidecar).await;
    let opened = partition_clock(&mut connection).await;
    let begun = Instant::now();
    for step in [HOUR_MS, -HOUR_MS, -HOUR_MS, HOUR_MS, 20 * HOUR_MS] {
        let before = partition_clock(&mut connection).await;
        clock.step(step);
        // Some looks at the clock under the new time.
        let moved = || async { partition_clock(&mut streams::connect(&redis.url()).await).await > before };
        eventually("the partition clock goes on", moved).await;
        assert_eq!(marker(&mut connection).await, None, "after a step of {step} ms");
    }
    sidecar.signal("STOP");
    let before = partition_clock(&mut connection).await;
    clock.step(HOUR_MS);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(partition_clock(&mut connection).await, before, "nobody looks, so nothing counts");
    sidecar.signal("CONT");
    let moved = || async { partition_clock(&mut streams::connect(&redis.url()).await).await > before };
    eventually("the partition clock goes on", moved).await;
    assert_eq!(marker(&mut connection).await, None, "after it was suspended");
    // What counted is what passed, give or take two ticks for each step.
    let counted = partition_clock(&mut connection).await - opened;
    let passed = u64::try_from(begun.elapsed().as_millis()).unwrap();
    assert!(counted <= passed + 6 * 2 * TICK_MS, "{counted} ms counted, {passed} ms passed");
    // And it does expire in the end: at the latest after 14.4 s.
    let ended = || async { marker(&mut streams::connect(&redis.url()).await).await.is_some() };
    eventually("the gap ends", ended).await;
    let waited = marker(&mut connection).await.unwrap()["waited"].as_u64().unwrap();
    assert!((9_600..=14_400 + 2 * TICK_MS).contains(&waited), "waited {waited} ms");
}

async fn partition_clock(connection: &mut MultiplexedConnection) -> u64 {
    let clock: String = connection.hget(keys().meta, "clock").await.unwrap();
    clock.split(',').next().unwrap().parse().unwrap()
}
