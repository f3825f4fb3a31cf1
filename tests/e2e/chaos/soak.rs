//! An hour of load and trouble, and nobody gets fatter.
//!
//! The world of the other runs, at half of what the machine can take, with a fault every few
//! seconds. One sidecar and one worker suffer everything except their own end: what they have in
//! memory must not grow, nor must what is kept in Redis, by number: its memory rises and falls with
//! its restarts. `make soak` runs it; `make test` for some seconds, without that demand.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    PARTITIONS, SETTLE, STUCK, TOPIC,
    faults::{Fault, KINDS},
    follow::follow,
    load::{Load, publish},
    process::resident_kb,
    rest::wait_for_rest,
    rules,
    world::{Plan, World},
};
use crate::{
    sidecar::{BOUND, eventually},
    streams,
    support::{Random, number_from_env},
};

/// Small streams, and lanes that are retired soon and looked for often: what is in Redis must come to a
/// level within the first minutes.
/// A missing event is waited for longer than any fault lasts.
const CONFIG: &str = "[fleet]\nreconcile_interval_ms = 10000\n[topics.jobs]\npartitions = 8\nretain_entries = 20000\nterminal_wait_ms = 120000\n\
                      retire_after_ms = 60000\nstuck_after_ms = 60000\nparked_age_max_ms = 300000\n\
                      remember_for_ms = 300000\n";
const PLAN: Plan =
    Plan { sidecars: 3, workers: 3, config: CONFIG, handler_ms: 2, nack_percent: 1, spares_the_first: true };
/// Some 10,000 events are judged together.
const ROUNDS_OF_WINDOW: u64 = 40;
/// Published and not handled, at most, also while it is measured how fast that goes.
const BACKLOG_MAX: u64 = 4_000;
/// Memory is looked at so often; what it does in the first minutes does not count.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(600);
/// How much more one of them may have at the end of the run, going by the line through all samples after
/// the first minutes.
const GROWTH_MAX_KB: f64 = 2_048.0;
/// The same of what is kept in Redis: a part of what there was after the first minutes, and some.
const KEPT_GROWTH_MAX: f64 = 0.25;
const KEPT_GROWTH_MIN: f64 = 10_000.0;
/// Fewer samples say nothing about a line.
const SAMPLES_MIN: usize = 30;

/// How long each part of it takes.
struct Lengths {
    run: Duration,
    measure: Duration,
    fault_every: Duration,
}

impl Lengths {
    fn from_env() -> Self {
        let seconds = Duration::from_secs;
        match number_from_env("SERIATIM_SOAK_MINUTES", 0) {
            0 => Lengths { run: seconds(6), measure: seconds(1), fault_every: Duration::from_millis(500) },
            minutes => Lengths { run: seconds(60 * minutes), measure: seconds(15), fault_every: seconds(5) },
        }
    }
}

/// Memory of one process over time, in KB, or how much there is of something.
#[derive(Default)]
struct Memory(Vec<(Duration, u64)>);

impl Memory {
    /// Of the least squares, in KB a minute, through all after `from`.
    fn slope(&self, from: Duration) -> Option<f64> {
        let points: Vec<(f64, f64)> = self
            .0
            .iter()
            .filter(|(at, _)| *at >= from)
            .map(|(at, kb)| (at.as_secs_f64() / 60.0, *kb as f64))
            .collect();
        if points.len() < SAMPLES_MIN {
            return None;
        }
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let over: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let under: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        Some(over / under)
    }

    /// By how much it rises in so long, after `from`.
    fn growth(&self, from: Duration, until: Duration) -> f64 {
        self.slope(from).unwrap_or(0.0) * until.saturating_sub(from).as_secs_f64() / 60.0
    }

