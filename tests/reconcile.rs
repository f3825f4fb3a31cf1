//! Looking for lost work: what is out of place is mended once, by whoever comes first, and
//! what is not safe to mend is told and left alone.

mod support;

use std::{collections::BTreeMap, time::Duration};

use redis::{AsyncCommands, aio::MultiplexedConnection};
use seriatim::{
    clock::SystemClock,
    operate::{Pace, Reconciled, reconcile},
    order::{Entity, Epoch, Event, Policy, Position, Retirement, Sequence, Verdict},
    store::{
        Batch, Decision, Layout, Numbering, Offer, PartitionId, PartitionKeys, Payload, RedisStore, Store,
        TopicSpec,
    },
};
use support::{direct, redis_server, redis_store};

const PACE: Pace = Pace { repairs: true, count: 10, pause: Duration::ZERO };

fn partition() -> PartitionId {
    PartitionId { topic: "jobs".into(), index: 0 }
}

fn topic(policy: Policy) -> TopicSpec {
    TopicSpec {
        name: "jobs".into(),
        partitions: 1,
        layout: Layout::Entry,
        numbering: Numbering::Producer,
        policy,
    }
}

async fn offer(store: &RedisStore, entity: &str, sequences: &[u64]) -> Vec<Decision> {
    let offer = |sequence: &u64| {
        let event = Event {
            epoch: Epoch::new(0).unwrap(),
            position: Position::Given(Sequence::new(*sequence).unwrap()),
            terminal: false,
            payload: Payload { kind: "step".into(), attrs: "{}".into(), data: Default::default() },
        };
        (Offer { entity: Entity::new(entity).unwrap(), event }, ())
    };
    let (batch, _) = Batch::form(sequences.iter().map(offer).collect());
    store.admit(&partition(), &batch).await.unwrap().decisions
}

async fn look(store: &RedisStore) -> Reconciled {
    let mut found = Reconciled::default();
    reconcile(store, &partition(), PACE, &SystemClock::default(), &mut found).await.unwrap();
    found
}

/// Everything that Redis holds of the partition, to see that nothing changed.
async fn dump(direct: &mut MultiplexedConnection) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for key in PartitionKeys::new(&partition()).all() {
        // Its clock goes on whatever happens.
        if key != PartitionKeys::new(&partition()).meta {
            let dumped: Vec<u8> = redis::cmd("DUMP").arg(key).query_async(direct).await.unwrap();
            all.push((key.to_owned(), dumped));
        }
    }
    all
}

#[tokio::test]
async fn what_is_out_of_place_is_mended_once_however_many_look() {
    let redis = redis_server(&[]);
    let (one, other) = (redis_store(&redis.url()), redis_store(&redis.url()));
    let policy = Policy { gap_waits: vec![50], ..Policy::default() };
    one.open(&topic(policy)).await.unwrap();
    let keys = PartitionKeys::new(&partition());
    let mut direct = direct(&redis.url()).await;
    assert_eq!(look(&one).await.kinds, BTreeMap::new(), "nothing is out of place at first");

    // As many of each as one look of ten does not find at once.
    for n in 0..30 {
        offer(&one, &format!("unlisted-{n}"), &[0, 2]).await;
        let _: () = direct.zrem(&keys.gaps, format!("unlisted-{n}")).await.unwrap();
        offer(&one, &format!("idle-{n}"), &[0]).await;
        let _: () = direct.zadd(&keys.gaps, format!("idle-{n}"), 5).await.unwrap();
        let _: () = direct.zadd(&keys.gaps, format!("nobody-{n}"), 5).await.unwrap();
        offer(&one, &format!("unfiled-{n}"), &[0]).await;
        for bucket in &keys.born {
            let _: () = direct.lrem(bucket, 1, format!("unfiled-{n}")).await.unwrap();
        }
        offer(&one, &format!("twice-{n}"), &[0, 1]).await;
        let parked = "-:4:2:step{}";
        let _: () = direct.hset(&keys.parked, format!("0:1:twice-{n}"), parked).await.unwrap();
        offer(&one, &format!("unknown-{n}"), &[0]).await;
        let _: () = direct.hset(&keys.parked, format!("0:3:unknown-{n}"), parked).await.unwrap();
        let _: () = direct.hset(&keys.parked, format!("0:3:laneless-{n}"), parked).await.unwrap();
        offer(&one, &format!("astray-{n}"), &[0]).await;
        let _: () = direct.hset(&keys.parked, format!("7:3:astray-{n}"), parked).await.unwrap();
    }
    let (by_one, by_other) = tokio::join!(look(&one), look(&other));
    let both = |kind: &str| {
        let of = |found: &Reconciled| found.kinds.get(kind).copied().unwrap_or(0);
        (of(&by_one), of(&by_other))
    };
    for mended in [
        "unlisted_gap",
        "idle_gap",
        "gap_without_lane",
        "unfiled_lane",
        "parked_twice",
        "parked_unknown_to_lane",
    ] {
        let (of_one, of_other) = both(mended);
        assert_eq!(of_one + of_other, 30, "{mended}: each mended by one of them, {of_one} and {of_other}");
    }
    for left in ["parked_without_lane", "parked_astray"] {
        assert_eq!(both(left), (30, 30), "{left}: told to both, and left alone");
    }
    assert!(!by_one.is_clean());

    let before = dump(&mut direct).await;
    let again = look(&one).await;
    assert_eq!((again.mended, again.unmended), (0, 60), "what was mended stays so");
    assert_eq!(dump(&mut direct).await, before, "and a further look changes nothing");

    // What was mended works: the gaps end, and what is parked is released.
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while one.measure(&partition()).await.unwrap().gaps > 0 {
        one.elapse(&partition(), 100).await.unwrap();
        assert!(std::time::Instant::now() < end, "the gaps never end");
    }
    for (entity, next) in [("unlisted-7", 3), ("unknown-7", 4), ("twice-7", 2)] {
        let state = one.resume(&partition(), &Entity::new(entity).unwrap()).await.unwrap().unwrap();
        assert_eq!((state.next.get(), state.parked), (next, None), "{entity}");
    }
}

