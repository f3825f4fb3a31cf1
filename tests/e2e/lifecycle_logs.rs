//! Logs that real systems wrote, through a real sidecar: whatever disorder they are
//! published in, they come out equal to what was logged.
//!
//! The logs are not part of the project; `SERIATIM_DATA` says where they are. Without
//! it these tests are skipped, and the skip is counted.

use std::{collections::HashMap, fs, path::PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use seriatim::grpc::pb;

use super::{
    producer::{publish_all, publisher},
    sidecar::Sidecar,
    streams,
    support::{Random, redis_server, skipped},
};

const PARTITIONS: u32 = 8;

#[derive(Clone, Deserialize)]
struct Logged {
    entity: String,
    sequence: u64,
    r#type: String,
    time: String,
    data: Box<RawValue>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporal_histories_come_out_as_logged() {
    come_out_as_logged("temporal-histories", &["arrival.tsv"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pegasus_jobs_come_out_as_logged() {
    come_out_as_logged("pegasus-stampede", &["arrival.tsv", "bytime.tsv"]).await;
}

async fn come_out_as_logged(set: &str, orders: &[&str]) {
    let Some(folder) = std::env::var_os("SERIATIM_DATA").map(|data| PathBuf::from(data).join(set)) else {
        return skipped("data", &format!("{set}: SERIATIM_DATA is not set"));
    };
    let text = fs::read_to_string(folder.join("events.jsonl")).unwrap();
    let logged: Vec<Logged> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let redis = redis_server(&[]);

    let mut shuffled: Vec<usize> = (0..logged.len()).collect();
    Random::new(7).shuffle(&mut shuffled);
    let parked = publish_and_compare(&redis.url(), "shuffled", &logged, shuffled).await;
    assert!(parked > 0, "{set}: a shuffled log has events ahead of their turn");

    let places: HashMap<(&str, u64), usize> =
        logged.iter().enumerate().map(|(at, event)| ((event.entity.as_str(), event.sequence), at)).collect();
    let mut naturally_parked = 0;
    for (number, order) in orders.iter().enumerate() {
        let text = fs::read_to_string(folder.join(order)).unwrap();
        let place = |line: &str| {
            let (entity, sequence) = line.rsplit_once('\t').unwrap();
            places[&(entity, sequence.parse().unwrap())]
        };
        let order: Vec<usize> = text.lines().map(place).collect();
        naturally_parked +=
            publish_and_compare(&redis.url(), &format!("natural-{number}"), &logged, order).await;
    }
    assert!(naturally_parked > 0, "{set}: its natural disorder has events ahead of their turn");
    println!(
        "{set}: {} events, parked {parked} shuffled, {naturally_parked} in natural disorder",
        logged.len()
    );
}

/// Publishes the log in an order, some of it twice; returns how many were parked.
async fn publish_and_compare(redis_url: &str, topic: &str, logged: &[Logged], order: Vec<usize>) -> u64 {
    let config =
        format!("[topics.{topic}]\npartitions = {PARTITIONS}\nfirst_sequence = 1\nparked_max = 512\n");
    let sidecar = Sidecar::start(redis_url, &config);
    let published = with_duplicates(order);
    let events: Vec<pb::Event> = published.iter().map(|at| wire_event(&logged[*at])).collect();
    let count = events.len() as u64;
    let verdicts = publish_all(&publisher(&sidecar, topic).await, events, 256).await;

    let of = |verdict: &str| verdicts.get(verdict).copied().unwrap_or(0);
    assert_eq!(of("RELEASED") + of("PARKED") + of("DUPLICATE"), count, "{topic}: {verdicts:?}");
    assert_eq!(of("DUPLICATE"), count - logged.len() as u64, "{topic}: {verdicts:?}");
    compare(redis_url, topic, logged).await;
    of("PARKED")
}

/// Every seventh event again, some time later.
fn with_duplicates(order: Vec<usize>) -> Vec<usize> {
    let mut published = Vec::new();
    for (at, event) in order.iter().enumerate() {
        published.push(*event);
        if at % 7 == 6 {
            published.push(order[at - 5]);
        }
    }
    published
}

fn wire_event(logged: &Logged) -> pb::Event {
    pb::Event {
        entity: logged.entity.clone(),
        sequence: Some(logged.sequence),
        r#type: logged.r#type.clone(),
        time: logged.time.clone(),
        datacontenttype: "application/json".to_owned(),
        data: logged.data.get().as_bytes().to_vec().into(),
        ..Default::default()
    }
}

/// The log is grouped by entity in order; the streams are read as they are.
async fn compare(redis_url: &str, topic: &str, logged: &[Logged]) {
    let mut connection = streams::connect(redis_url).await;
    let entries = streams::entries(&mut connection, topic, PARTITIONS).await;
    assert_eq!(entries.len(), logged.len(), "{topic}: each event once");
    let mut by_entity: HashMap<&str, Vec<_>> = HashMap::new();
    for entry in &entries {
        by_entity.entry(&entry.entity).or_default().push(entry);
    }
    for run in logged.chunk_by(|one, other| one.entity == other.entity) {
        let read = &by_entity[run[0].entity.as_str()];
        assert_eq!(read.len(), run.len(), "{topic}: {}", run[0].entity);
        for (entry, logged) in read.iter().zip(run) {
            let attrs: serde_json::Value = serde_json::from_str(&entry.attrs).unwrap();
            let wanted_attrs = serde_json::json!({ "time": logged.time, "contenttype": "application/json" });
            assert_eq!(
                (entry.epoch.get(), entry.sequence.get()),
                (0, logged.sequence),
                "{topic}: {}",
                logged.entity
            );
            assert_eq!((&entry.kind, entry.order.name()), (&logged.r#type, "strict"));
            assert_eq!(attrs, wanted_attrs);
            assert_eq!(entry.data, logged.data.get().as_bytes());
        }
    }
}
