//! `seriatim.v1.Ingest`.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures_util::Stream;
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status, Streaming};

use super::{Limits, pb, publish_stream, status, wire};
use crate::{
    ingest::{self, Ingest, Outcome, Overloaded, Topic},
    metrics::Metrics,
    order::{Announcement, Entity},
    store::Offer,
};

/// How long a unary request waits for its share of what may be in flight.
const UNARY_WAIT: Duration = Duration::from_secs(1);

const ANNOUNCE_MAX_MS: u64 = 10 * 365 * 24 * 3_600_000;

/// A cheap handle; every connection and stream has its own.
#[derive(Clone)]
pub struct IngestService {
    pub(super) ingest: Arc<Ingest>,
    pub(super) limits: Arc<Limits>,
    pub(super) metrics: Arc<Metrics>,
    /// Turns true when the process drains: streams stop reading then.
    pub(super) draining: watch::Receiver<bool>,
}

impl IngestService {
    pub fn new(
        ingest: Arc<Ingest>,
        limits: Limits,
        metrics: Arc<Metrics>,
        draining: watch::Receiver<bool>,
    ) -> Self {
        IngestService { ingest, limits: Arc::new(limits), metrics, draining }
    }

    /// Finds the topic and checks what concerns a request as a whole.
    pub(super) fn check(&self, topic: &str, events: &[pb::Event]) -> Result<&Topic, Status> {
        let found = self.ingest.topic(topic).ok_or_else(|| status::no_such_topic(topic, &self.ingest))?;
        match events.len() {
            0 => Err(status::no_events()),
            count if count > self.limits.request_events => Err(status::too_many_events(count, &self.limits)),
            _ => Ok(found),
        }
    }

    /// Each event as an offer, or answered already because it is wrong by itself.
    pub(super) fn offers(
        &self,
        topic: &Topic,
        events: Vec<pb::Event>,
    ) -> impl ExactSizeIterator<Item = Result<Offer, Outcome>> {
        let offer = |event| wire::offer(event, topic, &self.limits).map_err(Outcome::Invalid);
        events.into_iter().map(offer)
    }
}

/// Answers all events of a request that cannot be taken in.
pub(super) fn refuse_all(topic: &Topic, events: usize) -> impl ExactSizeIterator<Item = Outcome> + use<> {
    let detail =
        "this sidecar is busy (limits.in_flight_events, limits.in_flight_bytes); publish again later";
    let refused = Outcome::Refused { reason: "in_flight", detail: detail.to_owned() };
    (0..events).for_each(|_| refused.count(&topic.metrics));
    std::iter::repeat_n(refused, events)
}

#[tonic::async_trait]
impl pb::ingest_server::Ingest for IngestService {
    async fn publish(
        &self,
        request: Request<pb::PublishRequest>,
    ) -> Result<Response<pb::PublishResponse>, Status> {
        let pb::PublishRequest { topic, events } = request.into_inner();
        let topic = self.check(&topic, &events)?;
        let taken = self.ingest.in_flight.take(events.len(), wire::weight(&events));
        let results = match tokio::time::timeout(UNARY_WAIT, taken).await {
            Ok(Ok(taken)) => {
                let (sender, answered) = oneshot::channel();
                // Nobody listens any more if the client went away: harmless.
                let request = ingest::Request::new(taken, |outcomes| {
                    drop(sender.send(wire::results(outcomes)));
                });
                self.ingest.submit(topic, self.offers(topic, events), request, self.ingest.now());
                answered.await.expect("a request is always answered")
            }
            Err(_) | Ok(Err(Overloaded)) => wire::results(&mut refuse_all(topic, events.len())),
        };
        Ok(Response::new(pb::PublishResponse { results: results.map_err(status::failed)? }))
    }

    type PublishStreamStream =
        Pin<Box<dyn Stream<Item = Result<pb::PublishStreamResponse, Status>> + Send + 'static>>;

    async fn publish_stream(
        &self,
        request: Request<Streaming<pb::PublishStreamRequest>>,
    ) -> Result<Response<Self::PublishStreamStream>, Status> {
        Ok(Response::new(publish_stream::serve(self.clone(), request.into_inner())))
    }

    async fn announce(
        &self,
        request: Request<pb::AnnounceRequest>,
    ) -> Result<Response<pb::AnnounceResponse>, Status> {
        let pb::AnnounceRequest { topic, entity, first_event_by_ms } = request.into_inner();
        let topic = self.ingest.topic(&topic).ok_or_else(|| status::no_such_topic(&topic, &self.ingest))?;
        let entity = Entity::new(&entity).map_err(|error| status::bad_field("entity", error.to_string()))?;
        if !(1..=ANNOUNCE_MAX_MS).contains(&first_event_by_ms) {
            let detail = format!("it is {first_event_by_ms}; write 1 to {ANNOUNCE_MAX_MS} (ten years)");
            return Err(status::bad_field("first_event_by_ms", detail));
        }
        match self.ingest.announce(topic, &entity, first_event_by_ms).await.map_err(status::store_error)? {
            Announcement::Noted => Ok(Response::new(pb::AnnounceResponse { begun: false })),
            Announcement::Begun => Ok(Response::new(pb::AnnounceResponse { begun: true })),
            Announcement::Full => Err(Status::resource_exhausted(
                "too many announced entities of this partition have not begun (topic setting announced_max)",
            )),
        }
    }

    async fn resume(
        &self,
        request: Request<pb::ResumeRequest>,
    ) -> Result<Response<pb::ResumeResponse>, Status> {
        let pb::ResumeRequest { topic, entity } = request.into_inner();
        let topic = self.ingest.topic(&topic).ok_or_else(|| status::no_such_topic(&topic, &self.ingest))?;
        let entity = Entity::new(&entity).map_err(|error| status::bad_field("entity", error.to_string()))?;
        let state = self.ingest.resume(topic, &entity).await.map_err(status::store_error)?;
        Ok(Response::new(wire::resumed(state, topic)))
    }
}