/// Over the life of an entity: closed, retired, remembered, forgotten.
#[tokio::test]
async fn a_retired_entity_is_remembered_and_then_forgotten() {
    let redis = redis_server(&[]);
    let store = redis_store(&redis.url());
    let retirement =
        Retirement { stuck_after: 20, retire_after: 20, idle_retire_after: 0, remember_for: 700 };
    let policy = Policy { retirement, terminal_types: ["step".to_owned()].into(), ..Policy::default() };
    store.open(&topic(policy)).await.unwrap();
    offer(&store, "job", &[0]).await;
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while store.measure(&partition()).await.unwrap().lanes > 0 {
        look(&store).await;
        assert!(std::time::Instant::now() < end, "it is never retired");
    }
    let verdicts = |decisions: Vec<Decision>| decisions.into_iter().map(|d| d.verdict).collect::<Vec<_>>();
    let epoch = Epoch::new(0).unwrap();
    assert_eq!(verdicts(offer(&store, "job", &[0]).await), [Verdict::Retired { epoch }]);
    let state = store.resume(&partition(), &Entity::new("job").unwrap()).await.unwrap().unwrap();
    assert_eq!(state.to_string(), "0:1c", "a producer that asks where it stands is told");
    // A new entity is welcome at any time, also by the fast path.
    let first = Verdict::Released { sequence: Sequence::new(0).unwrap() };
    assert_eq!(verdicts(offer(&store, "another", &[0]).await), [first]);
    // Later it is forgotten, and begins anew.
    loop {
        look(&store).await;
        if verdicts(offer(&store, "job", &[0]).await) == [first] {
            break;
        }
        assert!(std::time::Instant::now() < end, "it is never forgotten");
    }
}

/// Its end is a time of Redis's clock: whoever had it may be long gone when that is set back.
#[tokio::test]
async fn the_right_to_look_does_not_outlast_a_clock_that_is_set_back() {
    let redis = redis_server(&[]);
    let store = redis_store(&redis.url());
    let mut direct = direct(&redis.url()).await;
    assert!(store.lead_reconciler("one", 60_000).await.unwrap());
    assert!(!store.lead_reconciler("other", 60_000).await.unwrap(), "one of them at a time");
    let keys: Vec<String> = direct.keys("*").await.unwrap();
    let [key] = &keys[..] else { panic!("{keys:?}") };
    let _: () = direct.pexpire(key, 3_600_000).await.unwrap();
    assert!(store.lead_reconciler("other", 60_000).await.unwrap(), "it was never given for an hour");
    assert!(!store.lead_reconciler("one", 60_000).await.unwrap());
    let _: () = direct.persist(key).await.unwrap();
    assert!(store.lead_reconciler("one", 60_000).await.unwrap(), "nor for ever");
}
