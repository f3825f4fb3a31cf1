//! What is in the streams, read as any worker could: raw XRANGE, nothing sorted.

use redis::aio::MultiplexedConnection;
use seriatim::store::{Entry, PartitionId, PartitionKeys};

pub async fn connect(url: &str) -> MultiplexedConnection {
    redis::Client::open(url).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// All entries of a topic's event streams, partition after partition.
pub async fn entries(connection: &mut MultiplexedConnection, topic: &str, partitions: u32) -> Vec<Entry> {
    let mut all = Vec::new();
    for index in 0..partitions {
        let keys = PartitionKeys::new(&PartitionId { topic: topic.into(), index });
        let read: Vec<(String, Vec<Vec<u8>>)> =
            redis::cmd("XRANGE").arg(&keys.events).arg("-").arg("+").query_async(connection).await.unwrap();
        for (id, values) in read {
            let fields = values.chunks_exact(2).map(|f| (f[0].clone().into(), f[1].clone().into()));
            all.push(Entry::from_fields(id.parse().unwrap(), fields.collect()).unwrap());
        }
    }
    all
}

/// The entries of one entity, in stream order.
pub fn of<'a>(entries: &'a [Entry], entity: &str) -> Vec<&'a Entry> {
    entries.iter().filter(|entry| entry.entity == entity).collect()
}
