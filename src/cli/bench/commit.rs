//! The store alone: batches offered to Redis by [`Store::admit`], 16 partitions, four calls in
//! flight. There is no gRPC and no sidecar in it; what it shows is what an ordered event costs
//! the one thread of Redis.

use std::{cell::RefCell, time::Instant};

use futures_util::future::try_join_all;

use super::{
    load::{Load, Made, Shape},
    meter::{Length, Measured, Meter},
    raw::CONNECTIONS,
    rig::{Layout, OwnRedis, PARTITIONS, TOPIC, topic_spec, verified},
};
use crate::{
    order::{Entity, Epoch, Event, Position, Sequence, Verdict},
    store::{Batch, Offer, PartitionId, Path, Payload, RedisStore, Store},
};

/// Events of a call before the clock starts.
const BEFORE_EVENTS: usize = 256;

pub async fn admit(
    redis: &OwnRedis,
    layout: Layout,
    batch: usize,
    shape: Shape,
    length: Length,
) -> anyhow::Result<Measured> {
    let store = redis.store()?;
    store.open(&topic_spec(layout)?).await?;
    // As many in all; but no entity twice in a batch.
    let live = (shape.live / u64::from(PARTITIONS)).max(batch as u64);
    let shape = Shape { live, ..shape };
    let mut parts: Vec<Part> = (0..PARTITIONS).map(|index| Part::new(index, shape)).collect();
    let mut accepted = 0;
    for part in &mut parts {
        accepted += part.admit_before(&store).await?;
    }
    let meter = RefCell::new(Meter::start(length, redis.processes(), Instant::now()));
    let counted = RefCell::new((accepted, 0, 0));
    // Each caller has partitions of its own: of one partition one call is in flight.
    let callers = parts.chunks_mut(PARTITIONS as usize / CONNECTIONS).map(|parts| async {
        loop {
            for part in &mut *parts {
                let began = Instant::now();
                let path = part.admit(&store, batch).await?;
                let now = Instant::now();
                meter.borrow_mut().took(now - began, batch as u64);
                let (accepted, calls, fast) = &mut *counted.borrow_mut();
                (*accepted, *calls, *fast) = (
                    *accepted + batch as u64,
                    *calls + 1,
                    *fast + u32::from(matches!(path, Path::Straight | Path::Fast)),
                );
                if !meter.borrow_mut().note(batch as u64, now) {
                    return anyhow::Ok(());
                }
            }
        }
    });
    tokio::time::timeout(length.longest(), try_join_all(callers)).await??;
    let measured = meter.into_inner().finish()?;
    let (accepted, calls, fast) = counted.into_inner();
    let fast_share = Some(f64::from(fast) / f64::from(calls));
    Ok(Measured { verified: Some(verified(redis, accepted).await?), fast_share, ..measured })
}

/// A partition and what is published to it.
pub struct Part {
    id: PartitionId,
    load: Load,
}

impl Part {
    /// Every partition has entities of its own.
    pub fn new(index: u32, shape: Shape) -> Self {
        let shape = Shape { seed: shape.seed ^ (u64::from(index) << 32), ..shape };
        Part { id: PartitionId { topic: TOPIC.into(), index }, load: Load::new(shape) }
    }

    async fn admit_before(&mut self, store: &RedisStore) -> anyhow::Result<u64> {
        let before: Vec<Made> = self.load.before().collect();
        for made in before.chunks(BEFORE_EVENTS) {
            let offers = made.iter().map(|made| (offer(&mut self.load, made), ())).collect();
            self.offer(store, offers).await?;
        }
        Ok(before.len() as u64)
    }

    /// Offers the next events in one call.
    pub async fn admit(&mut self, store: &RedisStore, events: usize) -> anyhow::Result<Path> {
        let made = |load: &mut Load| {
            let made = load.make();
            (offer(load, &made), ())
        };
        let offers = (0..events).map(|_| made(&mut self.load)).collect();
        self.offer(store, offers).await
    }

    async fn offer(&self, store: &RedisStore, offers: Vec<(Offer, ())>) -> anyhow::Result<Path> {
        let admitted = store.admit(&self.id, &Batch::form(offers).0).await?;
        let is_released = |verdict: Verdict| matches!(verdict, Verdict::Released { .. });
        let odd = admitted.decisions.iter().find(|decision| !is_released(decision.verdict));
        anyhow::ensure!(odd.is_none(), "an event in its turn was answered {odd:?}");
        Ok(admitted.path)
    }
}

/// An event as the sidecar would offer it.
fn offer(load: &mut Load, made: &Made) -> Offer {
    let attrs = if made.is_last { r#"{"terminal":true}"# } else { "{}" };
    let event = Event {
        epoch: Epoch::new(0).expect("0 is an epoch"),
        position: Position::Given(Sequence::new(made.sequence).expect("it is small")),
        terminal: made.is_last,
        payload: Payload { kind: Load::kind(made).into(), attrs: attrs.into(), data: load.data() },
    };
    Offer { entity: Entity::new(&load.entity(made)).expect("it is a name"), event }
}
