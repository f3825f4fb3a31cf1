//! Jitter and rollout as an engine does them, against the table of ARCHITECTURE.md. The
//! names there have characters that no scenario can write.

use seriatim::{
    order::{Entity, Epoch, Event, LaneState, Mode, Policy, Position, Rollout, Sequence, TICK_MS},
    store::{Batch, Layout, Numbering, Offer, PartitionId, Payload, TopicSpec},
};

use super::{engine::Engine, page::Spread};

/// The wait that the table spreads.
const WAIT_MS: u64 = 10_000;

pub async fn check(engine: &Engine<'_>, spreads: &[Spread]) {
    for (n, Spread { entity, waits, place }) in spreads.iter().enumerate() {
        let entity = Entity::new(entity).expect("the page names entities");
        check_waits(engine, &format!("waits-{n}"), &entity, waits).await;
        // The whole percentages next to its place.
        let below = place / 100;
        for (percent, mode) in [(below, Mode::Pass), (below + 1, Mode::Enforce)] {
            let rollout = Rollout { percent, allow: Vec::new(), deny: Vec::new() };
            let policy = Policy { rollout, ..Policy::default() };
            let partition = open(engine, &format!("place-{n}-{percent}"), policy).await;
            let found = offer_second(engine, &partition, &entity).await.mode;
            assert_eq!(found, mode, "{entity:?} at {percent} % in {}", engine.name());
        }
    }
}

async fn check_waits(engine: &Engine<'_>, topic: &str, entity: &Entity, waits: &[u64]) {
    let policy = Policy { gap_waits: vec![WAIT_MS; 3], ..Policy::default() };
    let partition = open(engine, topic, policy).await;
    let mut state = offer_second(engine, &partition, entity).await;
    let mut begun = None;
    for (attempt, wait) in waits.iter().enumerate() {
        let gap = state.wait.and_then(|wait| wait.gap).expect("something is missing");
        let begun_at = begun.unwrap_or(gap.opened);
        let found = (gap.attempt, gap.deadline - begun_at);
        assert_eq!(found, (attempt, *wait), "{entity:?} in {}", engine.name());
        // In steps that end at the deadline, none of them too short to be looked at.
        let mut left = *wait;
        while left > 0 {
            let step = if left < 2 * TICK_MS { left } else { TICK_MS };
            engine.step_clock(step as i64);
            engine.store().elapse(&partition, 1).await.expect("the store answers");
            left -= step;
        }
        begun = Some(gap.deadline);
        state = resume(engine, &partition, entity).await;
    }
}

async fn open(engine: &Engine<'_>, topic: &str, policy: Policy) -> PartitionId {
    let (name, numbering) = (topic.to_owned(), Numbering::Producer);
    let topic = TopicSpec { name, partitions: 1, layout: Layout::Entry, numbering, policy };
    engine.store().open(&topic).await.expect("it is a new topic");
    PartitionId { topic: topic.name.as_str().into(), index: 0 }
}

/// Offers the second event of an entity, and returns what its lane is after that.
async fn offer_second(engine: &Engine<'_>, partition: &PartitionId, entity: &Entity) -> LaneState {
    let payload = Payload { kind: "step".into(), attrs: "{}".into(), data: Default::default() };
    let position = Position::Given(Sequence::new(1).expect("it is small"));
    let epoch = Epoch::new(0).expect("it is small");
    let event = Event { epoch, position, terminal: false, payload };
    let (batch, _) = Batch::form(vec![(Offer { entity: entity.clone(), event }, ())]);
    engine.store().admit(partition, &batch).await.expect("the store answers");
    resume(engine, partition, entity).await
}

async fn resume(engine: &Engine<'_>, partition: &PartitionId, entity: &Entity) -> LaneState {
    let state = engine.store().resume(partition, entity).await.expect("the store answers");
    state.expect("the entity has a lane")
}
