//! What is remembered of an entity goes once the entity is retired.

use seriatim::{
    order::{Entity, Policy, Retirement},
    store::{Commit, GroupId, HoldState, RetiredPoints, Start},
};

use crate::world::{World, acked, eventually, next, options};

/// Every event is its entity's last.
async fn retire(world: &World, times: Retirement) {
    let terminal_types = ["step".to_owned()].into();
    world.policy(Policy { retirement: times, terminal_types, ..Policy::default() }).await;
}

#[tokio::test]
async fn retired_entities_are_forgotten() {
    for world in [World::memory().await, World::redis().await] {
        let times = Retirement { stuck_after: 1, retire_after: 1, ..Policy::default().retirement };
        retire(&world, times).await;
        world.publish("a", [0]).await;
        let mut consumer = world.consumer(options("g")).await;
        assert_eq!(acked(&mut consumer).await, "a 0");
        let (id, entities) = (world.partition_of("a"), [Entity::new("a").unwrap()]);
        assert!(world.store.points(&id, "g", &entities).await.unwrap()[0].is_some());
        eventually("it is forgotten", || async {
            world.store.sweep(&id, 10, None).await.unwrap();
            world.store.points(&id, "g", &entities).await.unwrap()[0].is_none()
        })
        .await;
    }
}

/// Whoever takes over reads on from the floor: what is above it must be known to be done.
#[tokio::test]
async fn what_is_retired_is_forgotten_once_the_group_has_come_past_it() {
    for world in [World::memory().await, World::redis().await] {
        // Tombstones go before anybody looks.
        let times = Retirement { stuck_after: 1, retire_after: 1, remember_for: 1, idle_retire_after: 0 };
        retire(&world, times).await;
        world.publish("a", [0]).await;
        let (store, id, entity) = (&world.store, world.partition_of("a"), Entity::new("a").unwrap());
        let group = GroupId { topic: "jobs".into(), group: "g".into() };
        store.register(&group, world.partitions, Start::Beginning).await.unwrap();
        let free = store.leases(&group, world.partitions).await.unwrap().remove(id.index as usize);
        let term = store.lease(&id, "g", "me", &free).await.unwrap().unwrap().term;
        let commit = async |number, floor, point: &str| {
            let points = vec![(entity.clone(), point.parse().unwrap())];
            let commit = Commit { term, number, floor, points, ..Commit::default() };
            store.commit(&id, "g", &commit).await.unwrap();
        };
        let sweep =
            async |term, found: &RetiredPoints| store.sweep_points(&id, "g", term, found, 100).await.unwrap();
        let is_known =
            async || store.points(&id, "g", std::slice::from_ref(&entity)).await.unwrap()[0].is_some();

        let nothing = RetiredPoints::default();
        commit(0, Default::default(), "0:1").await;
        assert_eq!(sweep(term, &nothing).await.unwrap().points, [], "it has a lane");
        eventually("it is retired, and not remembered", || async {
            store.sweep(&id, 10, None).await.unwrap().forgotten > 0
        })
        .await;
        assert_eq!(sweep(term + 1, &nothing).await, None, "somebody else's term");
        let found = sweep(term, &nothing).await.unwrap();
        assert_eq!(found.points, [("a".to_owned(), "0:1".to_owned())]);
        assert_eq!(sweep(term, &found).await, None, "the group has not come so far");
        assert!(is_known().await);

        commit(1, found.upto, "1:1").await;
        assert_eq!(sweep(term, &found).await.unwrap().forgotten, 0, "it moved: this is a new life");
        assert!(is_known().await);
        let found = sweep(term, &nothing).await.unwrap();
        assert_eq!(sweep(term, &found).await.unwrap().forgotten, 1);
        assert!(!is_known().await);
    }
}

/// A partition in which something is held for good forgets the others all the same.
#[tokio::test]
async fn retired_entities_are_forgotten_beside_one_that_is_dead() {
    for world in [World::memory().await, World::redis().await] {
        let times = Retirement { stuck_after: 1, retire_after: 1, ..Policy::default().retirement };
        retire(&world, times).await;
        let (store, id) = (&world.store, world.partition_of("dead"));
        let done = (0..).map(|n| format!("done-{n}")).find(|name| world.partition_of(name) == id).unwrap();
        let mut consumer = world.consumer(options("g")).await;
        world.publish("dead", [0]).await;
        for _ in 0..5 {
            next(&mut consumer).await.nack("poison").await.unwrap();
        }
        eventually("it is dead", || async {
            let heads = store.heads(&id, "g").await.unwrap();
            heads.iter().any(|(_, head)| head.state == HoldState::Dead)
        })
        .await;
        world.publish(&done, [0]).await;
        assert_eq!(acked(&mut consumer).await, format!("{done} 0"));
        let entities = [Entity::new(&done).unwrap()];
        eventually("the other one is forgotten", || async {
            store.sweep(&id, 10, None).await.unwrap();
            store.points(&id, "g", &entities).await.unwrap()[0].is_none()
        })
        .await;
        assert_eq!(store.heads(&id, "g").await.unwrap().len(), 1, "this one is not");
    }
}
