//! The Redis store: a script decides, next to the data.
//!
//! One connection carries all partitions. That keeps order because a partition has
//! at most one call in flight (the promise of [`Store::admit`]); many calls of one
//! partition on a multiplexed connection would overtake each other.
//!
//! No call is repeated here except where it certainly did not run: the script was
//! unknown to the server, or the partition was not there (a flushed or replaced
//! store), in which case the topic is opened anew first.

mod encode;
mod link;
mod reply;
mod report;
mod script;

use std::sync::Arc;

use ::redis::{Cmd, Value, cmd};
use dashmap::DashMap;
use futures_util::{FutureExt, future::BoxFuture};
use tracing::warn;

use self::{
    link::Link,
    script::{ADMIT, OPEN_PARTITION, OPEN_TOPIC, RESUME},
};
pub use self::{link::RedisSettings, report::ServerReport};
use super::{
    Admitted, Batch, Entry, Measure, OpenError, PartitionId, Store, StoreError, StoreKind, StreamId,
    TopicRecord, TopicSpec,
    keys::{PartitionKeys, TOPIC_PATTERN, topic_key, topic_of_key},
    topic::{WIRE_VERSION, policy_text},
};
use crate::order::{Entity, LaneState, Place};

pub struct RedisStore {
    link: Link,
    /// Identifies a store's history: given to a partition that is created by us.
    generation: u64,
    partitions: DashMap<PartitionId, Arc<Opened>>,
}

/// A partition as this process knows it.
struct Opened {
    topic: Arc<TopicSpec>,
    keys: PartitionKeys,
    /// What meta says while our policy is in force and nothing is draining. Never
    /// learnt from replies: under anybody else's policy a prediction may be wrong, so
    /// calls then take the slow path until this process is restarted.
    header: String,
}

impl RedisStore {
    /// Connects when first used. `generation` should differ between processes.
    pub fn new(settings: RedisSettings, generation: u64) -> Result<Self, StoreError> {
        Ok(RedisStore { link: Link::new(settings)?, generation, partitions: DashMap::new() })
    }

    /// What the server is and how it is configured, for `doctor` and the start-up log.
    pub async fn report(&self) -> Result<ServerReport, StoreError> {
        report::read(&self.link).await
    }

    fn opened(&self, partition: &PartitionId) -> Result<Arc<Opened>, StoreError> {
        let found = self.partitions.get(partition).map(|opened| opened.clone());
        found.ok_or_else(|| StoreError::Broken(format!("partition {partition} is not open")))
    }

    /// A partition of a topic that need not be open: reading takes names only.
    fn keys(&self, partition: &PartitionId) -> PartitionKeys {
        match self.partitions.get(partition) {
            Some(opened) => opened.keys.clone(),
            None => PartitionKeys::new(partition),
        }
    }

    /// Creates the topic's record, or checks that it is the same topic.
    async fn open_record(&self, topic: &TopicSpec) -> Result<(), OpenError> {
        let store_error = |source| OpenError::Store { topic: topic.name.clone(), source };
        let wanted = topic.record();
        let mut call = OPEN_TOPIC.call(&[&topic_key(&topic.name)], 10, 0);
        for (field, value) in wanted.fields() {
            call.arg(field).arg(value);
        }
        let reply = self.link.run(&OPEN_TOPIC, call).await.map_err(store_error)?;
        let fields = reply::pairs(reply).map_err(store_error)?;
        let found = TopicRecord::from_fields(&fields).ok_or_else(|| {
            store_error(StoreError::Broken(format!("its record cannot be read: {fields:?}")))
        })?;
        match found.mismatch(&wanted) {
            Some(mismatch) => Err(OpenError::Mismatch { topic: topic.name.clone(), mismatch }),
            None => Ok(()),
        }
    }

    async fn open_partition(
        &self,
        topic: &Arc<TopicSpec>,
        id: &PartitionId,
    ) -> Result<Arc<Opened>, StoreError> {
        let keys = PartitionKeys::new(id);
        let mut call = OPEN_PARTITION.call(&keys.all(), 3, 0);
        call.arg(WIRE_VERSION).arg(policy_text(&topic.policy)).arg(format!("{:016x}", self.generation));
        let reply = self.link.run(&OPEN_PARTITION, call).await?;
        let header = reply::header(reply)?;
        let opened = Arc::new(Opened { topic: topic.clone(), keys, header });
        self.partitions.insert(id.clone(), opened.clone());
        Ok(opened)
    }

    /// After the store lost the partition, or somebody made it anew: the same topic
    /// must be there, or this process has no business in it any more.
    async fn reopen(&self, topic: &Arc<TopicSpec>, id: &PartitionId) -> Result<Arc<Opened>, StoreError> {
        self.open_record(topic).await.map_err(|error| match error {
            OpenError::Store { source, .. } => source,
            OpenError::Mismatch { .. } => StoreError::Broken(error.to_string()),
        })?;
        self.open_partition(topic, id).await
    }

