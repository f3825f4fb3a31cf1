//! The simulated store: the real rules behind the real port, on a host that stops, restarts,
//! is suspended and has its clock set, and of which everything that was ever appended is
//! written down.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use seriatim::{
    clock::Clock,
    order::{self, Place},
    store::{Entry, MemoryStore, PartitionId, Store, StoreError, StreamId},
};
use seriatim_checker as checker;
use tokio::{sync::Notify, time::Instant};

use crate::{
    copies::{Copies, Losing},
    coverage::Coverage,
    gate::Gate,
};

/// What the wall clock says at the beginning, in milliseconds.
const WALL: u64 = 1_763_000_000_000;

/// The wall clock of the store's host.
pub struct Wall {
    started: Instant,
    set_by: AtomicI64,
}

impl Clock for Wall {
    fn now(&self) -> Duration {
        let true_time = WALL + self.started.elapsed().as_millis() as u64;
        Duration::from_millis(true_time.saturating_add_signed(self.set_by.load(Ordering::Relaxed)))
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        unreachable!("a store does not sleep")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Up,
    Suspended,
    Down,
    /// Every write is refused, as if it were out of memory.
    Full,
}

pub struct Server {
    pub store: MemoryStore,
    wall: Arc<Wall>,
    started: Instant,
    condition: Gate<Condition>,
    /// Counts restarts: an answer does not survive one.
    restarts: AtomicU64,
    log: Mutex<Log>,
    /// Where it may lose what it had answered.
    copies: Mutex<Option<Copies>>,
    coverage: Arc<Mutex<Coverage>>,
    pub appended: Notify,
    /// Calls that were executed.
    pub executed: AtomicU64,
}

#[derive(Default)]
struct Log {
    entries: Vec<checker::Entry>,
    seen: BTreeMap<(PartitionId, bool), StreamId>,
}

impl Server {
    pub fn new(coverage: Arc<Mutex<Coverage>>) -> Self {
        let wall = Arc::new(Wall { started: Instant::now(), set_by: AtomicI64::new(0) });
        Server {
            store: MemoryStore::new(wall.clone()),
            wall,
            started: Instant::now(),
            condition: Gate::new(Condition::Up),
            restarts: AtomicU64::new(0),
            log: Mutex::default(),
            copies: Mutex::default(),
            coverage,
            appended: Notify::new(),
            executed: AtomicU64::new(0),
        }
    }

    /// Milliseconds since the beginning, whatever the wall clock says.
    pub fn true_time(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    pub fn set_condition(&self, condition: Condition) {
        if condition == Condition::Down {
            self.restarts.fetch_add(1, Ordering::Relaxed);
        }
        self.condition.set(condition);
    }

    pub fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    pub fn step_wall(&self, by_ms: i64) {
        self.wall.set_by.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// One call, when it arrives.
    pub async fn execute<T>(
        &self,
        partition: Option<&PartitionId>,
        act: impl FnOnce(&MemoryStore) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self.condition.get() {
            Condition::Up => {}
            Condition::Down => return Err(StoreError::NotExecuted("connection refused".into())),
            Condition::Full => return Err(StoreError::NotExecuted("OOM command not allowed".into())),
            Condition::Suspended => {
                let restarts = self.restarts();
                self.condition.wait_for(|condition| condition != Condition::Suspended).await;
                if self.restarts() != restarts {
                    return Err(StoreError::Ambiguous("connection reset".into()));
                }
            }
        }
        self.executed.fetch_add(1, Ordering::Relaxed);
        if let Some(copies) = &mut *self.copies.lock().unwrap() {
            copies.executed();
        }
        let done = act(&self.store);
        if let Some(partition) = partition {
            self.write_down(partition);
        }
        done
    }

    /// From now on its disk and its replica may be behind.
    pub fn keep_copies(&self) {
        *self.copies.lock().unwrap() = Some(Copies::new(&self.store));
    }

    /// Its disk, or its replica, catches up.
    pub fn catch_up(&self, losing: Losing) {
        if let Some(copies) = &mut *self.copies.lock().unwrap() {
            match losing {
                Losing::PowerCut => copies.flush(&self.store),
                Losing::FailOver => copies.replicate(&self.store),
            }
        }
    }

    pub fn lose(&self, losing: Losing) {
        if let Some(copies) = &mut *self.copies.lock().unwrap() {
            copies.lose(losing, &self.store);
        }
        let mut log = self.log.lock().unwrap();
        for ((partition, is_late), seen) in &mut log.seen {
            let place = if *is_late { Place::Late } else { Place::Events };
            let left = self.store.read(partition, place, StreamId::default(), usize::MAX).now_or_never();
            let last = left.and_then(Result::ok).and_then(|left| left.last().map(|entry| entry.id.entry));
            *seen = last.unwrap_or_default();
        }
    }

    /// Notes what a call has appended, before anybody can trim it.
    fn write_down(&self, partition: &PartitionId) {
        let mut log = self.log.lock().unwrap();
        for place in [Place::Events, Place::Late] {
            let key = (partition.clone(), place == Place::Late);
            let after = log.seen.get(&key).copied().unwrap_or_default();
            let read = self.store.read(partition, place, after, usize::MAX).now_or_never();
            let Some(Ok(new)) = read else { continue };
            let Some(last) = new.last() else { continue };
            log.seen.insert(key, last.id.entry);
            let at = self.true_time();
            self.coverage.lock().unwrap().appended(&new, place == Place::Late);
            log.entries.extend(new.iter().filter_map(|entry| noted(entry, place, at)));
            if place == Place::Events {
                self.appended.notify_waiters();
            }
        }
    }

    pub fn take_log(&self) -> Vec<checker::Entry> {
        std::mem::take(&mut self.log.lock().unwrap().entries)
    }

    /// The last entry that was appended to `events` in this partition.
    pub fn last_of(&self, partition: &PartitionId) -> StreamId {
        self.log.lock().unwrap().seen.get(&(partition.clone(), false)).copied().unwrap_or_default()
    }
}

/// An entry as the judge sees it; nothing for what concerns a whole partition.
fn noted(entry: &Entry, place: Place, at: u64) -> Option<checker::Entry> {
    if entry.entity.is_empty() {
        return None;
    }
    let sequence = entry.sequence.get();
    let (order, from) = match entry.order {
        order::Order::Strict => (checker::Order::Strict, sequence),
        order::Order::Passed => (checker::Order::Passed, sequence),
        order::Order::Late => (checker::Order::Late, sequence),
        order::Order::Replay => (checker::Order::Replay, sequence),
        order::Order::Marker if entry.kind == "seriatim.epoch" => (checker::Order::Epoch, sequence),
        order::Order::Marker => {
            let attrs: serde_json::Value = serde_json::from_str(&entry.attrs).expect("a marker has JSON");
            (checker::Order::Gap, attrs["from"].as_u64().expect("a gap says from where"))
        }
    };
    Some(checker::Entry {
        stream: if place == Place::Late { checker::Stream::Late } else { checker::Stream::Events },
        at,
        name: (entry.entity.as_str().into(), entry.epoch.get(), sequence),
        order,
        from,
        is_time_out: entry.attrs.contains(r#""timeout""#),
        payload: payload_of(&entry.data),
    })
}

/// Events carry one number.
pub fn payload_of(data: &[u8]) -> u64 {
    data.try_into().map_or(0, u64::from_le_bytes)
}
