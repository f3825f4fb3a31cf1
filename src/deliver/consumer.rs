//! The handle of a worker: a stream of deliveries, each to be answered.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use futures_util::FutureExt;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{JoinHandle, JoinSet},
};

use super::{
    options::{ConsumerOptions, OptionsError},
    task::What,
    worker::Worker,
};
use crate::{
    clock::Clock,
    deliver::feed::Answer,
    metrics::WorkerCounts,
    random::Random,
    store::{EventId, GroupId, Store, StoreError},
};

/// Why a consumer did not start.
#[derive(Debug, thiserror::Error)]
pub enum ConsumeError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error("there is no topic {0:?} in this store")]
    NoTopic(String),
    /// A worker that cannot read what is there would take it for nothing, and go on.
    #[error("topic {topic:?} has the layout {layout:?}, which this version cannot read; use a later one")]
    Layout { topic: String, layout: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The lease was lost before this was known to be stored. Whether it was is not known: the
/// event may be delivered again, by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease was lost before this was known to be stored; the event may be delivered again")]
pub struct Fenced;

/// An event, or a gap.
#[derive(Debug)]
pub struct Delivery {
    pub partition: u32,
    /// Rises whenever the partition changes hands. Storage that remembers the highest one can
    /// turn away a worker that was suspended.
    pub term: u64,
    pub entity: String,
    pub epoch: u64,
    /// Of a gap: the last one it covers.
    pub sequence: u64,
    /// 1 at first, higher after failures.
    pub attempt: u32,
    /// Where it stands in the stream; none for a gap that was found on this side.
    pub id: Option<EventId>,
    pub content: Delivered,
    pub(super) answers: Option<(u64, mpsc::UnboundedSender<Answered>)>,
    /// Somebody has it: from then on it must be answered.
    pub(super) is_taken: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    Event {
        /// `strict`, `passed`, `late` or `replay`.
        order: &'static str,
        kind: Arc<str>,
        /// Compact JSON.
        attrs: Arc<str>,
        data: Bytes,
    },
    /// Nothing comes for `from..=sequence`.
    Gap { from: u64, reason: Arc<str>, waited_ms: Option<u64> },
}

impl Delivered {
    pub(super) fn of(what: What) -> Self {
        match what {
            What::Event { order, kind, attrs, data } => {
                Delivered::Event { order: order.name(), kind, attrs, data }
            }
            What::Gap { from, reason, waited_ms } => Delivered::Gap { from: from.get(), reason, waited_ms },
        }
    }
}

/// What became of a delivery, on its way to the worker's task.
pub(super) struct Answered {
    pub partition: u32,
    pub term: u64,
    pub tag: u64,
    pub answer: Answer,
    pub confirm: Option<oneshot::Sender<Result<(), Fenced>>>,
}

impl Delivery {
    /// Handled: never deliver it again. Whoever wants to know that this is in the store
    /// awaits what is returned; dropping it changes nothing.
    pub fn ack(mut self) -> impl Future<Output = Result<(), Fenced>> + Send + 'static {
        self.answer_and_confirm(Answer::Ack)
    }

    /// Not handled: deliver it again later. Its entity waits, the others go on.
    pub fn nack(mut self, reason: &str) -> impl Future<Output = Result<(), Fenced>> + Send + 'static {
        self.answer_and_confirm(Answer::Nack { reason: reason.to_owned() })
    }

    fn taken(mut self) -> Self {
        self.is_taken = true;
        self
    }

    /// The same for the record: it cannot be answered.
    pub fn described(&self) -> Delivery {
        Delivery { entity: self.entity.clone(), content: self.content.clone(), answers: None, ..*self }
    }

    /// Nobody answers it any more, as if its worker had ended: it is noted as having run when
    /// the partition changes hands.
    pub fn abandon(mut self) {
        self.answer(Answer::Abandoned, None);
    }

    fn answer_and_confirm(
        &mut self,
        answer: Answer,
    ) -> impl Future<Output = Result<(), Fenced>> + Send + 'static + use<> {
        let (confirm, confirmed) = oneshot::channel();
        self.answer(answer, Some(confirm));
        confirmed.map(|outcome| outcome.unwrap_or(Err(Fenced)))
    }

    fn answer(&mut self, answer: Answer, confirm: Option<oneshot::Sender<Result<(), Fenced>>>) {
        if let Some((tag, answers)) = self.answers.take() {
            let (partition, term) = (self.partition, self.term);
            let _ = answers.send(Answered { partition, term, tag, answer, confirm });
        }
    }
}

impl Drop for Delivery {
    /// A handler that panicked, or forgot to answer, has not handled it. What nobody took was
    /// not even tried.
    fn drop(&mut self) {
        let failed = || Answer::Nack { reason: "dropped without an answer".to_owned() };
        self.answer(if self.is_taken { failed() } else { Answer::Returned }, None);
    }
}

/// A consumer that hangs.
pub struct Frozen(Consumer);

impl Frozen {
    /// It goes on, and does not know that time has passed.
    pub fn thaw(self) -> Consumer {
        let _ = self.0.freezing.send(false);
        self.0
    }
}

