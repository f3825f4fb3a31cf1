//! The missing event comes at the very moment in which its gap is given up: it is either
//! released or late, never both and never neither.
//!
//! Two connections: one looks at the time, and gives up the gap that is due first; the
//! other brings the missing event of that very gap, a little before or after.

mod support;

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::AsyncCommands;
use seriatim::{
    order::{BreakerPolicy, Entity, Epoch, Event, Order, Place, Policy, Position, Sequence, Verdict},
    store::{
        Batch, Entry, Layout, Numbering, Offer, PartitionId, PartitionKeys, Payload, RedisStore, Store,
        StreamId, TopicSpec,
    },
};
use support::{direct, redis_server, redis_store};

const TRIES: u64 = 10_000;
/// Gaps that are opened at a time; each try uses up one or two.
const GAPS_A_ROUND: u64 = 500;
/// By how much later than the look the event is sent: from well before to well after.
const OFFSET_MIN_US: i64 = -100;
const OFFSET_MAX_US: i64 = 400;
const OFFSET_STEP_US: i64 = 5;
/// Each outcome must be seen in at least this share of the tries.
const SHARE_MIN_PERCENT: u64 = 5;

fn partition() -> PartitionId {
    PartitionId { topic: "jobs".into(), index: 0 }
}

fn offer(entity: &str, sequence: u64) -> (Offer, ()) {
    let event = Event {
        epoch: Epoch::new(0).unwrap(),
        position: Position::Given(Sequence::new(sequence).unwrap()),
        terminal: false,
        payload: Payload { kind: "step".into(), attrs: "{}".into(), data: Default::default() },
    };
    (Offer { entity: Entity::new(entity).unwrap(), event }, ())
}

async fn admit(store: &RedisStore, offers: Vec<(Offer, ())>) -> Vec<Verdict> {
    let admitted = store.admit(&partition(), &Batch::form(offers).0).await.unwrap();
    admitted.decisions.into_iter().map(|decision| decision.verdict).collect()
}

/// A sleep would be too coarse by far.
fn spin(micros: i64) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(u64::try_from(micros).unwrap_or(0)) {
        std::hint::spin_loop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn it_is_either_released_or_late() {
    let redis = redis_server(&[]);
    let (skipping, bringing) = (Arc::new(redis_store(&redis.url())), Arc::new(redis_store(&redis.url())));
    let mut direct = direct(&redis.url()).await;
    // No breaker: it would take the promise of order away that is being tried here.
    let breaker = BreakerPolicy { skips: 0, window: 1, hold: 0 };
    let policy = Policy { gap_waits: vec![1], breaker, ..Policy::default() };
    let topic = TopicSpec {
        name: "jobs".into(),
        partitions: 1,
        layout: Layout::Entry,
        numbering: Numbering::Producer,
        policy,
    };
    skipping.open(&topic).await.unwrap();
    bringing.open(&topic).await.unwrap();

    let mut tried: BTreeMap<String, Verdict> = BTreeMap::new();
    let mut opened = 0;
    let mut offset = OFFSET_MIN_US;
    while (tried.len() as u64) < TRIES {
        let gaps: Vec<(String, f64)> =
            direct.zrange_withscores(PartitionKeys::new(&partition()).gaps, 0, 0).await.unwrap();
        let entity = gaps[0].0.clone();
        if entity.is_empty() {
            // Only the sentinel is left. An event of each, and one too far ahead.
            let names = (opened..opened + GAPS_A_ROUND).map(|n| format!("{n}")).collect::<Vec<_>>();
            opened += GAPS_A_ROUND;
            admit(&bringing, names.iter().flat_map(|name| [offer(name, 0), offer(name, 2)]).collect()).await;
            // Until a look finds more due than it may touch: from then on none comes too soon.
            while !skipping.elapse(&partition(), 1).await.unwrap().more {}
            continue;
        }
        offset = if offset >= OFFSET_MAX_US { OFFSET_MIN_US } else { offset + OFFSET_STEP_US };
        let (store, name) = (bringing.clone(), entity.clone());
        let brings = tokio::spawn(async move {
            spin(offset);
            admit(&store, vec![offer(&name, 1)]).await[0]
        });
        spin(-offset);
        skipping.elapse(&partition(), 1).await.unwrap();
        let verdict = brings.await.unwrap();
        assert!(tried.insert(entity, verdict).is_none(), "an entity is tried once");
    }
    let count =
        |wanted: fn(&Verdict) -> bool| tried.values().filter(|verdict| wanted(verdict)).count() as u64;
    let released = count(|verdict| matches!(verdict, Verdict::Released { .. }));
    let late = count(|verdict| matches!(verdict, Verdict::Late { .. }));
    println!("{} tries: {released} released, {late} late", tried.len());
    assert_eq!(released + late, tried.len() as u64, "a third outcome");
    for outcome in [released, late] {
        assert!(outcome * 100 >= TRIES * SHARE_MIN_PERCENT, "{released} released, {late} late");
    }
    check_streams(&skipping, &tried).await;
}

async fn read_all(store: &RedisStore, place: Place) -> Vec<Entry> {
    let mut all = Vec::new();
    let mut after = StreamId::default();
    loop {
        let page = store.read(&partition(), place, after, 1_000).await.unwrap();
        let Some(last) = page.last() else { return all };
        after = last.id.entry;
        all.extend(page);
    }
}

/// Every entity that was tried: 0, then either 1 or a gap in its place, then 2; and 1 in
/// `late` exactly where the gap is, and as its verdict said.
async fn check_streams(store: &RedisStore, tried: &BTreeMap<String, Verdict>) {
    let mut shapes: BTreeMap<String, String> = BTreeMap::new();
    for entry in read_all(store, Place::Events).await {
        let letter = if entry.order == Order::Marker { 'g' } else { 's' };
        shapes.entry(entry.entity).or_default().push_str(&format!("{letter}{} ", entry.sequence));
    }
    for entry in read_all(store, Place::Late).await {
        shapes.get_mut(&entry.entity).expect("it was seen").push_str(&format!("late{}", entry.sequence));
    }
    for (entity, verdict) in tried {
        let shape = match verdict {
            Verdict::Released { .. } => "s0 s1 s2 ",
            _ => "s0 g1 s2 late1",
        };
        assert_eq!(shapes[entity], shape, "{entity} got {verdict:?}");
    }
}
