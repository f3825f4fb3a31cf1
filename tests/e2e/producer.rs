//! Events and ways to publish them.

use std::collections::BTreeMap;

use futures_util::stream::{FuturesUnordered, StreamExt};
use seriatim::{
    client::{ClientError, Publisher},
    grpc::pb::{self, Verdict},
};

use super::sidecar::Sidecar;

pub fn event(entity: &str, sequence: u64) -> pb::Event {
    pb::Event {
        entity: entity.to_owned(),
        sequence: Some(sequence),
        r#type: "step".to_owned(),
        data: format!("{entity}/{sequence}").into(),
        ..Default::default()
    }
}

pub async fn publisher(sidecar: &Sidecar, topic: &str) -> Publisher {
    Publisher::open(sidecar.client().await, topic).await.unwrap()
}

/// Publishes one event a message, at most `window` in flight, and counts verdicts.
pub async fn publish_all(
    publisher: &Publisher,
    events: impl IntoIterator<Item = pb::Event>,
    window: usize,
) -> BTreeMap<&'static str, u64> {
    let mut open = FuturesUnordered::new();
    let mut verdicts = BTreeMap::new();
    for event in events {
        open.push(publisher.submit(vec![event]));
        if open.len() >= window {
            count(open.next().await.unwrap(), &mut verdicts);
        }
    }
    while let Some(answer) = open.next().await {
        count(answer, &mut verdicts);
    }
    verdicts
}

fn count(answer: Result<Vec<pb::Result>, ClientError>, verdicts: &mut BTreeMap<&'static str, u64>) {
    for result in answer.expect("the sidecar answers") {
        *verdicts.entry(result.verdict().as_str_name()).or_default() += 1;
    }
}

/// Publishes one event by a unary call and returns its result.
pub async fn publish_one(sidecar: &Sidecar, topic: &str, event: pb::Event) -> pb::Result {
    let request = pb::PublishRequest { topic: topic.to_owned(), events: vec![event] };
    sidecar.client().await.publish(request).await.unwrap().into_inner().results.remove(0)
}

pub fn is_success(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Released | Verdict::Parked | Verdict::Duplicate)
}
