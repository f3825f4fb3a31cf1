//! The one task of a consumer: it drives the machines, and does what they want.
//!
//! Each partition has at most one commit and one read under way; what happens meanwhile is
//! in the next. A delivery is handed out only once the commit that notes it as running is in
//! the store, and that commit is fenced: who has lost a lease starts nothing any more.

mod ops;
mod slot;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use self::{ops::Op, slot::Slot};
use super::{
    consumer::{Answered, ConsumerCounts, Delivery, Fenced},
    feed::Feed,
    lease::{LeaseBook, Step},
    options::{ConsumerOptions, ms},
};
use crate::{
    clock::Clock,
    order::{Policy, Sequence},
    random::Random,
    store::{GroupId, Layout, LeaseSeen, Leased, PartitionId, Store, Switches, TopicRecord, Waiter},
};

/// How often time passes for the machines.
const TICK: Duration = Duration::from_millis(50);
/// How long the end waits for calls that are under way.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// Answers that are taken in one go.
const ANSWERS_AT_ONCE: usize = 1024;

pub(super) struct Worker {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Random,
    options: ConsumerOptions,
    policy: Policy,
    group: GroupId,
    /// Its two names, to be shared.
    topic: Arc<str>,
    group_name: Arc<str>,
    partitions: u32,
    layout: Layout,
    me: String,
    book: LeaseBook,
    slots: BTreeMap<u32, Slot>,
    /// Partitions that are being taken: an answer that is under way must not be overtaken.
    taking: BTreeSet<u32>,
    /// Whose turn it is to start first.
    turn: u32,
    deliver: mpsc::UnboundedSender<Delivery>,
    answer: mpsc::UnboundedSender<Answered>,
    answered: mpsc::UnboundedReceiver<Answered>,
    counts: Arc<ConsumerCounts>,
    in_flight_max: Arc<AtomicUsize>,
    switches: Switches,
    ops: FuturesUnordered<BoxFuture<'static, Op>>,
    waiter: Option<Box<dyn Waiter>>,
    attending: Repeated,
    watching: Repeated,
    /// Some partition's commit waits for more answers.
    is_gathering: bool,
    is_closing: bool,
}

/// Something that is done again and again, one at a time.
#[derive(Default)]
struct Repeated {
    is_under_way: bool,
    next_at: u64,
    times: u64,
}

impl Repeated {
    fn begin(&mut self, now: u64, every: u64) -> bool {
        let is_time = !self.is_under_way && now >= self.next_at;
        if is_time {
            (self.is_under_way, self.next_at) = (true, now + every);
            self.times += 1;
        }
        is_time
    }
}

