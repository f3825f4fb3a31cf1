//! The other column: a client that writes to the same Redis by itself, as people do without a
//! sidecar. XADD, and again if it failed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use seriatim::{order, store::partition_of};
use seriatim_checker::{Entry, Order, Stream};
use tokio::{
    sync::{Mutex, Semaphore},
    task::JoinSet,
};

use super::{PARTITIONS, ledger::Ledger, load::round};
use crate::{streams, support::Random};

/// Written and not answered, at most; one waits for each.
const WINDOW: usize = 64;
/// Between two rounds: it need not keep up with the sidecars to fail, and what it wrote stays.
const PAUSE: Duration = Duration::from_secs(1);
/// Until it tries again.
const RETRY: Duration = Duration::from_millis(20);

fn key(entity: &str) -> String {
    let entity = order::Entity::new(entity).unwrap();
    format!("plain:{}", partition_of(&entity, PARTITIONS))
}

struct Writer {
    client: redis::Client,
    connection: Mutex<Option<redis::aio::MultiplexedConnection>>,
}

impl Writer {
    async fn connected(&self) -> Option<redis::aio::MultiplexedConnection> {
        let mut connection = self.connection.lock().await;
        if connection.is_none() {
            *connection = self.client.get_multiplexed_async_connection().await.ok();
        }
        connection.clone()
    }

    async fn write(&self, entity: &str, sequence: u64) {
        let mut add = redis::cmd("XADD");
        add.arg(key(entity)).arg("*").arg("id").arg(entity).arg("sq").arg(sequence);
        loop {
            if let Some(mut connection) = self.connected().await {
                if add.query_async::<String>(&mut connection).await.is_ok() {
                    return;
                }
                *self.connection.lock().await = None;
            }
            tokio::time::sleep(RETRY).await;
        }
    }
}

/// Until it is stopped and all is answered.
pub async fn write_plainly(url: String, ledger: Arc<Ledger>, stop: Arc<AtomicBool>, seed: u64) {
    let client = redis::Client::open(url).unwrap();
    let writer = Arc::new(Writer { client, connection: Mutex::new(None) });
    let (mut random, mut number) = (Random::new(seed), 0);
    let (mut open, room) = (JoinSet::new(), Arc::new(Semaphore::new(WINDOW)));
    while !stop.load(Ordering::Relaxed) {
        for event in round(0, number, &mut random) {
            let permit = room.clone().acquire_owned().await.expect("it is not closed");
            let (entity, sequence) = (event.entity, event.sequence.unwrap());
            let (writer, ledger) = (writer.clone(), ledger.clone());
            let place = ledger.begin(&entity, sequence);
            open.spawn(async move {
                writer.write(&entity, sequence).await;
                ledger.accepted(place);
                drop(permit);
            });
        }
        number += 1;
        while open.try_join_next().is_some() {}
        tokio::time::sleep(PAUSE).await;
    }
    open.join_all().await;
}

/// All that it wrote, as the judge wants it.
pub async fn note_all(url: &str, ledger: &Ledger) {
    let mut connection = streams::connect(url).await;
    for index in 0..PARTITIONS {
        for (_, fields) in streams::raw_entries(&mut connection, &format!("plain:{index}")).await {
            let text = |at: usize| std::str::from_utf8(&fields[at]).unwrap();
            let sequence: u64 = text(3).parse().unwrap();
            ledger.appended(Entry {
                stream: Stream::Events,
                at: 0,
                name: (text(1).into(), 0, sequence),
                order: Order::Strict,
                from: sequence,
                is_time_out: false,
                payload: sequence,
            });
        }
    }
}
