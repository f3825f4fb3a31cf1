//! How fast deliveries are, beside a plain loop of XREADGROUP and XACK that keeps order with
//! one consumer per partition, and does nothing else: no lease, no reorder buffer, one entity
//! holds up all.
//!
//! `make delivery` runs it with the optimised binary. In `make test` it only shows that both
//! deliver everything.

use std::time::{Duration, Instant};

use redis::Value;
use seriatim::{deliver::ConsumerOptions, store::GroupKeys};

use crate::{
    support::number_from_env,
    world::{World, options},
};

const BATCH: usize = 256;
const ENTITIES: u64 = 1_000;

/// Reads all partitions in turn, in batches; acknowledges a batch in the same round trip in
/// which the next one is asked for.
async fn plain_loop(world: &World, events: u64) -> Duration {
    let url = world.redis.as_ref().unwrap().url();
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
    let keys: Vec<String> = (0..world.partitions)
        .map(|index| {
            let id = seriatim::store::PartitionId { topic: "jobs".into(), index };
            GroupKeys::new(&id, "plain").events
        })
        .collect();
    for key in &keys {
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(key).arg("plain").arg("0");
        let () = create.query_async(&mut connection).await.unwrap();
    }
    let began = Instant::now();
    let mut done: Vec<Vec<String>> = vec![Vec::new(); keys.len()];
    let mut read = 0;
    while read < events {
        for (key, done) in keys.iter().zip(&mut done) {
            let mut pipeline = redis::pipe();
            if !done.is_empty() {
                pipeline.cmd("XACK").arg(key).arg("plain").arg(std::mem::take(done)).ignore();
            }
            pipeline.cmd("XREADGROUP").arg("GROUP").arg("plain").arg("c").arg("COUNT").arg(BATCH);
            pipeline.arg("STREAMS").arg(key).arg(">");
            let (streams,): (Value,) = pipeline.query_async(&mut connection).await.unwrap();
            for entry in entries(streams) {
                read += 1;
                done.push(entry);
            }
        }
    }
    for (key, done) in keys.iter().zip(done).filter(|(_, done)| !done.is_empty()) {
        let mut ack = redis::cmd("XACK");
        ack.arg(key).arg("plain").arg(done);
        let () = ack.query_async(&mut connection).await.unwrap();
    }
    began.elapsed()
}

/// The ids of the entries of one stream; their fields were parsed on the way.
fn entries(streams: Value) -> Vec<String> {
    let Value::Array(mut streams) = streams else { return Vec::new() };
    let Value::Array(mut stream) = streams.swap_remove(0) else { panic!("a stream has a key and entries") };
    let Value::Array(entries) = stream.swap_remove(1) else { panic!("entries are a list") };
    entries
        .into_iter()
        .map(|entry| {
            let Value::Array(mut parts) = entry else { panic!("an entry has an id and fields") };
            let Value::BulkString(id) = parts.swap_remove(0) else { panic!("an id is a text") };
            String::from_utf8(id).unwrap()
        })
        .collect()
}

/// What this process has used of the processor; whoever else is busy on the machine, it is the same.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let words: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = words[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

async fn deliveries(world: &World, events: u64, group: &str) -> Duration {
    // As much as the plain loop has out: a batch of each partition.
    let in_flight_max = BATCH * world.partitions.max(4) as usize;
    let options = ConsumerOptions { batch: BATCH, in_flight_max, ..options(group) };
    let began = Instant::now();
    let mut consumer = world.consumer(options).await;
    let mut last = None;
    for _ in 0..events {
        let delivery = consumer.next().await.unwrap();
        last = Some(delivery.ack());
    }
    last.unwrap().await.unwrap();
    began.elapsed()
}

#[tokio::test]
async fn deliveries_keep_up_with_a_plain_loop() {
    let events = number_from_env("SERIATIM_DELIVERIES", 20_000);
    let rounds = number_from_env("SERIATIM_ROUNDS", 1);
    for partitions in [1, 16] {
        let world = World::redis_with(partitions).await;
        for sequence in 0..events / ENTITIES {
            world
                .publish_all((0..ENTITIES).map(|n| (format!("evaluation-{n:06}"), sequence)).collect())
                .await;
        }
        let events = events / ENTITIES * ENTITIES;
        let mut ratios = Vec::new();
        for round in 0..rounds {
            let began = processor_time();
            let ours = deliveries(&world, events, &format!("g-{round}")).await;
            let between = processor_time();
            let plain = plain_loop(&world, events).await;
            let cost = |used: Duration| used.as_micros() as f64 / events as f64;
            let (our_cost, plain_cost) = (cost(between - began), cost(processor_time() - between));
            let rate = |took: Duration| events as f64 / took.as_secs_f64();
            ratios.push(plain.as_secs_f64() / ours.as_secs_f64());
            println!(
                "{partitions} partitions, {events} events: {:.0}/s delivered ({our_cost:.1} us of the processor each), \
                 {:.0}/s by a plain loop ({plain_cost:.1} us), ratio {:.2}",
                rate(ours),
                rate(plain),
                ratios.last().unwrap()
            );
            world.forget_plain_group().await;
        }
        ratios.sort_by(f64::total_cmp);
        println!("{partitions} partitions: median ratio {:.2}", ratios[ratios.len() / 2]);
    }
}
