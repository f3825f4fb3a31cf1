//! Groups of workers in memory: the same contract as the scripts, in plain Rust.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, ready},
};

use super::{MemoryStore, part::GroupPart};
use crate::{
    clock::Clock,
    order::{Entity, Place},
    store::{
        Attendance, Commit, Committed, Floor, Granted, GroupId, GroupStore, Head, KeptEvents, LeaseSeen,
        Leased, Member, PartitionId, Point, Read, RetiredPoints, Start, Store, StoreError, StreamId, Streams,
        Switches, Waiter, Wish,
    },
};

/// How often somebody who waits looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Clone, Default)]
pub struct MemoryGroups {
    groups: BTreeMap<(String, String), Registered>,
    parts: HashMap<(PartitionId, String), GroupPart>,
}

#[derive(Clone, Default)]
struct Registered {
    switches: Switches,
    members: BTreeMap<String, u64>,
}

fn no_group(group: &str) -> StoreError {
    StoreError::NotExecuted(format!("NOGROUP there is no group {group}"))
}

fn name(group: &GroupId) -> (String, String) {
    (group.topic.clone(), group.group.clone())
}

impl MemoryStore {
    fn groups(&self) -> std::sync::MutexGuard<'_, MemoryGroups> {
        self.groups.lock().expect("nobody panics holding it")
    }

    fn part<T>(
        &self,
        partition: &PartitionId,
        group: &str,
        act: impl FnOnce(&mut GroupPart) -> T,
    ) -> BoxFuture<'static, Result<T, StoreError>>
    where
        T: Send + 'static,
    {
        let mut groups = self.groups();
        let part = groups.parts.get_mut(&(partition.clone(), group.to_owned()));
        ready(part.map(act).ok_or_else(|| no_group(group))).boxed()
    }

    /// All that a group keeps about a partition, for tests that compare stores.
    pub fn inspect_group(&self, partition: &PartitionId, group: &str) -> Option<GroupPart> {
        self.groups().parts.get(&(partition.clone(), group.to_owned())).cloned()
    }

    /// Who works for a group, likewise.
    pub fn inspect_members(&self, group: &GroupId) -> Option<BTreeMap<String, u64>> {
        self.groups().groups.get(&name(group)).map(|found| found.members.clone())
    }

    /// The group that is furthest behind in a partition, and how far it is.
    pub(super) fn least_floor(&self, partition: &PartitionId) -> Option<Floor> {
        let groups = self.groups();
        let of_partition = groups.parts.iter().filter(|((of, _), _)| of == partition);
        let floors = of_partition.map(|((_, group), part)| Floor { id: part.floor, group: group.clone() });
        floors.min_by(|a, b| (a.id, &a.group).cmp(&(b.id, &b.group)))
    }

    fn last_id(&self, partition: &PartitionId) -> StreamId {
        self.partitions.get(partition).map(|found| found.events.last_id()).unwrap_or_default()
    }

    /// All of a topic that is deleted.
    pub(super) fn remove_groups(&self, topic: &str) {
        let mut groups = self.groups();
        groups.groups.retain(|(of, _), _| of != topic);
        groups.parts.retain(|(partition, _), _| *partition.topic != *topic);
    }
}

struct MemoryWaiter {
    store: MemoryStoreHandle,
    clock: Arc<dyn Clock>,
}

/// Reads entries without owning the store.
type MemoryStoreHandle = Arc<dashmap::DashMap<PartitionId, super::MemoryPartition>>;

impl Waiter for MemoryWaiter {
    fn wait<'a>(
        &'a mut self,
        after: &'a [(PartitionId, StreamId)],
        count: usize,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Streams, StoreError>> {
        async move {
            let until = self.clock.now() + at_most;
            loop {
                let read = |(id, after): &(PartitionId, StreamId)| {
                    let found = self.store.get(id)?;
                    let new = found.events.after(*after, count);
                    let reads: Vec<Read> =
                        new.map(|entry| Read { id: entry.id, entry: Ok(entry.clone()) }).collect();
                    (!reads.is_empty()).then(|| (id.clone(), reads))
                };
                let streams: Vec<_> = after.iter().filter_map(read).collect();
                if !streams.is_empty() || self.clock.now() >= until {
                    return Ok(streams);
                }
                self.clock.sleep(LOOK_EVERY).await;
            }
        }
        .boxed()
    }
}

