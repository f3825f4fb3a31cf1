//! A producer that lost one message and stays connected: it is asked for it, through
//! whichever sidecar it is connected to, and the gap is filled.

use seriatim::{
    client::{Producer, ProducerOptions},
    grpc::pb::Verdict,
    order::Order,
};

use crate::{
    producer::{event, publish_one},
    sidecar::{Sidecar, eventually},
    streams,
    support::redis_server,
};

/// The first probe after 200 ms; a skip a second later, also while a producer is connected.
const CONFIG: &str = "[topics.jobs]\npartitions = 4\ngap_waits_ms = [200, 1000]\ngap_wait_live_ms = 1\n";

fn producer(sidecar: &Sidecar, answer_resend: bool) -> Producer {
    let options = ProducerOptions { answer_resend, ..ProducerOptions::default() };
    Producer::start(&format!("http://{}", sidecar.grpc), "jobs", options)
}

/// How an entity's entries read once its last event is out.
async fn read(url: &str, entity: &str) -> Vec<String> {
    let last_is_out = || async {
        let entries = streams::entries(&mut streams::connect(url).await, "jobs", 4).await;
        streams::of(&entries, entity).iter().any(|entry| entry.sequence.get() == 3)
    };
    eventually("the gap ends", last_is_out).await;
    let entries = streams::entries(&mut streams::connect(url).await, "jobs", 4).await;
    let shown = |entry: &&seriatim::store::Entry| match entry.order {
        Order::Marker => format!("gap {}", entry.sequence),
        order => format!("{} {}", order.name(), entry.sequence),
    };
    streams::of(&entries, entity).iter().map(shown).collect()
}

#[tokio::test]
async fn a_lost_message_is_asked_for_and_sent_again() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let producer = producer(&sidecar, true);
    producer.publish(event("e", 0)).await.unwrap();
    producer.remember(event("e", 1));
    for sequence in [2, 3] {
        let result = producer.publish(event("e", sequence)).await.unwrap();
        assert_eq!(result.verdict(), Verdict::Parked);
    }
    assert_eq!(read(&redis.url(), "e").await, ["strict 0", "strict 1", "strict 2", "strict 3"]);
    assert_eq!(producer.resent(), 1);
    // At the first probe: no second one was needed.
    assert_eq!(sidecar.metric("seriatim_probed_total{topic=\"jobs\"}").await, 1.0);
    assert_eq!(sidecar.metric("seriatim_resends_total{topic=\"jobs\"}").await, 1.0);
    producer.close().await;
}

#[tokio::test]
async fn the_same_without_an_answer_ends_in_a_skip() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let producer = producer(&sidecar, false);
    for sequence in [0, 2, 3] {
        producer.publish(event("e", sequence)).await.unwrap();
    }
    assert_eq!(read(&redis.url(), "e").await, ["strict 0", "gap 1", "strict 2", "strict 3"]);
    assert_eq!(producer.resent(), 0);
    producer.close().await;
}

/// The producer of the missing event is connected to one sidecar; the events that wait for
/// it came through the other, which also is the only one that looks at the time.
#[tokio::test]
async fn a_producer_is_asked_wherever_it_is_connected() {
    let redis = redis_server(&[]);
    let (near, far) = (Sidecar::start(&redis.url(), CONFIG), Sidecar::start(&redis.url(), CONFIG));
    let producer = producer(&far, true);
    producer.publish(event("e", 0)).await.unwrap();
    producer.remember(event("e", 1));
    for sequence in [2, 3] {
        publish_one(&near, "jobs", event("e", sequence)).await;
    }
    assert_eq!(read(&redis.url(), "e").await, ["strict 0", "strict 1", "strict 2", "strict 3"]);
    assert_eq!(producer.resent(), 1);
    assert_eq!(near.metric("seriatim_resends_total{topic=\"jobs\"}").await, 0.0);
    producer.close().await;
}

/// A connected producer may need longer than the schedule to find the event: while it is
/// there the last wait is longer, and it is not shortened when it leaves.
#[tokio::test]
async fn a_connected_producer_gets_more_time() {
    let redis = redis_server(&[]);
    let config = "[topics.jobs]\npartitions = 4\ngap_waits_ms = [200, 200]\ngap_wait_live_ms = 3000\n";
    let sidecar = Sidecar::start(&redis.url(), config);
    let slow = producer(&sidecar, false);
    slow.publish(event("e", 0)).await.unwrap();
    for sequence in [2, 3] {
        publish_one(&sidecar, "jobs", event("e", sequence)).await;
        publish_one(&sidecar, "jobs", event("nobody", sequence)).await;
    }
    let asked = || async { sidecar.metric("seriatim_resends_total{topic=\"jobs\"}").await == 1.0 };
    eventually("it is asked", asked).await;
    slow.close().await;
    // The gap that nobody is connected for ends by the schedule, long before the other.
    assert_eq!(read(&redis.url(), "nobody").await, ["gap 1", "strict 2", "strict 3"]);
    assert_eq!(read(&redis.url(), "e").await, ["strict 0", "gap 1", "strict 2", "strict 3"]);
    let entries = streams::entries(&mut streams::connect(&redis.url()).await, "jobs", 4).await;
    let waited = |entity: &str| {
        let marker = streams::of(&entries, entity).into_iter().find(|entry| entry.order == Order::Marker);
        let attrs: serde_json::Value = serde_json::from_str(&marker.unwrap().attrs).unwrap();
        attrs["waited"].as_u64().unwrap()
    };
    assert!(waited("nobody") < 2_000, "{}", waited("nobody"));
    assert!(waited("e") >= 3_000, "{}", waited("e"));
}