impl Worker {
    #[expect(clippy::too_many_arguments, reason = "each is a port or a channel of its own")]
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        mut random: Random,
        options: ConsumerOptions,
        record: &TopicRecord,
        deliver: mpsc::UnboundedSender<Delivery>,
        counts: Arc<ConsumerCounts>,
        in_flight_max: Arc<AtomicUsize>,
    ) -> Self {
        let first = Sequence::new(record.first_sequence).expect("a topic's record was checked");
        // Unique, so that one that is started again is not taken for the one that died.
        let me = format!("{}-{:08x}", options.name, random.draw() as u32);
        let (answer, answered) = mpsc::unbounded_channel();
        let waiter = Some(store.waiter());
        Worker {
            policy: options.policy(first),
            group: GroupId { topic: options.topic.clone(), group: options.group.clone() },
            topic: options.topic.as_str().into(),
            group_name: options.group.as_str().into(),
            partitions: record.partitions,
            layout: record.layout().expect("a consumer checks that it knows it"),
            book: LeaseBook::new(&me, ms(options.lease)),
            slots: BTreeMap::new(),
            taking: BTreeSet::new(),
            turn: 0,
            me,
            store,
            clock,
            random,
            options,
            deliver,
            answer,
            answered,
            counts,
            in_flight_max,
            switches: Switches::default(),
            ops: FuturesUnordered::new(),
            waiter,
            attending: Repeated::default(),
            watching: Repeated::default(),
            is_gathering: false,
            is_closing: false,
        }
    }

    pub async fn run(mut self, mut closing: watch::Receiver<bool>, mut frozen: watch::Receiver<bool>) {
        let mut close_by = None;
        loop {
            if frozen.wait_for(|frozen| !frozen).await.is_err() {
                // Dropped while it hung: it never comes back.
                std::future::pending::<()>().await;
            }
            let now = self.now();
            self.look_around(now);
            self.pump(now);
            if let Some(close_by) = close_by
                && (self.slots.is_empty() || now >= close_by)
            {
                break;
            }
            // In this order, so that a run can be repeated. None starves: there are only so many
            // calls and deliveries out, and time is looked at each time around.
            tokio::select! {
                biased;
                // A handle that was dropped wants the same as one that was closed.
                _ = closing.changed(), if !self.is_closing => {
                    self.is_closing = true;
                    let is_orderly = *closing.borrow();
                    let drain = if is_orderly { ms(self.options.drain) } else { 0 };
                    close_by = Some(self.now() + drain);
                }
                Some(op) = self.ops.next(), if !self.ops.is_empty() => {
                    self.done(op);
                    self.take_what_is_there();
                }
                Some(answered) = self.answered.recv() => {
                    let now = self.now();
                    self.take_answer(answered, now);
                    self.take_what_is_there();
                }
                // Handlers get their turn, and more answers may come.
                () = tokio::task::yield_now(), if self.is_gathering => {}
                () = self.clock.sleep(TICK) => {}
            }
        }
        self.leave().await;
    }

    /// What else has come by now: looking around once for many is cheaper than for each.
    fn take_what_is_there(&mut self) {
        while let Some(Some(op)) = self.ops.next().now_or_never() {
            self.done(op);
        }
        let now = self.now();
        for _ in 0..ANSWERS_AT_ONCE {
            let Ok(answered) = self.answered.try_recv() else { break };
            self.take_answer(answered, now);
        }
    }

    fn now(&self) -> u64 {
        ms(self.clock.now())
    }

    fn partition(&self, index: u32) -> PartitionId {
        PartitionId { topic: self.topic.clone(), index }
    }

    /// How often leases are looked at: often enough to see within a second that one is silent.
    fn watch_every(&self) -> u64 {
        (ms(self.options.lease) / 30).clamp(20, 400)
    }

    /// Lets time pass, shows up, looks at the leases.
    fn look_around(&mut self, now: u64) {
        for slot in self.slots.values_mut() {
            slot.tick(now);
        }
        if !self.is_closing && self.attending.begin(now, ms(self.options.renew)) {
            self.attend();
        }
        if self.watching.begin(now, self.watch_every()) {
            self.watch();
        }
    }

    /// Reads where there is room, starts what may start, commits what is new.
    fn pump(&mut self, now: u64) {
        self.start_and_commit(now);
        let indices: Vec<u32> = self.slots.keys().copied().collect();
        for index in indices {
            self.read(index, now);
            self.fetch_held(index, now);
            self.sweep(index, now);
            self.release_if_done(index);
        }
        self.wait();
        self.note_counts();
    }

    /// Partitions take turns in starting first, or one with much to do would starve the others.
    fn start_and_commit(&mut self, now: u64) {
        let running: usize = self.slots.values().map(|slot| slot.feed.running()).sum();
        let mut credit = self.in_flight_max.load(Ordering::Relaxed).saturating_sub(running);
        if self.is_closing || self.switches.paused {
            credit = 0;
        }
        let turn = self.turn;
        let indices: Vec<u32> =
            self.slots.range(turn..).chain(self.slots.range(..turn)).map(|(index, _)| *index).collect();
        self.turn = indices.get(1).copied().unwrap_or(0);
        let renew = ms(self.options.renew);
        self.is_gathering = false;
        for index in indices {
            let slot = self.slots.get_mut(&index).expect("it was there a moment ago");
            if slot.is_committing {
                continue;
            }
            if slot.gathers() {
                self.is_gathering = true;
                continue;
            }
            if credit > 0 && !slot.is_giving_back {
                let started = slot.feed.start(credit, now);
                credit -= started.len();
                slot.starting.extend(started);
            }
            if slot.feed.has_news() || now >= slot.committed_at + renew {
                self.commit(index);
            }
        }
    }

    fn take_answer(&mut self, answered: Answered, now: u64) {
        let Answered { partition, term, tag, answer, confirm } = answered;
        match self.slots.get_mut(&partition).filter(|slot| slot.feed.term() == term) {
            Some(slot) => {
                slot.is_moving = true;
                let counts = slot.feed.answer(tag, answer, now);
                if counts {
                    slot.confirming.extend(confirm);
                } else if let Some(confirm) = confirm {
                    // It took too long: it counts as failed, and is somebody else's turn.
                    let _ = confirm.send(Err(Fenced));
                }
            }
            None => {
                self.counts.fenced.fetch_add(1, Ordering::Relaxed);
                if let Some(confirm) = confirm {
                    let _ = confirm.send(Err(Fenced));
                }
            }
        }
    }

    /// Decides about every partition whose lease was seen.
    fn leases_seen(&mut self, seen: &[LeaseSeen]) {
        let now = self.now();
        if (seen.len() as u64) < u64::from(self.partitions) && !self.is_closing {
            warn!(group = %self.group, "the group is not whole; registering what is missing");
            self.register_anew();
        }
        for (index, lease) in (0..).zip(seen) {
            let holds = self.slots.contains_key(&index);
            match self.book.step(index, lease, holds, now) {
                step @ (Step::Leave | Step::Keep | Step::GiveBack) => {
                    if let Some(slot) = self.slots.get_mut(&index) {
                        slot.is_giving_back = step == Step::GiveBack;
                    }
                }
                Step::Take if holds || self.is_closing => {}
                Step::Take => {
                    if self.taking.insert(index) {
                        self.take(index, lease.clone());
                    }
                }
            }
        }
    }

    fn leased(&mut self, index: u32, leased: Leased, heads: Vec<(crate::order::Entity, crate::store::Head)>) {
        let now = self.now();
        let random = Random::from_seed(self.random.draw());
        let (limits, retry) = (self.options.limits(self.layout), self.options.retry.clone());
        let mut feed = Feed::new(&leased, self.policy.clone(), limits, retry, random, now);
        feed.heads(heads);
        feed.set_degraded(self.switches.degraded);
        info!(group = %self.group, partition = index, term = leased.term, suspects = leased.running.len(), "took a partition");
        self.slots.insert(index, Slot::new(feed, now));
        self.counts.leases_taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody else has the lease: whatever is in hand is theirs now.
    fn lose(&mut self, index: u32, term: u64) {
        let Some(slot) = self.slots.remove(&index) else { return };
        let fenced = slot.lose();
        self.counts.fenced.fetch_add(fenced, Ordering::Relaxed);
        self.counts.leases_lost.fetch_add(1, Ordering::Relaxed);
        warn!(group = %self.group, partition = index, term, fenced, "lost a partition: somebody else has taken it");
    }

    fn note_counts(&mut self) {
        let (mut held, mut dead) = (0, 0);
        for (index, slot) in &mut self.slots {
            let (all, given_up) = slot.feed.held();
            held += all;
            dead += given_up;
            slot.count(&self.counts);
            for warning in slot.feed.take_warnings() {
                warn!(group = %self.group, partition = index, "{warning}");
            }
        }
        self.counts.leases.store(self.slots.len() as u64, Ordering::Relaxed);
        self.counts.held.store(held as u64, Ordering::Relaxed);
        self.counts.dead.store(dead as u64, Ordering::Relaxed);
    }

    /// The end: what is left is given back with what was running in it, and others take it at
    /// once.
    async fn leave(&mut self) {
        let mut waited = self.clock.sleep(LAST_CALLS);
        while !self.ops.is_empty() {
            tokio::select! {
                biased;
                Some(op) = self.ops.next() => self.done(op),
                () = &mut waited => break,
            }
        }
        let rest: Vec<(u32, u64)> =
            self.slots.iter().map(|(index, slot)| (*index, slot.feed.term())).collect();
        for (index, term) in rest {
            let _ = self.store.release(&self.partition(index), &self.group.group, term).await;
        }
        let _ = self.store.depart(&self.group, &self.me).await;
    }
}
