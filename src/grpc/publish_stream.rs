//! One `PublishStream` call: a task that reads requests, and a stream of answers.
//!
//! The window bounds what the stream has in flight: the reader stops while it is
//! full, and a place is given back only when its answer is on the way out. So a
//! client that does not read its answers stops being read, and costs no memory.

use std::{ops::ControlFlow, pin::Pin, sync::Arc, time::Duration};

use futures_util::{FutureExt, Stream, stream};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};
use tonic::{Code, Status, Streaming};

use super::{
    ingest_service::{IngestService, refuse_all},
    outbox::{Outbox, Outgoing, Ready, outbox},
    pb, status, wire,
};
use crate::{
    ingest::{self, Asker, LiveStream, Outcome, Overloaded},
    store::Offer,
};

/// Requests that are read one after the other before others have their turn.
const RUN_MAX: usize = 128;

pub fn serve(
    service: IngestService,
    requests: Streaming<pb::PublishStreamRequest>,
) -> Pin<Box<dyn Stream<Item = Result<pb::PublishStreamResponse, Status>> + Send>> {
    let (outbox, outgoing) = outbox(service.limits.stream_in_flight);
    let window = Arc::new(Semaphore::new(service.limits.stream_in_flight));
    tokio::spawn(read(service, requests, Arc::new(outbox), window.clone()));
    Box::pin(stream::unfold(Ending::Open(Answers { outgoing, window }), |ending| async move {
        let mut answers = match ending {
            Ending::Open(answers) => answers,
            Ending::Failed(status) => return Some((Err(status), Ending::Closed)),
            Ending::Closed => return None,
        };
        let Ready { response, places, failure } = answers.outgoing.next().await?;
        answers.window.add_permits(places);
        match failure {
            None => Some((Ok(response), Ending::Open(answers))),
            // Answers that became ready with it go before it.
            Some(status) if response == pb::PublishStreamResponse::default() => {
                Some((Err(status), Ending::Closed))
            }
            Some(status) => Some((Ok(response), Ending::Failed(status))),
        }
    }))
}

/// What is still to be sent.
enum Ending {
    Open(Answers),
    Failed(Status),
    Closed,
}

/// Answers on their way out, each of which frees places in the window.
struct Answers {
    outgoing: Outgoing,
    window: Arc<Semaphore>,
}

/// Answers that are not taken give no place back; so nobody must wait for one any more.
impl Drop for Answers {
    fn drop(&mut self) {
        self.window.close();
    }
}

async fn read(
    service: IngestService,
    requests: Streaming<pb::PublishStreamRequest>,
    outbox: Arc<Outbox>,
    window: Arc<Semaphore>,
) {
    service.metrics.streams.inc();
    let all = permits(service.limits.stream_in_flight);
    let (live, asked) = service.ingest.live.join();
    let received = service.ingest.now();
    let mut reader = Reader { service, requests, outbox, window, live, topic: String::new(), received };
    if let Err(status) = reader.read(asked).await {
        // All that was read is answered once the whole window is free again.
        let _all = reader.window.acquire_many(all).await;
        reader.outbox.fail(status);
    }
    reader.service.metrics.streams.dec();
}

struct Reader {
    service: IngestService,
    requests: Streaming<pb::PublishStreamRequest>,
    /// Shared with all requests that are not answered.
    outbox: Arc<Outbox>,
    window: Arc<Semaphore>,
    live: LiveStream,
    /// The one that was named last.
    topic: String,
    /// When what is being read now has come: one look at the clock serves a run, unless somebody had to wait.
    received: Duration,
}

/// What comes of a request stream; nothing at its end.
type Message = Result<Option<pb::PublishStreamRequest>, Status>;

/// How a stream ends that is not read any further: by itself, or with this status.
type End = Result<(), Status>;

