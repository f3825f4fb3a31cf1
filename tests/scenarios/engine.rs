//! The two engines behind the one port: how each begins in a given state, what its clock
//! is, and what can be seen of it besides the port.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, stream::BoxStream};
use redis::{AsyncCommands, LposOptions, aio::MultiplexedConnection};
use seriatim::{
    order::{Entity, LaneState, Mode, Probe},
    store::{MemoryStore, PartitionId, PartitionKeys, RedisStore, Store, probe_channel},
};

use super::support::{self, clock::RedisClock, manual_clock::ManualClock};

/// When every scenario begins, in milliseconds since 1970.
const MOMENT: u64 = 1_800_000_000_000;
/// Deadline of lanes that wait for their partition to be restored.
const DUE_WHEN_RESTORED: u64 = 1 << 53;
/// No scenario's entity: a probe of it ends those published so far.
const NOBODY: &str = "nobody";

pub struct Engine<'c> {
    pub partition: PartitionId,
    kind: Kind<'c>,
    probes: BoxStream<'static, Vec<Probe>>,
}

enum Kind<'c> {
    Memory { store: MemoryStore, clock: Arc<ManualClock> },
    Redis { store: Box<RedisStore>, clock: &'c RedisClock, direct: MultiplexedConnection },
}

impl<'c> Engine<'c> {
    /// The Rust rules, in memory.
    pub async fn memory(topic: &str) -> Self {
        let clock = Arc::new(ManualClock::at(MOMENT));
        let store = MemoryStore::new(clock.clone());
        let probes = store.probes(topic).await.expect("it is in this process");
        Engine { partition: first_of(topic), kind: Kind::Memory { store, clock }, probes }
    }

    /// The scripts, in a server whose clock is ours.
    pub async fn redis(topic: &str, url: &str, clock: &'c RedisClock) -> Self {
        clock.freeze_at(MOMENT);
        let direct = support::direct(url).await;
        let store = Box::new(support::redis_store(url));
        let probes = store.probes(topic).await.expect("the server lets us listen");
        Engine { partition: first_of(topic), kind: Kind::Redis { store, clock, direct }, probes }
    }

