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
    for item in items(world, &mut random) {
        let random = Random::from_seed(random.draw());
        tasks.spawn(send_until_settled(world.clone(), item, random));
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

async fn send_until_settled(world: Arc<World>, item: Item, mut random: Random) {
    tokio::time::sleep(item.after).await;
    let name = (item.entity.as_str().into(), item.epoch, item.sequence);
    let sent = Sent { name, payload: item.payload, at: world.server.true_time(), fate: Fate::Unknown };
    let at = {
        let mut all = world.sent.lock().unwrap();
        all.push(sent);
        all.len() - 1
    };
    let mut refusals = 0;
    loop {
        let outcome = send(&world, &item, &mut random).await;
        let now = world.server.true_time();
        let mut fate = outcome.as_ref().and_then(|outcome| fate_of(outcome, now));
        // What is too far ahead stays so if what comes before is never sent.
        let is_too_far = matches!(&outcome, Some(Outcome::Decided(decision)) if is_too_far(decision.verdict));
        if is_too_far && world.is_healed() {
            refusals += 1;
            fate = (refusals > REFUSALS_MAX).then_some(Fate::Rejected);
        }
        if let Some(fate) = fate {
            world.sent.lock().unwrap()[at].fate = fate;
            return;
        }
        tokio::time::sleep(Duration::from_millis(20 + random.below(300))).await;
    }
}

fn is_too_far(verdict: Verdict) -> bool {
    verdict == Verdict::Refused(Refusal::AheadMax)
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
async fn send(world: &Arc<World>, item: &Item, random: &mut Random) -> Option<Outcome> {
    let sidecar = world.any_sidecar(random)?;
    let answer = ask(world, &sidecar, item);
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, answer).await.ok()??;
    Some(answer)
}

async fn ask(world: &Arc<World>, sidecar: &Sidecar, item: &Item) -> Option<Outcome> {
    let route = world.network.route();
    world.place();
    if matches!(route.loss, Some(Loss::Request | Loss::Overtaken)) {
        return std::future::pending().await;
    }
    route.go_there().await;
    sidecar.process.gate().await;
    let Sidecar { ingest, process } = sidecar;
    let topic = ingest.topic(TOPIC).expect("it serves this topic");
    let offer = offer(item);
    let taken = ingest.in_flight.take(1, offer.size()).await.ok()?;
    // A stream stays open until it is answered, and may be asked for what is missing.
    let (stream, mut asked) = ingest.live.join();
    stream.remember(TOPIC, &item.entity);
    let (answer, mut answered) = oneshot::channel();
    let request = Request::new(taken, move |outcomes| {
        let _ = answer.send(outcomes);
    });
    ingest.submit(topic, vec![Ok(offer)], request);
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
    outcomes.into_iter().next()
}
