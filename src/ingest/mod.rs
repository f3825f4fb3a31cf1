//! The producer's side: from events that arrived to verdicts, through group commit.
//!
//! Each partition has one task that owns its queue and its one call in flight; what
//! arrives meanwhile forms the next batch. There is no timer: an idle sidecar adds one
//! round trip. Whoever waits for a verdict holds only a receiver, so a client that
//! goes away takes nothing with it.
//!
//! Nothing here knows gRPC, and time, store and randomness are handed in.

mod in_flight;
mod outcome;
mod partition;
mod request;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use self::partition::{Owner, Submission};
pub use self::{
    in_flight::{InFlight, Overloaded, Taken},
    outcome::{Invalid, Outcome},
    partition::ASSIGNED_IN_FLIGHT_MAX,
    request::{Request, Ticket},
};
use crate::{
    clock::Clock,
    metrics::{Metrics, TopicMetrics},
    order::{Entity, LaneState},
    random::Random,
    store::{Offer, PartitionId, Store, StoreError, TopicSpec, partition_of},
};

/// How partitions commit.
#[derive(Clone, Debug)]
pub struct Options {
    pub batch_events: usize,
    pub batch_bytes: usize,
    pub in_flight_events: usize,
    pub in_flight_bytes: usize,
    /// How long an event waits for a store that does not answer.
    pub store_wait: Duration,
}

/// What the driver is given instead of reaching for it.
#[derive(Clone)]
pub struct Ports {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Arc<Metrics>,
}

pub struct Ingest {
    ports: Ports,
    closing: watch::Sender<bool>,
    topics: BTreeMap<String, Topic>,
    pub in_flight: InFlight,
}

pub struct Topic {
    pub spec: TopicSpec,
    pub terminal_types: BTreeSet<String>,
    pub metrics: Arc<TopicMetrics>,
    partitions: Vec<(PartitionId, mpsc::UnboundedSender<Submission>)>,
}

/// Run until the [`Ingest`] they came with is closed and all queues are empty.
pub type Tasks = JoinSet<()>;

impl Ingest {
    /// Starts a task per partition. The topics must be open in the store.
    pub fn start(
        topics: Vec<(TopicSpec, BTreeSet<String>)>,
        options: Options,
        ports: Ports,
        mut random: Random,
    ) -> (Arc<Self>, Tasks) {
        let mut tasks = JoinSet::new();
        let (closing, closed) = watch::channel(false);
        let mut started = BTreeMap::new();
        for (spec, terminal_types) in topics {
            let metrics = Arc::new(ports.metrics.topic(&spec.name));
            let mut partitions = Vec::new();
            for index in 0..spec.partitions {
                let id = PartitionId { topic: spec.name.as_str().into(), index };
                // Unbounded by itself; bounded by InFlight, which every submission holds.
                let (sender, queue) = mpsc::unbounded_channel();
                let jitter = Random::from_seed(random.draw());
                let owner = Owner::new(id.clone(), options.clone(), ports.clone(), metrics.clone(), jitter);
                tasks.spawn(owner.run(queue, closed.clone()));
                partitions.push((id, sender));
            }
            started.insert(spec.name.clone(), Topic { spec, terminal_types, metrics, partitions });
        }
        let in_flight =
            InFlight::new(options.in_flight_events, options.in_flight_bytes, ports.metrics.clone());
        (Arc::new(Ingest { ports, closing, topics: started, in_flight }), tasks)
    }

    /// Lets the tasks end once what was submitted is answered. What is submitted after
    /// that is answered "unavailable".
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    pub fn topic_names(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
    }

    /// Hands a request's events to their partitions. Each is either an offer or
    /// already answered; the request completes when all are.
    pub fn submit(&self, topic: &Topic, events: Vec<Result<Offer, Outcome>>, request: Request) {
        let received = self.ports.clock.now();
        let tickets = request.into_tickets(events.len());
        for (event, ticket) in events.into_iter().zip(tickets) {
            match event {
                Ok(offer) => {
                    let index = partition_of(&offer.entity, topic.spec.partitions) as usize;
                    let submission = Submission { offer, ticket, received };
                    // A closed queue drops the ticket, which answers "unavailable".
                    let _ = topic.partitions[index].1.send(submission);
                }
                Err(outcome) => {
                    outcome.count(&topic.metrics);
                    ticket.settle(outcome);
                }
            }
        }
    }

    /// Where an entity stands.
    pub async fn resume(&self, topic: &Topic, entity: &Entity) -> Result<Option<LaneState>, StoreError> {
        let index = partition_of(entity, topic.spec.partitions) as usize;
        self.ports.store.resume(&topic.partitions[index].0, entity).await
    }
}