impl Reader {
    /// Until the client has said everything, or is gone, or cannot be read any further.
    async fn read(&mut self, mut asked: mpsc::Receiver<ingest::Resend>) -> End {
        let mut draining = self.service.draining.clone();
        let outbox = self.outbox.clone();
        let ask = |resend| outbox.ask(wire::resend(resend));
        loop {
            // While messages are there nothing else is polled, which is dear; so what else there may be is
            // looked at behind each run of them.
            let message = tokio::select! {
                biased;
                message = self.requests.message() => message,
                Some(resend) = asked.recv() => {
                    ask(resend);
                    continue;
                }
                () = drained(&mut draining) => return Err(status::stopping()),
                () = outbox.gone() => return Ok(()),
            };
            if let ControlFlow::Break(end) = self.take_run(message).await {
                return end;
            }
            while let Ok(resend) = asked.try_recv() {
                ask(resend);
            }
            if draining.has_changed().unwrap_or(true) && *draining.borrow() {
                return Err(status::stopping());
            }
        }
    }

    /// Takes a message, and those that are there behind it.
    async fn take_run(&mut self, first: Message) -> ControlFlow<End> {
        let mut message = first;
        self.received = self.service.ingest.now();
        for left in (0..RUN_MAX).rev() {
            match message {
                Ok(Some(request)) => self.submit(request).await?,
                Ok(None) => return ControlFlow::Break(Ok(())),
                Err(status) => return ControlFlow::Break(Err(named(status, &self.service))),
            }
            if left == 0 {
                tokio::task::yield_now().await;
                break;
            }
            match self.requests.message().now_or_never() {
                Some(next) => message = next,
                None => break,
            }
        }
        ControlFlow::Continue(())
    }

    /// Submits one request, once there is room for it; its answer goes to the outbox.
    async fn submit(&mut self, request: pb::PublishStreamRequest) -> ControlFlow<End> {
        let pb::PublishStreamRequest { number, topic, events } = request;
        if !topic.is_empty() {
            self.topic = topic;
        }
        let places = self.outbox.places(events.len());
        if !self.enter(permits(places)).await {
            return ControlFlow::Break(Ok(()));
        }
        let Reader { service, outbox, .. } = self;
        let topic = match service.check(&self.topic, &events) {
            Ok(topic) => topic,
            Err(status) => {
                let failure = Some(status::failure(&status));
                outbox.answer(pb::Answer { number, failure, ..Default::default() }, places);
                return ControlFlow::Continue(());
            }
        };
        let (in_flight, weight) = (&service.ingest.in_flight, wire::weight(&events));
        let taken = match in_flight.take_now(events.len(), weight) {
            Some(taken) => Ok(taken),
            None => {
                let taken = in_flight.take(events.len(), weight).await;
                self.received = service.ingest.now();
                taken
            }
        };
        match taken {
            Ok(taken) => {
                let remember = |offer: &Result<Offer, Outcome>| {
                    if let Ok(offer) = offer {
                        self.live.remember(&topic.spec.name, &offer.entity);
                    }
                };
                let offers = service.offers(topic, events).inspect(remember);
                let request = ingest::Request::of(outbox.clone(), number, taken);
                service.ingest.submit(topic, offers, request, self.received);
            }
            Err(Overloaded) => Asker::answer(&**outbox, number, &mut refuse_all(topic, events.len())),
        }
        ControlFlow::Continue(())
    }

    /// Waits for places in the window; false if nobody takes answers any more.
    async fn enter(&mut self, places: u32) -> bool {
        let entered = match self.window.try_acquire_many(places) {
            Ok(entered) => Some(entered),
            Err(_) => {
                let entered = self.window.acquire_many(places).await.ok();
                self.received = self.service.ingest.now();
                entered
            }
        };
        entered.map(SemaphorePermit::forget).is_some()
    }
}

fn permits(places: usize) -> u32 {
    u32::try_from(places).expect("limits are validated to fit")
}

async fn drained(draining: &mut watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

/// The decoder knows the limit but not its setting.
fn named(status: Status, service: &IngestService) -> Status {
    match status.code() {
        Code::OutOfRange => status::oversize(service.limits.request_bytes),
        _ => status,
    }
}
