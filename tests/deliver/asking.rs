//! What workers ask of their store, how often, and what they do when it forgot them.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use seriatim::{
    deliver::ConsumerOptions,
    order::Entity,
    store::{
        Commit, Committed, Granted, GroupId, GroupKeys, Head, HeadChange, HoldState, LeaseSeen, PartitionId,
        Start, StreamId, Wish,
    },
};

use crate::{
    watched::Watched,
    world::{BOUND, TOPIC, World, acked, eventually, next, nothing, options, shown},
};

fn group() -> GroupId {
    GroupId { topic: TOPIC.into(), group: "g".into() }
}

#[tokio::test]
async fn a_commit_is_applied_once_and_only_in_its_turn() {
    for world in [World::memory().await, World::redis().await] {
        let (store, id) = (&world.store, PartitionId { topic: TOPIC.into(), index: 0 });
        store.register(&group(), world.partitions, Start::Beginning).await.unwrap();
        let free = store.leases(&group(), 1).await.unwrap().remove(0);
        let term = store.lease(&id, "g", "me", &free).await.unwrap().unwrap().term;
        let entity = Entity::new("a").unwrap();
        let floor = |milliseconds| StreamId { milliseconds, counter: 0 };
        let first = Commit {
            term,
            number: 0,
            floor: floor(1),
            points: vec![(entity.clone(), "0:1".parse().unwrap())],
            heads: vec![HeadChange {
                entity: entity.clone(),
                was: None,
                head: "r,1,1763,0,1,10|0:2|no".parse().unwrap(),
                ends: false,
            }],
            kept: vec![(entity.clone(), 0, b"event".to_vec())],
            ..Commit::default()
        };
        let is_done = |committed| matches!(committed, Committed::Done { .. });
        assert!(is_done(store.commit(&id, "g", &first).await.unwrap()));
        // Its answer was lost. What a person wished before it is sent again is not undone.
        assert_eq!(store.wish(&id, "g", &entity, Wish::Redrive).await.unwrap(), Granted::Done);
        assert!(is_done(store.commit(&id, "g", &first).await.unwrap()), "it is there");
        let head = |heads: Vec<(Entity, Head)>| heads.into_iter().next().unwrap().1;
        let now = head(store.heads(&id, "g").await.unwrap());
        assert_eq!((now.state, now.attempts, now.due_ms), (HoldState::Retrying, 0, 0));
        let seen = store.leases(&group(), 1).await.unwrap().remove(0);
        assert_eq!(seen, LeaseSeen { owner: Some("me".into()), term, count: 1 });

        let second = Commit {
            number: 1,
            floor: floor(2),
            points: vec![(entity.clone(), "0:2".parse().unwrap())],
            heads: vec![],
            kept: vec![],
            dropped: vec![(entity.clone(), 0)],
            ..first.clone()
        };
        assert!(is_done(store.commit(&id, "g", &second).await.unwrap()));
        // One that lay in a buffer all the time, and one of a future that this store has lost.
        for odd in [first, Commit { number: 3, floor: floor(9), ..second }] {
            assert_eq!(store.commit(&id, "g", &odd).await.unwrap(), Committed::Fenced { term });
        }
        let points = store.points(&id, "g", std::slice::from_ref(&entity)).await.unwrap();
        assert_eq!(points, [Some("0:2".parse().unwrap())]);
        assert_eq!(store.kept(&id, "g", &entity, 0..9).await.unwrap(), []);
        assert_eq!(store.floor(&id).await.unwrap().unwrap().id, floor(2));
    }
}

