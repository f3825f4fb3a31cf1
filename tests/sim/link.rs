//! One process's way to the store, which loses, delays and repeats.

use std::{ops::Range, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::BoxFuture,
    stream::{self, BoxStream, StreamExt},
};
use seriatim::{
    order::{self, Announcement, Entity, LaneState, Place, Probe, Swept},
    store::{
        Admitted, Attendance, Batch, Beat, Commit, Committed, Elapsed, Entry, Floor, GapId, Granted, GroupId,
        GroupStore, Head, KeptEvents, LeaseSeen, Leased, Measure, Member, MemoryStore, OpenError,
        PartitionId, Point, Read, RepairCursor, Repaired, RetiredPoints, SidecarSeen, Start, Store,
        StoreError, StoreKind, StreamId, Streams, Switches, TopicRecord, TopicSpec, Trimmed, Waiter, Wish,
    },
};

use crate::{
    network::{Loss, Route},
    process::Process,
    told,
    world::World,
};

/// After so long without an answer a call has failed.
const CALL_TIMEOUT: Duration = Duration::from_millis(300);

#[derive(Clone)]
pub struct Link {
    pub world: Arc<World>,
    pub process: Process,
}

type Future<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// What a store in memory answers, which it does at once.
fn now<T>(answer: Future<'_, T>) -> Result<T, StoreError> {
    answer.now_or_never().expect("a store in memory answers at once")
}

impl Link {
    /// A call whose arguments are borrowed: it is executed while somebody waits, or never.
    async fn call<T>(
        &self,
        partition: Option<&PartitionId>,
        act: impl FnOnce(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.process.gate().await;
        let route = self.world.network.route();
        if matches!(route.loss, Some(Loss::Request | Loss::Overtaken)) {
            return self.timed_out().await;
        }
        self.travel(route, partition, act).await
    }

    /// A call that may be executed when its sender has long given up, and called again.
    async fn call_owned<T: Send + 'static>(
        &self,
        partition: &PartitionId,
        act: impl FnOnce(&MemoryStore) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.process.gate().await;
        let route = self.world.network.route();
        match route.loss {
            Some(Loss::Request) => self.timed_out().await,
            Some(Loss::Overtaken) => {
                let (world, partition) = (self.world.clone(), partition.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(CALL_TIMEOUT + 4 * route.there).await;
                    let _ = world.server.execute(Some(&partition), act).await;
                });
                self.timed_out().await
            }
            Some(Loss::Reply) | None => self.travel(route, Some(partition), act).await,
        }
    }

    async fn travel<T>(
        &self,
        route: Route,
        partition: Option<&PartitionId>,
        act: impl FnOnce(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let server = &self.world.server;
        route.go_there().await;
        let done = server.execute(partition, act).await;
        let restarts = server.restarts();
        if route.loss == Some(Loss::Reply) {
            return self.timed_out().await;
        }
        route.go_back().await;
        self.process.gate().await;
        if server.restarts() != restarts {
            return Err(StoreError::Ambiguous("connection reset".into()));
        }
        done
    }

    async fn timed_out<T>(&self) -> Result<T, StoreError> {
        tokio::time::sleep(CALL_TIMEOUT).await;
        self.process.gate().await;
        Err(StoreError::Ambiguous("timed out".into()))
    }
}

struct SimWaiter(Link);

impl Waiter for SimWaiter {
    fn wait<'a>(
        &'a mut self,
        after: &'a [(PartitionId, StreamId)],
        count: usize,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Streams, StoreError>> {
        async move {
            let until = tokio::time::Instant::now() + at_most;
            loop {
                let link = &self.0;
                let appended = link.world.server.appended.notified();
                let look = |store: &MemoryStore| {
                    let mut streams = Vec::new();
                    for (id, after) in after {
                        let reads = now(store.read_on(id, *after, count))?;
                        if !reads.is_empty() {
                            streams.push((id.clone(), reads));
                        }
                    }
                    Ok(streams)
                };
                let streams = link.call(None, look).await?;
                if !streams.is_empty() || tokio::time::Instant::now() >= until {
                    return Ok(streams);
                }
                let _ = tokio::time::timeout_at(until, appended).await;
            }
        }
        .boxed()
    }
}

impl Store for Link {
    fn describe(&self) -> String {
        "simulated".to_owned()
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Redis
    }

    fn open<'a>(&'a self, topic: &'a TopicSpec) -> BoxFuture<'a, Result<(), OpenError>> {
        let open = |store: &MemoryStore| {
            store
                .open(topic)
                .now_or_never()
                .expect("it answers at once")
                .expect("it is always the same topic");
            Ok(())
        };
        let opened = self.call(None, open);
        opened
            .map(|opened| opened.map_err(|source| OpenError::Store { topic: topic.name.clone(), source }))
            .boxed()
    }