/// What a consumer has done so far.
#[derive(Debug, Default)]
pub struct ConsumerCounts {
    pub delivered: AtomicU64,
    pub acked: AtomicU64,
    pub nacked: AtomicU64,
    pub retried: AtomicU64,
    pub died: AtomicU64,
    pub gaps: AtomicU64,
    pub malformed: AtomicU64,
    /// Answers that came after the lease was lost.
    pub fenced: AtomicU64,
    /// Partitions taken, whether free or silent.
    pub leases_taken: AtomicU64,
    pub leases_lost: AtomicU64,
    /// Partitions held at present.
    pub leases: AtomicU64,
    /// Entities held at present.
    pub held: AtomicU64,
    /// Those of them that are dead.
    pub dead: AtomicU64,
}

impl ConsumerCounts {
    pub fn read(&self) -> WorkerCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WorkerCounts {
            started: read(&self.delivered),
            acked: read(&self.acked),
            nacked: read(&self.nacked),
            retried: read(&self.retried),
            died: read(&self.died),
            fenced: read(&self.fenced),
            gaps: read(&self.gaps),
            malformed: read(&self.malformed),
            leases_lost: read(&self.leases_lost),
            leases: read(&self.leases),
            held: read(&self.held),
            dead: read(&self.dead),
        }
    }
}

/// A worker of a group. Dropping it lets go of everything at once, as a crash would;
/// [`close`](Consumer::close) ends it in order.
pub struct Consumer {
    deliveries: mpsc::UnboundedReceiver<Delivery>,
    closing: watch::Sender<bool>,
    freezing: watch::Sender<bool>,
    task: JoinHandle<()>,
    counts: Arc<ConsumerCounts>,
    in_flight_max: Arc<AtomicUsize>,
}

impl Consumer {
    /// Joins the group, and makes it if it is new.
    pub async fn start(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        random: Random,
        options: ConsumerOptions,
    ) -> Result<Consumer, ConsumeError> {
        options.validate()?;
        let record = store.record(&options.topic).await?;
        let record = record.ok_or_else(|| ConsumeError::NoTopic(options.topic.clone()))?;
        if record.layout().is_none() {
            return Err(ConsumeError::Layout { topic: options.topic, layout: record.layout });
        }
        let group = GroupId { topic: options.topic.clone(), group: options.group.clone() };
        store.register(&group, record.partitions, options.start).await?;
        let (deliver, deliveries) = mpsc::unbounded_channel();
        let (closing, is_closing) = watch::channel(false);
        let (freezing, is_frozen) = watch::channel(false);
        let counts = Arc::new(ConsumerCounts::default());
        let in_flight_max = Arc::new(AtomicUsize::new(options.in_flight_max));
        let worker = Worker::new(
            store,
            clock,
            random,
            options,
            &record,
            deliver,
            counts.clone(),
            in_flight_max.clone(),
        );
        let task = tokio::spawn(worker.run(is_closing, is_frozen));
        Ok(Consumer { deliveries, closing, freezing, task, counts, in_flight_max })
    }

    /// The next delivery; `None` once the consumer is closed.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.deliveries.recv().await.map(Delivery::taken)
    }

    /// A delivery that is there already.
    pub fn try_next(&mut self) -> Option<Delivery> {
        self.deliveries.try_recv().ok().map(Delivery::taken)
    }

    pub fn counts(&self) -> &Arc<ConsumerCounts> {
        &self.counts
    }

    /// How many deliveries may be out from now on; 0 pauses.
    pub fn set_in_flight_max(&self, max: usize) {
        self.in_flight_max.store(max, Ordering::Relaxed);
    }

    /// Handles deliveries in parallel, one of an entity at a time, until `shutdown`. `Ok` is an
    /// ack, `Err` a nack with its reason; so is a panic.
    pub async fn run<H, F, E>(mut self, handler: H, shutdown: impl Future<Output = ()>)
    where
        H: Fn(Arc<Delivery>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: std::fmt::Display + Send + 'static,
    {
        let handler = Arc::new(handler);
        let mut running = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = running.join_next(), if !running.is_empty() => {}
                delivery = self.next() => {
                    let Some(delivery) = delivery else { break };
                    let handler = handler.clone();
                    running.spawn(async move {
                        let delivery = Arc::new(delivery);
                        let outcome = handler(delivery.clone()).await;
                        // A handler that kept it may answer by itself, or not at all.
                        let Some(delivery) = Arc::into_inner(delivery) else { return };
                        match outcome {
                            Ok(()) => drop(delivery.ack()),
                            Err(error) => drop(delivery.nack(&error.to_string())),
                        }
                    });
                }
            }
        }
        // What runs is finished; what was not begun goes back.
        let closing = self.close();
        tokio::join!(closing, async { while running.join_next().await.is_some() {} });
    }

    /// Lets it hang, as a process that was suspended: nothing is renewed, nothing is answered.
    /// For tests of what others do then.
    pub fn freeze(self) -> Frozen {
        let _ = self.freezing.send(true);
        Frozen(self)
    }

    /// Starts nothing more, waits for what is out, gives its partitions back and leaves.
    pub async fn close(self) {
        let Consumer { mut deliveries, closing, mut task, .. } = self;
        let _ = closing.send(true);
        loop {
            tokio::select! {
                biased;
                // Dropped: what was handed out, but not taken, goes back.
                delivery = deliveries.recv() => if delivery.is_none() { break },
                _ = &mut task => return,
            }
        }
        let _ = task.await;
    }
}
