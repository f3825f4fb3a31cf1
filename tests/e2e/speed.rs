//! Ordinary speed: what an event costs at a steady rate, as CPU and script calls.
//! Never as time: the machine may be busy.

use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use seriatim::grpc::pb::Verdict;

use super::{
    producer::{event, publisher},
    sidecar::Sidecar,
    streams,
    support::redis_server,
};

const RATE_PER_MS: u64 = 20;
const SECONDS: u64 = 3;
const CPU_US_MAX: f64 = 15.0;
const CALLS_MAX: f64 = 0.1;

/// 20,000 events/s on one `PublishStream`, one event a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_costs_little_cpu_and_few_script_calls() {
    let (cpu_us, calls) = cost(1).await;
    assert!(cpu_us <= CPU_US_MAX, "{cpu_us:.1} us of sidecar CPU per event");
    assert!(calls <= CALLS_MAX, "{calls:.3} script calls per event");
    // With more partitions a burst is spread over as many calls: 20 events in a
    // millisecond reach some 12 of 16 partitions. Printed, because it is the default.
    cost(16).await;
}

/// CPU in microseconds and script calls, per event.
async fn cost(partitions: u32) -> (f64, f64) {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), &format!("[topics.speed]\npartitions = {partitions}\n"));
    let to = publisher(&sidecar, "speed").await;
    let mut connection = streams::connect(&redis.url()).await;
    let (cpu_before, calls_before) = (sidecar.cpu(), script_calls(&mut connection).await);

    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    let mut open = FuturesUnordered::new();
    let mut sent = 0;
    while begun.elapsed() < Duration::from_secs(SECONDS) {
        tokio::select! {
            _ = ticks.tick() => {
                // What is due by now, so that a late tick is made up for.
                let due = (begun.elapsed().as_millis() as u64 + 1) * RATE_PER_MS;
                while sent < due {
                    // Four events an entity, a thousand entities at once.
                    let (block, within) = (sent / 4000, sent % 4000);
                    let entity = format!("job-{block}-{:04}", within % 1000);
                    open.push(to.submit(vec![event(&entity, within / 1000)]));
                    sent += 1;
                }
            }
            Some(answer) = open.next(), if !open.is_empty() => {
                assert_eq!(answer.unwrap()[0].verdict(), Verdict::Released);
            }
        }
    }
    while let Some(answer) = open.next().await {
        assert_eq!(answer.unwrap()[0].verdict(), Verdict::Released);
    }

    let cpu_us = (sidecar.cpu() - cpu_before).as_micros() as f64 / sent as f64;
    let calls = (script_calls(&mut connection).await - calls_before) as f64 / sent as f64;
    let rate = sent as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{partitions} partitions, {sent} events at {rate:.0}/s: {cpu_us:.1} us of CPU and {calls:.3} script calls per event"
    );
    (cpu_us, calls)
}

async fn script_calls(connection: &mut redis::aio::MultiplexedConnection) -> u64 {
    let info: String = redis::cmd("INFO").arg("commandstats").query_async(connection).await.unwrap();
    let calls = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")))?;
        line.split(',').next()?.parse::<u64>().ok()
    };
    calls("evalsha").unwrap_or(0) + calls("eval").unwrap_or(0)
}
