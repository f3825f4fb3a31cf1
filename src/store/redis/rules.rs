//! The calls besides admitting: what time, operators and the reconciler want.
//!
//! Those of the sidecar run on partitions that it has open. An operator's command runs
//! beside the sidecars and has no policy of its own: it takes the partition as it is.

use ::redis::{Value, cmd};

use super::{
    Opened, RedisStore, is_gone, reply,
    script::{ANNOUNCE, ELAPSE, EXTEND, MODE, REPAIR, SKIP, SWEEP, Script, TRIM},
};
use crate::{
    order::{Announcement, Entity, Range, Swept},
    store::{
        Elapsed, Floor, GapId, PartitionId, RepairCursor, Repaired, StoreError, Trimmed,
        keys::{PartitionKeys, probe_channel},
    },
};

/// Where repairs look, one after the other.
const REPAIR_PLACES: [&str; 3] = ["lanes", "gaps", "parked"];

impl RedisStore {
    pub(super) async fn elapse_partition(
        &self,
        partition: &PartitionId,
        lanes_max: usize,
    ) -> Result<Elapsed, StoreError> {
        let encode = |opened: &Opened| {
            let mut call = ELAPSE.call(&opened.keys.of_rules(), 3, 0);
            call.arg(&opened.header).arg(&opened.channel).arg(lanes_max);
            call
        };
        match self.run_opened(partition, &ELAPSE, encode).await {
            Ok((_, value)) => reply::elapsed(value),
            // The topic was deleted: nothing is due.
            Err(StoreError::NotExecuted(reason)) if is_gone(&reason) => Ok(Elapsed::default()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn trim_partition(
        &self,
        partition: &PartitionId,
        count: usize,
    ) -> Result<Trimmed, StoreError> {
        let encode = |opened: &Opened| {
            let mut call = TRIM.call(&opened.keys.all(), 4, 0);
            call.arg(&opened.header).arg(&opened.channel).arg("trim").arg(count);
            call
        };
        match self.run_opened(partition, &TRIM, encode).await {
            Ok((_, value)) => reply::trimmed(value),
            // The topic was deleted: there is nothing to trim.
            Err(StoreError::NotExecuted(reason)) if is_gone(&reason) => Ok(Trimmed::default()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn read_floor(&self, partition: &PartitionId) -> Result<Option<Floor>, StoreError> {
        let words = ["look".to_owned(), "1".to_owned()];
        Ok(reply::trimmed(self.run_as_is(partition, &TRIM, &words).await?)?.floor)
    }

    pub(super) async fn extend_gap(&self, partition: &PartitionId, gap: &GapId) -> Result<(), StoreError> {
        let encode = |opened: &Opened| {
            let mut call = EXTEND.call(&opened.keys.of_rules(), 5, 0);
            call.arg(&opened.header).arg(&opened.channel).arg(gap_words(gap));
            call
        };
        self.run_opened(partition, &EXTEND, encode).await.map(drop)
    }

    pub(super) async fn skip_gap(
        &self,
        partition: &PartitionId,
        gap: &GapId,
        audit: &str,
    ) -> Result<Option<Range>, StoreError> {
        let mut words = gap_words(gap);
        words.push(audit.to_owned());
        match self.run_as_is(partition, &SKIP, &words).await? {
            Value::Nil => Ok(None),
            last => Ok(Some(Range { first: gap.next, last: reply::sequence(last)? })),
        }
    }

    pub(super) async fn set_mode(&self, partition: &PartitionId, degraded: bool) -> Result<bool, StoreError> {
        let word = if degraded { "degrade" } else { "restore" };
        Ok(reply::number(self.run_as_is(partition, &MODE, &[word.to_owned()]).await?)? == 1)
    }

    pub(super) async fn announce_entity(
        &self,
        partition: &PartitionId,
        entity: &Entity,
        within_ms: u64,
    ) -> Result<Announcement, StoreError> {
        let words = [entity.to_string(), within_ms.to_string()];
        reply::announcement(self.run_as_is(partition, &ANNOUNCE, &words).await?)
    }

    pub(super) async fn sweep_partition(
        &self,
        partition: &PartitionId,
        count: usize,
        as_of: Option<u64>,
    ) -> Result<Swept, StoreError> {
        let words = [count.to_string(), as_of.map(|time| time.to_string()).unwrap_or_default()];
        reply::swept(self.run_as_is(partition, &SWEEP, &words).await?)
    }

    pub(super) async fn repair_partition(
        &self,
        partition: &PartitionId,
        from: RepairCursor,
        count: usize,
    ) -> Result<Repaired, StoreError> {
        let place = REPAIR_PLACES[from.place];
        let words = [place.to_owned(), from.at.to_string(), count.to_string()];
        let (at, findings) = reply::repaired(self.run_as_is(partition, &REPAIR, &words).await?)?;
        let next = match at {
            0 => RepairCursor { place: from.place + 1, at: 0 },
            at => RepairCursor { place: from.place, at },
        };
        Ok(Repaired { findings, next: (next.place < REPAIR_PLACES.len()).then_some(next) })
    }

    /// Calls a script under whatever policy and generation the partition has.
    async fn run_as_is(
        &self,
        partition: &PartitionId,
        script: &Script,
        words: &[String],
    ) -> Result<Value, StoreError> {
        let keys = PartitionKeys::new(partition);
        let mut header = cmd("HGET");
        header.arg(&keys.meta).arg("header");
        let header = match self.query(header).await? {
            Value::Nil => return Err(StoreError::NotExecuted(format!("partition {partition} is not there"))),
            value => reply::text(value)?,
        };
        let mut call = script.call(&keys.all(), 2 + words.len(), 0);
        call.arg(header).arg(probe_channel(partition));
        call.arg(words);
        self.link.run(script, call).await
    }
}

fn gap_words(gap: &GapId) -> Vec<String> {
    vec![gap.entity.to_string(), gap.epoch.to_string(), gap.next.to_string()]
}
