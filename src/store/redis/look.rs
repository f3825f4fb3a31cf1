//! Looking at what is there, and removing it: plain commands, no rules.

use ::redis::{Value, cmd};

use super::{RedisStore, entries, reply};
use crate::{
    order::Place,
    store::{
        Entry, GroupId, Measure, PartitionId, StoreError, StreamId, TopicRecord,
        keys::{PartitionKeys, TOPIC_PATTERN, groups_key, topic_key, topic_of_key},
    },
};

impl RedisStore {
    pub(super) async fn read_entries(
        &self,
        partition: &PartitionId,
        place: Place,
        after: StreamId,
        count: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        let keys = self.keys(partition);
        let key = match place {
            Place::Events => &keys.events,
            Place::Late => &keys.late,
        };
        entries::entries(self.range(key, after, count).await?)
    }

    /// Entries after an id. Redis refuses to be asked for none, and for those behind the last id
    /// that there can be.
    pub(super) async fn range(&self, key: &str, after: StreamId, count: usize) -> Result<Value, StoreError> {
        if count == 0 || after == StreamId::MAX {
            return Ok(Value::Array(Vec::new()));
        }
        let mut query = cmd("XRANGE");
        query.arg(key).arg(format!("({after}")).arg("+").arg("COUNT").arg(count);
        self.query(query).await
    }

    pub(super) async fn list_topics(&self) -> Result<Vec<String>, StoreError> {
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

    pub(super) async fn read_record(&self, topic: &str) -> Result<Option<TopicRecord>, StoreError> {
        let mut query = cmd("HGETALL");
        query.arg(topic_key(topic));
        match self.query(query).await? {
            Value::Map(fields) if fields.is_empty() => Ok(None),
            fields => reply::record(fields).map(Some),
        }
    }

    pub(super) async fn measure_partition(&self, partition: &PartitionId) -> Result<Measure, StoreError> {
        let keys = self.keys(partition);
        let mut query = cmd("HMGET");
        query.arg(&keys.meta).arg("parked_bytes").arg("header").arg("late_full");
        let meta = reply::meta(self.query(query).await?)?;
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
            // Hashes and sorted sets hold a sentinel.
            lanes: self.count("HLEN", &keys.lanes).await?.saturating_sub(1),
            parked: self.count("HLEN", &keys.parked).await?.saturating_sub(1),
            parked_bytes: meta.parked_bytes,
            gaps: self.count("ZCARD", &keys.gaps).await?.saturating_sub(1),
            announced: self.count("ZCARD", &keys.announced).await?.saturating_sub(1),
            degraded: meta.degraded,
            full: meta.full,
            late_full: meta.late_full,
            trimmed: added.saturating_sub(entries),
        })
    }

    pub(super) async fn remove_topic(&self, topic: &str) -> Result<(), StoreError> {
        let Some(record) = self.read_record(topic).await? else { return Ok(()) };
        // The record in the middle: before it, so that an interrupted deletion can be
        // repeated; after it, because a sidecar that is still running may have made
        // a partition anew meanwhile.
        for (group, _) in self.list_groups(topic).await? {
            self.remove_group(&GroupId { topic: topic.to_owned(), group }, record.partitions).await?;
        }
        self.unlink_partitions(topic, record.partitions).await?;
        let mut unlink = cmd("UNLINK");
        unlink.arg(topic_key(topic)).arg(groups_key(topic));
        self.query(unlink).await?;
        self.unlink_partitions(topic, record.partitions).await
    }

    async fn unlink_partitions(&self, topic: &str, partitions: u32) -> Result<(), StoreError> {
        for index in 0..partitions {
            let partition = PartitionId { topic: topic.into(), index };
            let mut unlink = cmd("UNLINK");
            unlink.arg(PartitionKeys::new(&partition).all());
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
