//! Deliveries to a worker, beside a plain loop of `XREADGROUP` and `XACK` that keeps order with
//! one consumer, and does nothing else: no lease, no reorder buffer, and one entity holds up
//! all. Both read what was published before, 256 entries at a time, 16 partitions.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;

use super::{
    commit::Part,
    direct::connect,
    load::{ENDLESS, Shape},
    meter::{Length, Measured, Meter},
    rig::{Layout, OwnRedis, PARTITIONS, TOPIC, topic_spec, verified},
};
use crate::{
    clock::SystemClock,
    deliver::{Consumer, ConsumerOptions},
    random::Random,
    store::{PartitionId, PartitionKeys, Store},
};

/// Entries that a read asks for.
const READ: usize = 256;
/// Entities of a partition; some thousand in all.
const ENTITIES: u64 = 64;
/// Events of a call that publishes.
const PUBLISHED: usize = 64;
/// Events for each second that is to be measured: somewhat more than either delivers in it.
const PER_SECOND: f64 = 60_000.0;
const GROUP: &str = "bench";

/// Measures how long it takes to read everything but the first tenth, in which a worker joins
/// its group.
struct Stopwatch {
    meter: Meter,
    warm_up: u64,
    events: u64,
}

impl Stopwatch {
    fn new(redis: &OwnRedis, events: u64) -> Self {
        let length = Length { warm_up: Duration::ZERO, measured: Duration::ZERO };
        let meter = Meter::start(length, redis.processes(), Instant::now());
        Stopwatch { meter, warm_up: events / 10, events }
    }

    /// So many were read by now.
    fn read(&mut self, read: u64) {
        if self.warm_up > 0 && read >= self.warm_up {
            (self.warm_up, self.events) = (0, self.events - read);
            self.meter.note(0, Instant::now());
        }
    }

    fn finish(mut self) -> anyhow::Result<Measured> {
        self.meter.note(self.events, Instant::now());
        self.meter.finish()
    }
}

/// Publishes what is to be delivered; how many events that is.
async fn publish(redis: &OwnRedis, layout: Layout, seed: u64, length: Length) -> anyhow::Result<u64> {
    let store = redis.store()?;
    store.open(&topic_spec(layout)?).await?;
    let shape = Shape { live: ENTITIES, lifetime: ENDLESS, late_percent: 0, zipf: false, seed };
    let mut parts: Vec<Part> = (0..PARTITIONS).map(|index| Part::new(index, shape)).collect();
    let calls = (PER_SECOND * length.measured.as_secs_f64()) as usize / PUBLISHED / parts.len() + 1;
    for _ in 0..calls {
        for part in &mut parts {
            part.admit(&store, PUBLISHED).await?;
        }
    }
    Ok((calls * parts.len() * PUBLISHED) as u64)
}

pub async fn consumer(
    redis: &OwnRedis,
    layout: Layout,
    seed: u64,
    length: Length,
) -> anyhow::Result<Measured> {
    let events = publish(redis, layout, seed, length).await?;
    let options = ConsumerOptions {
        batch: READ,
        // As much as the plain loop has out: a read of each partition.
        in_flight_max: READ * PARTITIONS as usize,
        ..ConsumerOptions::new(TOPIC, GROUP)
    };
    let mut watch = Stopwatch::new(redis, events);
    let (store, clock) = (Arc::new(redis.store()?), Arc::new(SystemClock::default()));
    let mut consumer = Consumer::start(store, clock, Random::from_system(), options).await?;
    let read = async {
        let mut last = None;
        for read in 1..=events {
            let delivery = consumer.next().await.ok_or_else(|| anyhow::anyhow!("the consumer ended"))?;
            last = Some(delivery.ack());
            watch.read(read);
        }
        match last {
            Some(last) => Ok(last.await?),
            None => anyhow::Ok(()),
        }
    };
    tokio::time::timeout(length.longest(), read).await??;
    let measured = watch.finish()?;
    consumer.close().await;
    Ok(Measured { verified: Some(verified(redis, events).await?), ..measured })
}

/// Reads all partitions in turn; acknowledges what it read in the same round trip in which it
/// asks for more.
pub async fn plain_loop(redis: &OwnRedis, seed: u64, length: Length) -> anyhow::Result<Measured> {
    let events = publish(redis, Layout::Entry, seed, length).await?;
    let mut connection = connect(&redis.url()).await?;
    let partition = |index| PartitionKeys::new(&PartitionId { topic: TOPIC.into(), index }).events;
    let keys: Vec<String> = (0..PARTITIONS).map(partition).collect();
    for key in &keys {
        let mut create = redis::cmd("XGROUP");
        create.arg("CREATE").arg(key).arg(GROUP).arg("0");
        let () = create.query_async(&mut connection).await?;
    }
    let mut watch = Stopwatch::new(redis, events);
    let mut done: Vec<Vec<String>> = vec![Vec::new(); keys.len()];
    let (mut read, ends_by) = (0, Instant::now() + length.longest());
    while read < events {
        anyhow::ensure!(Instant::now() < ends_by, "it takes far too long");
        for (key, done) in keys.iter().zip(&mut done) {
            let mut pipeline = redis::pipe();
            if !done.is_empty() {
                pipeline.cmd("XACK").arg(key).arg(GROUP).arg(std::mem::take(done)).ignore();
            }
            pipeline.cmd("XREADGROUP").arg("GROUP").arg(GROUP).arg("worker").arg("COUNT").arg(READ);
            pipeline.arg("STREAMS").arg(key).arg(">");
            let (streams,): (Value,) = pipeline.query_async(&mut connection).await?;
            *done = ids(streams);
            read += done.len() as u64;
            watch.read(read);
        }
    }
    for (key, done) in keys.iter().zip(done).filter(|(_, done)| !done.is_empty()) {
        let mut ack = redis::cmd("XACK");
        ack.arg(key).arg(GROUP).arg(done);
        let () = ack.query_async(&mut connection).await?;
    }
    watch.finish()
}

/// The ids of the entries of one stream; their fields were parsed on the way.
fn ids(streams: Value) -> Vec<String> {
    let Value::Array(mut streams) = streams else { return Vec::new() };
    let Some(Value::Array(mut stream)) = streams.pop() else { return Vec::new() };
    let Some(Value::Array(entries)) = stream.pop() else { return Vec::new() };
    let id = |entry| match entry {
        Value::Array(parts) => match parts.into_iter().next() {
            Some(Value::BulkString(id)) => String::from_utf8(id).ok(),
            _ => None,
        },
        _ => None,
    };
    entries.into_iter().filter_map(id).collect()
}