    fn admit<'a>(&'a self, partition: &'a PartitionId, batch: &'a Batch) -> Future<'a, Admitted> {
        let (id, batch, world) = (partition.clone(), batch.clone(), self.world.clone());
        let act = move |store: &MemoryStore| {
            let admitted = now(store.admit(&id, &batch))?;
            world.coverage().admitted(&admitted);
            Ok(admitted)
        };
        self.call_owned(partition, act).boxed()
    }

    fn elapse<'a>(&'a self, partition: &'a PartitionId, lanes_max: usize) -> Future<'a, Elapsed> {
        let act = move |store: &MemoryStore| {
            let elapsed = now(store.elapse(partition, lanes_max))?;
            self.world.coverage().notes(&elapsed.notes);
            Ok(elapsed)
        };
        self.call(Some(partition), act).boxed()
    }

    fn trim<'a>(&'a self, partition: &'a PartitionId, count: usize) -> Future<'a, Trimmed> {
        self.call(Some(partition), move |store| now(store.trim(partition, count))).boxed()
    }

    fn floor<'a>(&'a self, partition: &'a PartitionId) -> Future<'a, Option<Floor>> {
        self.call(None, move |store| now(store.floor(partition))).boxed()
    }

    fn extend<'a>(&'a self, partition: &'a PartitionId, gap: &'a GapId) -> Future<'a, ()> {
        self.call(Some(partition), move |store| now(store.extend(partition, gap))).boxed()
    }

    fn skip<'a>(
        &'a self,
        partition: &'a PartitionId,
        gap: &'a GapId,
        audit: &'a str,
    ) -> Future<'a, Option<order::Range>> {
        self.call(Some(partition), move |store| now(store.skip(partition, gap, audit))).boxed()
    }

    fn set_degraded<'a>(&'a self, partition: &'a PartitionId, degraded: bool) -> Future<'a, bool> {
        self.call(Some(partition), move |store| now(store.set_degraded(partition, degraded))).boxed()
    }

    fn announce<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
        within_ms: u64,
    ) -> Future<'a, Announcement> {
        self.call(Some(partition), move |store| now(store.announce(partition, entity, within_ms))).boxed()
    }

    fn sweep<'a>(
        &'a self,
        partition: &'a PartitionId,
        count: usize,
        as_of: Option<u64>,
    ) -> Future<'a, Swept> {
        let act = move |store: &MemoryStore| {
            let swept = now(store.sweep(partition, count, as_of))?;
            self.world.coverage().swept(&swept);
            Ok(swept)
        };
        self.call(Some(partition), act).boxed()
    }

    fn repair<'a>(
        &'a self,
        partition: &'a PartitionId,
        from: RepairCursor,
        count: usize,
    ) -> Future<'a, Repaired> {
        self.call(Some(partition), move |store| now(store.repair(partition, from, count))).boxed()
    }

    fn probes<'a>(&'a self, topic: &'a str) -> Future<'a, BoxStream<'static, Vec<Probe>>> {
        async move {
            let heard = self.call(None, |store| now(store.probes(topic))).await?;
            let link = self.clone();
            let restarts = link.world.server.restarts();
            // Each message may be lost; a restart of the store ends it.
            let passed_on = stream::unfold((heard, link), move |(mut heard, link)| async move {
                loop {
                    let probes = heard.next().await?;
                    link.process.gate().await;
                    if link.world.server.restarts() != restarts {
                        return None;
                    }
                    if link.world.network.route().loss.is_none() {
                        return Some((probes, (heard, link)));
                    }
                }
            });
            Ok(passed_on.boxed())
        }
        .boxed()
    }

    fn call_out<'a>(&'a self, topic: &'a str) -> Future<'a, ()> {
        self.call(None, move |store| now(store.call_out(topic))).boxed()
    }

    fn beat<'a>(&'a self, beat: &'a Beat) -> Future<'a, Vec<SidecarSeen>> {
        self.call(None, move |store| now(store.beat(beat))).boxed()
    }

    fn leave<'a>(&'a self, sidecar: &'a str) -> Future<'a, ()> {
        self.call(None, move |store| now(store.leave(sidecar))).boxed()
    }

    fn lead_reconciler<'a>(&'a self, owner: &'a str, for_ms: u64) -> Future<'a, bool> {
        self.call(None, move |store| now(store.lead_reconciler(owner, for_ms))).boxed()
    }

    fn resume<'a>(&'a self, partition: &'a PartitionId, entity: &'a Entity) -> Future<'a, Option<LaneState>> {
        self.call(None, move |store| now(store.resume(partition, entity))).boxed()
    }

    fn read<'a>(
        &'a self,
        partition: &'a PartitionId,
        place: Place,
        after: StreamId,
        count: usize,
    ) -> Future<'a, Vec<Entry>> {
        self.call(None, move |store| now(store.read(partition, place, after, count))).boxed()
    }

    fn topics(&self) -> Future<'_, Vec<String>> {
        self.call(None, |store| now(store.topics())).boxed()
    }

    fn record<'a>(&'a self, topic: &'a str) -> Future<'a, Option<TopicRecord>> {
        self.call(None, move |store| now(store.record(topic))).boxed()
    }

    fn measure<'a>(&'a self, partition: &'a PartitionId) -> Future<'a, Measure> {
        self.call(None, move |store| now(store.measure(partition))).boxed()
    }

    fn delete_topic<'a>(&'a self, topic: &'a str) -> Future<'a, ()> {
        self.call(None, move |store| now(store.delete_topic(topic))).boxed()
    }

    fn ping(&self) -> Future<'_, ()> {
        self.call(None, |store| now(store.ping())).boxed()
    }
}

