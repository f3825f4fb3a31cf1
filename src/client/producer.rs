//! A producer that keeps its promise: what it is given is published until it is answered.

use std::{
    collections::VecDeque,
    panic,
    pin::Pin,
    sync::{Arc, Mutex, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinHandle,
};

use super::{
    ClientError,
    dispatcher::{Counts, Dispatcher, Published},
    link::Link,
    open::{Caller, OpenEvents, Outcome},
    ring::Ring,
};
use crate::{
    clock::{Clock, SystemClock},
    grpc::pb,
    random::Random,
};

/// What a [`Producer`] may use and how long it tries.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// Events that are sent and not answered. More are faster where the way to the sidecar is
    /// long; beyond its `limits.stream_in_flight` (1024) nothing is gained. After a lost
    /// connection so many are sent again. Default: 256; 0 counts as 1.
    pub in_flight_max: usize,
    /// Events that are published and have no answer yet: in flight, in line, or refused and
    /// coming again. All of them are in memory, with their data. Default: 16,384; 0 counts as 1.
    pub open_max: usize,
    /// How long an event is published again until it is given up. Default: 30 s.
    pub give_up_after: Duration,
    /// Events kept after they were sent, to answer a `Resend`. Each costs some 300 bytes
    /// beyond its own. Default: 16,384; 0 keeps none.
    pub ring_events: usize,
    /// The same in bytes, as on the wire. Default: 16 MiB.
    pub ring_bytes: usize,
    /// Publish again what the sidecar asks for; if not, nothing is kept either. Default: true.
    pub answer_resend: bool,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        ProducerOptions {
            in_flight_max: 256,
            open_max: 16_384,
            give_up_after: Duration::from_secs(30),
            ring_events: 16_384,
            ring_bytes: 16 << 20,
            answer_resend: true,
        }
    }
}

/// Publishes to one topic through one sidecar, over one stream at a time.
///
/// It connects by itself, and again after every loss. Whatever was not answered is then
/// sent again, in its order; so is what was refused, or what the store did not decide, when
/// its time has come. It also keeps what it sent lately and publishes it again when the
/// sidecar misses it and asks.
///
/// Events of one entity may overtake each other when they come again. Where the producer
/// numbers them that is what a sidecar is for. In a topic with `numbering = "assigned"`,
/// where the order of arrival counts, await an event's answer before the entity's next one.
///
/// Dropping it ends everything at once; [`close`](Producer::close) waits for what is open.
pub struct Producer {
    /// Unbounded by itself; what is in it holds a place.
    published: mpsc::UnboundedSender<Published>,
    places: Arc<Semaphore>,
    open_max: usize,
    ring: Arc<Mutex<Ring>>,
    counts: Arc<Counts>,
    answer_resend: bool,
    task: Task,
}

/// Aborted when dropped.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The verdict to come. Dropping it takes nothing back: the event is published all the same.
#[must_use = "it holds the event's verdict"]
pub struct Answer {
    /// An error if the event was not taken.
    awaited: Result<oneshot::Receiver<Outcome>, Option<ClientError>>,
}

impl Future for Answer {
    type Output = Result<pb::Result, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.awaited {
            Ok(answer) => {
                let answer = ready!(Pin::new(answer).poll(context));
                Poll::Ready(answer.unwrap_or(Err(ClientError::Closed)))
            }
            Err(error) => Poll::Ready(Err(error.take().expect("it is not polled after its end"))),
        }
    }
}

impl Producer {
    /// Starts it; to be called within a tokio runtime. `target` is `http://host:port` or
    /// `unix:/path`. A sidecar that is not there yet is waited for.
    pub fn start(target: &str, topic: &str, options: ProducerOptions) -> Self {
        let clock = Arc::new(SystemClock::default());
        Self::start_with(target, topic, options, clock, Random::from_system())
    }

    /// The same with time and randomness handed in.
    pub fn start_with(
        target: &str,
        topic: &str,
        options: ProducerOptions,
        clock: Arc<dyn Clock>,
        random: Random,
    ) -> Self {
        let (published, queue) = mpsc::unbounded_channel();
        let open_max = options.open_max.clamp(1, Semaphore::MAX_PERMITS);
        let ring = Arc::new(Mutex::new(Ring::new(options.ring_events, options.ring_bytes)));
        let counts = Arc::new(Counts::default());
        let dispatcher = Dispatcher {
            topic: topic.to_owned(),
            link: Link::new(target, random),
            open: OpenEvents::new(options.in_flight_max.max(1), options.give_up_after),
            ring: ring.clone(),
            asks: options.answer_resend.then(VecDeque::new),
            counts: counts.clone(),
            clock,
            give_up_after: options.give_up_after,
        };
        Producer {
            published,
            places: Arc::new(Semaphore::new(open_max)),
            open_max,
            ring,
            counts,
            answer_resend: options.answer_resend,
            task: Task(tokio::spawn(dispatcher.run(queue))),
        }
    }

    /// Takes an event at once; events are sent in the order of these calls. With
    /// [`open_max`](ProducerOptions::open_max) events unanswered it is not taken, and the
    /// answer is [`ClientError::Full`].
    ///
    /// The answer is any verdict but REFUSED: a refused event is published again.
    pub fn publish(&self, event: pb::Event) -> Answer {
        match self.places.clone().try_acquire_owned() {
            Ok(place) => self.take(event, place),
            Err(_) => Answer { awaited: Err(Some(ClientError::Full { open_max: self.open_max })) },
        }
    }

    /// Takes an event as soon as there is room for it: await this to have a place, and then
    /// the answer to have the verdict. Who waits first is served first.
    pub async fn publish_when_room(&self, event: pb::Event) -> Answer {
        let place = self.places.clone().acquire_owned().await.expect("it is never closed");
        self.take(event, place)
    }

    fn take(&self, event: pb::Event, place: OwnedSemaphorePermit) -> Answer {
        let (answer, awaited) = oneshot::channel();
        // If the task has ended, the dropped sender says so.
        let _ = self.published.send(Published { event, caller: Caller { answer, place } });
        Answer { awaited: Ok(awaited) }
    }

    /// Keeps an event as if it had been sent: for one that goes another way, through a relay
    /// that might lose it.
    pub fn remember(&self, event: pb::Event) {
        if self.answer_resend {
            self.ring.lock().expect("nobody panics holding it").put(Arc::new(event));
        }
    }

    /// How often the sidecar asked for events that it misses.
    pub fn resends_asked(&self) -> u64 {
        self.counts.resends_asked.load(Ordering::Relaxed)
    }

    /// Events that were published again because the sidecar asked for them.
    pub fn resent(&self) -> u64 {
        self.counts.resent.load(Ordering::Relaxed)
    }

    /// Waits until everything is answered or given up, then ends the stream.
    pub async fn close(self) {
        let Producer { published, mut task, .. } = self;
        drop(published);
        if let Err(error) = (&mut task.0).await
            && error.is_panic()
        {
            panic::resume_unwind(error.into_panic());
        }
    }
}
