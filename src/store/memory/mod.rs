//! The embedded store: `order/` and a list per stream, in this process.
//!
//! It serves the demo where there is no Redis, tests, and the other half of the
//! differential test. Nothing in it is durable, nothing is shared with another
//! sidecar. Whatever the topic says, a partition that has [`partition::ENTRIES_MAX`] entries refuses more.

mod appended;
mod groups;
mod part;
mod partition;
mod trim;

use std::sync::{Arc, Mutex};

use dashmap::DashMap;
use futures_util::{
    FutureExt, StreamExt,
    future::{BoxFuture, ready},
    stream::{self, BoxStream},
};
use tokio::sync::broadcast;

pub use self::part::GroupPart;
use self::{groups::MemoryGroups, partition::MemoryPartition};
use super::{
    Admitted, Batch, Beat, Elapsed, Entry, Floor, GapId, Measure, OpenError, PartitionId, Payload,
    RepairCursor, Repaired, SidecarSeen, Store, StoreError, StoreKind, StreamId, TopicRecord, TopicSpec,
    Trimmed,
};
use crate::{
    clock::{Clock, SystemClock},
    order::{Announcement, Effects, Entity, Lane, LaneState, Partition, Place, Probe, Range, Swept},
};

/// Probes that a slow listener may be behind; it misses what is older.
const PROBES_KEPT: usize = 1024;

pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    topics: DashMap<String, TopicRecord>,
    partitions: Arc<DashMap<PartitionId, MemoryPartition>>,
    /// As they were opened last, also those that were deleted since.
    opened: DashMap<PartitionId, Arc<TopicSpec>>,
    groups: Mutex<MemoryGroups>,
    probes: broadcast::Sender<(Arc<str>, Vec<Probe>)>,
}

/// All that a store held at some moment.
#[derive(Clone)]
pub struct MemoryImage {
    topics: Vec<(String, TopicRecord)>,
    partitions: Vec<(PartitionId, MemoryPartition)>,
    groups: MemoryGroups,
}

impl Default for MemoryStore {
    fn default() -> Self {
        MemoryStore::new(Arc::new(SystemClock::default()))
    }
}

impl MemoryStore {
    /// Its partitions take the time from this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (probes, _) = broadcast::channel(PROBES_KEPT);
        MemoryStore {
            clock,
            topics: DashMap::new(),
            partitions: Arc::default(),
            opened: DashMap::new(),
            groups: Mutex::default(),
            probes,
        }
    }

    /// Puts a lane back as its text says, for tests that begin in a rare state.
    pub fn restore(&self, partition: &PartitionId, entity: Entity, state: LaneState) {
        let mut partition = self.partitions.get_mut(partition).expect("the topic is open");
        partition.lanes.restore_lane(entity, state);
    }

    /// Lets somebody look at the lanes, clock and rings of a partition.
    pub fn inspect<T>(&self, partition: &PartitionId, look: impl FnOnce(&Partition<Payload>) -> T) -> T {
        look(&self.partitions.get(partition).expect("the topic is open").lanes)
    }

    /// What is parked in the partition: entity, epoch, sequence, terminal, payload.
    pub fn parked(&self, partition: &PartitionId) -> Vec<(String, u64, u64, bool, Payload)> {
        let partition = self.partitions.get(partition).expect("the topic is open");
        let of_lane = |(entity, lane): (&Entity, &Lane<Payload>)| {
            let (entity, epoch) = (entity.to_string(), lane.state().epoch.get());
            lane.parked()
                .map(|(sequence, terminal, payload)| {
                    (entity.clone(), epoch, sequence.get(), terminal, payload.clone())
                })
                .collect::<Vec<_>>()
        };
        partition.lanes.lanes().flat_map(of_lane).collect()
    }

    /// All that it holds now.
    pub fn image(&self) -> MemoryImage {
        let topics = self.topics.iter().map(|topic| (topic.key().clone(), topic.clone()));
        let partitions = self.partitions.iter().map(|found| (found.key().clone(), found.clone()));
        MemoryImage {
            topics: topics.collect(),
            partitions: partitions.collect(),
            groups: self.groups.lock().expect("nobody panics holding it").clone(),
        }
    }

    /// Becomes what it was, as a store does that lost what it had not written down.
    pub fn put_back(&self, image: &MemoryImage) {
        self.topics.clear();
        image.topics.iter().cloned().for_each(|(name, record)| drop(self.topics.insert(name, record)));
        self.partitions.clear();
        image.partitions.iter().cloned().for_each(|(id, found)| drop(self.partitions.insert(id, found)));
        *self.groups.lock().expect("nobody panics holding it") = image.groups.clone();
    }

    fn wall(&self) -> u64 {
        u64::try_from(self.clock.now().as_millis()).expect("it is not that late yet")
    }

    /// One call of the rules, if the partition is there: what it probes is told to whoever
    /// listens.
    fn call<T>(
        &self,
        id: &PartitionId,
        act: impl FnOnce(&mut MemoryPartition, u64, &mut Effects<Payload>) -> T,
    ) -> Option<T> {
        let wall = self.wall();
        let (done, probes) = self.with(id, |partition| {
            let mut effects = Effects::new(partition.policy.append_max);
            (act(partition, wall, &mut effects), effects.probes)
        })?;
        if !probes.is_empty() {
            // Nobody listens: nobody can be asked.
            let _ = self.probes.send((id.topic.clone(), probes));
        }
        Some(done)
    }

    fn with<T>(&self, id: &PartitionId, act: impl FnOnce(&mut MemoryPartition) -> T) -> Option<T> {
        self.partitions.get_mut(id).map(|mut found| act(found.value_mut()))
    }

    /// The topic as this process opened it, whether or not it is there still.
    fn spec(&self, id: &PartitionId) -> Result<Arc<TopicSpec>, StoreError> {
        let found = self.opened.get(id).map(|topic| topic.clone());
        found.ok_or_else(|| StoreError::Broken(format!("partition {id} is not open")))
    }

    /// Creates the topic's record, or checks that it is the same topic.
    fn open_record(&self, topic: &TopicSpec) -> Result<(), OpenError> {
        let record = self.topics.entry(topic.name.clone()).or_insert_with(|| topic.record()).clone();
        match record.mismatch(&topic.record()) {
            Some(mismatch) => Err(OpenError::Mismatch { topic: topic.name.clone(), mismatch }),
            None => Ok(()),
        }
    }

    fn open_partition(&self, topic: &Arc<TopicSpec>, id: &PartitionId) {
        let mut partition = self
            .partitions
            .entry(id.clone())
            .or_insert_with(|| MemoryPartition::new(topic.layout, self.wall()));
        partition.policy = topic.policy.clone();
        self.opened.insert(id.clone(), topic.clone());
    }

    /// Events bring a partition back that was deleted.
    fn reopen(&self, id: &PartitionId) -> Result<(), StoreError> {
        let topic = self.spec(id)?;
        if !self.partitions.contains_key(id) {
            self.open_record(&topic).map_err(|error| StoreError::Broken(error.to_string()))?;
            self.open_partition(&topic, id);
        }
        Ok(())
    }
}