impl GroupStore for Link {
    fn register<'a>(&'a self, group: &'a GroupId, partitions: u32, start: Start) -> Future<'a, bool> {
        self.call(None, move |store| now(store.register(group, partitions, start))).boxed()
    }

    fn remove<'a>(&'a self, group: &'a GroupId, partitions: u32) -> Future<'a, ()> {
        self.call(None, move |store| now(store.remove(group, partitions))).boxed()
    }

    fn groups<'a>(&'a self, topic: &'a str) -> Future<'a, Vec<(String, Switches)>> {
        self.call(None, move |store| now(GroupStore::groups(store, topic))).boxed()
    }

    fn switch<'a>(&'a self, group: &'a GroupId, switches: Switches) -> Future<'a, bool> {
        self.call(None, move |store| now(store.switch(group, switches))).boxed()
    }

    fn attend<'a>(&'a self, group: &'a GroupId, member: &'a Member) -> Future<'a, Option<Attendance>> {
        self.call(None, move |store| now(store.attend(group, member))).boxed()
    }

    fn depart<'a>(&'a self, group: &'a GroupId, member: &'a str) -> Future<'a, ()> {
        self.call(None, move |store| now(store.depart(group, member))).boxed()
    }

    fn leases<'a>(&'a self, group: &'a GroupId, partitions: u32) -> Future<'a, Vec<LeaseSeen>> {
        self.call(None, move |store| now(store.leases(group, partitions))).boxed()
    }

    fn lease<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        owner: &'a str,
        seen: &'a LeaseSeen,
    ) -> Future<'a, Option<Leased>> {
        let (id, group, owner, seen) = (partition.clone(), group.to_owned(), owner.to_owned(), seen.clone());
        let world = self.world.clone();
        let act = move |store: &MemoryStore| {
            let leased = now(store.lease(&id, &group, &owner, &seen))?;
            told(|| format!("{owner} wants {id}: {leased:?}"));
            world.coverage().leased(leased.as_ref(), &seen);
            Ok(leased)
        };
        self.call_owned(partition, act).boxed()
    }

    fn release<'a>(&'a self, partition: &'a PartitionId, group: &'a str, term: u64) -> Future<'a, ()> {
        self.call(None, move |store| now(store.release(partition, group, term))).boxed()
    }

    fn commit<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        commit: &'a Commit,
    ) -> Future<'a, Committed> {
        let (id, group, commit, world) =
            (partition.clone(), group.to_owned(), commit.clone(), self.world.clone());
        let act = move |store: &MemoryStore| {
            let committed = now(store.commit(&id, &group, &commit))?;
            told(|| format!("{commit:?}: {committed:?}"));
            world.coverage().committed(&committed);
            Ok(committed)
        };
        self.call_owned(partition, act).boxed()
    }

    fn points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entities: &'a [Entity],
    ) -> Future<'a, Vec<Option<Point>>> {
        let look = move |store: &MemoryStore| {
            let points = now(store.points(partition, group, entities))?;
            told(|| format!("points of {entities:?}: {points:?}"));
            Ok(points)
        };
        self.call(None, look).boxed()
    }

    fn sweep_points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        term: u64,
        found: &'a RetiredPoints,
        count: usize,
    ) -> Future<'a, Option<RetiredPoints>> {
        let sweep = move |store: &MemoryStore| {
            told(|| format!("points are swept in term {term}: {found:?}"));
            now(store.sweep_points(partition, group, term, found, count))
        };
        self.call(None, sweep).boxed()
    }

    fn heads<'a>(&'a self, partition: &'a PartitionId, group: &'a str) -> Future<'a, Vec<(Entity, Head)>> {
        self.call(None, move |store| now(store.heads(partition, group))).boxed()
    }

    fn kept<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entity: &'a Entity,
        numbers: Range<u64>,
    ) -> Future<'a, KeptEvents> {
        self.call(None, move |store| now(store.kept(partition, group, entity, numbers))).boxed()
    }

    fn wish<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entity: &'a Entity,
        wish: Wish,
    ) -> Future<'a, Granted> {
        self.call(None, move |store| now(store.wish(partition, group, entity, wish))).boxed()
    }

    fn read_on<'a>(
        &'a self,
        partition: &'a PartitionId,
        after: StreamId,
        count: usize,
    ) -> Future<'a, Vec<Read>> {
        self.call(None, move |store| now(store.read_on(partition, after, count))).boxed()
    }

    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(SimWaiter(self.clone()))
    }
}