    async fn admit_batch(&self, partition: &PartitionId, batch: &Batch) -> Result<Admitted, StoreError> {
        let mut opened = self.opened(partition)?;
        let mut reopened = false;
        loop {
            let call = encode::admit(&opened.keys, &opened.header, batch, &opened.topic.policy);
            match self.link.run(&ADMIT, call).await {
                Ok(value) => return reply::admitted(value, batch),
                Err(StoreError::NotExecuted(reason)) if reason.starts_with("UNINITIALISED") && !reopened => {
                    warn!(%partition, reason, "opening this partition anew");
                    opened = self.reopen(&opened.topic, partition).await?;
                    reopened = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn query(&self, command: Cmd) -> Result<Value, StoreError> {
        self.link.send(&command).await
    }

    async fn unlink_partitions(&self, topic: &str, partitions: u32) -> Result<(), StoreError> {
        for index in 0..partitions {
            let partition = PartitionId { topic: topic.into(), index };
            let mut unlink = cmd("UNLINK");
            unlink.arg(&PartitionKeys::new(&partition).all());
            self.query(unlink).await?;
        }
        Ok(())
    }

    async fn count(&self, command: &str, key: &str) -> Result<u64, StoreError> {
        let mut query = cmd(command);
        query.arg(key);
        reply::number(self.query(query).await?)
    }
}

impl Store for RedisStore {
    fn describe(&self) -> String {
        format!("Redis at {}", self.link.address())
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Redis
    }

    fn open<'a>(&'a self, topic: &'a TopicSpec) -> BoxFuture<'a, Result<(), OpenError>> {
        async move {
            self.open_record(topic).await?;
            let shared = Arc::new(topic.clone());
            for index in 0..topic.partitions {
                let id = PartitionId { topic: topic.name.as_str().into(), index };
                let opened = self.open_partition(&shared, &id).await;
                opened.map_err(|source| OpenError::Store { topic: topic.name.clone(), source })?;
            }
            Ok(())
        }
        .boxed()
    }

    fn admit<'a>(
        &'a self,
        partition: &'a PartitionId,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Admitted, StoreError>> {
        self.admit_batch(partition, batch).boxed()
    }

    fn resume<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
    ) -> BoxFuture<'a, Result<Option<LaneState>, StoreError>> {
        async move {
            let keys = self.keys(partition);
            let mut call = RESUME.call(&[&keys.lanes, &keys.meta], 1, 0);
            call.arg(entity.as_str());
            reply::lane_state(self.link.run(&RESUME, call).await?)
        }
        .boxed()
    }

    fn read<'a>(
        &'a self,
        partition: &'a PartitionId,
        place: Place,
        after: StreamId,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
        async move {
            let keys = self.keys(partition);
            let key = match place {
                Place::Events => &keys.events,
                Place::Late => &keys.late,
            };
            let mut query = cmd("XRANGE");
            query.arg(key).arg(format!("({after}")).arg("+").arg("COUNT").arg(count);
            reply::entries(self.query(query).await?)
        }
        .boxed()
    }

    fn topics(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        async move {
            let mut names = Vec::new();
            let mut cursor = 0;
            loop {
                let mut query = cmd("SCAN");
                query.arg(cursor).arg("MATCH").arg(TOPIC_PATTERN).arg("COUNT").arg(1000);
                let (next, keys) = reply::scan(self.query(query).await?)?;
                names.extend(keys.iter().filter_map(|key| topic_of_key(key)).map(str::to_owned));
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            names.sort();
            names.dedup();
            Ok(names)
        }
        .boxed()
    }

    fn record<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Option<TopicRecord>, StoreError>> {
        async move {
            let mut query = cmd("HGETALL");
            query.arg(topic_key(topic));
            let fields = reply::pairs(self.query(query).await?)?;
            if fields.is_empty() {
                return Ok(None);
            }
            let record = TopicRecord::from_fields(&fields);
            let broken =
                || StoreError::Broken(format!("topic {topic}: its record cannot be read: {fields:?}"));
            record.map(Some).ok_or_else(broken)
        }
        .boxed()
    }

    fn measure<'a>(&'a self, partition: &'a PartitionId) -> BoxFuture<'a, Result<Measure, StoreError>> {
        async move {
            let keys = self.keys(partition);
            let mut query = cmd("HGET");
            query.arg(&keys.meta).arg("parked_bytes");
            let parked_bytes = reply::number(self.query(query).await?)?;
            let mut info = cmd("XINFO");
            info.arg("STREAM").arg(&keys.events);
            let (entries, added) = match self.query(info).await {
                // A deletion was interrupted; to be repeated it must not fail here.
                Err(StoreError::Broken(reason)) if reason.contains("no such key") => (0, 0),
                reply => reply::stream_info(reply?)?,
            };
            Ok(Measure {
                entries,
                late: self.count("XLEN", &keys.late).await?,
                // Both hashes hold a sentinel.
                lanes: self.count("HLEN", &keys.lanes).await?.saturating_sub(1),
                parked: self.count("HLEN", &keys.parked).await?.saturating_sub(1),
                parked_bytes,
                trimmed: added.saturating_sub(entries),
            })
        }
        .boxed()
    }

    fn delete_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        async move {
            let Some(record) = self.record(topic).await? else { return Ok(()) };
            // The record in the middle: before it, so that an interrupted deletion can be
            // repeated; after it, because a sidecar that is still running may have made
            // a partition anew meanwhile.
            self.unlink_partitions(topic, record.partitions).await?;
            let mut unlink = cmd("UNLINK");
            unlink.arg(topic_key(topic));
            self.query(unlink).await?;
            self.unlink_partitions(topic, record.partitions).await
        }
        .boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move {
            // A store that answers but takes no writes is of no use: so it is asked to
            // write. Resuming nobody does.
            let keys = self.partitions.iter().next().map(|opened| opened.keys.clone());
            match keys {
                Some(keys) => {
                    let mut call = RESUME.call(&[&keys.lanes, &keys.meta], 1, 0);
                    call.arg("");
                    self.link.run(&RESUME, call).await.map(drop)
                }
                None => self.query(cmd("PING")).await.map(drop),
            }
        }
        .boxed()
    }
}
