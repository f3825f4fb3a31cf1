//! Simulated workers: the real consumer, and a handler that takes its time, fails, and writes
//! down what it was given.

use std::{sync::Arc, time::Duration};

use seriatim::{
    clock::Clock,
    deliver::{Consumer, Delivered, Delivery},
    random::Random,
    store::Store,
};
use seriatim_checker::{Answer, Order, Run};

use crate::{link::Link, process::Process, server::payload_of, world::World};

/// Starts one, which works until its process is killed, or told to leave.
pub async fn work(world: Arc<World>, process: Process) {
    let store: Arc<dyn Store> = Arc::new(Link { world: world.clone(), process: process.clone() });
    let clock: Arc<dyn Clock> = Arc::new(process.clone());
    let mut consumer = loop {
        let options = world.plan.consumer_options();
        match Consumer::start(store.clone(), clock.clone(), world.random(), options).await {
            Ok(consumer) => break consumer,
            Err(_) => process.sleep(Duration::from_millis(100)).await,
        }
    };
    let mut random = world.random();
    loop {
        tokio::select! {
            biased;
            () = process.leaving() => break,
            delivery = consumer.next() => {
                let Some(delivery) = delivery else { return };
                process.gate().await;
                let random = Random::from_seed(random.draw());
                tokio::spawn(handle(world.clone(), process.clone(), delivery, random));
            }
        }
    }
    consumer.close().await;
    world.end(&process);
}

async fn handle(world: Arc<World>, process: Process, delivery: Delivery, mut random: Random) {
    let (order, from, payload) = match &delivery.content {
        Delivered::Gap { from, .. } => (Order::Gap, *from, 0),
        Delivered::Event { order, data, .. } => {
            let order = match *order {
                "strict" => Order::Strict,
                "passed" => Order::Passed,
                "late" => Order::Late,
                _ => Order::Replay,
            };
            (order, delivery.sequence, payload_of(data))
        }
    };
    let word = match order {
        Order::Gap => "handled gap",
        Order::Passed => "handled passed",
        Order::Late => "handled late",
        _ => "handled",
    };
    world.coverage().word(word);
    if delivery.attempt > 1 {
        world.coverage().word("retried");
    }
    let run = Run {
        worker: process.id(),
        partition: delivery.partition,
        term: delivery.term,
        name: (delivery.entity.as_str().into(), delivery.epoch, delivery.sequence),
        from,
        order,
        entry: delivery.id.map(|id| (id.entry.milliseconds, id.entry.counter)),
        payload,
        started: world.place(),
        done: None,
        is_nacked: false,
        answer: None,
        killed: None,
    };
    let at = {
        let mut runs = world.runs.lock().unwrap();
        runs.push(run);
        runs.len() - 1
    };
    process.sleep(Duration::from_millis(random.below(world.plan.handler_max_ms))).await;
    let fails = random.below(100) < world.plan.failing && !world.is_healed();
    {
        let run = &mut world.runs.lock().unwrap()[at];
        (run.done, run.is_nacked) = (Some(world.place()), fails);
    }
    let answer = if fails {
        world.coverage().word("nacked");
        delivery.nack("it did not work").await
    } else {
        delivery.ack().await
    };
    process.gate().await;
    let answer = if answer.is_ok() { Answer::Stored } else { Answer::Fenced };
    if answer == Answer::Fenced {
        world.coverage().word("answer fenced");
    }
    world.runs.lock().unwrap()[at].answer = Some(answer);
}
