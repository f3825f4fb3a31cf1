//! A topic in `batch` layout, through real processes: what is published in disorder comes out in
//! order, many events to an entry, whatever they are called and however large their numbers are.

use std::{collections::HashMap, process::Command};

use redis::AsyncCommands;
use seriatim::{
    grpc::pb::{self, Verdict},
    store::{Entry, PartitionId, PartitionKeys},
};

use super::{
    producer::{event, publish_all, publisher},
    sidecar::Sidecar,
    streams,
    support::{Random, redis_server},
};

const CONFIG: &str = "[topics.jobs]\npartitions = 2\nlayout = \"batch\"\n";
const PARTITIONS: u32 = 2;
const ENTITIES: u64 = 200;
const EVENTS: u64 = 10;
const NUMBER_MAX: u64 = (1 << 53) - 1;

fn seriatim(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_seriatim")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Each entity's sequences, in the order in which they were read.
fn sequences<'a>(read: impl IntoIterator<Item = (&'a str, u64)>) -> HashMap<String, Vec<u64>> {
    let mut of_entity: HashMap<String, Vec<u64>> = HashMap::new();
    for (entity, sequence) in read {
        of_entity.entry(entity.to_owned()).or_default().push(sequence);
    }
    of_entity
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_published_in_disorder_is_verified_and_consumed_in_order() {
    let redis = redis_server(&[]);
    let url = redis.url();
    let sidecar = Sidecar::start(&url, CONFIG);
    let mut events: Vec<_> =
        (0..ENTITIES).flat_map(|e| (0..EVENTS).map(move |s| event(&format!("job-{e}"), s))).collect();
    Random::new(1).shuffle(&mut events);
    let verdicts = publish_all(&publisher(&sidecar, "jobs").await, events, 500).await;
    assert_eq!(verdicts.values().sum::<u64>(), ENTITIES * EVENTS, "{verdicts:?}");

    let mut connection = streams::connect(&url).await;
    let read = streams::entries(&mut connection, "jobs", PARTITIONS).await;
    let wanted: Vec<u64> = (0..EVENTS).collect();
    let in_streams = sequences(read.iter().map(|e| (e.entity.as_str(), e.sequence.get())));
    assert!(in_streams.len() as u64 == ENTITIES && in_streams.values().all(|read| *read == wanted));
    assert!(Entry::entries(&read) < read.len() / 2, "{} entries for {}", Entry::entries(&read), read.len());
    assert!(read.iter().all(|e| e.data == format!("{}/{}", e.entity, e.sequence)), "each has its own data");

    let (code, out, _) = seriatim(&["verify", "--redis", &url, "--topic", "jobs", "--json"]);
    let report = json(&out);
    assert_eq!((code, &report["ok"], &report["entries"]), (0, &true.into(), &(ENTITIES * EVENTS).into()));
    let (_, out, _) = seriatim(&["topic", "--redis", &url, "show", "jobs", "--json"]);
    assert_eq!(json(&out)["layout"], "batch");

    let count = (ENTITIES * EVENTS).to_string();
    let consume = ["consume", "--redis", &url, "--topic", "jobs", "--group", "g", "--count", &count];
    let (code, out, said) = seriatim(&consume);
    assert_eq!(code, 0, "{said}");
    let lines: Vec<serde_json::Value> = out.lines().map(json).collect();
    let consumed =
        sequences(lines.iter().map(|l| (l["entity"].as_str().unwrap(), l["sequence"].as_u64().unwrap())));
    assert!(consumed.len() as u64 == ENTITIES && consumed.values().all(|read| *read == wanted));
    assert!(lines.iter().any(|line| line["id"].as_str().unwrap().contains('#')), "events have places");
}

/// Whatever an entity is called, and at the end of all numbers: by the fast path and by the slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_numbers_survive() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), "[topics.jobs]\npartitions = 1\nlayout = \"batch\"\n");
    let mut connection = streams::connect(&redis.url()).await;
    let keys = PartitionKeys::new(&PartitionId { topic: "jobs".into(), index: 0 });
    let long = "x".repeat(256);
    let names = ["a:b:c", "line\nbreak", "nul\0nul", "#", "17-3#5", "0:1:2:strict:x", "t:1:1:é", "{}", &long];
    for name in names {
        // A lane that is nearly at its end.
        let state = format!("{NUMBER_MAX}:{}", NUMBER_MAX - 3);
        let () = connection.hset(&keys.lanes, name, state).await.unwrap();
    }
    let last = |name: &str, back: u64| pb::Event { epoch: NUMBER_MAX, ..event(name, NUMBER_MAX - back) };
    let all = |back: u64| names.iter().map(|name| last(name, back)).collect::<Vec<_>>();
    let publish = async |events| {
        let request = pb::PublishRequest { topic: "jobs".into(), events };
        let results = sidecar.client().await.publish(request).await.unwrap().into_inner().results;
        results.into_iter().map(|result| (result.verdict(), result.stream_id)).collect::<Vec<_>>()
    };
    let fast = publish(all(3)).await;
    assert!(fast.iter().all(|(verdict, id)| *verdict == Verdict::Released && *id == fast[0].1), "{fast:?}");
    let parked = publish([all(1), all(0)].concat()).await;
    assert!(parked.iter().all(|(verdict, _)| *verdict == Verdict::Parked), "{parked:?}");
    let slow = publish(all(2)).await;
    assert!(slow.iter().all(|(verdict, id)| *verdict == Verdict::Released && *id == slow[0].1), "{slow:?}");

    let read = streams::entries(&mut connection, "jobs", 1).await;
    assert_eq!(Entry::entries(&read), 2, "an entry for each call that released anything");
    for name in names {
        let of_name: Vec<_> =
            streams::of(&read, name).iter().map(|e| (e.epoch.get(), e.sequence.get())).collect();
        let wanted: Vec<_> = (0..4).rev().map(|back| (NUMBER_MAX, NUMBER_MAX - back)).collect();
        assert_eq!(of_name, wanted, "{name:?}");
    }
    assert!(read.iter().all(|e| e.data == format!("{}/{}", e.entity, e.sequence)), "each has its own data");
    let again = publish(all(0)).await;
    assert!(again.iter().all(|(verdict, _)| *verdict == Verdict::Duplicate), "{again:?}");
    let (code, out, _) =
        seriatim(&["consume", "--redis", &redis.url(), "--topic", "jobs", "--group", "g", "--count", "36"]);
    let consumed: Vec<serde_json::Value> = out.lines().map(json).collect();
    let of_first: Vec<_> = consumed.iter().filter(|line| line["entity"] == names[0]).collect();
    assert_eq!((code, consumed.len(), of_first.len()), (0, 36, 4));
    assert_eq!(of_first[3]["sequence"], NUMBER_MAX);
}

#[tokio::test]
async fn a_sidecar_that_wants_another_layout_does_not_start() {
    let redis = redis_server(&[]);
    drop(Sidecar::start(&redis.url(), CONFIG));
    let args = ["serve", "--redis", &redis.url(), "--web", "", "--listen", "127.0.0.1:0"];
    let topic = ["--set", "topics.jobs.partitions=2", "--set", "store.start_wait_ms=0"];
    let (code, _, said) = seriatim(&[&args[..], &topic].concat());
    assert!(code != 0 && said.contains("layout is fixed at batch"), "{code}: {said}");
    // So it is if somebody made the topic's record anew, but not its partitions.
    let mut connection = streams::connect(&redis.url()).await;
    let () = connection.del(seriatim::store::topic_key("jobs")).await.unwrap();
    let (code, _, said) = seriatim(&[&args[..], &topic].concat());
    assert!(
        code != 0 && said.contains("this partition has the layout batch, its topic entry"),
        "{code}: {said}"
    );
}