impl GroupStore for MemoryStore {
    fn register<'a>(
        &'a self,
        group: &'a GroupId,
        partitions: u32,
        start: Start,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        for index in 0..partitions {
            let partition = PartitionId { topic: group.topic.as_str().into(), index };
            let floor = match start {
                Start::Beginning => StreamId::default(),
                Start::End => self.last_id(&partition),
                Start::After(id) => id,
            };
            let part = GroupPart { floor, ..GroupPart::default() };
            self.groups().parts.entry((partition, group.group.clone())).or_insert(part);
        }
        let mut groups = self.groups();
        let is_new = !groups.groups.contains_key(&name(group));
        groups.groups.entry(name(group)).or_default();
        ready(Ok(is_new)).boxed()
    }

    fn remove<'a>(&'a self, group: &'a GroupId, _: u32) -> BoxFuture<'a, Result<(), StoreError>> {
        let mut groups = self.groups();
        groups.groups.remove(&name(group));
        groups.parts.retain(|(partition, of), _| *partition.topic != *group.topic || *of != group.group);
        ready(Ok(())).boxed()
    }

    fn groups<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Vec<(String, Switches)>, StoreError>> {
        let groups = self.groups();
        let of_topic = groups.groups.iter().filter(|((of, _), _)| of == topic);
        ready(Ok(of_topic.map(|((_, group), found)| (group.clone(), found.switches)).collect())).boxed()
    }

    fn switch<'a>(
        &'a self,
        group: &'a GroupId,
        switches: Switches,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        let mut groups = self.groups();
        let found = groups.groups.get_mut(&name(group)).map(|found| found.switches = switches);
        ready(Ok(found.is_some())).boxed()
    }

    fn attend<'a>(
        &'a self,
        group: &'a GroupId,
        member: &'a Member,
    ) -> BoxFuture<'a, Result<Option<Attendance>, StoreError>> {
        let mut groups = self.groups();
        let attendance = groups.groups.get_mut(&name(group)).map(|found| {
            found.members.insert(member.name.clone(), member.count);
            let member = |(name, count): (&String, &u64)| Member { name: name.clone(), count: *count };
            Attendance { members: found.members.iter().map(member).collect(), switches: found.switches }
        });
        ready(Ok(attendance)).boxed()
    }

    fn depart<'a>(&'a self, group: &'a GroupId, member: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        let mut groups = self.groups();
        groups.groups.get_mut(&name(group)).map(|found| found.members.remove(member));
        ready(Ok(())).boxed()
    }

    fn leases<'a>(
        &'a self,
        group: &'a GroupId,
        partitions: u32,
    ) -> BoxFuture<'a, Result<Vec<LeaseSeen>, StoreError>> {
        let groups = self.groups();
        let seen = |index| {
            let partition = PartitionId { topic: group.topic.as_str().into(), index };
            let part = groups.parts.get(&(partition, group.group.clone()))?;
            Some(part.seen())
        };
        ready(Ok((0..partitions).map_while(seen).collect())).boxed()
    }

    fn lease<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        owner: &'a str,
        seen: &'a LeaseSeen,
    ) -> BoxFuture<'a, Result<Option<Leased>, StoreError>> {
        let now_ms = self.wall();
        self.part(partition, group, |part| part.lease(owner, seen, now_ms))
    }

    fn release<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        term: u64,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let mut groups = self.groups();
        // A lease that is gone is nobody's.
        if let Some(part) = groups.parts.get_mut(&(partition.clone(), group.to_owned())) {
            part.release(term);
        }
        ready(Ok(())).boxed()
    }

    fn commit<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        commit: &'a Commit,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        let now_ms = self.wall();
        self.part(partition, group, |part| part.commit(commit, now_ms))
    }

    fn points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entities: &'a [Entity],
    ) -> BoxFuture<'a, Result<Vec<Option<Point>>, StoreError>> {
        self.part(partition, group, |part| {
            entities.iter().map(|entity| part.resume.get(entity).cloned()).collect()
        })
    }

    fn sweep_points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        term: u64,
        found: &'a RetiredPoints,
        _: usize,
    ) -> BoxFuture<'a, Result<Option<RetiredPoints>, StoreError>> {
        let has_lane = |entity: &Entity| {
            self.partitions.get(partition).is_some_and(|found| {
                let tombstone = found.lanes.memory().tombs.get(entity);
                found.lanes.lane(entity).is_some() || tombstone.is_some_and(|tombstone| !tombstone.closed)
            })
        };
        let upto = self.last_id(partition);
        let mut groups = self.groups();
        let part = groups.parts.get_mut(&(partition.clone(), group.to_owned()));
        let is_done = |part: &GroupPart| found.points.is_empty() || part.floor >= found.upto;
        let swept = part.filter(|part| part.term == term && is_done(part)).map(|part| {
            let is_retired = |entity: &Entity| !has_lane(entity) && !part.held.contains_key(entity);
            let named = |(entity, point): (&Entity, &Point)| (entity.to_string(), point.to_string());
            let before = part.resume.len();
            part.resume.retain(|entity, point| {
                !is_retired(entity) || !found.points.contains(&named((entity, &*point)))
            });
            let forgotten = (before - part.resume.len()) as u64;
            let points = part.resume.iter().filter(|(entity, _)| is_retired(entity)).map(named).collect();
            RetiredPoints { cursor: 0, upto, points, forgotten }
        });
        ready(Ok(swept)).boxed()
    }

    fn heads<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
    ) -> BoxFuture<'a, Result<Vec<(Entity, Head)>, StoreError>> {
        self.part(partition, group, |part| {
            part.held.iter().map(|(entity, head)| (entity.clone(), head.clone())).collect()
        })
    }

    fn kept<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entity: &'a Entity,
        numbers: Range<u64>,
    ) -> BoxFuture<'a, Result<KeptEvents, StoreError>> {
        self.part(partition, group, |part| {
            let kept = |number| Some((number, part.kept.get(&(entity.clone(), number))?.clone()));
            numbers.filter_map(kept).collect()
        })
    }

    fn wish<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entity: &'a Entity,
        wish: Wish,
    ) -> BoxFuture<'a, Result<Granted, StoreError>> {
        self.part(partition, group, |part| part.wish(entity, wish))
    }

    fn read_on<'a>(
        &'a self,
        partition: &'a PartitionId,
        after: StreamId,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Read>, StoreError>> {
        let entries = self.read(partition, Place::Events, after, count);
        let raw = |entries: Vec<crate::store::Entry>| {
            entries.into_iter().map(|entry| Read { id: entry.id, entry: Ok(entry) }).collect()
        };
        entries.map(move |entries| entries.map(raw)).boxed()
    }

    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(MemoryWaiter { store: self.partitions.clone(), clock: self.clock.clone() })
    }
}
