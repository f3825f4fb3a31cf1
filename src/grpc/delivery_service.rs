//! `seriatim.v1.Delivery`: a worker in any language. Each stream is a member of its group for
//! as long as it lives.

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{Stream, stream};
use tokio::sync::{mpsc, watch};
use tonic::{Request, Response, Status, Streaming};

use super::{pb, status};
use crate::{
    clock::Clock,
    config::DeliveryConfig,
    deliver::{ConsumeError, Consumer, ConsumerOptions, Delivered, Delivery, Fenced, GAP},
    metrics::{Metrics, WorkerCounts},
    random::Random,
    store::{Start, Store},
};

/// Deliveries that travel in one message, at most.
const TOGETHER_MAX: usize = 256;
/// How long a stream may take to say what it wants.
const SUBSCRIBE_WITHIN: Duration = Duration::from_secs(10);
/// How often what a worker did is counted.
const COUNT_EVERY: Duration = Duration::from_secs(1);
const IN_FLIGHT_DEFAULT: u32 = 64;
const IN_FLIGHT_MAX: u32 = 1024;

/// What streams of workers need.
#[derive(Clone)]
pub struct DeliveryService {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<Mutex<Random>>,
    pub config: Arc<DeliveryConfig>,
    pub metrics: Arc<Metrics>,
    /// Turns true when the process drains: streams end then.
    pub draining: watch::Receiver<bool>,
    pub consumers: Arc<AtomicUsize>,
}

type Responses = mpsc::UnboundedSender<Result<Item, Status>>;

/// Something to be sent. Unbounded by itself: deliveries are bounded by their credit, and an
/// answer to each of them is sent once.
enum Item {
    Delivered(Box<pb::Delivered>),
    Acked(u64),
    Fenced(u64),
}

#[tonic::async_trait]
impl pb::delivery_server::Delivery for DeliveryService {
    type ConsumeStream = Pin<Box<dyn Stream<Item = Result<pb::ConsumeResponse, Status>> + Send + 'static>>;

    async fn consume(
        &self,
        request: Request<Streaming<pb::ConsumeRequest>>,
    ) -> Result<Response<Self::ConsumeStream>, Status> {
        let (responses, ready) = mpsc::unbounded_channel();
        tokio::spawn(self.clone().serve(request.into_inner(), responses));
        Ok(Response::new(Box::pin(stream::unfold(Some(ready), |ready| async move {
            let mut ready = ready?;
            let mut items = Vec::new();
            if ready.recv_many(&mut items, TOGETHER_MAX).await == 0 {
                return None;
            }
            Some(gather(items, ready))
        }))))
    }
}

type Ready = mpsc::UnboundedReceiver<Result<Item, Status>>;

/// One message of what became ready together; a failure is the last thing that is said.
fn gather(
    items: Vec<Result<Item, Status>>,
    ready: Ready,
) -> (Result<pb::ConsumeResponse, Status>, Option<Ready>) {
    let mut response = pb::ConsumeResponse::default();
    for item in items {
        match item {
            Ok(Item::Delivered(delivered)) => response.deliveries.push(*delivered),
            Ok(Item::Acked(delivery)) => response.acked.push(delivery),
            Ok(Item::Fenced(delivery)) => response.fenced.push(delivery),
            Err(status) => return (Err(status), None),
        }
    }
    (Ok(response), Some(ready))
}

impl DeliveryService {
    async fn serve(self, mut requests: Streaming<pb::ConsumeRequest>, responses: Responses) {
        let before = self.consumers.fetch_add(1, Ordering::Relaxed);
        let outcome = if before >= self.config.consumers_max {
            let most = self.config.consumers_max;
            let message = format!("this sidecar serves {most} workers already (delivery.consumers_max)");
            Err(status::unavailable(message))
        } else {
            self.consume_until_end(&mut requests, &responses).await
        };
        self.consumers.fetch_sub(1, Ordering::Relaxed);
        if let Err(status) = outcome {
            let _ = responses.send(Err(status));
        }
    }

    async fn consume_until_end(
        &self,
        requests: &mut Streaming<pb::ConsumeRequest>,
        responses: &Responses,
    ) -> Result<(), Status> {
        let mut draining = self.draining.clone();
        let first = tokio::select! {
            first = requests.message() => first?,
            () = self.clock.sleep(SUBSCRIBE_WITHIN) => {
                let detail = format!("nothing came within {SUBSCRIBE_WITHIN:?}");
                return Err(status::bad_field("subscribe", detail));
            }
            _ = draining.wait_for(|draining| *draining) => return Err(status::stopping()),
        };
        let options = match first.and_then(|message| message.request) {
            Some(pb::consume_request::Request::Subscribe(subscribe)) => self.options(subscribe)?,
            _ => {
                return Err(status::bad_field("subscribe", "a stream begins with a subscription".to_owned()));
            }
        };
        let (topic, group) = (options.topic.clone(), options.group.clone());
        let random = Random::from_seed(self.random.lock().expect("nobody panics holding it").draw());
        let started = Consumer::start(self.store.clone(), self.clock.clone(), random, options).await;
        let mut consumer = started.map_err(|error| failed(&error))?;
        self.metrics.consumers.inc();
        let mut out: HashMap<u64, Delivery> = HashMap::new();
        let mut count_at = self.clock.sleep(COUNT_EVERY);
        let (mut number, mut counted) = (0, WorkerCounts::default());
        let outcome = loop {
            tokio::select! {
                () = &mut count_at => {
                    self.count(&topic, &group, &consumer, &mut counted);
                    count_at = self.clock.sleep(COUNT_EVERY);
                }
                delivery = consumer.next() => {
                    let Some(delivery) = delivery else { break Ok(()) };
                    number += 1;
                    let _ = responses.send(Ok(Item::Delivered(Box::new(delivered(number, &delivery)))));
                    out.insert(number, delivery);
                }
                message = requests.message() => match message {
                    Ok(Some(message)) => {
                        if let Err(status) = answer(message, &mut out, &consumer, responses) {
                            break Err(status);
                        }
                    }
                    Ok(None) => break Ok(()),
                    Err(status) => break Err(status),
                },
                _ = draining.wait_for(|draining| *draining) => break Err(status::stopping()),
                () = responses.closed() => break Ok(()),
            }
        };
        self.metrics.consumers.dec();
        self.count(&topic, &group, &consumer, &mut counted);
        let gone = WorkerCounts { leases: 0, held: 0, dead: 0, ..counted };
        self.metrics.groups.count(&topic, &group, &counted, &gone);
        // What was not answered may have killed its worker: it is noted as running, not returned.
        out.into_values().for_each(Delivery::abandon);
        consumer.close().await;
        outcome
    }

