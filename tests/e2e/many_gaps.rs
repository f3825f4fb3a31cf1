//! Very many gaps that end at once, while others publish: every call is bounded, all gaps
//! end, and what it costs the others is told.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use seriatim::{
    client::Publisher,
    store::{PartitionId, Store},
};

use crate::{
    producer::{event, publish_all, publisher},
    sidecar::Sidecar,
    support::{number_from_env, redis_server, redis_store},
};

/// In `make gaps` five times as many.
const GAPS: u64 = 20_000;
const PARTITIONS: u32 = 16;
const ELAPSE_MAX: usize = 128;
const CONFIG: &str = "[limits]\nelapse_max = 128\n[topics.jobs]\npartitions = 16\ngap_waits_ms = [15000]\n\
    breaker_skips = 0\n";
/// What is published beside: an event every two milliseconds.
const PUBLISH_EVERY: Duration = Duration::from_millis(2);

/// Publishes in order, at a steady pace, until `done`; how long each event took.
async fn publish_beside(
    stream: &Publisher,
    name: &str,
    mut done: impl AsyncFnMut() -> bool,
) -> Histogram<u64> {
    let (answers, mut answered) = tokio::sync::mpsc::unbounded_channel();
    let begun = Instant::now();
    let mut sent = 0;
    while !done().await {
        // By the clock, not after the last answer: a pause of the server must show.
        while begun.elapsed() >= PUBLISH_EVERY * sent {
            let due = begun + PUBLISH_EVERY * sent;
            let answer = stream.submit(vec![event(name, u64::from(sent))]);
            let answers = answers.clone();
            tokio::spawn(async move {
                answer.await.unwrap();
                let _ = answers.send(due.elapsed());
            });
            sent += 1;
        }
        tokio::time::sleep(PUBLISH_EVERY).await;
    }
    drop(answers);
    let mut took = Histogram::new(3).unwrap();
    while let Some(time) = answered.recv().await {
        took.record(u64::try_from(time.as_micros()).unwrap()).unwrap();
    }
    took
}

fn shown(took: &Histogram<u64>) -> String {
    let ms = |quantile: f64| took.value_at_quantile(quantile) as f64 / 1000.0;
    format!("p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms of {}", ms(0.5), ms(0.99), ms(1.0), took.len())
}

#[tokio::test]
async fn very_many_gaps_end_while_others_publish() {
    let wanted = number_from_env("SERIATIM_GAPS", GAPS);
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let (stream, beside) = (publisher(&sidecar, "jobs").await, publisher(&sidecar, "jobs").await);
    let quiet_until = Instant::now() + Duration::from_secs(3);
    let without = publish_beside(&beside, "without", async || Instant::now() >= quiet_until).await;

    let verdicts = publish_all(&stream, (0..wanted).map(|n| event(&format!("lost-{n}"), 1)), 1024).await;
    assert_eq!(verdicts["PARKED"], wanted);
    let store = redis_store(&redis.url());
    let gaps = async || {
        let mut gaps = 0;
        for index in 0..PARTITIONS {
            gaps += store.measure(&PartitionId { topic: "jobs".into(), index }).await.unwrap().gaps;
        }
        gaps
    };
    let open = gaps().await;
    assert!(open > wanted / 2, "only {open} gaps were open at once");
    // From when the first of them end.
    while gaps().await >= open {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let begun = Instant::now();
    let mut looked = Instant::now();
    let mut left = open;
    let with = publish_beside(&beside, "with", async || {
        if looked.elapsed() > Duration::from_millis(100) {
            left = gaps().await;
            looked = Instant::now();
        }
        left == 0 || begun.elapsed() > Duration::from_secs(120)
    })
    .await;
    assert_eq!(left, 0, "all end");
    let took = begun.elapsed();

    let metric = async |line: &str| sidecar.metric(line).await;
    let skipped = metric("seriatim_skipped_total{topic=\"jobs\",reason=\"timeout\"}").await;
    assert_eq!(skipped, wanted as f64, "each with its marker");
    let looks = metric("seriatim_elapse_lanes_count{topic=\"jobs\"}").await;
    let bounded =
        metric(&format!("seriatim_elapse_lanes_bucket{{le=\"{ELAPSE_MAX}.0\",topic=\"jobs\"}}")).await;
    assert_eq!(bounded, looks, "no call looked at more than elapse_max lanes");
    let full = looks - metric("seriatim_elapse_lanes_bucket{le=\"64.0\",topic=\"jobs\"}").await;
    assert!(full > 0.0, "and some came near it");
    let seconds = metric("seriatim_elapse_seconds_sum{topic=\"jobs\"}").await;
    println!("{open} gaps open at once, of {wanted}; the last {took:.1?} of them took {looks} looks");
    println!("a look took {:.2} ms on average, {full} of them more than 64 lanes", seconds * 1000.0 / looks);
    println!("publishing beside, without gaps: {}", shown(&without));
    println!("publishing beside, while they end: {}", shown(&with));
}
