//! Order, parallelism, take-over.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use seriatim::store::{GroupId, Start};

use crate::world::{World, acked, next, nothing, options, shown};

#[tokio::test]
async fn events_come_in_order_and_once() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("a", 0..5).await;
        let mut consumer = world.consumer(options("g")).await;
        for sequence in 0..5 {
            assert_eq!(acked(&mut consumer).await, format!("a {sequence}"));
        }
        world.publish("a", 5..7).await;
        assert_eq!((acked(&mut consumer).await, acked(&mut consumer).await), ("a 5".into(), "a 6".into()));
        consumer.close().await;
        // Another one of the group goes on where it was; another group begins at the beginning.
        world.publish("a", [7]).await;
        let mut consumer = world.consumer(options("g")).await;
        assert_eq!(acked(&mut consumer).await, "a 7");
        nothing(&mut consumer, Duration::from_millis(300)).await;
        let mut other = world.consumer(options("other")).await;
        assert_eq!(acked(&mut other).await, "a 0");
    }
}

#[tokio::test]
async fn one_of_an_entity_at_a_time_and_many_entities_at_once() {
    for world in [World::memory().await, World::redis().await] {
        let names: Vec<String> = (0..20).map(|n| format!("job-{n}")).collect();
        for sequence in 0..3 {
            world.publish_all(names.iter().map(|name| (name.clone(), sequence)).collect()).await;
        }
        let mut consumer = world.consumer(options("g")).await;
        let mut out = BTreeMap::new();
        for _ in &names {
            let delivery = next(&mut consumer).await;
            assert_eq!(delivery.sequence, 0);
            out.insert(delivery.entity.clone(), delivery);
        }
        assert_eq!(out.len(), names.len(), "all at once");
        nothing(&mut consumer, Duration::from_millis(200)).await;
        // One that is answered is followed by its next, whatever the others do.
        out.remove("job-7").unwrap().ack().await.unwrap();
        assert_eq!(shown(&next(&mut consumer).await), "job-7 1");
    }
}

#[tokio::test]
async fn credit_bounds_what_is_out() {
    let world = World::redis().await;
    world.publish_all((0..50).map(|n| (format!("job-{n}"), 0)).collect()).await;
    let mut consumer =
        world.consumer(seriatim::deliver::ConsumerOptions { in_flight_max: 3, ..options("g") }).await;
    let mut out = Vec::new();
    for _ in 0..3 {
        out.push(next(&mut consumer).await);
    }
    nothing(&mut consumer, Duration::from_millis(200)).await;
    out.pop().unwrap().ack().await.unwrap();
    out.push(next(&mut consumer).await);
    nothing(&mut consumer, Duration::from_millis(200)).await;
    consumer.set_in_flight_max(5);
    out.push(next(&mut consumer).await);
    out.push(next(&mut consumer).await);
    nothing(&mut consumer, Duration::from_millis(200)).await;
}

#[tokio::test]
async fn what_a_lost_worker_had_comes_again_in_order_and_what_it_acked_does_not() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("a", 0..4).await;
        world.publish("b", 0..4).await;
        let mut first = world.consumer(options("g")).await;
        for _ in 0..4 {
            acked(&mut first).await;
        }
        let out = [next(&mut first).await, next(&mut first).await];
        let had: BTreeSet<String> = out.iter().map(shown).collect();
        // It hangs: its lease is not renewed, and nothing is given back.
        let frozen = first.freeze();
        let mut second = world.consumer(options("g")).await;
        let mut came: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        while came.values().map(Vec::len).sum::<usize>() < 4 {
            let delivery = next(&mut second).await;
            came.entry(delivery.entity.clone()).or_default().push(delivery.sequence);
            delivery.ack().await.unwrap();
        }
        nothing(&mut second, Duration::from_millis(300)).await;
        let all: usize = came.values().map(Vec::len).sum();
        assert_eq!(all, 4, "{came:?}");
        for (entity, sequences) in &came {
            assert!(sequences.is_sorted(), "{entity}: {sequences:?}");
        }
        assert_eq!(had.len(), 2);
        // It comes back, and its answers come to nothing.
        frozen.thaw();
        for delivery in out {
            assert!(delivery.ack().await.is_err(), "somebody else has acknowledged it");
        }
    }
}

#[tokio::test]
async fn partitions_are_shared_and_given_back() {
    let world = World::redis_with(16).await;
    let mut first = world.consumer(options("g")).await;
    crate::world::eventually("it has all partitions", || async {
        first.counts().leases.load(std::sync::atomic::Ordering::Relaxed) == 16
    })
    .await;
    let second = world.consumer(options("g")).await;
    let leases = |consumer: &seriatim::deliver::Consumer| {
        consumer.counts().leases.load(std::sync::atomic::Ordering::Relaxed)
    };
    crate::world::eventually("they share", || async {
        leases(&first) + leases(&second) == 16 && leases(&second) >= 3
    })
    .await;
    second.close().await;
    crate::world::eventually("it has all of them again", || async { leases(&first) == 16 }).await;
    world.publish("a", [0]).await;
    assert_eq!(acked(&mut first).await, "a 0");
}

#[tokio::test]
async fn a_group_can_begin_behind_an_entry() {
    use seriatim::order::Place;
    for world in [World::memory().await, World::redis().await] {
        world.publish("a", 0..4).await;
        let (id, beginning) = (world.partition_of("a"), Default::default());
        let entries = world.store.read(&id, Place::Events, beginning, 9).await.unwrap();
        let group = GroupId { topic: "jobs".into(), group: "behind".into() };
        let start = Start::After(entries[1].id.entry);
        assert!(world.store.register(&group, world.partitions, start).await.unwrap());
        let mut consumer = world.consumer(options("behind")).await;
        assert_eq!((acked(&mut consumer).await, acked(&mut consumer).await), ("a 2".into(), "a 3".into()));
        nothing(&mut consumer, Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_group_can_begin_at_the_end() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("a", 0..3).await;
        let group = GroupId { topic: "jobs".into(), group: "late-comer".into() };
        assert!(world.store.register(&group, world.partitions, Start::End).await.unwrap());
        assert!(!world.store.register(&group, world.partitions, Start::Beginning).await.unwrap());
        world.publish("a", 3..5).await;
        let mut consumer = world.consumer(options("late-comer")).await;
        // Known from here on, without a gap for what was before.
        assert_eq!((acked(&mut consumer).await, acked(&mut consumer).await), ("a 3".into(), "a 4".into()));
    }
}
