//! Two groups, one of which stands still: the other reads to the end, nothing that is not done
//! is trimmed, and at the stream's limit producers are refused until both go on.

use std::{collections::BTreeSet, sync::Arc};

use seriatim::{
    clock::SystemClock,
    deliver::{Consumer, ConsumerOptions},
    grpc::pb::Verdict,
    random::Random,
    store::{GroupId, GroupStore, Start, Store},
};

use crate::{
    producer::{event, publish_one},
    sidecar::{BOUND, Sidecar, eventually},
    support::{redis_server, redis_store},
};

const CONFIG: &str =
    "[topics.jobs]\npartitions = 1\nentries_max = 1000\nretain_entries = 100\nretain_ms = 1\n";

async fn consumer(store: &Arc<dyn Store>, group: &str) -> Consumer {
    let clock = Arc::new(SystemClock::default());
    let options = ConsumerOptions::new("jobs", group);
    Consumer::start(store.clone(), clock, Random::from_system(), options).await.unwrap()
}

/// Everything that comes until `count` events were handled.
async fn handle(consumer: &mut Consumer, count: usize) -> BTreeSet<(String, u64)> {
    let mut handled = BTreeSet::new();
    while handled.len() < count {
        let delivery = tokio::time::timeout(BOUND, consumer.next()).await.unwrap().unwrap();
        assert!(handled.insert((delivery.entity.clone(), delivery.sequence)), "it came once");
        drop(delivery.ack());
    }
    handled
}

#[tokio::test]
async fn a_group_that_stands_still_stops_producers_at_the_limit_and_loses_nothing() {
    let redis = redis_server(&["--stream-node-max-entries", "10"]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let store: Arc<dyn Store> = Arc::new(redis_store(&redis.url()));
    let stalled = GroupId { topic: "jobs".into(), group: "audit".into() };
    GroupStore::register(&*store, &stalled, 1, Start::Beginning).await.unwrap();
    let mut healthy = consumer(&store, "storage").await;

    // Until it is refused, and says why.
    let mut published = 0;
    let refused = loop {
        let result = publish_one(&sidecar, "jobs", event("e", published)).await;
        if result.verdict() == Verdict::Refused {
            break result;
        }
        assert_eq!(result.verdict(), Verdict::Released);
        published += 1;
        assert!(published < 20_000, "nothing is ever refused");
    };
    assert_eq!(refused.reason, "entries_max");
    assert!(refused.detail.contains("group"), "{}", refused.detail);
    println!("{published} events were published until the limit of 1000 was seen");
    assert_eq!(handle(&mut healthy, published as usize).await.len() as u64, published);

    // It goes on, and finds everything; then everything flows.
    let mut stalled = consumer(&store, "audit").await;
    assert_eq!(handle(&mut stalled, published as usize).await.len() as u64, published);
    eventually("producers are welcome again", || async {
        publish_one(&sidecar, "jobs", event("e", published)).await.verdict() == Verdict::Released
    })
    .await;
    for consumer in [&mut healthy, &mut stalled] {
        assert_eq!(handle(consumer, 1).await, BTreeSet::from([("e".to_owned(), published)]));
    }
}
