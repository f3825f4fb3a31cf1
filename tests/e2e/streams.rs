//! What is in the streams, read as any worker could: raw XRANGE, nothing sorted.

use redis::aio::MultiplexedConnection;
use seriatim::store::{Entry, PartitionId, PartitionKeys};

use crate::support::direct;

/// Entries that one call reads.
const PAGE: usize = 10_000;

pub async fn connect(url: &str) -> MultiplexedConnection {
    direct(url).await
}

/// All events of a topic's event streams, in either layout, partition after partition.
pub async fn entries(connection: &mut MultiplexedConnection, topic: &str, partitions: u32) -> Vec<Entry> {
    let mut all = Vec::new();
    for index in 0..partitions {
        let keys = PartitionKeys::new(&PartitionId { topic: topic.into(), index });
        for (id, values) in raw_entries(connection, &keys.events).await {
            let fields = values.chunks_exact(2).map(|f| (f[0].clone().into(), f[1].clone().into()));
            all.extend(Entry::all_from_fields(id.parse().unwrap(), fields.collect()).unwrap());
        }
    }
    all
}

/// All entries of one stream: id, then fields and values in turn.
pub async fn raw_entries(connection: &mut MultiplexedConnection, key: &str) -> Vec<(String, Vec<Vec<u8>>)> {
    let (mut all, mut from) = (Vec::new(), "-".to_owned());
    loop {
        let mut read = redis::cmd("XRANGE");
        read.arg(key).arg(&from).arg("+").arg("COUNT").arg(PAGE);
        let page: Vec<(String, Vec<Vec<u8>>)> = read.query_async(connection).await.unwrap();
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return all;
        }
        from = format!("({}", all.last().expect("a page is not empty").0);
    }
}

/// The entries of one entity, in stream order.
pub fn of<'a>(entries: &'a [Entry], entity: &str) -> Vec<&'a Entry> {
    entries.iter().filter(|entry| entry.entity == entity).collect()
}

/// The key of a partition's event stream.
pub fn events_key(topic: &str, index: u32) -> String {
    PartitionKeys::new(&PartitionId { topic: topic.into(), index }).events
}