    fn at(&self, from: Duration) -> Option<u64> {
        self.0.iter().find(|(at, _)| *at >= from).map(|(_, kb)| *kb)
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |much: Option<u64>| much.map_or("-".to_owned(), |much| much.to_string());
        let slope = self.slope(WARM_UP).map_or("-".to_owned(), |slope| format!("{slope:.1}/min"));
        let (first, last) = (self.at(Duration::ZERO), self.0.last().map(|(_, kb)| *kb));
        let most = self.0.iter().map(|(_, kb)| *kb).max();
        let columns = [shown(first), shown(self.at(WARM_UP)), shown(last), shown(most), slope];
        columns.iter().try_for_each(|column| write!(f, "{column:>15}"))
    }
}

type Memories = BTreeMap<String, Memory>;

fn sample(world: &World, memories: &mut Memories, began: Instant) {
    let mut processes =
        vec![("redis".to_owned(), world.redis.pid()), ("this test".to_owned(), std::process::id())];
    for (number, place) in world.sidecars.iter().enumerate() {
        processes.extend(place.process.as_ref().map(|process| (format!("sidecar {number}"), process.pid())));
    }
    for (number, place) in world.workers.iter().enumerate() {
        processes.push((format!("worker {number}"), place.process.pid()));
    }
    for (name, pid) in processes {
        if let Some(kb) = resident_kb(pid) {
            memories.entry(name).or_default().0.push((began.elapsed(), kb));
        }
    }
}

/// Counts what is kept in Redis, by the kind of its key, unless a fault is in the way.
async fn count(url: &str, kept: &mut Memories, began: Instant) -> redis::RedisResult<()> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await?;
    let mut counted = BTreeMap::<String, u64>::new();
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut connection).await?;
        let length = match kind.as_str() {
            "hash" => "HLEN",
            "zset" => "ZCARD",
            _ => continue,
        };
        let name = key.split(':').nth(2).unwrap_or_default().to_owned();
        let much: u64 = redis::cmd(length).arg(&key).query_async(&mut connection).await?;
        *counted.entry(name).or_default() += much;
    }
    for (name, much) in counted {
        kept.entry(name).or_default().0.push((began.elapsed(), much));
    }
    Ok(())
}