fn not_there(id: &PartitionId) -> StoreError {
    StoreError::NotExecuted(format!("partition {id} is not there"))
}

impl Store for MemoryStore {
    fn describe(&self) -> String {
        "embedded (in memory, nothing survives the process)".to_owned()
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Embedded
    }

    fn open<'a>(&'a self, topic: &'a TopicSpec) -> BoxFuture<'a, Result<(), OpenError>> {
        let opened = self.open_record(topic).map(|()| {
            let shared = Arc::new(topic.clone());
            for index in 0..topic.partitions {
                self.open_partition(&shared, &PartitionId { topic: topic.name.as_str().into(), index });
            }
        });
        ready(opened).boxed()
    }

    fn admit<'a>(
        &'a self,
        partition: &'a PartitionId,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Admitted, StoreError>> {
        let admit = || {
            let act = |found: &mut MemoryPartition, wall, effects: &mut _| found.admit(batch, wall, effects);
            self.call(partition, act).unwrap_or_else(|| Err(not_there(partition)))
        };
        ready(self.reopen(partition).and_then(|()| admit())).boxed()
    }

    fn elapse<'a>(
        &'a self,
        partition: &'a PartitionId,
        lanes_max: usize,
    ) -> BoxFuture<'a, Result<Elapsed, StoreError>> {
        // One that was deleted has nothing that is due.
        let elapse = || self.call(partition, |found, wall, effects| found.elapse(lanes_max, wall, effects));
        ready(self.spec(partition).map(|_| elapse().unwrap_or_default())).boxed()
    }

    fn extend<'a>(
        &'a self,
        partition: &'a PartitionId,
        gap: &'a GapId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let GapId { entity, epoch, next } = gap;
        let extend = || {
            self.call(partition, |partition, wall, _| {
                partition.lanes.extend(entity, *epoch, *next, wall, &partition.policy);
            })
        };
        ready(self.spec(partition).and_then(|_| extend().ok_or_else(|| not_there(partition)))).boxed()
    }

    fn skip<'a>(
        &'a self,
        partition: &'a PartitionId,
        gap: &'a GapId,
        audit: &'a str,
    ) -> BoxFuture<'a, Result<Option<Range>, StoreError>> {
        let GapId { entity, epoch, next } = gap;
        let skipped = self.call(partition, |partition, wall, effects| {
            let skipped = partition.lanes.skip(entity, *epoch, *next, wall, &partition.policy, effects);
            partition.apply(effects, audit, wall);
            skipped
        });
        ready(skipped.ok_or_else(|| not_there(partition))).boxed()
    }

    fn set_degraded<'a>(
        &'a self,
        partition: &'a PartitionId,
        degraded: bool,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let changed = self.call(partition, |partition, wall, effects| {
            if degraded {
                partition.lanes.degrade(wall, effects);
            } else {
                partition.lanes.restore(wall, effects);
            }
            !partition.apply(effects, "", wall).is_empty()
        });
        ready(changed.ok_or_else(|| not_there(partition))).boxed()
    }

    fn trim<'a>(
        &'a self,
        partition: &'a PartitionId,
        count: usize,
    ) -> BoxFuture<'a, Result<Trimmed, StoreError>> {
        let (wall, floor) = (self.wall(), self.least_floor(partition));
        // One that was deleted has nothing to trim.
        let trim = || self.with(partition, |partition| partition.trim(count, wall, floor));
        ready(self.spec(partition).map(|_| trim().unwrap_or_default())).boxed()
    }

    fn floor<'a>(&'a self, partition: &'a PartitionId) -> BoxFuture<'a, Result<Option<Floor>, StoreError>> {
        let is_there = self.partitions.contains_key(partition);
        ready(if is_there { Ok(self.least_floor(partition)) } else { Err(not_there(partition)) }).boxed()
    }

    fn announce<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
        within_ms: u64,
    ) -> BoxFuture<'a, Result<Announcement, StoreError>> {
        let announced = self.call(partition, |partition, wall, _| {
            partition.lanes.announce(entity, within_ms, wall, &partition.policy)
        });
        ready(announced.ok_or_else(|| not_there(partition))).boxed()
    }

    fn sweep<'a>(
        &'a self,
        partition: &'a PartitionId,
        count: usize,
        as_of: Option<u64>,
    ) -> BoxFuture<'a, Result<Swept, StoreError>> {
        let swept = self.call(partition, |partition, wall, _| {
            partition.lanes.sweep(wall, &partition.policy, count, as_of)
        });
        ready(swept.ok_or_else(|| not_there(partition))).boxed()
    }

    /// One process, one copy of everything: nothing can have come apart.
    fn repair<'a>(
        &'a self,
        partition: &'a PartitionId,
        _: RepairCursor,
        _: usize,
    ) -> BoxFuture<'a, Result<Repaired, StoreError>> {
        let is_there = self.partitions.contains_key(partition);
        ready(if is_there { Ok(Repaired::default()) } else { Err(not_there(partition)) }).boxed()
    }

    fn probes<'a>(
        &'a self,
        topic: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Vec<Probe>>, StoreError>> {
        let wanted: Arc<str> = topic.into();
        let probes = stream::unfold((self.probes.subscribe(), wanted), |(mut probes, wanted)| async move {
            loop {
                match probes.recv().await {
                    Ok((topic, probed)) if topic == wanted => return Some((probed, (probes, wanted))),
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                }
            }
        });
        ready(Ok(probes.boxed())).boxed()
    }

    fn call_out<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let _ = self.probes.send((topic.into(), Vec::new()));
        ready(Ok(())).boxed()
    }

    fn beat<'a>(&'a self, beat: &'a Beat) -> BoxFuture<'a, Result<Vec<SidecarSeen>, StoreError>> {
        let Beat { sidecar, about, .. } = beat.clone();
        ready(Ok(vec![SidecarSeen { sidecar, about, silent_ms: 0 }])).boxed()
    }

    fn leave<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }

    fn lead_reconciler<'a>(&'a self, _: &'a str, _: u64) -> BoxFuture<'a, Result<bool, StoreError>> {
        ready(Ok(true)).boxed()
    }

    fn resume<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
    ) -> BoxFuture<'a, Result<Option<LaneState>, StoreError>> {
        ready(Ok(self.with(partition, |partition| partition.lanes.resume(entity)).flatten())).boxed()
    }

    fn read<'a>(
        &'a self,
        partition: &'a PartitionId,
        place: Place,
        after: StreamId,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
        let read = self.with(partition, |partition| {
            let stream = match place {
                Place::Events => &partition.events,
                Place::Late => &partition.late,
            };
            stream.after(after, count).cloned().collect()
        });
        ready(Ok(read.unwrap_or_default())).boxed()
    }

    fn topics(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        let mut names: Vec<String> = self.topics.iter().map(|topic| topic.key().clone()).collect();
        names.sort();
        ready(Ok(names)).boxed()
    }

    fn record<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Option<TopicRecord>, StoreError>> {
        ready(Ok(self.topics.get(topic).map(|record| record.clone()))).boxed()
    }

    fn measure<'a>(&'a self, partition: &'a PartitionId) -> BoxFuture<'a, Result<Measure, StoreError>> {
        let measure = self.with(partition, |partition| {
            let (parked, parked_bytes) = partition.lanes.parked();
            Measure {
                entries: partition.events.len() as u64,
                late: partition.late.len() as u64,
                lanes: partition.lanes.lanes().count() as u64,
                parked,
                parked_bytes,
                gaps: partition.lanes.gaps().count() as u64,
                announced: partition.lanes.memory().announced.len() as u64,
                degraded: partition.lanes.is_degraded(),
                full: partition.lanes.full().events,
                late_full: partition.lanes.full().late,
                trimmed: partition.trimmed,
            }
        });
        ready(Ok(measure.unwrap_or_default())).boxed()
    }

    fn delete_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        if self.topics.remove(topic).is_some() {
            self.remove_groups(topic);
            self.partitions.retain(|partition, _| &*partition.topic != topic);
        }
        ready(Ok(())).boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }
}
