//! Sidecars and Redis killed again and again while events flow, beside a plain client that
//! writes to the same Redis by itself. The same judge looks at both.
//!
//! `make chaos` runs it at full length; `make test` a short one.

mod durable_redis;
mod faults;
mod follow;
mod ledger;
mod load;
mod process;
mod proxy;
mod sinks;
mod soak;
mod world;

use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use seriatim::{
    client::{Producer, ProducerOptions},
    order,
    store::{Entry, partition_of},
};
use seriatim_checker::{self as checker, Evidence, Fate, Rules, Sent, Wrong, judge};

use durable_redis::DurableRedis;

use crate::{
    producer::{event, is_success},
    sidecar::{BOUND, Sidecar},
    streams,
    support::{Random, number_from_env},
};

const TOPIC: &str = "jobs";
const PARTITIONS: u32 = 8;
const SIDECARS: usize = 2;
/// Events of an entity, and entities whose events are sent at the same time.
const EVENTS: u64 = 5;
const ENTITIES: u64 = 50;
/// Published and not answered, at most.
const WINDOW: usize = 512;
/// The plain client's, which asks for fewer because it waits for each.
const PLAIN_WINDOW: usize = 64;
/// Between two rounds of events; keeps the pace at some thousands a second.
const PAUSE: Duration = Duration::from_millis(60);
const CONFIG: &str = "[topics.jobs]\npartitions = 8\nretain_entries = 5000000\nentries_max = 10000000\n";

/// What one way of writing was told.
#[derive(Default)]
struct Column {
    sent: Mutex<Vec<Sent>>,
    in_flight: AtomicU64,
}

impl Column {
    /// Notes an event that is about to be sent; where it stands.
    fn begin(&self, entity: &str, sequence: u64, at: u64) -> usize {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let mut sent = self.sent.lock().unwrap();
        sent.push(Sent { name: (entity.into(), 0, sequence), payload: sequence, at, fate: Fate::Unknown });
        sent.len() - 1
    }

    fn accepted(&self, place: usize, at: u64) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.sent.lock().unwrap()[place].fate = Fate::Accepted { at };
    }
}

fn ms(since: Instant) -> u64 {
    since.elapsed().as_millis() as u64
}

/// One round: events of some entities, shuffled.
fn round(number: u64, random: &mut Random) -> Vec<(String, u64)> {
    let of_entity = |n: u64| (0..EVENTS).map(move |sequence| (format!("job-{number}-{n}"), sequence));
    let mut events: Vec<_> = (0..ENTITIES).flat_map(of_entity).collect();
    random.shuffle(&mut events);
    events
}

/// Through the sidecars, each event through any of them.
async fn publish(producers: Vec<Producer>, column: Arc<Column>, stop: Arc<AtomicBool>, seed: u64) {
    let (mut random, began, mut number) = (Random::new(seed), Instant::now(), 0);
    let mut open = FuturesUnordered::new();
    while !stop.load(Ordering::Relaxed) {
        for (entity, sequence) in round(number, &mut random) {
            let place = column.begin(&entity, sequence, ms(began));
            let producer = random.pick(&producers);
            let answer = producer.publish_when_room(event(&entity, sequence)).await;
            let column = column.clone();
            open.push(async move {
                let result = answer.await.expect("the sidecar comes back");
                assert!(is_success(result.verdict()), "{result:?}");
                column.accepted(place, ms(began));
            });
            if open.len() >= WINDOW {
                open.next().await;
            }
        }
        number += 1;
        tokio::time::sleep(PAUSE).await;
    }
    while open.next().await.is_some() {}
}

fn plain_key(entity: &str) -> String {
    let entity = order::Entity::new(entity).unwrap();
    format!("plain:{}", partition_of(&entity, PARTITIONS))
}

/// As people do it without: XADD, and again if it failed.
async fn write_plainly(url: String, column: Arc<Column>, stop: Arc<AtomicBool>, seed: u64) {
    let (mut random, began, mut number) = (Random::new(seed), Instant::now(), 0);
    let client = redis::Client::open(url).unwrap();
    let connection =
        Arc::new(tokio::sync::Mutex::new(client.get_multiplexed_async_connection().await.unwrap()));
    let mut open = FuturesUnordered::new();
    while !stop.load(Ordering::Relaxed) {
        for (entity, sequence) in round(number, &mut random) {
            let place = column.begin(&entity, sequence, ms(began));
            let (column, client, connection) = (column.clone(), client.clone(), connection.clone());
            open.push(async move {
                let mut add = redis::cmd("XADD");
                add.arg(plain_key(&entity)).arg("*").arg("id").arg(&entity).arg("sq").arg(sequence);
                loop {
                    let mut one = connection.lock().await.clone();
                    if add.query_async::<String>(&mut one).await.is_ok() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if let Ok(new) = client.get_multiplexed_async_connection().await {
                        *connection.lock().await = new;
                    }
                }
                column.accepted(place, ms(began));
            });
            if open.len() >= PLAIN_WINDOW {
                open.next().await;
            }
        }
        number += 1;
        tokio::time::sleep(4 * PAUSE).await;
    }
    while open.next().await.is_some() {}
}

fn noted(entry: &Entry) -> checker::Entry {
    let order = match entry.order {
        order::Order::Strict => checker::Order::Strict,
        order::Order::Passed => checker::Order::Passed,
        order::Order::Late => checker::Order::Late,
        order::Order::Replay => checker::Order::Replay,
        order::Order::Marker => checker::Order::Gap,
    };
    let sequence = entry.sequence.get();
    checker::Entry {
        stream: checker::Stream::Events,
        at: 0,
        name: (entry.entity.as_str().into(), entry.epoch.get(), sequence),
        order,
        from: sequence,
        is_time_out: false,
        payload: sequence,
    }
}