/// Waits, with samples when they are due and windows judged when they are ripe.
async fn pass(
    world: &World,
    seen: &mut (Memories, Memories),
    began: Instant,
    until: Instant,
    next: &mut Instant,
) {
    let (memories, kept) = seen;
    loop {
        if Instant::now() >= *next {
            *next += SAMPLE_EVERY;
            sample(world, memories, began);
            let url = world.redis.url();
            let _ = tokio::time::timeout(SAMPLE_EVERY / 2, count(&url, kept, began)).await;
            world.ledger.judge_old(&rules(true), SETTLE, STUCK);
        }
        let wake = until.min(*next);
        tokio::time::sleep_until(wake.into()).await;
        if wake == until {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_under_load_and_trouble_nothing_is_lost_and_nobody_grows() {
    let lengths = Lengths::from_env();
    let seed = number_from_env("SERIATIM_SEED", 1);
    let mut random = Random::new(seed);
    let mut world = World::start("soak", PLAN).await;
    let ledger = world.ledger.clone();
    let load = Arc::new(Load {
        rate: Mutex::new(None),
        stop: AtomicBool::new(false),
        rounds_of_window: ROUNDS_OF_WINDOW,
        backlog_max: BACKLOG_MAX,
    });
    let publishing = tokio::spawn(publish(world.sockets(), ledger.clone(), load.clone(), random.draw()));
    let stop_following = Arc::new(AtomicBool::new(false));
    let following =
        tokio::spawn(follow(world.redis.url(), TOPIC, PARTITIONS, ledger.clone(), stop_following.clone()));

    // As fast as it goes, once it does: handled, not only taken.
    eventually("events are handled", || async { ledger.tally().handled > 1_000 }).await;
    let (before, measured) = (ledger.tally().handled, Instant::now());
    tokio::time::sleep(lengths.measure).await;
    let most = (ledger.tally().handled - before) as f64 / measured.elapsed().as_secs_f64();
    *load.rate.lock().unwrap() = Some(most / 2.0);
    println!("seed {seed}: at most {most:.0} events a second are handled, so {:.0} from now on", most / 2.0);

    let spared = world.spared();
    let (mut seen, began) = (<(Memories, Memories)>::default(), Instant::now());
    let (mut faults, mut next_sample) = (BTreeMap::<Fault, u64>::new(), began);
    let sent_before = ledger.tally().sent;
    while began.elapsed() < lengths.run {
        let until = Instant::now() + lengths.fault_every;
        let (fault, _, _) = *random.pick(&KINDS);
        world.strike(fault, &mut random).await;
        *faults.entry(fault).or_default() += 1;
        pass(&world, &mut seen, began, until, &mut next_sample).await;
        let tally = ledger.tally();
        assert!(
            tally.wrongs.is_empty(),
            "after {:?}: {:?}\n{:#?}",
            began.elapsed(),
            tally.wrongs,
            tally.examples
        );
        if faults.values().sum::<u64>().is_multiple_of(60) {
            println!("{:.0?}: {} events, {} judged, {faults:?}", began.elapsed(), tally.sent, tally.judged);
        }
    }
    let took = began.elapsed();
    load.stop.store(true, Ordering::Relaxed);
    publishing.await.unwrap();
    let leftovers = wait_for_rest(&mut world).await;
    stop_following.store(true, Ordering::Relaxed);
    tokio::time::timeout(BOUND, following).await.expect("the streams can be read").unwrap();
    let mut connection = streams::connect(&world.redis.url()).await;
    let mut entries = 0;
    for index in 0..PARTITIONS {
        let mut length = redis::cmd("XLEN");
        length.arg(streams::events_key(TOPIC, index));
        entries += length.query_async::<u64>(&mut connection).await.unwrap();
    }
    let last_spared = world.spared();
    world.end_workers().await;
    let tally = ledger.judge_rest(&rules(true), leftovers);

    let rate = (tally.sent - sent_before) as f64 / took.as_secs_f64();
    println!("{took:.0?}: {} events ({rate:.0} a second), {entries} left in the streams", tally.sent);
    println!("faults: {faults:?}");
    println!("{} replies cut, {} workers ended by themselves", world.replies_cut(), world.supervised);
    println!("wrong: {:?}, of {} that were judged", tally.wrongs, tally.judged);
    let heads = ["at first", "after 10 min", "at the end", "at most", "line"];
    let (memories, kept) = seen;
    for (what, memories) in [("memory in KB", &memories), ("kept in Redis", &kept)] {
        println!("{what:<14}{}", heads.map(|head| format!("{head:>15}")).concat());
        for (name, memory) in memories {
            println!("{name:<14}{memory}");
        }
    }
    assert!(tally.wrongs.is_empty(), "{:#?}", tally.examples);
    assert_eq!(tally.judged, tally.sent);
    assert_eq!(spared, last_spared, "the first sidecar and the first worker lived through all of it");
    for name in ["sidecar 0", "worker 0"] {
        let growth = memories[name].growth(WARM_UP, took);
        assert!(growth <= GROWTH_MAX_KB, "{name} grows by {growth:.0} KB in {took:?}");
    }
    assert!(kept.contains_key("resume") && kept.contains_key("lanes"), "{:?}", kept.keys());
    for (name, much) in &kept {
        let growth = much.growth(WARM_UP, took);
        let may_grow = KEPT_GROWTH_MIN.max(KEPT_GROWTH_MAX * much.at(WARM_UP).unwrap_or(0) as f64);
        assert!(growth <= may_grow, "{growth:.0} more of {name} are kept in Redis in {took:?}");
    }
}

#[test]
fn soak_sees_a_line_that_rises() {
    let line = |kb_a_minute: u64| {
        let samples = (0..120)
            .map(|at| (at * SAMPLE_EVERY, 10_000 + at as u64 * kb_a_minute / 6 + (at as u64 % 2) * 50));
        Memory(samples.collect())
    };
    assert!((line(60).slope(WARM_UP).unwrap() - 60.0).abs() < 1.0);
    assert!(line(0).slope(WARM_UP).unwrap().abs() < 1.0);
    assert_eq!(line(60).slope(19 * WARM_UP / 10), None, "too few samples");
}
