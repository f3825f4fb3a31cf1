//! One `PublishStream` call: a task that reads requests, and a stream of answers.
//!
//! The window bounds what the stream has in flight: the reader stops while it is
//! full, and a place is given back only when its answer is on the way out. So a
//! client that does not read its answers stops being read, and costs no memory.

use std::{ops::ControlFlow, pin::Pin, sync::Arc};

use futures_util::{FutureExt, Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, mpsc, watch};
use tonic::{Code, Status, Streaming};

use super::{
    ingest_service::{IngestService, refuse_all},
    pb, status, wire,
};
use crate::{
    ingest::{self, LiveStream, Outcome, Overloaded},
    store::Offer,
};

/// Answers that travel in one message, at most.
const ANSWERS_MAX: usize = 256;

/// Requests that are read one after the other before others have their turn.
const RUN_MAX: usize = 128;

/// Questions to the producer that wait to be sent; further ones are dropped, and asked
/// again by the next probe.
const RESENDS_UNSENT_MAX: usize = 256;

enum Item {
    /// And how many places it has in the window.
    Answer(pb::Answer, u32),
    Resend(pb::Resend, OwnedSemaphorePermit),
    /// The stream cannot go on.
    Failed(Status),
}

/// Shared by the reader and all requests that are not answered.
type Answers = Arc<mpsc::UnboundedSender<Item>>;

pub fn serve(
    service: IngestService,
    requests: Streaming<pb::PublishStreamRequest>,
) -> Pin<Box<dyn Stream<Item = Result<pb::PublishStreamResponse, Status>> + Send>> {
    // Unbounded by itself; every answer has places in the window.
    let (answers, ready) = mpsc::unbounded_channel();
    let window = Arc::new(Semaphore::new(service.limits.stream_in_flight));
    tokio::spawn(read(service, requests, Arc::new(answers), window.clone()));
    Box::pin(stream::unfold(Ending::Open(Outgoing { ready, window }), |ending| async move {
        let mut outgoing = match ending {
            Ending::Open(outgoing) => outgoing,
            Ending::Failed(status) => return Some((Err(status), Ending::Closed)),
            Ending::Closed => return None,
        };
        match outgoing.next().await? {
            (response, None) => Some((Ok(response), Ending::Open(outgoing))),
            // Answers that became ready with it go before it.
            (response, Some(status)) if response == pb::PublishStreamResponse::default() => {
                Some((Err(status), Ending::Closed))
            }
            (response, Some(status)) => Some((Ok(response), Ending::Failed(status))),
        }
    }))
}

/// What is still to be sent.
enum Ending {
    Open(Outgoing),
    Failed(Status),
    Closed,
}

/// Answers on their way out.
struct Outgoing {
    ready: mpsc::UnboundedReceiver<Item>,
    window: Arc<Semaphore>,
}

impl Outgoing {
    /// What is ready, and how the stream ends if it does; nothing if it has ended.
    async fn next(&mut self) -> Option<(pb::PublishStreamResponse, Option<Status>)> {
        let mut items = Vec::new();
        if self.ready.recv_many(&mut items, ANSWERS_MAX).await == 0 {
            return None;
        }
        let mut response = pb::PublishStreamResponse::default();
        response.answers.reserve(items.len());
        let (mut free, mut failure) = (0, None);
        for item in items {
            match item {
                Item::Answer(answer, places) => {
                    free += places as usize;
                    response.answers.push(answer);
                }
                Item::Resend(resend, _place) => response.resends.push(resend),
                Item::Failed(status) => failure = Some(status),
            }
        }
        // All at once: each time costs a lock.
        self.window.add_permits(free);
        Some((response, failure))
    }
}

/// Answers that are not taken give no place back; so nobody must wait for one any more.
impl Drop for Outgoing {
    fn drop(&mut self) {
        self.window.close();
    }
}