    fn count(&self, topic: &str, group: &str, consumer: &Consumer, counted: &mut WorkerCounts) {
        let now = consumer.counts().read();
        self.metrics.groups.count(topic, group, &std::mem::replace(counted, now), &now);
    }

    fn options(&self, subscribe: pb::Subscribe) -> Result<ConsumerOptions, Status> {
        let pb::Subscribe { topic, group, consumer, in_flight_max, start } = subscribe;
        let start = match start.as_str() {
            "" | "beginning" => Start::Beginning,
            "end" => Start::End,
            other => {
                let detail = format!("{} is neither \"beginning\" nor \"end\"", status::shown(other));
                return Err(status::bad_field("start", detail));
            }
        };
        if consumer.is_empty() || consumer.chars().count() > 64 || consumer.chars().any(char::is_control) {
            let detail = "a worker's name has 1 to 64 printable characters".to_owned();
            return Err(status::bad_field("consumer", detail));
        }
        let in_flight_max =
            checked_credit(if in_flight_max == 0 { IN_FLIGHT_DEFAULT } else { in_flight_max })?;
        let options =
            ConsumerOptions { name: consumer, start, in_flight_max, ..self.config.options(&topic, &group) };
        options.validate().map_err(|error| status::bad_field("subscribe", error.to_string()))?;
        Ok(options)
    }
}

fn checked_credit(credit: u32) -> Result<usize, Status> {
    if credit > IN_FLIGHT_MAX {
        let detail = format!("{credit} is above {IN_FLIGHT_MAX}");
        return Err(status::bad_field("in_flight_max", detail));
    }
    Ok(credit as usize)
}

/// What a worker says about its deliveries.
fn answer(
    message: pb::ConsumeRequest,
    out: &mut HashMap<u64, Delivery>,
    consumer: &Consumer,
    responses: &Responses,
) -> Result<(), Status> {
    use pb::consume_request::Request;
    let mut find = |number: u64| {
        out.remove(&number).ok_or_else(|| {
            Status::failed_precondition(format!("delivery {number} is not one of this stream's open ones"))
        })
    };
    match message.request {
        Some(Request::Ack(pb::Ack { delivery })) => {
            let confirmed = find(delivery)?.ack();
            let responses = responses.clone();
            tokio::spawn(async move {
                let item = match confirmed.await {
                    Ok(()) => Item::Acked(delivery),
                    Err(Fenced) => Item::Fenced(delivery),
                };
                let _ = responses.send(Ok(item));
            });
        }
        Some(Request::Nack(pb::Nack { delivery, reason })) => {
            let confirmed = find(delivery)?.nack(&reason);
            let responses = responses.clone();
            tokio::spawn(async move {
                if confirmed.await == Err(Fenced) {
                    let _ = responses.send(Ok(Item::Fenced(delivery)));
                }
            });
        }
        Some(Request::Flow(pb::Flow { in_flight_max })) => {
            consumer.set_in_flight_max(checked_credit(in_flight_max)?);
        }
        Some(Request::Subscribe(_)) => {
            return Err(status::bad_field("subscribe", "a stream subscribes once".to_owned()));
        }
        None => return Err(status::bad_field("request", "the message is empty".to_owned())),
    }
    Ok(())
}

fn delivered(number: u64, delivery: &Delivery) -> pb::Delivered {
    let base = pb::Delivered {
        delivery: number,
        entity: delivery.entity.clone(),
        epoch: delivery.epoch,
        sequence: delivery.sequence,
        stream_id: delivery.id.map(|id| id.to_string()).unwrap_or_default(),
        partition: delivery.partition,
        term: delivery.term,
        attempt: delivery.attempt,
        ..pb::Delivered::default()
    };
    match &delivery.content {
        Delivered::Event { order, kind, attrs, data } => pb::Delivered {
            r#type: kind.to_string(),
            order: (*order).to_owned(),
            attrs: attrs.to_string(),
            data: data.clone(),
            ..base
        },
        Delivered::Gap { from, reason, .. } => {
            pb::Delivered { order: GAP.to_owned(), from: *from, reason: reason.to_string(), ..base }
        }
    }
}

fn failed(error: &ConsumeError) -> Status {
    match error {
        ConsumeError::Options(error) => status::bad_field("subscribe", error.to_string()),
        ConsumeError::NoTopic(topic) => {
            Status::not_found(format!("there is no topic {} in this store", status::shown(topic)))
        }
        ConsumeError::Layout { .. } => Status::failed_precondition(error.to_string()),
        ConsumeError::Store(error) => status::unavailable(error.to_string()),
    }
}
