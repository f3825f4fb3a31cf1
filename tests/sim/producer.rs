//! Producers: some in order, some not, some who forget, repeat, or say two things at once.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use seriatim::{
    ingest::{Outcome, Request, Resend},
    order::{Entity, Epoch, Event, Position, Refusal, Sequence, Verdict},
    random::Random,
    store::{Offer, Payload},
};
use seriatim_checker::{Fate, Sent};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{network::Loss, plan::TOPIC, sidecar::Sidecar, world::World};

/// After so long without an answer a producer asks again.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(1_500);
/// So often it is refused in a world in which all is well, and then gives up.
const REFUSALS_MAX: u32 = 50;

#[derive(Clone, Debug)]
struct Item {
    entity: Entity,
    epoch: u64,
    sequence: u64,
    payload: u64,
    terminal: bool,
    after: Duration,
}

/// Sends everything that this run sends, until each event was answered for good.
pub fn start(world: &Arc<World>) -> JoinSet<()> {
    let mut random = world.random();
    let mut tasks = JoinSet::new();
    let mut items = items(world, &mut random);
    items.sort_by_key(|item| item.after);
    while !items.is_empty() {
        let together = 1 + random.below(world.plan.together_max) as usize;
        let message = items.drain(..together.min(items.len())).collect();
        let random = Random::from_seed(random.draw());
        tasks.spawn(send_until_settled(world.clone(), message, random));
    }
    tasks
}

fn items(world: &World, random: &mut Random) -> Vec<Item> {
    let plan = &world.plan;
    let first = plan.policy.first.get();
    let mut items = Vec::new();
    for n in 0..plan.entities {
        let entity = Entity::new(&format!("e{n}")).expect("it is a name");
        let epochs = 1 + u64::from(random.below(4) == 0);
        let begins = random.below(plan.sending.as_millis() as u64);
        for epoch in 0..epochs {
            let count = 1 + random.below(plan.events_max);
            let ends = random.below(3) > 0;
            for at in 0..count {
                let spread = random.below(plan.spread + 1);
                let after = Duration::from_millis(begins + epoch * 400 + at * random.below(60) + spread);
                let payload = random.draw() >> 1;
                let (sequence, terminal) = (first + at, ends && at + 1 == count);
                let item = Item { entity: entity.clone(), epoch, sequence, payload, terminal, after };
                if random.below(100) < plan.never {
                    continue;
                }
                if random.below(100) < plan.twice {
                    let after = after + Duration::from_millis(random.below(2_000));
                    items.push(Item { after, ..item.clone() });
                }
                if random.below(100) < plan.forged {
                    items.push(Item { payload: payload + 1, ..item.clone() });
                }
                items.push(item);
            }
        }
    }
    items
}

/// An event that has no answer yet, and where it is noted.
struct Open {
    item: Item,
    place: usize,
    refusals: u32,
}

async fn send_until_settled(world: Arc<World>, message: Vec<Item>, mut random: Random) {
    let last = message.iter().map(|item| item.after).max().expect("a message has an event");
    tokio::time::sleep(last).await;
    let mut open: Vec<Open> = message.into_iter().map(|item| note(&world, item)).collect();
    loop {
        let outcomes = send(&world, &open, &mut random).await;
        let now = world.server.true_time();
        let mut outcomes = outcomes.into_iter().flatten();
        open.retain_mut(|open| {
            let Some(outcome) = outcomes.next() else { return true };
            let mut fate = fate_of(&outcome, now);
            // What is too far ahead stays so if what comes before is never sent.
            if is_too_far(&outcome) && world.is_healed() {
                open.refusals += 1;
                fate = (open.refusals > REFUSALS_MAX).then_some(Fate::Rejected);
            }
            if let Some(fate) = fate {
                world.sent.lock().unwrap()[open.place].fate = fate;
            }
            fate.is_none()
        });
        if open.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20 + random.below(300))).await;
    }
}

fn note(world: &World, item: Item) -> Open {
    let name = (item.entity.as_str().into(), item.epoch, item.sequence);
    let at = world.server.true_time();
    let mut all = world.sent.lock().unwrap();
    all.push(Sent { name, payload: item.payload, at, fate: Fate::Unknown });
    Open { item, place: all.len() - 1, refusals: 0 }
}

fn is_too_far(outcome: &Outcome) -> bool {
    let ahead = Verdict::Refused(Refusal::AheadMax);
    matches!(outcome, Outcome::Decided(decision) if decision.verdict == ahead)
}

/// What the producer knows now; nothing if it has to ask again.
fn fate_of(outcome: &Outcome, now: u64) -> Option<Fate> {
    match outcome {
        Outcome::Decided(decision) => match decision.verdict {
            Verdict::Released { .. }
            | Verdict::Parked { .. }
            | Verdict::Passed { .. }
            | Verdict::Late { .. } => Some(Fate::Accepted { at: now }),
            Verdict::Duplicate { .. } => Some(Fate::Known),
            Verdict::Retired { .. } | Verdict::Conflict | Verdict::Stale { .. } => Some(Fate::Rejected),
            Verdict::Refused(_) => None,
            Verdict::Again => unreachable!("it is offered again, not answered"),
        },
        Outcome::Refused { .. } | Outcome::Unavailable(_) => None,
        Outcome::Invalid(_) | Outcome::Broken(_) => panic!("{outcome:?}"),
    }
}

fn offer(item: &Item) -> Offer {
    let data = Bytes::copy_from_slice(&item.payload.to_le_bytes());
    let event = Event {
        epoch: Epoch::new(item.epoch).expect("it is small"),
        position: Position::Given(Sequence::new(item.sequence).expect("it is small")),
        terminal: item.terminal,
        payload: Payload { kind: "t".into(), attrs: "{}".into(), data },
    };
    Offer { entity: item.entity.clone(), event }
}

/// One attempt through some sidecar: nothing if no answer came.
async fn send(world: &Arc<World>, open: &[Open], random: &mut Random) -> Option<Vec<Outcome>> {
    let sidecar = world.any_sidecar(random)?;
    tokio::time::timeout(ANSWER_TIMEOUT, ask(world, &sidecar, open)).await.ok()?
}

async fn ask(world: &Arc<World>, sidecar: &Sidecar, open: &[Open]) -> Option<Vec<Outcome>> {
    let route = world.network.route();
    world.place();
    if matches!(route.loss, Some(Loss::Request | Loss::Overtaken)) {
        return std::future::pending().await;
    }
    route.go_there().await;
    sidecar.process.gate().await;
    let Sidecar { ingest, process } = sidecar;
    let topic = ingest.topic(TOPIC).expect("it serves this topic");
    let offers: Vec<Offer> = open.iter().map(|open| offer(&open.item)).collect();
    let taken = ingest.in_flight.take(offers.len(), offers.iter().map(Offer::size).sum()).await.ok()?;
    // A stream stays open until it is answered, and may be asked for what is missing.
    let (stream, mut asked) = ingest.live.join();
    open.iter().for_each(|open| stream.remember(TOPIC, &open.item.entity));
    let (answer, mut answered) = oneshot::channel();
    let request = Request::new(taken, move |outcomes| {
        let _ = answer.send(outcomes.collect());
    });
    ingest.submit(topic, offers.into_iter().map(Ok), request, ingest.now());
    let outcomes = loop {
        tokio::select! {
            biased;
            outcomes = &mut answered => break outcomes.ok()?,
            Some(Resend { .. }) = asked.recv() => world.coverage().word("resend"),
        }
    };
    if route.loss.is_some() {
        return std::future::pending().await;
    }
    route.go_back().await;
    process.gate().await;
    Some(outcomes)
}