async fn read(
    service: IngestService,
    requests: Streaming<pb::PublishStreamRequest>,
    answers: Answers,
    window: Arc<Semaphore>,
) {
    service.metrics.streams.inc();
    let places = u32::try_from(service.limits.stream_in_flight).expect("limits are validated to fit");
    let (live, asked) = service.ingest.live.join();
    let mut reader = Reader { service, requests, answers, window, places, live, topic: String::new() };
    if let Err(status) = reader.read(asked).await {
        // All that was read is answered once the whole window is free again.
        let _all = reader.window.acquire_many(places).await;
        let _ = reader.answers.send(Item::Failed(status));
    }
    reader.service.metrics.streams.dec();
}

struct Reader {
    service: IngestService,
    requests: Streaming<pb::PublishStreamRequest>,
    answers: Answers,
    window: Arc<Semaphore>,
    /// Those of the whole window.
    places: u32,
    live: LiveStream,
    /// The one that was named last.
    topic: String,
}

/// What comes of a request stream; nothing at its end.
type Message = Result<Option<pb::PublishStreamRequest>, Status>;

/// How a stream ends that is not read any further: by itself, or with this status.
type End = Result<(), Status>;

impl Reader {
    /// Until the client has said everything, or is gone, or cannot be read any further.
    async fn read(&mut self, mut asked: mpsc::Receiver<ingest::Resend>) -> End {
        let mut draining = self.service.draining.clone();
        let unsent = Arc::new(Semaphore::new(RESENDS_UNSENT_MAX));
        let answers = self.answers.clone();
        let ask = |resend| {
            if let Ok(place) = unsent.clone().try_acquire_owned() {
                let _ = answers.send(Item::Resend(wire::resend(resend), place));
            }
        };
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
                () = answers.closed() => return Ok(()),
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

    /// Submits one request, once there is room for it; its answer comes through the channel.
    async fn submit(&mut self, request: pb::PublishStreamRequest) -> ControlFlow<End> {
        let pb::PublishStreamRequest { number, topic, events } = request;
        if !topic.is_empty() {
            self.topic = topic;
        }
        let places = u32::try_from(events.len()).unwrap_or(self.places).clamp(1, self.places);
        if !self.enter(places).await {
            return ControlFlow::Break(Ok(()));
        }
        let answers = self.answers.clone();
        let service = &self.service;
        let topic = match service.check(&self.topic, &events) {
            Ok(topic) => topic,
            Err(status) => {
                let failure = Some(status::failure(&status));
                let answer = pb::Answer { number, failure, ..Default::default() };
                let _ = answers.send(Item::Answer(answer, places));
                return ControlFlow::Continue(());
            }
        };
        let answer = move |outcomes: &mut dyn ExactSizeIterator<Item = Outcome>| {
            let (results, failure) = match wire::results(outcomes) {
                Ok(results) => (results, None),
                Err(failed) => (Vec::new(), Some(status::failure(&status::failed(failed)))),
            };
            let _ = answers.send(Item::Answer(pb::Answer { number, results, failure }, places));
        };
        match service.ingest.in_flight.take(events.len(), wire::weight(&events)).await {
            Ok(taken) => {
                let remember = |offer: &Result<Offer, Outcome>| {
                    if let Ok(offer) = offer {
                        self.live.remember(&topic.spec.name, &offer.entity);
                    }
                };
                let offers = service.offers(topic, events).inspect(remember);
                service.ingest.submit(topic, offers, ingest::Request::new(taken, answer));
            }
            Err(Overloaded) => answer(&mut refuse_all(topic, events.len())),
        }
        ControlFlow::Continue(())
    }

    /// Waits for places in the window; false if nobody takes answers any more.
    async fn enter(&self, places: u32) -> bool {
        let entered = match self.window.try_acquire_many(places) {
            Ok(entered) => Some(entered),
            Err(_) => self.window.acquire_many(places).await.ok(),
        };
        entered.map(SemaphorePermit::forget).is_some()
    }
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
