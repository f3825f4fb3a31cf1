//! Reads the streams while they are written, as any reader could, before they are trimmed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{RedisResult, aio::MultiplexedConnection};
use seriatim::store::Entry;

use super::ledger::{Ledger, noted};
use crate::streams;

/// Entries that one call reads, and the pause when there are no more.
const PAGE: usize = 2_000;
const PAUSE: Duration = Duration::from_millis(100);

/// Until it is stopped, and then to the end of every stream.
pub async fn follow(
    url: String,
    topic: &'static str,
    partitions: u32,
    ledger: Arc<Ledger>,
    stop: Arc<AtomicBool>,
) {
    let client = redis::Client::open(url).unwrap();
    let mut last = vec!["0-0".to_owned(); partitions as usize];
    loop {
        // Whoever is told to stop before it looks has seen everything when it has looked.
        let is_last = stop.load(Ordering::Relaxed);
        let mut is_whole = false;
        if let Ok(mut connection) = client.get_multiplexed_async_connection().await {
            is_whole = read_on(&mut connection, topic, &mut last, &ledger, &stop).await.is_ok();
        }
        if is_last && is_whole {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Until there is nothing more and it is stopped, or the connection is lost.
async fn read_on(
    connection: &mut MultiplexedConnection,
    topic: &str,
    last: &mut [String],
    ledger: &Ledger,
    stop: &AtomicBool,
) -> RedisResult<()> {
    loop {
        let (is_last, mut is_more) = (stop.load(Ordering::Relaxed), false);
        for (index, last) in (0..).zip(last.iter_mut()) {
            let mut read = redis::cmd("XRANGE");
            read.arg(streams::events_key(topic, index))
                .arg(format!("({last}"))
                .arg("+")
                .arg("COUNT")
                .arg(PAGE);
            let page: Vec<(String, Vec<Vec<u8>>)> = read.query_async(connection).await?;
            is_more |= page.len() == PAGE;
            for (id, values) in page {
                let fields = values.chunks_exact(2).map(|f| (f[0].clone().into(), f[1].clone().into()));
                let events = Entry::all_from_fields(id.parse().unwrap(), fields.collect()).unwrap();
                events.iter().for_each(|event| ledger.appended(noted(event)));
                *last = id;
            }
        }
        if !is_more {
            if is_last {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
