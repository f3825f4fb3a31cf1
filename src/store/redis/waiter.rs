//! Waiting for new entries: XREAD BLOCK on a connection of its own, which claims nothing.
//!
//! A wait that is not answered in time is no answer at all: the connection is dropped, and
//! the next wait makes a new one.

use std::{sync::Arc, time::Duration};

use ::redis::{
    Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cmd,
};
use futures_util::{FutureExt, future::BoxFuture};

use super::{
    entries,
    link::{Link, classify},
};
use crate::store::{PartitionId, PartitionKeys, Read, StoreError, StreamId, Streams, Waiter};

/// How much longer than asked for a wait may take.
const GRACE: Duration = Duration::from_secs(2);

/// An idle server ends a wait only when its own timer next goes off, up to a tenth of a second
/// later: whoever wants less looks, and sleeps by itself.
const BLOCK_MIN: Duration = Duration::from_millis(50);

pub struct RedisWaiter {
    pub link: Arc<Link>,
    pub connection: Option<MultiplexedConnection>,
}

impl RedisWaiter {
    async fn read(
        &mut self,
        after: &[(PartitionId, StreamId)],
        count: usize,
        at_most: Duration,
    ) -> Result<Streams, StoreError> {
        // Redis would take none of the one for a mistake, and none of the other for all.
        if after.is_empty() || count == 0 {
            tokio::time::sleep(at_most).await;
            return Ok(Streams::new());
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.link.own_connection().await?,
        };
        let keys: Vec<String> = after.iter().map(|(id, _)| PartitionKeys::new(id).events).collect();
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(count);
        if at_most >= BLOCK_MIN {
            read.arg("BLOCK").arg(u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX));
        }
        read.arg("STREAMS").arg(&keys);
        after.iter().for_each(|(_, id)| {
            read.arg(id.to_string());
        });
        let answer = tokio::time::timeout(at_most + GRACE, connection.req_packed_command(&read));
        let value = answer
            .await
            .map_err(|_| StoreError::NotExecuted("no answer to a wait".to_owned()))?
            .and_then(Value::extract_error)
            .map_err(classify)?;
        self.connection = Some(connection);
        if at_most < BLOCK_MIN && value == Value::Nil {
            tokio::time::sleep(at_most).await;
        }
        let of_key = |(key, reads): (String, Vec<Read>)| {
            let at = keys.iter().position(|known| *known == key)?;
            Some((after[at].0.clone(), reads))
        };
        Ok(entries::streams(value)?.into_iter().filter_map(of_key).collect())
    }
}

impl Waiter for RedisWaiter {
    fn wait<'a>(
        &'a mut self,
        after: &'a [(PartitionId, StreamId)],
        count: usize,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Streams, StoreError>> {
        self.read(after, count, at_most).boxed()
    }
}
