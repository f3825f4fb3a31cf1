//! The port as Redis fulfils it: each method is one of those beside this file.

use ::redis::cmd;
use futures_util::{FutureExt, future::BoxFuture, stream::BoxStream};

use super::RedisStore;
use crate::{
    order::{Announcement, Entity, LaneState, Place, Probe, Range, Swept},
    store::{
        Admitted, Batch, Beat, Elapsed, Entry, Floor, GapId, Measure, OpenError, PartitionId, RepairCursor,
        Repaired, SidecarSeen, Store, StoreError, StoreKind, StreamId, TopicRecord, TopicSpec, Trimmed,
    },
};

impl Store for RedisStore {
    fn describe(&self) -> String {
        format!("Redis at {}", self.link.address())
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Redis
    }

    fn open<'a>(&'a self, topic: &'a TopicSpec) -> BoxFuture<'a, Result<(), OpenError>> {
        self.open_topic(topic).boxed()
    }

    fn admit<'a>(
        &'a self,
        partition: &'a PartitionId,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Admitted, StoreError>> {
        self.admit_batch(partition, batch).boxed()
    }

    fn elapse<'a>(
        &'a self,
        partition: &'a PartitionId,
        lanes_max: usize,
    ) -> BoxFuture<'a, Result<Elapsed, StoreError>> {
        self.elapse_partition(partition, lanes_max).boxed()
    }

    fn trim<'a>(
        &'a self,
        partition: &'a PartitionId,
        count: usize,
    ) -> BoxFuture<'a, Result<Trimmed, StoreError>> {
        self.trim_partition(partition, count).boxed()
    }

    fn floor<'a>(&'a self, partition: &'a PartitionId) -> BoxFuture<'a, Result<Option<Floor>, StoreError>> {
        self.read_floor(partition).boxed()
    }

    fn extend<'a>(
        &'a self,
        partition: &'a PartitionId,
        gap: &'a GapId,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        self.extend_gap(partition, gap).boxed()
    }

    fn skip<'a>(
        &'a self,
        partition: &'a PartitionId,
        gap: &'a GapId,
        audit: &'a str,
    ) -> BoxFuture<'a, Result<Option<Range>, StoreError>> {
        self.skip_gap(partition, gap, audit).boxed()
    }

    fn set_degraded<'a>(
        &'a self,
        partition: &'a PartitionId,
        degraded: bool,
    ) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.set_mode(partition, degraded).boxed()
    }

    fn announce<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
        within_ms: u64,
    ) -> BoxFuture<'a, Result<Announcement, StoreError>> {
        self.announce_entity(partition, entity, within_ms).boxed()
    }

    fn sweep<'a>(
        &'a self,
        partition: &'a PartitionId,
        count: usize,
        as_of: Option<u64>,
    ) -> BoxFuture<'a, Result<Swept, StoreError>> {
        self.sweep_partition(partition, count, as_of).boxed()
    }

    fn repair<'a>(
        &'a self,
        partition: &'a PartitionId,
        from: RepairCursor,
        count: usize,
    ) -> BoxFuture<'a, Result<Repaired, StoreError>> {
        self.repair_partition(partition, from, count).boxed()
    }

    fn probes<'a>(
        &'a self,
        topic: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Vec<Probe>>, StoreError>> {
        self.listen_for_probes(topic).boxed()
    }

    fn call_out<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.probe_nobody(topic).boxed()
    }

    fn beat<'a>(&'a self, beat: &'a Beat) -> BoxFuture<'a, Result<Vec<SidecarSeen>, StoreError>> {
        self.beat_once(beat).boxed()
    }

    fn leave<'a>(&'a self, sidecar: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.take_leave(sidecar).boxed()
    }

    fn lead_reconciler<'a>(&'a self, owner: &'a str, for_ms: u64) -> BoxFuture<'a, Result<bool, StoreError>> {
        self.take_lead(owner, for_ms).boxed()
    }

    fn resume<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
    ) -> BoxFuture<'a, Result<Option<LaneState>, StoreError>> {
        self.resume_entity(partition, entity).boxed()
    }

    fn read<'a>(
        &'a self,
        partition: &'a PartitionId,
        place: Place,
        after: StreamId,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
        self.read_entries(partition, place, after, count).boxed()
    }

    fn topics(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        self.list_topics().boxed()
    }

    fn record<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Option<TopicRecord>, StoreError>> {
        self.read_record(topic).boxed()
    }

    fn measure<'a>(&'a self, partition: &'a PartitionId) -> BoxFuture<'a, Result<Measure, StoreError>> {
        self.measure_partition(partition).boxed()
    }

    fn delete_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.remove_topic(topic).boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            // A store that answers but takes no writes is of no use: so it is asked to
            // write. Resuming nobody does.
            let keys = self.partitions.iter().next().map(|opened| opened.keys.clone());
            match keys {
                Some(keys) => self.run_resume(&keys, "").await.map(drop),
                None => self.query(cmd("PING")).await.map(drop),
            }
        }
        .boxed()
    }
}