    pub fn name(&self) -> &'static str {
        match self.kind {
            Kind::Memory { .. } => "memory",
            Kind::Redis { .. } => "redis",
        }
    }

    pub fn store(&self) -> &dyn Store {
        match &self.kind {
            Kind::Memory { store, .. } => store,
            Kind::Redis { store, .. } => &**store,
        }
    }

    pub fn step_clock(&self, ms: i64) {
        match &self.kind {
            Kind::Memory { clock, .. } => clock.step(ms),
            Kind::Redis { clock, .. } => clock.step(ms),
        }
    }

    /// Puts a lane there that nobody admitted.
    pub async fn plant(&self, entity: &Entity, state: &LaneState) {
        match &self.kind {
            Kind::Memory { store, .. } => store.restore(&self.partition, entity.clone(), state.clone()),
            Kind::Redis { direct, .. } => {
                let (mut direct, keys) = (direct.clone(), PartitionKeys::new(&self.partition));
                let planted: Result<(), _> =
                    direct.hset(keys.lanes, entity.as_str(), state.to_string()).await;
                planted.expect("a lane can be planted");
                if let Some(due) = due_of(state) {
                    let listed: Result<(), _> = direct.zadd(keys.gaps, entity.as_str(), due).await;
                    listed.expect("a lane can be planted");
                }
            }
        }
    }

    /// Has the entity a lane, and when has time something to do there?
    pub async fn lane(&self, entity: &Entity) -> (bool, Option<u64>) {
        match &self.kind {
            Kind::Memory { store, .. } => store.inspect(&self.partition, |partition| {
                let due = partition.gaps().find(|(waiting, _)| *waiting == entity).map(|(_, due)| due);
                (partition.lane(entity).is_some(), due)
            }),
            Kind::Redis { direct, .. } => {
                let (mut direct, keys) = (direct.clone(), PartitionKeys::new(&self.partition));
                let mut pipe = redis::pipe();
                pipe.hexists(keys.lanes, entity.as_str()).zscore(keys.gaps, entity.as_str());
                let looked: Result<(bool, Option<f64>), _> = pipe.query_async(&mut direct).await;
                let (is_there, due) = looked.expect("the server answers");
                (is_there, due.map(|due| due as u64))
            }
        }
    }

    /// In which rings the lane is filed, in which state it was seen then, and since when.
    pub async fn filed(&self, entity: &Entity) -> Vec<String> {
        let mut filed = Vec::new();
        let mut add = |ring: &str, seen: Option<(u64, String)>| match seen {
            Some((since, state)) => filed.push(format!("{ring} {state} since {since}")),
            None => filed.push(ring.to_owned()),
        };
        match &self.kind {
            Kind::Memory { store, .. } => store.inspect(&self.partition, |partition| {
                let memory = partition.memory();
                for (name, ring) in [("opened", &memory.opened), ("closed", &memory.closed)] {
                    let buckets = ring.buckets().iter().filter_map(|bucket| bucket.get(entity));
                    buckets.for_each(|seen| add(name, seen.clone()));
                }
            }),
            Kind::Redis { direct, .. } => {
                let (mut direct, keys) = (direct.clone(), PartitionKeys::new(&self.partition));
                for bucket in keys.born {
                    let born: Result<Option<u64>, _> =
                        direct.lpos(bucket, entity.as_str(), LposOptions::default()).await;
                    if born.expect("the server answers").is_some() {
                        add("opened", None);
                    }
                }
                for (name, buckets) in [("opened", keys.opened), ("closed", keys.closed)] {
                    for bucket in buckets {
                        let seen: Result<Option<String>, _> = direct.hget(bucket, entity.as_str()).await;
                        if let Some(seen) = seen.expect("the server answers") {
                            let seen = seen.split_once('|').map(|(since, state)| {
                                (since.parse().expect("it is a time"), state.to_owned())
                            });
                            add(name, seen);
                        }
                    }
                }
            }
        }
        filed
    }

    /// What producers were asked for since the last look.
    pub async fn probed(&mut self) -> Vec<Probe> {
        let mut probed = Vec::new();
        match &mut self.kind {
            Kind::Memory { .. } => {
                // Nothing that is ready may look pending because this task did much already.
                tokio::task::yield_now().await;
                while let Some(Some(probes)) = self.probes.next().now_or_never() {
                    probed.extend(probes);
                }
            }
            Kind::Redis { direct, .. } => {
                let end = format!(r#"["{NOBODY}","0","0","0","0"]"#);
                let published: Result<(), _> = direct.publish(probe_channel(&self.partition), end).await;
                published.expect("the server answers");
                while probed.last().is_none_or(|probe: &Probe| probe.entity.as_str() != NOBODY) {
                    probed.extend(self.probes.next().await.expect("the server is there"));
                }
                probed.pop();
            }
        }
        probed
    }
}

fn first_of(topic: &str) -> PartitionId {
    PartitionId { topic: topic.into(), index: 0 }
}

/// When time has something to do in a lane, as its text says.
pub fn due_of(state: &LaneState) -> Option<u64> {
    let parked = state.parked.as_ref();
    if parked.is_some_and(|parked| state.unmarked.is_some() || parked.sequences.contains(state.next)) {
        return Some(0);
    }
    if let Some(from) = state.unmarked.filter(|_| state.mode == Mode::Enforce) {
        return state.missing.first_from(from).map(|_| DUE_WHEN_RESTORED);
    }
    let gap = state.wait.and_then(|wait| wait.gap).map(|gap| gap.deadline);
    gap.or(state.shadow.and_then(|shadow| shadow.gap).map(|gap| gap.deadline))
}
