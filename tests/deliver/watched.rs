//! A store that passes everything on to another one, counts what it is asked, and loses answers.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture, stream::BoxStream};
use seriatim::{
    order::{Announcement, Entity, LaneState, Place, Probe, Range, Swept},
    store::{
        Admitted, Attendance, Batch, Beat, Commit, Committed, Elapsed, Entry, Floor, GapId, Granted, GroupId,
        GroupStore, Head, KeptEvents, LeaseSeen, Leased, Measure, Member, OpenError, PartitionId, Point,
        Read, RepairCursor, Repaired, RetiredPoints, SidecarSeen, Start, Store, StoreError, StoreKind,
        StreamId, Streams, Switches, TopicRecord, TopicSpec, Trimmed, Waiter, Wish,
    },
};

type Counts = Arc<Mutex<BTreeMap<&'static str, u64>>>;

pub struct Watched {
    inner: Arc<dyn Store>,
    counts: Counts,
    /// Whose points were looked up.
    pub looked_up: Mutex<Vec<Entity>>,
    /// Commits are executed; the first answer to each is lost.
    pub loses_answers: AtomicBool,
    answer_lost: Mutex<BTreeMap<PartitionId, (u64, u64)>>,
}

impl Watched {
    pub fn new(inner: &Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Watched {
            inner: inner.clone(),
            counts: Counts::default(),
            looked_up: Mutex::default(),
            loses_answers: AtomicBool::new(false),
            answer_lost: Mutex::default(),
        })
    }

    /// How often a method was called so far.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.lock().unwrap().get(name).copied().unwrap_or(0)
    }

    /// Is this the first time that this commit is answered?
    fn is_first_answer(&self, partition: &PartitionId, commit: &Commit) -> bool {
        let this = (commit.term, commit.number);
        self.answer_lost.lock().unwrap().insert(partition.clone(), this) != Some(this)
    }
}

fn note(counts: &Counts, name: &'static str) {
    *counts.lock().unwrap().entry(name).or_default() += 1;
}

struct WatchedWaiter(Box<dyn Waiter>, Counts);

impl Waiter for WatchedWaiter {
    fn wait<'a>(
        &'a mut self,
        after: &'a [(PartitionId, StreamId)],
        count: usize,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Streams, StoreError>> {
        note(&self.1, "wait");
        self.0.wait(after, count, at_most)
    }
}

macro_rules! pass_on {
    ($(fn $name:ident<$a:lifetime>($($arg:ident: $type:ty),*) -> $out:ty;)*) => {
        $(fn $name<$a>(&$a self, $($arg: $type),*) -> BoxFuture<$a, $out> {
            note(&self.counts, stringify!($name));
            self.inner.$name($($arg),*)
        })*
    };
}

