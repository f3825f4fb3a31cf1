//! Retries, dead letters, wishes, crashes.

use std::time::Duration;

use seriatim::{
    deliver::{Consumer, ConsumerOptions},
    order::Entity,
    store::{Granted, GroupId, HoldState, Switches, Wish},
};

use crate::world::{World, acked, eventually, next, nothing, options, shown};

async fn nacked(consumer: &mut Consumer, reason: &str) -> (String, u32) {
    let delivery = next(consumer).await;
    let (shown, attempt) = (shown(&delivery), delivery.attempt);
    delivery.nack(reason).await.unwrap();
    (shown, attempt)
}

#[tokio::test]
async fn an_event_that_fails_is_tried_again_and_holds_only_its_own_entity() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("bad", 0..3).await;
        let mut consumer = world.consumer(options("g")).await;
        assert_eq!(nacked(&mut consumer, "no database").await, ("bad 0".into(), 1));
        world.publish("good", 0..2).await;
        world.publish("bad", 3..5).await;
        let mut came = Vec::new();
        for _ in 0..7 {
            came.push(acked(&mut consumer).await);
        }
        let of = |entity: &str| came.iter().filter(|shown| shown.starts_with(entity)).collect::<Vec<_>>();
        assert_eq!(of("bad"), ["bad 0", "bad 1", "bad 2", "bad 3", "bad 4"]);
        assert_eq!(of("good"), ["good 0", "good 1"]);
        // The hold has ended: what comes now is delivered at once, as a first attempt.
        world.publish("bad", [5]).await;
        let delivery = next(&mut consumer).await;
        assert_eq!((shown(&delivery), delivery.attempt), ("bad 5".into(), 1));
    }
}

#[tokio::test]
async fn after_the_last_attempt_the_whole_entity_is_a_dead_letter_in_order_until_it_is_redriven() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("bad", 0..3).await;
        let mut consumer = world.consumer(options("g")).await;
        for attempt in 1..=5 {
            assert_eq!(nacked(&mut consumer, "poison").await, ("bad 0".into(), attempt));
        }
        world.publish("bad", 3..25).await;
        let (id, entity) = (world.partition_of("bad"), Entity::new("bad").unwrap());
        eventually("all of it is held", || async {
            let heads = world.store.heads(&id, "g").await.unwrap();
            heads.iter().any(|(_, head)| head.state == HoldState::Dead && head.next - head.first == 25)
        })
        .await;
        nothing(&mut consumer, Duration::from_millis(400)).await;
        // Another worker knows it as well.
        consumer.close().await;
        let mut consumer = world.consumer(options("g")).await;
        nothing(&mut consumer, Duration::from_millis(400)).await;
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Redrive).await.unwrap(), Granted::Done);
        for sequence in 0..25 {
            assert_eq!(acked(&mut consumer).await, format!("bad {sequence}"));
            if sequence == 10 {
                world.publish("bad", [25]).await;
            }
        }
        assert_eq!(acked(&mut consumer).await, "bad 25");
        eventually("nothing is held", || async { world.store.heads(&id, "g").await.unwrap().is_empty() })
            .await;
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Redrive).await.unwrap(), Granted::NotHeld);
    }
}

#[tokio::test]
async fn a_person_gives_one_event_up_or_all_that_is_held() {
    for world in [World::memory().await, World::redis().await] {
        let options = ConsumerOptions {
            retry: seriatim::deliver::retry::RetryPolicy { attempts_max: 1, ..options("g").retry },
            ..options("g")
        };
        world.publish("bad", 0..3).await;
        let mut consumer = world.consumer(options).await;
        nacked(&mut consumer, "poison").await;
        let (id, entity) = (world.partition_of("bad"), Entity::new("bad").unwrap());
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Skip).await.unwrap(), Granted::Done);
        assert_eq!(acked(&mut consumer).await, "bad gap 0-0 skipped");
        assert_eq!(nacked(&mut consumer, "poison").await.0, "bad 1");
        world.publish("bad", 3..6).await;
        eventually("all of it is held", || async {
            let heads = world.store.heads(&id, "g").await.unwrap();
            heads.iter().any(|(_, head)| head.state == HoldState::Dead && head.next - head.first == 5)
        })
        .await;
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Drop).await.unwrap(), Granted::Done);
        assert_eq!(acked(&mut consumer).await, "bad gap 1-5 dropped");
        world.publish("bad", [6]).await;
        assert_eq!(acked(&mut consumer).await, "bad 6");
        eventually("nothing is held", || async { world.store.heads(&id, "g").await.unwrap().is_empty() })
            .await;
    }
}

