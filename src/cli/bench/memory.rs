//! What open entities take: in Redis everything but the streams, which hold the events
//! themselves; in the sidecar its resident memory, idle and with all of them open.

use std::time::Duration;

use super::{
    super::Failure,
    direct::connect,
    load::{Load, Shape},
    meter::{Measured, Memory, resident_mb},
    publish::open_lanes,
    rig::{Layout, OwnRedis, OwnSidecar, Transport, verified},
};

const OPEN_LANES: u64 = 100_000;
/// A process that just started, or just worked, comes to rest.
const REST: Duration = Duration::from_millis(500);

pub async fn measure(redis: &OwnRedis, layout: Layout, seed: u64) -> Result<Measured, Failure> {
    let sidecar = OwnSidecar::start(redis, layout).await?;
    let outcome = fill(redis, &sidecar, seed).await;
    sidecar.stop().await;
    let memory = outcome.map_err(Failure::Other)?;
    let verified = Some(verified(redis, OPEN_LANES).await.map_err(Failure::Other)?);
    Ok(Measured { events: OPEN_LANES, memory: Some(memory), verified, ..Measured::default() })
}

async fn fill(redis: &OwnRedis, sidecar: &OwnSidecar, seed: u64) -> anyhow::Result<Memory> {
    let resident = || {
        let found = sidecar.pid().and_then(resident_mb);
        found.ok_or_else(|| anyhow::anyhow!("this kernel does not tell a process's memory"))
    };
    tokio::time::sleep(REST).await;
    let sidecar_idle_mb = resident()?;
    let before = beside_streams(&redis.url()).await?;
    let shape = Shape { live: OPEN_LANES, lifetime: 4, late_percent: 0, zipf: false, seed };
    open_lanes(&sidecar.target(Transport::Tcp), &mut Load::new(shape), OPEN_LANES).await?;
    tokio::time::sleep(REST).await;
    let sidecar_open_mb = resident()?;
    let lane_bytes = (beside_streams(&redis.url()).await? - before) as f64 / OPEN_LANES as f64;
    Ok(Memory { lane_bytes, sidecar_idle_mb, sidecar_open_mb, open_lanes: OPEN_LANES })
}

/// Bytes of all keys that are no streams, every field counted.
async fn beside_streams(url: &str) -> anyhow::Result<i64> {
    let mut connection = connect(url).await?;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await?;
    let mut sum = 0;
    for key in keys {
        let kind: String = redis::cmd("TYPE").arg(&key).query_async(&mut connection).await?;
        if kind != "stream" {
            let mut usage = redis::cmd("MEMORY");
            usage.arg("USAGE").arg(&key).arg("SAMPLES").arg(0);
            sum += usage.query_async::<Option<i64>>(&mut connection).await?.unwrap_or(0);
        }
    }
    Ok(sum)
}
