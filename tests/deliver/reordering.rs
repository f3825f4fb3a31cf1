//! The reorder buffer: what passed, what others wrote, markers, late events.

use std::time::Duration;

use seriatim::{
    order::{LatePlace, Ordering, Policy},
    store::{GroupId, GroupKeys, Switches},
};

use crate::world::{World, acked, nothing, options};

fn passing() -> Policy {
    Policy { ordering: Ordering::Off, ..Policy::default() }
}

#[tokio::test]
async fn what_passed_out_of_order_is_put_back_in_order() {
    for world in [World::memory().await, World::redis().await] {
        world.policy(passing()).await;
        for sequence in [2, 0, 3, 1] {
            world.publish("a", [sequence]).await;
        }
        let mut consumer = world.consumer(options("g")).await;
        for sequence in 0..4 {
            assert_eq!(acked(&mut consumer).await, format!("a {sequence}"));
        }
        nothing(&mut consumer, Duration::from_millis(400)).await;
    }
}

#[tokio::test]
async fn what_is_missing_is_waited_for_and_then_a_gap() {
    for world in [World::memory().await, World::redis().await] {
        world.policy(passing()).await;
        world.publish("a", [0]).await;
        world.publish("a", [3]).await;
        let mut consumer = world.consumer(options("g")).await;
        assert_eq!(acked(&mut consumer).await, "a 0");
        nothing(&mut consumer, Duration::from_millis(100)).await;
        assert_eq!(acked(&mut consumer).await, "a gap 1-2 timeout");
        assert_eq!(acked(&mut consumer).await, "a 3");
        // Late is late, and comes all the same.
        world.publish("a", [2]).await;
        assert_eq!(acked(&mut consumer).await, "a late 2");
        consumer.close().await;
        let mut consumer = world.consumer(options("g")).await;
        nothing(&mut consumer, Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn what_waits_survives_a_crash() {
    for world in [World::memory().await, World::redis().await] {
        world.policy(passing()).await;
        world.publish("a", [0]).await;
        world.publish("a", [2]).await;
        let options = seriatim::deliver::ConsumerOptions {
            missing_waits: vec![Duration::from_secs(60)],
            ..options("g")
        };
        let mut first = world.consumer(options.clone()).await;
        assert_eq!(acked(&mut first).await, "a 0");
        drop(first);
        world.publish("a", [1]).await;
        let mut second = world.consumer(options).await;
        assert_eq!((acked(&mut second).await, acked(&mut second).await), ("a 1".into(), "a 2".into()));
    }
}

#[tokio::test]
async fn a_sidecars_gap_is_delivered_with_its_reason_in_its_place() {
    for world in [World::memory().await, World::redis().await] {
        world.policy(Policy { late: LatePlace::Inline, ..Policy::default() }).await;
        world.publish("a", [0, 3]).await;
        let gap = seriatim::store::GapId {
            entity: seriatim::order::Entity::new("a").unwrap(),
            epoch: seriatim::order::Epoch::new(0).unwrap(),
            next: seriatim::order::Sequence::new(1).unwrap(),
        };
        world.store.skip(&world.partition_of("a"), &gap, "").await.unwrap().unwrap();
        world.publish("a", [4]).await;
        world.publish("a", [2]).await;
        let mut consumer = world.consumer(options("g")).await;
        let mut came = Vec::new();
        for _ in 0..5 {
            came.push(acked(&mut consumer).await);
        }
        assert_eq!(came, ["a 0", "a gap 1-2 operator", "a 3", "a 4", "a late 2"]);
    }
}

#[tokio::test]
async fn entries_of_other_programs_are_put_in_order_and_bad_ones_left_out() {
    let world = World::redis().await;
    let url = world.redis.as_ref().unwrap().url();
    let mut connection = crate::support::direct(&url).await;
    let key = GroupKeys::new(&world.partition_of("x"), "g").events;
    for fields in [
        vec![("entity", "x"), ("sequence", "1"), ("data", "x/1")],
        vec![("entity", "x"), ("sequence", "what?")],
        vec![("nothing", "of ours")],
        vec![("entity", "x"), ("sequence", "0"), ("data", "x/0"), ("colour", "blue")],
    ] {
        let mut add = redis::cmd("XADD");
        add.arg(&key).arg("*").arg(&fields);
        let _: String = add.query_async(&mut connection).await.unwrap();
    }
    let mut consumer = world.consumer(options("g")).await;
    assert_eq!((acked(&mut consumer).await, acked(&mut consumer).await), ("x 0".into(), "x 1".into()));
    nothing(&mut consumer, Duration::from_millis(400)).await;
    assert_eq!(consumer.counts().malformed.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_degraded_group_waits_for_nothing_and_says_so() {
    for world in [World::memory().await, World::redis().await] {
        world.policy(passing()).await;
        let mut consumer = world.consumer(options("g")).await;
        let group = GroupId { topic: "jobs".into(), group: "g".into() };
        world.publish("a", [0]).await;
        assert_eq!(acked(&mut consumer).await, "a 0");
        assert!(world.store.switch(&group, Switches { paused: false, degraded: true }).await.unwrap());
        tokio::time::sleep(Duration::from_millis(400)).await;
        world.publish("a", [2]).await;
        assert_eq!(acked(&mut consumer).await, "a passed 2");
        world.publish("a", [1]).await;
        assert_eq!(acked(&mut consumer).await, "a passed 1");
        assert!(world.store.switch(&group, Switches::default()).await.unwrap());
        tokio::time::sleep(Duration::from_millis(400)).await;
        world.publish("a", [4]).await;
        world.publish("a", [3]).await;
        assert_eq!((acked(&mut consumer).await, acked(&mut consumer).await), ("a 3".into(), "a 4".into()));
    }
}

#[tokio::test]
async fn what_passed_a_degraded_group_is_done_for_the_next_worker() {
    for world in [World::memory().await, World::redis().await] {
        world.policy(passing()).await;
        let mut first = world.consumer(options("g")).await;
        let group = GroupId { topic: "jobs".into(), group: "g".into() };
        assert!(world.store.switch(&group, Switches { paused: false, degraded: true }).await.unwrap());
        tokio::time::sleep(Duration::from_millis(400)).await;
        // Something holds the floor down.
        world.publish("slow", [0]).await;
        let slow = crate::world::next(&mut first).await;
        world.publish("a", [0, 2, 3]).await;
        for wanted in ["a passed 0", "a passed 2", "a passed 3"] {
            assert_eq!(acked(&mut first).await, wanted);
        }
        assert!(world.store.switch(&group, Switches::default()).await.unwrap());
        std::mem::forget(first.freeze());
        std::mem::forget(slow);
        let mut second = world.consumer(options("g")).await;
        // Nobody was told yet of what is missing; there is order again, and so they are.
        let mut shown = [acked(&mut second).await, acked(&mut second).await];
        shown.sort();
        assert_eq!(shown, ["a gap 1-1 degraded", "slow 0"]);
        nothing(&mut second, Duration::from_millis(300)).await;
        // What was missing is still known to be.
        world.publish("a", [1]).await;
        assert_eq!(acked(&mut second).await, "a late 1");
        world.publish("a", [4]).await;
        assert_eq!(acked(&mut second).await, "a 4");
    }
}
