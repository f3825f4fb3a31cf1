//! What must come to rest once all trouble is over: nothing parked, nothing in flight, nothing held,
//! everything done.

use std::time::{Duration, Instant};

use redis::{RedisResult, aio::MultiplexedConnection};
use seriatim::store::{GroupKeys, Measure, PartitionId, Store};

use super::{
    PARTITIONS, TOPIC,
    world::{GROUP, World},
};
use crate::{sidecar::BOUND, support::redis_store};

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for it; what is not at rest then, one sentence each.
pub async fn wait_for_rest(world: &mut World) -> Vec<String> {
    let began = Instant::now();
    loop {
        world.supervise().await;
        let left = not_at_rest(world).await;
        if left.is_empty() || began.elapsed() > BOUND {
            return left;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn not_at_rest(world: &World) -> Vec<String> {
    let mut left = Vec::new();
    if !world.ledger.is_complete() {
        left.push(format!("not all is answered, appended and handled: {:?}", world.ledger.tally()));
    }
    for (number, place) in world.sidecars.iter().enumerate() {
        let sidecar = place.process.as_ref().expect("it runs");
        let in_flight = sidecar.metric("seriatim_in_flight_events ").await;
        if in_flight > 0.0 {
            left.push(format!("{in_flight} events are in flight in sidecar {number}"));
        }
    }
    if let Err(error) = look_at_partitions(&world.redis.url(), &mut left).await {
        left.push(format!("Redis does not answer: {error}"));
    }
    left
}

async fn look_at_partitions(url: &str, left: &mut Vec<String>) -> RedisResult<()> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let store = redis_store(url);
    for index in 0..PARTITIONS {
        let id = PartitionId { topic: TOPIC.into(), index };
        match store.measure(&id).await {
            Ok(Measure { parked: 0, gaps: 0, late: 0, degraded: false, .. }) => {}
            other => left.push(format!("partition {index}: {other:?}")),
        }
        let (last, floor, held) = progress(&mut connection, &GroupKeys::new(&id, GROUP)).await?;
        if last.as_ref().is_some_and(|last| *last != floor) || held > 1 {
            left.push(format!("partition {index}: done up to {floor} of {last:?}, {held} held"));
        }
    }
    Ok(())
}

/// The last entry, up to where the group has done everything, and fields of what it holds (one stands for
/// nothing).
async fn progress(
    connection: &mut MultiplexedConnection,
    keys: &GroupKeys,
) -> RedisResult<(Option<String>, String, u64)> {
    let mut last = redis::cmd("XREVRANGE");
    last.arg(&keys.events).arg("+").arg("-").arg("COUNT").arg(1);
    let last: Vec<(String, Vec<String>)> = last.query_async(connection).await?;
    let floor = redis::cmd("HGET").arg(&keys.groups).arg(GROUP).query_async(connection).await?;
    let held = redis::cmd("HLEN").arg(&keys.held).query_async(connection).await?;
    Ok((last.into_iter().next().map(|(id, _)| id), floor, held))
}