impl GroupStore for Watched {
    pass_on! {
        fn register<'a>(group: &'a GroupId, partitions: u32, start: Start) -> Result<bool, StoreError>;
        fn remove<'a>(group: &'a GroupId, partitions: u32) -> Result<(), StoreError>;
        fn groups<'a>(topic: &'a str) -> Result<Vec<(String, Switches)>, StoreError>;
        fn switch<'a>(group: &'a GroupId, switches: Switches) -> Result<bool, StoreError>;
        fn attend<'a>(group: &'a GroupId, member: &'a Member) -> Result<Option<Attendance>, StoreError>;
        fn depart<'a>(group: &'a GroupId, member: &'a str) -> Result<(), StoreError>;
        fn leases<'a>(group: &'a GroupId, partitions: u32) -> Result<Vec<LeaseSeen>, StoreError>;
        fn lease<'a>(
            id: &'a PartitionId, group: &'a str, owner: &'a str, seen: &'a LeaseSeen
        ) -> Result<Option<Leased>, StoreError>;
        fn release<'a>(id: &'a PartitionId, group: &'a str, term: u64) -> Result<(), StoreError>;
        fn sweep_points<'a>(
            id: &'a PartitionId, group: &'a str, term: u64, found: &'a RetiredPoints, count: usize
        ) -> Result<Option<RetiredPoints>, StoreError>;
        fn heads<'a>(id: &'a PartitionId, group: &'a str) -> Result<Vec<(Entity, Head)>, StoreError>;
        fn kept<'a>(
            id: &'a PartitionId, group: &'a str, entity: &'a Entity, numbers: std::ops::Range<u64>
        ) -> Result<KeptEvents, StoreError>;
        fn wish<'a>(
            id: &'a PartitionId, group: &'a str, entity: &'a Entity, wish: Wish
        ) -> Result<Granted, StoreError>;
        fn read_on<'a>(id: &'a PartitionId, after: StreamId, count: usize) -> Result<Vec<Read>, StoreError>;
    }

    fn commit<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        commit: &'a Commit,
    ) -> BoxFuture<'a, Result<Committed, StoreError>> {
        note(&self.counts, "commit");
        async move {
            let committed = self.inner.commit(partition, group, commit).await?;
            if self.loses_answers.load(Ordering::Relaxed) && self.is_first_answer(partition, commit) {
                return Err(StoreError::Ambiguous("the connection broke".to_owned()));
            }
            Ok(committed)
        }
        .boxed()
    }

    fn points<'a>(
        &'a self,
        partition: &'a PartitionId,
        group: &'a str,
        entities: &'a [Entity],
    ) -> BoxFuture<'a, Result<Vec<Option<Point>>, StoreError>> {
        note(&self.counts, "points");
        self.looked_up.lock().unwrap().extend(entities.iter().cloned());
        self.inner.points(partition, group, entities)
    }

    fn waiter(&self) -> Box<dyn Waiter> {
        Box::new(WatchedWaiter(self.inner.waiter(), self.counts.clone()))
    }
}

impl Store for Watched {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn kind(&self) -> StoreKind {
        self.inner.kind()
    }

    pass_on! {
        fn open<'a>(topic: &'a TopicSpec) -> Result<(), OpenError>;
        fn admit<'a>(id: &'a PartitionId, batch: &'a Batch) -> Result<Admitted, StoreError>;
        fn elapse<'a>(id: &'a PartitionId, lanes_max: usize) -> Result<Elapsed, StoreError>;
        fn trim<'a>(id: &'a PartitionId, count: usize) -> Result<Trimmed, StoreError>;
        fn floor<'a>(id: &'a PartitionId) -> Result<Option<Floor>, StoreError>;
        fn extend<'a>(id: &'a PartitionId, gap: &'a GapId) -> Result<(), StoreError>;
        fn skip<'a>(
            id: &'a PartitionId, gap: &'a GapId, audit: &'a str
        ) -> Result<Option<Range>, StoreError>;
        fn set_degraded<'a>(id: &'a PartitionId, degraded: bool) -> Result<bool, StoreError>;
        fn announce<'a>(
            id: &'a PartitionId, entity: &'a Entity, within_ms: u64
        ) -> Result<Announcement, StoreError>;
        fn sweep<'a>(id: &'a PartitionId, count: usize, as_of: Option<u64>) -> Result<Swept, StoreError>;
        fn repair<'a>(
            id: &'a PartitionId, from: RepairCursor, count: usize
        ) -> Result<Repaired, StoreError>;
        fn probes<'a>(topic: &'a str) -> Result<BoxStream<'static, Vec<Probe>>, StoreError>;
        fn call_out<'a>(topic: &'a str) -> Result<(), StoreError>;
        fn beat<'a>(beat: &'a Beat) -> Result<Vec<SidecarSeen>, StoreError>;
        fn leave<'a>(sidecar: &'a str) -> Result<(), StoreError>;
        fn lead_reconciler<'a>(owner: &'a str, for_ms: u64) -> Result<bool, StoreError>;
        fn resume<'a>(id: &'a PartitionId, entity: &'a Entity) -> Result<Option<LaneState>, StoreError>;
        fn read<'a>(
            id: &'a PartitionId, place: Place, after: StreamId, count: usize
        ) -> Result<Vec<Entry>, StoreError>;
        fn topics<'a>() -> Result<Vec<String>, StoreError>;
        fn record<'a>(topic: &'a str) -> Result<Option<TopicRecord>, StoreError>;
        fn measure<'a>(id: &'a PartitionId) -> Result<Measure, StoreError>;
        fn delete_topic<'a>(topic: &'a str) -> Result<(), StoreError>;
        fn ping<'a>() -> Result<(), StoreError>;
    }
}