#[tokio::test]
async fn an_entity_and_a_group_are_paused_and_go_on() {
    for world in [World::memory().await, World::redis().await] {
        let mut consumer = world.consumer(options("g")).await;
        let (id, entity) = (world.partition_of("a"), Entity::new("a").unwrap());
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Pause).await.unwrap(), Granted::Done);
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.publish("a", 0..2).await;
        world.publish("b", 0..1).await;
        assert_eq!(acked(&mut consumer).await, "b 0");
        nothing(&mut consumer, Duration::from_millis(300)).await;
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Resume).await.unwrap(), Granted::Done);
        assert_eq!((acked(&mut consumer).await, acked(&mut consumer).await), ("a 0".into(), "a 1".into()));

        let group = GroupId { topic: "jobs".into(), group: "g".into() };
        let paused = Switches { paused: true, degraded: false };
        assert!(world.store.switch(&group, paused).await.unwrap());
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.publish("b", [1]).await;
        nothing(&mut consumer, Duration::from_millis(300)).await;
        assert!(world.store.switch(&group, Switches::default()).await.unwrap());
        assert_eq!(acked(&mut consumer).await, "b 1");
    }
}

#[tokio::test]
async fn an_event_that_ends_its_worker_three_times_is_dead_and_the_others_go_on() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("killer", 0..2).await;
        world.publish("good", 0..1).await;
        let mut ends = 0;
        let mut handled = Vec::new();
        let id = world.partition_of("killer");
        loop {
            let mut consumer = world.consumer(options("g")).await;
            loop {
                let wait = Duration::from_secs(5);
                let Ok(Some(delivery)) = tokio::time::timeout(wait, consumer.next()).await else { break };
                if delivery.entity == "killer" && delivery.sequence == 0 {
                    // The process ends: nobody answers, nothing is given back.
                    std::mem::forget(consumer.freeze());
                    std::mem::forget(delivery);
                    ends += 1;
                    break;
                }
                handled.push(shown(&delivery));
                delivery.ack().await.unwrap();
            }
            let heads = world.store.heads(&id, "g").await.unwrap();
            if heads.iter().any(|(_, head)| head.state == HoldState::Dead) {
                break;
            }
            assert!(ends < 10, "it is never given up");
        }
        // Once beside others, then three times alone.
        assert_eq!(ends, 4, "{handled:?}");
        assert_eq!(handled, ["good 0"]);
    }
}

#[tokio::test]
async fn a_handler_that_takes_too_long_has_failed() {
    let world = World::redis().await;
    world.publish("slow", [0]).await;
    let options = ConsumerOptions { handler_max: Duration::from_millis(200), ..options("g") };
    let mut consumer = world.consumer(options).await;
    let first = next(&mut consumer).await;
    let second = next(&mut consumer).await;
    assert_eq!((first.attempt, second.attempt), (1, 2));
    second.ack().await.unwrap();
    assert!(first.ack().await.is_err(), "it came too late");
    nothing(&mut consumer, Duration::from_millis(300)).await;
}

#[tokio::test]
async fn what_was_handled_when_its_entity_was_paused_is_not_lost_with_its_worker() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("a", 0..2).await;
        let mut first = world.consumer(options("g")).await;
        let out = next(&mut first).await;
        assert_eq!(shown(&out), "a 0");
        let (id, entity) = (world.partition_of("a"), Entity::new("a").unwrap());
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Pause).await.unwrap(), Granted::Done);
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.publish("a", 2..4).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::mem::forget(first.freeze());
        std::mem::forget(out);
        let mut second = world.consumer(options("g")).await;
        nothing(&mut second, Duration::from_millis(1_500)).await;
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Resume).await.unwrap(), Granted::Done);
        for sequence in 0..4 {
            assert_eq!(acked(&mut second).await, format!("a {sequence}"));
        }
    }
}

#[tokio::test]
async fn a_failure_while_its_entity_is_paused_stands_before_what_came_meanwhile() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("a", 0..1).await;
        let mut consumer = world.consumer(options("g")).await;
        let out = next(&mut consumer).await;
        let (id, entity) = (world.partition_of("a"), Entity::new("a").unwrap());
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Pause).await.unwrap(), Granted::Done);
        tokio::time::sleep(Duration::from_millis(300)).await;
        world.publish("a", 1..3).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        out.nack("no").await.unwrap();
        nothing(&mut consumer, Duration::from_millis(500)).await;
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Resume).await.unwrap(), Granted::Done);
        for sequence in 0..3 {
            assert_eq!(acked(&mut consumer).await, format!("a {sequence}"));
        }
    }
}

