//! Topics in `batch` layout: an entry holds many events, each of which is delivered, held,
//! suspected and taken over by itself; the entry is done when all of them are.

use std::time::Duration;

use seriatim::{
    deliver::{Consumer, Delivery},
    order::Place,
    store::{GroupKeys, HoldState, PartitionId, StreamId},
};

use crate::{
    support::direct,
    world::{World, acked, eventually, next, nothing, options, shown},
};

/// The only partition.
fn partition(world: &World) -> PartitionId {
    world.partition_of("a")
}

/// Publishes one call, which is one entry, and returns its id.
async fn publish_entry(world: &World, events: &[(&str, u64)]) -> StreamId {
    world
        .publish_all(events.iter().map(|(entity, sequence)| ((*entity).to_owned(), *sequence)).collect())
        .await;
    let all = world.store.read(&partition(world), Place::Events, StreamId::default(), 1_000).await.unwrap();
    let last = all.last().expect("something was released").id;
    assert_eq!(last.index as usize + 1, events.len(), "all of it is one entry");
    last.entry
}

async fn floor(world: &World) -> StreamId {
    world.store.floor(&partition(world)).await.unwrap().map(|floor| floor.id).unwrap_or_default()
}

async fn floor_reaches(world: &World, entry: StreamId) {
    eventually("the whole entry is done", || async { floor(world).await == entry }).await;
}

/// So many deliveries that are out together, by name.
async fn out(consumer: &mut Consumer, count: usize) -> Vec<Delivery> {
    let mut out = Vec::new();
    for _ in 0..count {
        out.push(next(consumer).await);
    }
    out.sort_by_key(shown);
    out
}

#[tokio::test]
async fn an_entry_is_done_when_all_its_events_are() {
    for world in World::batches().await {
        let entry = publish_entry(&world, &[("a", 0), ("b", 0), ("c", 0), ("c", 1)]).await;
        let mut consumer = world.consumer(options("g")).await;
        let mut three = out(&mut consumer, 3).await.into_iter();
        let ids: Vec<String> = three.as_slice().iter().map(|one| one.id.unwrap().to_string()).collect();
        assert_eq!(ids, [entry.to_string(), format!("{entry}#1"), format!("{entry}#2")]);
        let (a, b, c) = (three.next().unwrap(), three.next().unwrap(), three.next().unwrap());
        a.ack().await.unwrap();
        c.ack().await.unwrap();
        assert_eq!(acked(&mut consumer).await, "c 1");
        assert!(floor(&world).await < entry, "b is not done");
        b.ack().await.unwrap();
        floor_reaches(&world, entry).await;
    }
}

#[tokio::test]
async fn whoever_takes_over_in_the_middle_of_an_entry_delivers_the_rest_of_it() {
    for world in World::batches().await {
        let entry = publish_entry(&world, &[("a", 0), ("a", 1), ("b", 0), ("c", 0)]).await;
        let mut first = world.consumer(options("g")).await;
        let mut three = out(&mut first, 3).await;
        let b = three.remove(1);
        three.remove(1).ack().await.unwrap();
        three.remove(0).ack().await.unwrap();
        // Its process ends: a 1 was perhaps begun, b 0 certainly.
        std::mem::forget(first.freeze());
        std::mem::forget(b);
        let mut second = world.consumer(options("g")).await;
        let mut came = vec![acked(&mut second).await, acked(&mut second).await];
        came.sort();
        assert_eq!(came, ["a 1", "b 0"]);
        floor_reaches(&world, entry).await;
        nothing(&mut second, Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn an_event_that_fails_is_held_and_its_neighbours_go_on() {
    for world in World::batches().await {
        let entry = publish_entry(&world, &[("bad", 0), ("bad", 1), ("good", 0)]).await;
        let mut consumer = world.consumer(options("g")).await;
        let mut two = out(&mut consumer, 2).await;
        two.remove(0).nack("poison").await.unwrap();
        two.remove(0).ack().await.unwrap();
        // Held is done, as far as the stream is concerned.
        floor_reaches(&world, entry).await;
        let entry = publish_entry(&world, &[("bad", 2), ("good", 1)]).await;
        let mut came = Vec::new();
        for _ in 0..4 {
            came.push(acked(&mut consumer).await);
        }
        let of = |entity: &str| came.iter().filter(|shown| shown.starts_with(entity)).collect::<Vec<_>>();
        assert_eq!(of("bad"), ["bad 0", "bad 1", "bad 2"]);
        assert_eq!(of("good"), ["good 1"]);
        floor_reaches(&world, entry).await;
    }
}

#[tokio::test]
async fn an_event_that_ends_its_worker_is_dead_and_its_entry_is_done() {
    for world in World::batches().await {
        let entry = publish_entry(&world, &[("good", 0), ("killer", 0), ("killer", 1)]).await;
        let (mut ends, mut handled) = (0, Vec::new());
        let is_dead = || async {
            // At first there is no such group.
            let heads = world.store.heads(&partition(&world), "g").await.unwrap_or_default();
            heads.iter().any(|(_, head)| head.state == HoldState::Dead)
        };
        for round in 0.. {
            if is_dead().await {
                break;
            }
            assert!(round < 10, "it is never given up");
            let mut consumer = world.consumer(options("g")).await;
            loop {
                let wait = Duration::from_secs(3);
                let Ok(Some(delivery)) = tokio::time::timeout(wait, consumer.next()).await else { break };
                if delivery.entity == "killer" {
                    std::mem::forget(consumer.freeze());
                    std::mem::forget(delivery);
                    ends += 1;
                    break;
                }
                handled.push(shown(&delivery));
                delivery.ack().await.unwrap();
            }
        }
        // Once beside its neighbour, then three times alone.
        assert_eq!((ends, &handled[..]), (4, &["good 0".to_owned()][..]));
        floor_reaches(&world, entry).await;
    }
}

#[tokio::test]
async fn what_other_programs_wrote_in_either_layout_breaks_no_worker() {
    let [_, world] = World::batches().await;
    publish_entry(&world, &[("a", 0), ("b", 0)]).await;
    let mut connection = direct(&world.redis.as_ref().unwrap().url()).await;
    let key = GroupKeys::new(&partition(&world), "g").events;
    for fields in [
        &["entity", "c", "sequence", "0", "order", "strict", "data", "c/0"][..],
        &["0:0:1:strict:a", "-:4:2:step{}a/1", "what", "ever", "1:0:1:strict:b", "-:4:2:step{}b/1"],
        &["nothing", "of", "ours", "at all"],
        &["0:0:0:strict:d", "-:99:0:", "0:0:0:strict:d", "-:4:2:step{}d/0"],
    ] {
        let () =
            redis::cmd("XADD").arg(&key).arg("*").arg(fields).query_async(&mut connection).await.unwrap();
    }
    let mut consumer = world.consumer(options("g")).await;
    let mut came = Vec::new();
    for _ in 0..6 {
        came.push(acked(&mut consumer).await);
    }
    came.sort();
    assert_eq!(came, ["a 0", "a 1", "b 0", "b 1", "c 0", "d 0"]);
    let malformed = consumer.counts().malformed.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(malformed, 3, "a field, an entry, a field");
}
