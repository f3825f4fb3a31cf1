//! Baseline: what a user writes who publishes to Redis by hand, without any promise of order:
//! one `XADD` an event through redis-rs, on one multiplexed connection, many at a time.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream::FuturesUnordered};

use super::{
    load::Load,
    meter::{Length, Measured, Meter, Processes},
    pace::{Due, Pace, Timetable, keep_time},
    raw::stream_name,
};

pub struct Direct {
    pub url: String,
    pub pace: Pace,
    pub load: Load,
    pub length: Length,
    pub processes: Processes,
}

/// A connection that is more patient than redis-rs is by default.
pub async fn connect(url: &str) -> anyhow::Result<redis::aio::MultiplexedConnection> {
    let patience = Some(Duration::from_secs(20));
    let config =
        redis::AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
    Ok(redis::Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await?)
}

pub async fn xadd(mut direct: Direct) -> anyhow::Result<Measured> {
    let connection = connect(&direct.url).await?;
    let start = Instant::now();
    let (due, timetable) = match direct.pace {
        Pace::Closed { window } => (Due::new(window), None),
        Pace::Open { per_second } => (Due::new(0), Some(Timetable::new(per_second))),
    };
    let timekeeper = timetable.map(|table| keep_time(table, start, due.clone(), direct.length.longest()));
    let mut meter = Meter::start(direct.length, direct.processes, start);
    let (mut open, mut next, mut goes_on) = (FuturesUnordered::new(), 0, true);
    let publish = async {
        loop {
            tokio::select! {
                biased;
                is_due = due.wait(next), if goes_on => {
                    goes_on = is_due;
                    if is_due {
                        let since = timetable.map_or_else(|| start.elapsed(), |table| table.intended(next));
                        open.push(one(connection.clone(), &mut direct.load, since));
                        next += 1;
                    }
                }
                Some(answer) = open.next(), if !open.is_empty() => {
                    let since: Duration = answer?;
                    let now = Instant::now();
                    meter.took((now - start).saturating_sub(since), 1);
                    if timetable.is_none() {
                        due.add(1);
                    }
                    if !meter.note(1, now) {
                        due.stop();
                    }
                }
                else => return anyhow::Ok(()),
            }
        }
    };
    let ended = tokio::time::timeout(direct.length.longest(), publish).await;
    due.stop();
    if let Some(timekeeper) = timekeeper {
        let _ = timekeeper.join();
    }
    ended??;
    meter.finish()
}

/// One event; what comes back is since when it counts.
fn one(
    mut connection: redis::aio::MultiplexedConnection,
    load: &mut Load,
    since: Duration,
) -> impl Future<Output = anyhow::Result<Duration>> + use<> {
    let made = load.make();
    let mut command = redis::cmd("XADD");
    command.arg(stream_name(made.slot)).arg("*").arg("e").arg(load.entity(&made));
    command.arg("s").arg(made.sequence).arg("t").arg(Load::kind(&made)).arg("p").arg(&load.data()[..]);
    async move {
        let _: String = command.query_async(&mut connection).await?;
        Ok(since)
    }
}
