//! One `PublishStream` call: a task that reads requests, and a stream of answers.
//!
//! The window bounds what the stream has in flight: the reader stops while it is
//! full, and a place is given back only when its answer is on the way out. So a
//! client that does not read its answers stops being read, and costs no memory.

use std::{pin::Pin, sync::Arc};

use futures_util::{Stream, stream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::{Code, Status, Streaming};

use super::{ingest_service::IngestService, pb, status, wire};
use crate::ingest;

/// Answers that travel in one message, at most.
const ANSWERS_MAX: usize = 256;

enum Item {
    Answer(pb::Answer, Option<OwnedSemaphorePermit>),
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
    Box::pin(stream::unfold(Some(ready), |ready| async move {
        let mut ready = ready?;
        let mut items = Vec::new();
        if ready.recv_many(&mut items, ANSWERS_MAX).await == 0 {
            return None;
        }
        let mut response = pb::PublishStreamResponse::default();
        for item in items {
            match item {
                Item::Answer(answer, _place) => response.answers.push(answer),
                // It was sent last. What was collected before it is lost with the
                // stream, which is no loss: the client publishes again.
                Item::Failed(status) => return Some((Err(status), None)),
            }
        }
        Some((Ok(response), Some(ready)))
    }))
}

async fn read(service: IngestService, mut requests: Streaming<pb::PublishStreamRequest>, answers: Answers) {
    service.metrics.streams.inc();
    let window = Arc::new(Semaphore::new(service.limits.stream_in_flight));
    let mut draining = service.draining.clone();
    let mut topic = String::new();
    loop {
        let message = tokio::select! {
            message = requests.message() => message,
            _ = draining.wait_for(|draining| *draining) => break,
            () = answers.closed() => break,
        };
        match message {
            Ok(Some(request)) => {
                if !request.topic.is_empty() {
                    topic.clone_from(&request.topic);
                }
                let places = request.events.len().clamp(1, service.limits.stream_in_flight);
                let places = u32::try_from(places).expect("limits are validated to fit");
                let place = window.clone().acquire_many_owned(places).await.expect("it is never closed");
                submit(&service, &topic, request, place, &answers).await;
            }
            Ok(None) => break,
            Err(status) => {
                let _ = answers.send(Item::Failed(named(status, &service)));
                break;
            }
        }
    }
    service.metrics.streams.dec();
}

/// Submits one request; its answer comes through the channel.
async fn submit(
    service: &IngestService,
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
            let _ =
                answers.send(Item::Answer(pb::Answer { number, failure, ..Default::default() }, Some(place)));
            return;
        }
    };
    let taken = service.ingest.in_flight.take(events.len(), wire::weight(&events)).await;
    let answers = answers.clone();
    let request = ingest::Request::new(taken, move |outcomes| {
        let (results, failure) = match wire::results(outcomes) {
            Ok(results) => (results, None),
            Err(failed) => (Vec::new(), Some(status::failure(&status::failed(failed)))),
        };
        let _ = answers.send(Item::Answer(pb::Answer { number, results, failure }, Some(place)));
    });
    service.ingest.submit(topic, service.offers(topic, events), request);
}

/// The decoder knows the limit but not its setting.
fn named(status: Status, service: &IngestService) -> Status {
    match status.code() {
        Code::OutOfRange => status::oversize(service.limits.request_bytes),
        _ => status,
    }
}
