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

use std::sync::{Arc, Mutex};

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
    /// What meta is expected to say. Learnt when opened and from slow replies; being
    /// wrong about it costs speed, never truth.
    header: Mutex<String>,
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

    async fn open_topic(&self, topic: Arc<TopicSpec>) -> Result<(), OpenError> {
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
        if let Some(mismatch) = found.mismatch(&wanted) {
            return Err(OpenError::Mismatch { topic: topic.name.clone(), mismatch });
        }
        for index in 0..topic.partitions {
            let id = PartitionId { topic: topic.name.as_str().into(), index };
            let opened = self.open_partition(&topic, &id).await.map_err(store_error)?;
            self.partitions.insert(id, Arc::new(opened));
        }
        Ok(())
    }

    async fn open_partition(&self, topic: &Arc<TopicSpec>, id: &PartitionId) -> Result<Opened, StoreError> {
        let keys = PartitionKeys::new(id);
        let mut call = OPEN_PARTITION.call(&keys.all(), 3, 0);
        call.arg(WIRE_VERSION).arg(policy_text(&topic.policy)).arg(format!("{:016x}", self.generation));
        let reply = self.link.run(&OPEN_PARTITION, call).await?;
        let header = Mutex::new(reply::header(reply)?);
        Ok(Opened { topic: topic.clone(), keys, header })
    }

    async fn admit_batch(&self, partition: &PartitionId, batch: &Batch) -> Result<Admitted, StoreError> {
        let mut opened = self.opened(partition)?;
        // Twice at most: the second time with a partition that was just opened.
        for last in [false, true] {
            let header = opened.header.lock().expect("nobody panics holding it").clone();
            let call = encode::admit(&opened.keys, &header, batch, &opened.topic.policy);
            match self.link.run(&ADMIT, call).await {
                Ok(value) => {
                    let (admitted, header) = reply::admitted(value, batch)?;
                    if let Some(header) = header {
                        *opened.header.lock().expect("nobody panics holding it") = header;
                    }
                    return Ok(admitted);
                }
                Err(StoreError::NotExecuted(reason)) if reason.starts_with("UNINITIALISED") && !last => {
                    warn!(%partition, "the store has lost this partition; opening its topic anew");
                    self.open_topic(opened.topic.clone()).await.map_err(|error| match error {
                        OpenError::Store { source, .. } => source,
                        OpenError::Mismatch { .. } => StoreError::Broken(error.to_string()),
                    })?;
                    opened = self.opened(partition)?;
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the second round returns in every case")
    }

    async fn query(&self, command: Cmd) -> Result<Value, StoreError> {
        self.link.send(&command).await
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
        self.open_topic(Arc::new(topic.clone())).boxed()
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
            for index in 0..record.partitions {
                let partition = PartitionId { topic: topic.into(), index };
                let mut unlink = cmd("UNLINK");
                unlink.arg(&PartitionKeys::new(&partition).all());
                self.query(unlink).await?;
                self.partitions.remove(&partition);
            }
            // Last, so that an interrupted deletion can be repeated.
            let mut unlink = cmd("UNLINK");
            unlink.arg(topic_key(topic));
            self.query(unlink).await.map(drop)
        }
        .boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        async move { self.query(cmd("PING")).await.map(drop) }.boxed()
    }
}