#[tokio::test]
async fn a_wish_that_crosses_a_commit_stands() {
    for world in [World::memory().await, World::redis().await] {
        let (store, id) = (&world.store, PartitionId { topic: TOPIC.into(), index: 0 });
        store.register(&group(), world.partitions, Start::Beginning).await.unwrap();
        let free = store.leases(&group(), 1).await.unwrap().remove(0);
        let term = store.lease(&id, "g", "me", &free).await.unwrap().unwrap().term;
        let entity = Entity::new("a").unwrap();
        let change = |was, head: &str, ends| HeadChange {
            entity: entity.clone(),
            was,
            head: head.parse().unwrap(),
            ends,
        };
        let retrying = Some(HoldState::Retrying);
        let steps = [
            (None, change(None, "r,1,1763,0,1,10|0:1|no", false), "r,1,1763,0,1,10|0:1|no"),
            (None, change(retrying, "r,2,1764,0,2,20|0:2|no", false), "r,2,1764,0,2,20|0:2|no"),
            // The letter is the person's, the rest the worker's.
            (Some(Wish::Pause), change(retrying, "r,0,0,1,3,20|0:3|", false), "p,0,0,1,3,20|0:3|"),
            (
                Some(Wish::Resume),
                change(Some(HoldState::Paused), "p,0,0,1,3,20|0:3|", false),
                "r,0,0,1,3,20|0:3|",
            ),
            // It was to end, and goes on, because somebody paused it.
            (Some(Wish::Pause), change(retrying, "r,0,0,3,3,0|0:3|", true), "p,0,0,3,3,0|0:3|"),
        ];
        for (number, (wish, change, wanted)) in (0..).zip(steps) {
            if let Some(wish) = wish {
                assert_eq!(store.wish(&id, "g", &entity, wish).await.unwrap(), Granted::Done);
            }
            let commit = Commit { term, number, heads: vec![change], ..Commit::default() };
            store.commit(&id, "g", &commit).await.unwrap();
            let heads = store.heads(&id, "g").await.unwrap();
            assert_eq!(heads[0].1.to_string(), wanted, "after step {number}");
        }
        let ends = change(Some(HoldState::Paused), "r,0,0,3,3,0|0:3|", true);
        let commit = Commit { term, number: 5, heads: vec![ends], ..Commit::default() };
        store.commit(&id, "g", &commit).await.unwrap();
        assert_eq!(store.heads(&id, "g").await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_worker_whose_answers_from_the_store_are_lost_goes_on_under_its_lease() {
    for world in [World::memory().await, World::redis().await] {
        let watched = Watched::new(&world.store);
        watched.loses_answers.store(true, Ordering::Relaxed);
        world.publish("a", 0..5).await;
        let lossy = world.through(watched.clone());
        let mut consumer = lossy.consumer(options("g")).await;
        for sequence in 0..5 {
            let delivery = next(&mut consumer).await;
            assert_eq!((shown(&delivery), delivery.attempt), (format!("a {sequence}"), 1));
            // One fails, so that something is held, too.
            if sequence == 2 {
                delivery.nack("no").await.unwrap();
                let again = next(&mut consumer).await;
                assert_eq!((shown(&again), again.attempt), ("a 2".into(), 2));
                again.ack().await.unwrap();
            } else {
                delivery.ack().await.unwrap();
            }
        }
        nothing(&mut consumer, Duration::from_millis(300)).await;
        assert_eq!(
            consumer.counts().leases_lost.load(Ordering::Relaxed),
            0,
            "no commit was taken for another"
        );
        assert!(watched.count("commit") > 10, "each was sent twice");
    }
}

/// Everything published comes, the last one too; what was done before may come again.
async fn goes_on(world: &World, consumer: &mut seriatim::deliver::Consumer, names: &[String], sequence: u64) {
    world.publish_all(names.iter().map(|name| (name.clone(), sequence)).collect()).await;
    let mut waiting: std::collections::BTreeSet<String> =
        names.iter().map(|name| format!("{name} {sequence}")).collect();
    while !waiting.is_empty() {
        let delivery = next(consumer).await;
        let shown = shown(&delivery);
        // An answer may come to nothing: the event comes again.
        if delivery.ack().await.is_ok() {
            waiting.remove(&shown);
        }
    }
}

/// Entities in all partitions.
fn names() -> Vec<String> {
    (0..24).map(|n| format!("job-{n}")).collect()
}

#[tokio::test]
async fn a_group_that_vanished_is_made_anew_and_nothing_is_lost() {
    for world in [World::memory().await, World::redis().await] {
        let names = names();
        let mut consumer = world.consumer(options("g")).await;
        goes_on(&world, &mut consumer, &names, 0).await;
        world.store.remove(&group(), world.partitions).await.unwrap();
        goes_on(&world, &mut consumer, &names, 1).await;
        eventually("it is registered", || async {
            let groups = world.store.groups(TOPIC).await.unwrap();
            groups.iter().any(|(name, _)| name == "g")
        })
        .await;
    }
}

#[tokio::test]
async fn a_group_that_is_half_removed_is_made_whole_and_nothing_is_lost() {
    let world = World::redis().await;
    let url = world.redis.as_ref().unwrap().url();
    let mut connection = crate::support::direct(&url).await;
    let names = names();
    let mut consumer = world.consumer(options("g")).await;
    goes_on(&world, &mut consumer, &names, 0).await;
    let keys = |index| GroupKeys::new(&PartitionId { topic: TOPIC.into(), index }, "g");
    // A removal that was cut short: partitions behind the one that is gone are whole.
    let gone = keys(1);
    let () = redis::cmd("DEL")
        .arg(&[gone.lease, gone.resume, gone.held, gone.kept])
        .query_async(&mut connection)
        .await
        .unwrap();
    goes_on(&world, &mut consumer, &names, 1).await;
    // A removal that crossed its registration: the lease is there and free, the floor is gone.
    let crossed = keys(2);
    let () = redis::pipe()
        .atomic()
        .hset_multiple(
            &crossed.lease,
            &[("owner", ""), ("term", "0"), ("count", "0"), ("running", ""), ("loose", "")],
        )
        .hdel(&crossed.groups, "g")
        .query_async(&mut connection)
        .await
        .unwrap();
    goes_on(&world, &mut consumer, &names, 2).await;
}

#[tokio::test]
async fn what_nobody_will_answer_does_not_delay_the_end() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("a", 0..2).await;
        world.publish("b", 0..2).await;
        // Much longer than anything may take.
        let options = ConsumerOptions { drain: BOUND * 10, ..options("g") };
        let mut consumer = world.consumer(options.clone()).await;
        let (one, other) = (next(&mut consumer).await, next(&mut consumer).await);
        let abandoned = shown(&one);
        one.abandon();
        drop(other);
        tokio::time::timeout(BOUND, consumer.close()).await.expect("nobody is waited for");
        // Both come again, in order: nothing of them was handled.
        let mut consumer = world.consumer(options).await;
        let mut came = Vec::new();
        for _ in 0..4 {
            came.push(acked(&mut consumer).await);
        }
        came.sort();
        assert_eq!(came, ["a 0", "a 1", "b 0", "b 1"], "{abandoned} was abandoned");
    }
}

/// Calls within a while, at most: one for each of these milliseconds, and some to begin with.
async fn at_most_every(watched: &Watched, milliseconds: u128, what: &str) {
    let calls = || watched.count("wait") + watched.count("read_on") + watched.count("points");
    let (before, since) = (calls(), Instant::now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (made, passed) = (calls() - before, since.elapsed().as_millis());
    assert!(u128::from(made) <= passed / milliseconds + 5, "{what}: {made} calls in {passed} ms");
}

#[tokio::test]
async fn a_worker_with_nothing_to_read_or_no_room_asks_rarely() {
    for world in [World::memory().await, World::redis().await] {
        let watched = Watched::new(&world.store);
        let seen = world.through(watched.clone());
        let options = ConsumerOptions { window_entries: 4, ..options("g") };
        let mut consumer = seen.consumer(options.clone()).await;
        eventually("it has all partitions", || async {
            consumer.counts().leases.load(Ordering::Relaxed) == u64::from(world.partitions)
        })
        .await;
        at_most_every(&watched, 90, "nothing to read").await;
        // One partition has more than there is room for, and nobody answers.
        world.publish("a", 0..20).await;
        let out = next(&mut consumer).await;
        at_most_every(&watched, 90, "one partition is full").await;
        assert_eq!(shown(&out), "a 0");
        // Who comes to a backlog reads what there is room for.
        world.publish_all((0..200).map(|n| (format!("job-{n}"), 0)).collect()).await;
        let mut late_comer = seen.consumer(ConsumerOptions { group: "h".into(), ..options }).await;
        drop(consumer);
        let _out = next(&mut late_comer).await;
        at_most_every(&watched, 90, "all partitions are full").await;
    }
}

/// While one partition cannot be read the others are waited for as always.
#[tokio::test]
async fn a_partition_that_cannot_be_read_is_tried_rarely_and_the_others_go_on() {
    let world = World::redis().await;
    let url = world.redis.as_ref().unwrap().url();
    let mut connection = crate::support::direct(&url).await;
    let watched = Watched::new(&world.store);
    let seen = world.through(watched.clone());
    let mut consumer = seen.consumer(options("g")).await;
    let (broken, whole) = (world.partition_of("a"), (0..).map(|n| format!("job-{n}")));
    let whole: Vec<String> = whole.filter(|name| world.partition_of(name) != broken).take(3).collect();
    let key = GroupKeys::new(&broken, "g").resume;
    goes_on(&world, &mut consumer, &whole, 0).await;
    let () = redis::cmd("SET").arg(&key).arg("what is this?").query_async(&mut connection).await.unwrap();
    world.publish("a", [0]).await;
    eventually("it fails", || async { watched.count("points") > 3 }).await;
    at_most_every(&watched, 20, "one partition cannot be read").await;
    goes_on(&world, &mut consumer, &whole, 1).await;
    // Somebody mends it.
    let () = redis::pipe().del(&key).hset(&key, "", "").query_async(&mut connection).await.unwrap();
    assert_eq!(acked(&mut consumer).await, "a 0");
}

#[tokio::test]
async fn of_idle_entities_only_so_many_are_remembered() {
    for world in [World::memory().await, World::redis().await, World::redis_with(1).await] {
        let watched = Watched::new(&world.store);
        let seen = world.through(watched.clone());
        let mut consumer = seen.consumer(ConsumerOptions { window_entries: 4, ..options("g") }).await;
        world.publish("a", [0]).await;
        assert_eq!(acked(&mut consumer).await, "a 0");
        for n in 0..200 {
            world.publish(&format!("job-{n}"), [0]).await;
            acked(&mut consumer).await;
        }
        world.publish("a", [1]).await;
        assert_eq!(acked(&mut consumer).await, "a 1");
        let entity = Entity::new("a").unwrap();
        let times = watched.looked_up.lock().unwrap().iter().filter(|one| **one == entity).count();
        assert_eq!(times, 2, "it was forgotten meanwhile, and looked up again");
    }
}
