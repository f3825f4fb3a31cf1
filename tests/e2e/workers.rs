//! Workers as processes: killed, suspended past their lease and woken, added and removed,
//! under load. What they wrote down is judged by a program that knows nothing of this one
//! (`tests/checker/check.py`).
//!
//! `make workers` runs it at full length; `make test` a short one.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use seriatim::{
    client::{Producer, ProducerOptions},
    store::{GroupKeys, PartitionId},
};

use crate::{
    producer::{event, is_success},
    sidecar::Sidecar,
    streams,
    support::{Random, number_from_env, redis_server},
};

const TOPIC: &str = "jobs";
const GROUP: &str = "storage";
const PARTITIONS: u32 = 32;
const WORKERS: usize = 8;
const EVENTS: u64 = 5;
const LEASE: Duration = Duration::from_secs(2);

struct WorkerProcess {
    child: Child,
    name: String,
    /// Lease owners begin with this.
    journal: PathBuf,
}

impl WorkerProcess {
    fn start(folder: &Path, redis: &str, number: usize) -> Self {
        let name = format!("w{number}");
        let journal = folder.join(format!("{name}.jsonl"));
        let program = Path::new(env!("CARGO_BIN_EXE_seriatim")).with_file_name("examples/recording_worker");
        let child = Command::new(&program)
            .args(["--redis", redis, "--topic", TOPIC, "--group", GROUP, "--name", &name])
            .args([
                "--handler-ms",
                "300",
                "--lease-ms",
                &LEASE.as_millis().to_string(),
                "--nack-percent",
                "1",
            ])
            .arg("--journal")
            .arg(&journal)
            .stdin(Stdio::null())
            .spawn()
            .expect("the example is built: run `make test`, or cargo build --example recording_worker");
        WorkerProcess { child, name, journal }
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Does it handle an event at this moment, as far as its journal says?
    fn is_handling(&self) -> bool {
        let text = fs::read_to_string(&self.journal).unwrap_or_default();
        let count = |kind: &str| text.matches(&format!("\"kind\":\"{kind}\"")).count();
        count("start") > count("end") + count("nack")
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who has which partition, seen again and again.
type Owners = Arc<Mutex<BTreeMap<u32, String>>>;

async fn watch_owners(redis: String, owners: Owners, stop: Arc<AtomicBool>) {
    let mut connection = streams::connect(&redis).await;
    while !stop.load(Ordering::Relaxed) {
        let mut pipeline = redis::pipe();
        for index in 0..PARTITIONS {
            let id = PartitionId { topic: TOPIC.into(), index };
            pipeline.cmd("HGET").arg(GroupKeys::new(&id, GROUP).lease).arg("owner");
        }
        let seen: Vec<Option<String>> = pipeline.query_async(&mut connection).await.unwrap();
        let seen = (0..).zip(seen).map(|(index, owner)| (index, owner.unwrap_or_default()));
        *owners.lock().unwrap() = seen.collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until nobody of this name has a partition any more; how long that took.
async fn taken_over(owners: &Owners, name: &str, since: Instant) -> Duration {
    let prefix = format!("{name}-");
    let has = |owners: &Owners| owners.lock().unwrap().values().any(|owner| owner.starts_with(&prefix));
    while has(owners) {
        assert!(since.elapsed() < crate::sidecar::BOUND, "nobody took over from {name}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    since.elapsed()
}

/// Waits for a moment in which it handles something, if one comes.
async fn busy(worker: &WorkerProcess) {
    let until = Instant::now() + LEASE;
    while !worker.is_handling() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[derive(Default)]
struct Faults {
    kills: u64,
    stops: u64,
    while_handling: u64,
    take_overs: Vec<Duration>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_come_and_go_and_every_event_is_handled_in_order() {
    let kills = number_from_env("SERIATIM_KILLS", 4);
    let stops = number_from_env("SERIATIM_STOPS", 3);
    let entities = number_from_env("SERIATIM_ENTITIES", 1_500);
    let seed = number_from_env("SERIATIM_SEED", 1);
    println!("seed {seed}: {entities} entities, {kills} kills, {stops} stops");
    let mut random = Random::new(seed);
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), &format!("[topics.{TOPIC}]\npartitions = {PARTITIONS}\n"));
    let folder = redis.socket().parent().unwrap().to_owned();

    // Events flow for as long as faults do.
    let publishing = tokio::spawn(publish(sidecar, folder.clone(), entities, kills + stops, random.draw()));
    let mut started = 0;
    let mut start = || {
        started += 1;
        WorkerProcess::start(&folder, &redis.url(), started)
    };
    let mut workers: Vec<WorkerProcess> = (0..WORKERS).map(|_| start()).collect();
    let (owners, stop) = (Owners::default(), Arc::new(AtomicBool::new(false)));
    let watching = tokio::spawn(watch_owners(redis.url(), owners.clone(), stop.clone()));
    tokio::time::sleep(LEASE).await;

    let mut faults = Faults::default();
    let mut gone: Vec<WorkerProcess> = Vec::new();
    while faults.kills < kills || faults.stops < stops {
        let at = random.below(workers.len() as u64) as usize;
        busy(&workers[at]).await;
        if faults.kills < kills && (faults.stops >= stops || random.percent(50)) {
            let mut killed = workers.remove(at);
            faults.while_handling += u64::from(killed.is_handling());
            killed.child.kill().unwrap();
            let since = Instant::now();
            killed.child.wait().unwrap();
            faults.kills += 1;
            workers.push(start());
            faults.take_overs.push(taken_over(&owners, &killed.name, since).await);
            gone.push(killed);
        } else {
            let stopped = &workers[at];
            faults.while_handling += u64::from(stopped.is_handling());
            stopped.signal("STOP");
            let since = Instant::now();
            faults.take_overs.push(taken_over(&owners, &stopped.name, since).await);
            tokio::time::sleep(Duration::from_millis(random.below(500))).await;
            stopped.signal("CONT");
            faults.stops += 1;
        }
        // One leaves in order, another comes.
        if random.percent(20) {
            let leaving = workers.remove(0);
            leaving.signal("TERM");
            gone.push(leaving);
            workers.push(start());
        }
    }
    let published = publishing.await.unwrap();
    println!("{} events were published", published.1);
    wait_until_done(&redis.url()).await;
    drop(published);
    for worker in &workers {
        worker.signal("TERM");
    }
    for mut worker in workers.drain(..) {
        worker.child.wait().unwrap();
        gone.push(worker);
    }
    stop.store(true, Ordering::Relaxed);
    watching.await.unwrap();
    report(&folder, &gone, &mut faults);
}

/// Publishes shuffled events at a steady pace; keeps the sidecar, which ends with it.
async fn publish(sidecar: Sidecar, folder: PathBuf, entities: u64, faults: u64, seed: u64) -> (Sidecar, u64) {
    let mut random = Random::new(seed);
    let to = Producer::start(&format!("http://{}", sidecar.grpc), TOPIC, ProducerOptions::default());
    let mut journal = fs::File::create(folder.join("produced.jsonl")).unwrap();
    // About as long as the faults take.
    let pause = Duration::from_millis(faults * 2_800 * 50 / entities);
    let mut published = 0;
    let numbers: Vec<u64> = (0..entities).collect();
    for some in numbers.chunks(50) {
        let mut events: Vec<_> =
            some.iter().flat_map(|n| (0..EVENTS).map(move |s| event(&format!("job-{n}"), s))).collect();
        random.shuffle(&mut events);
        for event in events {
            let (entity, sequence) = (event.entity.clone(), event.sequence.unwrap());
            let result = to.publish(event).await.unwrap();
            assert!(is_success(result.verdict()), "{result:?}");
            writeln!(journal, r#"{{"entity":"{entity}","epoch":0,"sequence":{sequence}}}"#).unwrap();
            published += 1;
        }
        tokio::time::sleep(pause).await;
    }
    (sidecar, published)
}

/// Until the group has done everything, and holds nothing.
pub async fn wait_until_done(redis: &str) {
    let mut connection = streams::connect(redis).await;
    let began = Instant::now();
    for index in 0..PARTITIONS {
        let id = PartitionId { topic: TOPIC.into(), index };
        let keys = GroupKeys::new(&id, GROUP);
        loop {
            let mut last = redis::cmd("XREVRANGE");
            last.arg(&keys.events).arg("+").arg("-").arg("COUNT").arg(1);
            let last: Vec<(String, Vec<String>)> = last.query_async(&mut connection).await.unwrap();
            let mut floor = redis::cmd("HGET");
            floor.arg(&keys.groups).arg(GROUP);
            let floor: String = floor.query_async(&mut connection).await.unwrap();
            let mut held = redis::cmd("HGETALL");
            held.arg(&keys.held);
            let held: BTreeMap<String, String> = held.query_async(&mut connection).await.unwrap();
            if held.len() == 1 && last.first().is_none_or(|(id, _)| *id == floor) {
                break;
            }
            assert!(
                began.elapsed() < 3 * crate::sidecar::BOUND,
                "{index}: {last:?}, {floor}, held: {held:?}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

fn report(folder: &Path, workers: &[WorkerProcess], faults: &mut Faults) {
    let mut check = Command::new("python3");
    check.arg("tests/checker/check.py").arg("--produced").arg(folder.join("produced.jsonl"));
    check.args(["--final", "--suspended"]).args(workers.iter().map(|worker| &worker.journal));
    let checked = check.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    println!("{said}");
    faults.take_overs.sort();
    let (most, half) = (faults.take_overs.last(), faults.take_overs.get(faults.take_overs.len() / 2));
    println!(
        "{} kills, {} stops, {} of them while an event was handled; taken over within {most:?} (half of them {half:?}), lease {LEASE:?}",
        faults.kills, faults.stops, faults.while_handling
    );
    assert!(checked.status.success(), "{said}{}", String::from_utf8_lossy(&checked.stderr));
}