#[tokio::test]
async fn a_late_event_that_fails_takes_nothing_back() {
    use seriatim::order::{LatePlace, Policy};
    for world in [World::memory().await, World::redis().await] {
        world.policy(Policy { late: LatePlace::Inline, ..Policy::default() }).await;
        world.publish("a", [0, 3]).await;
        let gap = seriatim::store::GapId {
            entity: Entity::new("a").unwrap(),
            epoch: seriatim::order::Epoch::new(0).unwrap(),
            next: seriatim::order::Sequence::new(1).unwrap(),
        };
        world.store.skip(&world.partition_of("a"), &gap, "").await.unwrap().unwrap();
        let slow =
            seriatim::deliver::retry::RetryPolicy { base_ms: 2_500, cap_ms: 2_500, ..options("g").retry };
        let options = ConsumerOptions { retry: slow, ..options("g") };
        let mut first = world.consumer(options.clone()).await;
        for wanted in ["a 0", "a gap 1-2 operator", "a 3"] {
            assert_eq!(acked(&mut first).await, wanted);
        }
        world.publish("a", [2]).await;
        assert_eq!(nacked(&mut first, "no").await, ("a late 2".into(), 1));
        first.close().await;
        world.publish("a", [4]).await;
        let mut second = world.consumer(options).await;
        assert_eq!((acked(&mut second).await, acked(&mut second).await), ("a late 2".into(), "a 4".into()));
        nothing(&mut second, Duration::from_millis(300)).await;
    }
}

#[tokio::test]
async fn a_held_event_that_ends_its_worker_every_time_is_dead_in_the_end() {
    for world in [World::memory().await, World::redis().await] {
        world.publish("bad", 0..2).await;
        let mut consumer = world.consumer(options("g")).await;
        nacked(&mut consumer, "no").await;
        let id = world.partition_of("bad");
        let mut tries = 0;
        loop {
            let Ok(Some(delivery)) = tokio::time::timeout(Duration::from_secs(5), consumer.next()).await
            else {
                break;
            };
            tries += 1;
            assert!(tries < 10, "it is never given up");
            std::mem::forget(consumer.freeze());
            std::mem::forget(delivery);
            consumer = world.consumer(options("g")).await;
        }
        let heads = world.store.heads(&id, "g").await.unwrap();
        assert_eq!((tries, heads[0].1.state), (4, HoldState::Dead), "{heads:?}");
        assert_eq!(heads[0].1.next - heads[0].1.first, 2);
    }
}

#[tokio::test]
async fn what_waits_for_its_next_attempt_can_be_tried_at_once() {
    for world in [World::memory().await, World::redis().await] {
        let slow =
            seriatim::deliver::retry::RetryPolicy { base_ms: 60_000, cap_ms: 60_000, ..options("g").retry };
        world.publish("bad", 0..1).await;
        let mut consumer = world.consumer(ConsumerOptions { retry: slow, ..options("g") }).await;
        nacked(&mut consumer, "no").await;
        nothing(&mut consumer, Duration::from_millis(300)).await;
        let (id, entity) = (world.partition_of("bad"), Entity::new("bad").unwrap());
        assert_eq!(world.store.wish(&id, "g", &entity, Wish::Redrive).await.unwrap(), Granted::Done);
        assert_eq!(acked(&mut consumer).await, "bad 0");
    }
}

/// A poison event with many behind it delays only its own entity.
#[tokio::test]
async fn poison_delays_nobody_else() {
    let world = World::redis().await;
    let mut medians = Vec::new();
    for poisoned in [false, true] {
        let group = if poisoned { "with" } else { "without" };
        let mut consumer = world.consumer(options(group)).await;
        let bad = format!("bad-{group}");
        if poisoned {
            world.publish(&bad, 0..21).await;
        }
        let (mut waits, mut tried, mut handled) = (Vec::new(), 0, 0);
        for round in 0..200_u64 {
            let name = format!("good-{group}-{round}");
            world.publish(&name, 0..1).await;
            let since = std::time::Instant::now();
            loop {
                let delivery = next(&mut consumer).await;
                if delivery.entity == bad {
                    assert_eq!(delivery.sequence, 0, "nothing overtakes what fails");
                    tried += 1;
                    drop(delivery.nack("poison"));
                } else if delivery.entity == name {
                    waits.push(since.elapsed());
                    handled += 1;
                    drop(delivery.ack());
                    break;
                } else {
                    drop(delivery.ack());
                }
            }
        }
        waits.sort();
        println!(
            "{group} poison: p50 {:?}, p99 {:?} of {handled} others; {tried} attempts",
            waits[100], waits[198]
        );
        medians.push(waits[100]);
        if poisoned {
            while tried < 5 {
                let delivery = next(&mut consumer).await;
                assert_eq!((&delivery.entity, delivery.sequence), (&bad, 0));
                tried += 1;
                drop(delivery.nack("poison"));
            }
            let id = world.partition_of(&bad);
            eventually("it is dead, with all that is behind it", || async {
                let heads = world.store.heads(&id, group).await.unwrap();
                heads.iter().any(|(_, head)| head.state == HoldState::Dead && head.next - head.first == 21)
            })
            .await;
            assert_eq!(tried, 5);
        }
    }
    // Waiting for the poison would take them some hundred milliseconds each.
    assert!(medians[1] < medians[0] * 10, "others waited: {medians:?}");
}
