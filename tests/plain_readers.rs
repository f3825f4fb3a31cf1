//! The examples of docs/plain-readers.md, run as a user runs them: against a real
//! redis-server and the real sidecar, killed in the middle and started again, their
//! connections cut. What they print is in order, whole, and doubled at most where they
//! were killed.

#[path = "e2e/producer.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod producer;
#[path = "e2e/sidecar.rs"]
#[allow(dead_code, reason = "this program uses a part of it")]
mod sidecar;
mod support;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use producer::{event, publish_all, publisher};
use seriatim::store::Layout;
use sidecar::{Sidecar, eventually};
use support::{Random, number_from_env, redis_server};

const TOPIC: &str = "jobs";
const PARTITIONS: u32 = 4;
const ENTITIES: u64 = 300;
const EVENTS: u64 = 10;
const IN_ALL: usize = (ENTITIES * EVENTS) as usize;

/// Of all kills and cuts.
const INTERRUPTIONS: usize = 3;

/// A reader's process, and the files that it printed into: one for each time it was started,
/// because a kill may cut a line off anywhere, and what follows it must not be glued to that.
struct Reader {
    command: Vec<String>,
    folder: PathBuf,
    printed: Vec<PathBuf>,
    child: Option<Child>,
}

impl Reader {
    fn start(&mut self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = self.folder.join(format!("printed-{}.jsonl", self.printed.len()));
        let printed = File::create(&path).unwrap();
        self.printed.push(path);
        let child = Command::new(&self.command[0])
            .args(&self.command[1..])
            .current_dir(root)
            .env("NODE_PATH", root.join("target/clients/node_modules"))
            .stdout(printed)
            .spawn()
            .expect("clients are needed: run `make test`, which installs them (scripts/install-clients)");
        self.child = Some(child);
    }

    /// SIGKILL, and gone.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// What was printed so far: entity, sequence, stream and id of each whole line.
    fn lines(&self) -> Vec<(String, u64, String)> {
        let texts: Vec<_> = self.printed.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let whole =
            texts.iter().flat_map(|text| text.split_inclusive('\n')).filter(|line| line.ends_with('\n'));
        let parsed = whole.map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let word = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        parsed
            .map(|line| {
                let (entity, sequence) = (word(&line["entity"]), line["sequence"].as_u64().unwrap());
                assert_eq!(line["data"], format!("{entity}/{sequence}"), "it is that event");
                assert_eq!(line["order"], "strict");
                (entity, sequence, format!("{} {}", word(&line["stream"]), word(&line["id"])))
            })
            .collect()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.kill();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_example_reads_in_order_through_kills() {
    let program = ["target/clients/venv/bin/python", "examples/plain_reader.py"];
    for layout in Layout::ALL {
        reads_in_order_through_kills(program, layout, |socket| format!("unix://{socket}")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_node_example_reads_in_order_through_kills() {
    for layout in Layout::ALL {
        reads_in_order_through_kills(["node", "examples/plain_reader.js"], layout, str::to_owned).await;
    }
}

async fn reads_in_order_through_kills(program: [&str; 2], layout: Layout, url: impl Fn(&str) -> String) {
    let seed = number_from_env("SERIATIM_SEED", 1);
    let mut random = Random::new(seed);
    let redis = redis_server(&[]);
    let config = format!("[topics.{TOPIC}]\npartitions = {PARTITIONS}\nlayout = \"{}\"\n", layout.name());
    let sidecar = Sidecar::start(&redis.url(), &config);
    let url = url(&redis.socket().display().to_string());
    let arguments = ["--redis", &url, "--topic", TOPIC, "--group", "storage"];
    let command = program.iter().chain(&arguments).map(|word| (*word).to_owned()).collect();
    let folder = redis.socket().parent().unwrap().to_owned();
    let mut reader = Reader { command, folder, printed: Vec::new(), child: None };
    reader.start();

    let mut events: Vec<_> =
        (0..ENTITIES).flat_map(|e| (0..EVENTS).map(move |s| event(&format!("job-{e}"), s))).collect();
    random.shuffle(&mut events);
    let to = publisher(&sidecar, TOPIC).await;
    let publishing = tokio::spawn(async move { publish_all(&to, events, 200).await });

    // Twice in the middle of its work: killed and started again; and its connections cut.
    for share in [4, 2] {
        eventually("some of it is read", || async { reader.lines().len() > IN_ALL / share }).await;
        reader.kill();
        reader.start();
    }
    eventually("most of it is read", || async { reader.lines().len() > IN_ALL * 3 / 4 }).await;
    let cut = Command::new("redis-cli")
        .arg("-s")
        .arg(redis.socket())
        .args(["CLIENT", "KILL", "TYPE", "normal"])
        .output();
    assert!(cut.unwrap().status.success());
    let verdicts = publishing.await.unwrap();
    assert_eq!(verdicts.values().sum::<u64>(), IN_ALL as u64, "seed {seed}: {verdicts:?}");
    eventually("all of it is read", || async {
        let read: BTreeMap<_, _> = reader.lines().into_iter().map(|(e, s, _)| ((e, s), ())).collect();
        read.len() == IN_ALL
    })
    .await;
    reader.kill();
    check(&reader.lines(), layout, seed);
}

/// Each entity in order, nothing lost; what comes twice is the last entry before an
/// interruption, from its first event on.
fn check(lines: &[(String, u64, String)], layout: Layout, seed: u64) {
    let (mut last, mut places): (HashMap<&str, u64>, HashSet<&str>) = Default::default();
    let (mut doubled, mut entries_doubled) = (0, HashSet::new());
    for (entity, sequence, place) in lines {
        if !places.insert(place) {
            doubled += 1;
            entries_doubled.insert(place.split('#').next().unwrap());
            continue;
        }
        let next = last.get(entity.as_str()).map_or(0, |last| last + 1);
        assert_eq!(*sequence, next, "seed {seed}: {entity} at {place}");
        last.insert(entity, *sequence);
    }
    assert!(last.values().all(|last| *last == EVENTS - 1), "seed {seed}: something is lost");
    assert_eq!(last.len() as u64, ENTITIES, "seed {seed}");
    // Handled and not yet acknowledged: one entry at each kill and cut.
    assert!(entries_doubled.len() <= INTERRUPTIONS, "seed {seed}: {entries_doubled:?} are doubled");
    let has_places = places.iter().any(|place| place.contains('#'));
    assert_eq!(
        has_places,
        layout == Layout::Batch,
        "seed {seed}: entries have many events in one layout only"
    );
    println!("{layout:?}: {} lines, {doubled} of them doubled", lines.len());
}
