//! One `PublishStream` call: a task that reads requests, and a stream of answers.
//!
//! The window bounds what the stream has in flight: the reader stops while it is
//! full, and a place is given back only when its answer is on the way out. So a
//! client that does not read its answers stops being read, and costs no memory.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tonic::{Code, Status, Streaming};

use super::{
    ingest_service::{IngestService, refuse_all},
    pb, status, wire,
};
use crate::ingest::{self, LiveStream, Overloaded};

/// Answers that travel in one message, at most.
const ANSWERS_MAX: usize = 256;

/// Questions to the producer that wait to be sent; further ones are dropped, and asked
/// again by the next probe.
const RESENDS_UNSENT_MAX: usize = 256;

enum Item {
    Answer(pb::Answer, OwnedSemaphorePermit),
    Resend(pb::Resend, OwnedSemaphorePermit),
    /// The stream cannot go on.
    Failed(Status),
}

type Answers = mpsc::UnboundedSender<Item>;

pub fn serve(
    service: IngestService,
    requests: Streaming<pb::PublishStreamRequest>,
) -> Pin<Box<dyn Stream<Item = Result<pb::PublishStreamResponse, Status>> + Send>> {
    // Unbounded by itself; every answer holds a place in the window.
    let (answers, ready) = mpsc::unbounded_channel();
    tokio::spawn(read(service, requests, answers));
    Box::pin(stream::unfold(Ending::Open(ready), |ending| async move {
        let mut ready = match ending {
            Ending::Open(ready) => ready,
            Ending::Failed(status) => return Some((Err(status), Ending::Closed)),
            Ending::Closed => return None,
        };
        let mut items = Vec::new();
        if ready.recv_many(&mut items, ANSWERS_MAX).await == 0 {
            return None;
        }
        let mut response = pb::PublishStreamResponse::default();
        for item in items {
            match item {
                Item::Answer(answer, _place) => response.answers.push(answer),
                Item::Resend(resend, _place) => response.resends.push(resend),
                // The last of all: answers that became ready with it go before it.
                Item::Failed(status) if response == pb::PublishStreamResponse::default() => {
                    return Some((Err(status), Ending::Closed));
                }
                Item::Failed(status) => return Some((Ok(response), Ending::Failed(status))),
            }
        }
        Some((Ok(response), Ending::Open(ready)))
    }))
}

/// What is still to be sent.
enum Ending {
    Open(mpsc::UnboundedReceiver<Item>),
    Failed(Status),
    Closed,
}

async fn read(service: IngestService, mut requests: Streaming<pb::PublishStreamRequest>, answers: Answers) {
    service.metrics.streams.inc();
    let places = u32::try_from(service.limits.stream_in_flight).expect("limits are validated to fit");
    let window = Arc::new(Semaphore::new(service.limits.stream_in_flight));
    let unsent = Arc::new(Semaphore::new(RESENDS_UNSENT_MAX));
    let (live, mut asked) = service.ingest.live.join();
    let mut draining = service.draining.clone();
    let mut topic = String::new();
    let ask = |resend| {
        if let Ok(place) = unsent.clone().try_acquire_owned() {
            let _ = answers.send(Item::Resend(wire::resend(resend), place));
        }
    };
    let failure = loop {
        // While messages are there nothing else is polled, which is dear; so what else there may be is
        // looked at behind each of them.
        let message = tokio::select! {
            biased;
            message = requests.message() => message,
            Some(resend) = asked.recv() => {
                ask(resend);
                continue;
            }
            () = drained(&mut draining) => break Some(status::stopping()),
            () = answers.closed() => break None,
        };
        match message {
            Ok(Some(request)) => {
                if !request.topic.is_empty() {
                    topic.clone_from(&request.topic);
                }
                let wanted = u32::try_from(request.events.len()).unwrap_or(places).clamp(1, places);
                let place = window.clone().acquire_many_owned(wanted).await.expect("it is never closed");
                submit(&service, &live, &topic, request, place, &answers).await;
                asked.try_recv().into_iter().for_each(ask);
                if draining.has_changed().unwrap_or(true) && *draining.borrow() {
                    break Some(status::stopping());
                }
            }
            Ok(None) => break None,
            Err(status) => break Some(named(status, &service)),
        }
    };
    if let Some(status) = failure {
        // All that was read is answered once the whole window is free again.
        let _all = window.acquire_many(places).await;
        let _ = answers.send(Item::Failed(status));
    }
    service.metrics.streams.dec();
}

async fn drained(draining: &mut watch::Receiver<bool>) {
    let _ = draining.wait_for(|draining| *draining).await;
}

/// Submits one request; its answer comes through the channel.
async fn submit(
    service: &IngestService,
    live: &LiveStream,
    topic: &str,
    request: pb::PublishStreamRequest,
    place: OwnedSemaphorePermit,
    answers: &Answers,
) {
    let pb::PublishStreamRequest { number, events, .. } = request;
    let topic = match service.check(topic, &events) {
        Ok(topic) => topic,
        Err(status) => {
            let failure = Some(status::failure(&status));
            let _ = answers.send(Item::Answer(pb::Answer { number, failure, ..Default::default() }, place));
            return;
        }
    };
    let answers = answers.clone();
    let answer = move |outcomes| {
        let (results, failure) = match wire::results(outcomes) {
            Ok(results) => (results, None),
            Err(failed) => (Vec::new(), Some(status::failure(&status::failed(failed)))),
        };
        let _ = answers.send(Item::Answer(pb::Answer { number, results, failure }, place));
    };
    match service.ingest.in_flight.take(events.len(), wire::weight(&events)).await {
        Ok(taken) => {
            let offers = service.offers(topic, events);
            offers.iter().flatten().for_each(|offer| live.remember(&topic.spec.name, &offer.entity));
            service.ingest.submit(topic, offers, ingest::Request::new(taken, answer));
        }
        Err(Overloaded) => answer(refuse_all(topic, events.len())),
    }
}

/// The decoder knows the limit but not its setting.
fn named(status: Status, service: &IngestService) -> Status {
    match status.code() {
        Code::OutOfRange => status::oversize(service.limits.request_bytes),
        _ => status,
    }
}