async fn plain_entries(url: &str) -> Vec<checker::Entry> {
    let mut connection = streams::connect(url).await;
    let mut all = Vec::new();
    for index in 0..PARTITIONS {
        for (_, fields) in streams::raw_entries(&mut connection, &format!("plain:{index}")).await {
            let text = |at: usize| std::str::from_utf8(&fields[at]).unwrap();
            let sequence: u64 = text(3).parse().unwrap();
            all.push(checker::Entry {
                stream: checker::Stream::Events,
                at: 0,
                name: (text(1).into(), 0, sequence),
                order: checker::Order::Strict,
                from: sequence,
                is_time_out: false,
                payload: sequence,
            });
        }
    }
    all
}

/// What the judge says, counted.
fn judged(column: &Column, entries: Vec<checker::Entry>) -> BTreeMap<Wrong, u64> {
    let sent = std::mem::take(&mut *column.sent.lock().unwrap());
    let evidence = Evidence { sent, entries, ..Evidence::default() };
    let mut wrongs = BTreeMap::new();
    for violation in judge(&evidence, &Rules { is_final: true, ..Rules::default() }) {
        *wrongs.entry(violation.wrong).or_default() += 1;
    }
    wrongs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sidecars_and_redis_are_killed_and_nothing_is_lost_doubled_or_out_of_order() {
    let sidecar_kills = number_from_env("SERIATIM_SIDECAR_KILLS", 6);
    let redis_kills = number_from_env("SERIATIM_REDIS_KILLS", 4);
    let seed = number_from_env("SERIATIM_SEED", 1);
    println!("seed {seed}: {sidecar_kills} kills of sidecars, {redis_kills} of Redis");
    let mut random = Random::new(seed);
    let folder = std::env::temp_dir().join(format!("seriatim-chaos-{}", std::process::id()));
    let mut redis = DurableRedis::start(&folder).await;
    let mut sidecars: Vec<Sidecar> = (0..SIDECARS).map(|_| Sidecar::start(&redis.url(), CONFIG)).collect();
    let producers = sidecars.iter().map(|sidecar| {
        let options = ProducerOptions { give_up_after: 2 * BOUND, ..ProducerOptions::default() };
        Producer::start(&format!("unix:{}", sidecar.socket.display()), TOPIC, options)
    });
    let (ours, plain, stop) =
        (Arc::new(Column::default()), Arc::new(Column::default()), Arc::new(AtomicBool::new(false)));
    let publishing = tokio::spawn(publish(producers.collect(), ours.clone(), stop.clone(), random.draw()));
    let writing = tokio::spawn(write_plainly(redis.url(), plain.clone(), stop.clone(), random.draw()));
    let began = Instant::now();

    let mut killed = Vec::new();
    let (mut of_sidecars, mut of_redis, mut while_in_flight) = (0, 0, 0);
    while of_sidecars < sidecar_kills || of_redis < redis_kills {
        tokio::time::sleep(Duration::from_millis(100 + random.below(400))).await;
        let until = Instant::now() + BOUND;
        while ours.in_flight.load(Ordering::Relaxed) == 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while_in_flight += u64::from(ours.in_flight.load(Ordering::Relaxed) > 0);
        let rest = sidecar_kills - of_sidecars + redis_kills - of_redis;
        if random.below(rest) < redis_kills - of_redis {
            redis.kill_and_restart().await;
            of_redis += 1;
        } else {
            let sidecar = &mut sidecars[random.below(SIDECARS as u64) as usize];
            sidecar.kill();
            let new = Sidecar::start_in_place_of(sidecar, &redis.url(), CONFIG);
            // The socket is in the first one's folder, which goes with it.
            killed.push(std::mem::replace(sidecar, new));
            of_sidecars += 1;
        }
    }
    let took = began.elapsed();
    stop.store(true, Ordering::Relaxed);
    publishing.await.unwrap();
    writing.await.unwrap();

    let mut connection = streams::connect(&redis.url()).await;
    let entries = streams::entries(&mut connection, TOPIC, PARTITIONS).await;
    let gaps = entries.iter().filter(|entry| entry.order == order::Order::Marker).count();
    let (sent, plain_sent) = (ours.sent.lock().unwrap().len(), plain.sent.lock().unwrap().len());
    let wrongs = judged(&ours, entries.iter().map(noted).collect());
    let plain_wrongs = judged(&plain, plain_entries(&redis.url()).await);
    println!(
        "{of_sidecars} sidecars and {of_redis} Redis killed in {took:.0?}, {while_in_flight} times with events in \
         flight; {sent} events ({:.0} a second), {plain_sent} by the plain client",
        sent as f64 / took.as_secs_f64()
    );
    println!("{:<14}{:>12}{:>12}", "", "seriatim", "plain XADD");
    for wrong in [Wrong::Lost, Wrong::Duplicated, Wrong::Reordered, Wrong::UnmarkedGap] {
        let count = |wrongs: &BTreeMap<Wrong, u64>| wrongs.get(&wrong).copied().unwrap_or(0);
        println!("{:<14}{:>12}{:>12}", format!("{wrong:?}"), count(&wrongs), count(&plain_wrongs));
    }
    println!("{:<14}{gaps:>12}{:>12}", "gap markers", 0);
    assert!(wrongs.is_empty() && gaps == 0, "{wrongs:?}, {gaps} gaps");
    assert!(!plain_wrongs.is_empty(), "without seriatim nothing goes wrong either: the test is blind");
    assert_eq!(while_in_flight, of_sidecars + of_redis);
    drop(redis);
    fs::remove_dir_all(&folder).unwrap();
}
