//! `seriatim.v1.Ingest`.

use std::{pin::Pin, sync::Arc};

use futures_util::Stream;
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status, Streaming};

use super::{Limits, pb, publish_stream, status, wire};
use crate::{
    ingest::{self, Ingest, Outcome, Topic},
    metrics::Metrics,
    order::Entity,
    store::Offer,
};

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
    pub(super) fn offers(&self, topic: &Topic, events: Vec<pb::Event>) -> Vec<Result<Offer, Outcome>> {
        let offer = |event| wire::offer(event, topic, &self.limits).map_err(Outcome::Invalid);
        events.into_iter().map(offer).collect()
    }
}

#[tonic::async_trait]
impl pb::ingest_server::Ingest for IngestService {
    async fn publish(
        &self,
        request: Request<pb::PublishRequest>,
    ) -> Result<Response<pb::PublishResponse>, Status> {
        let pb::PublishRequest { topic, events } = request.into_inner();
        let topic = self.check(&topic, &events)?;
        let taken = self.ingest.in_flight.try_take(events.len(), wire::weight(&events));
        let outcomes = match taken {
            Ok(taken) => {
                let (sender, answered) = oneshot::channel();
                // Nobody listens any more if the client went away: harmless.
                let request = ingest::Request::new(taken, |outcomes| drop(sender.send(outcomes)));
                self.ingest.submit(topic, self.offers(topic, events), request);
                answered.await.expect("a request is always answered")
            }
            Err(reason) => {
                let detail = format!("this sidecar is busy (limits.{reason}); publish again a little later");
                let refused = Outcome::Refused { reason, detail };
                events.iter().for_each(|_| refused.count(&topic.metrics));
                vec![refused; events.len()]
            }
        };
        let results = wire::results(outcomes).map_err(status::failed)?;
        Ok(Response::new(pb::PublishResponse { results }))
    }

    type PublishStreamStream =
        Pin<Box<dyn Stream<Item = Result<pb::PublishStreamResponse, Status>> + Send + 'static>>;

    async fn publish_stream(
        &self,
        request: Request<Streaming<pb::PublishStreamRequest>>,
    ) -> Result<Response<Self::PublishStreamStream>, Status> {
        Ok(Response::new(publish_stream::serve(self.clone(), request.into_inner())))
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
