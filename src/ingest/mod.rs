//! The producer's side: from events that arrived to verdicts, through group commit.
//!
//! Each partition has one task that owns its queue and its one call in flight; what
//! arrives meanwhile forms the next batch. There is no timer: an idle sidecar adds one
//! round trip. Whoever waits for a verdict holds only a receiver, so a client that
//! goes away takes nothing with it.
//!
//! Beside it, time: [`elapse`] looks at what is due, [`live`] asks connected producers for
//! what is missing, [`trim`] removes what nobody needs any more.
//!
//! Nothing here knows gRPC, and time, store and randomness are handed in.

mod closing;
mod elapse;
mod hints;
mod in_flight;
mod live;
mod outcome;
mod partition;
mod request;
mod trim;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, RwLock},
    time::Duration,
};

use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use self::{
    closing::Closing,
    elapse::Ticker,
    hints::Hints,
    live::Listener,
    partition::{Owner, Submission},
    trim::Trimmer,
};
pub use self::{
    in_flight::{InFlight, Overloaded, Taken},
    live::{LiveStream, LiveStreams, Resend},
    outcome::{Invalid, Outcome},
    partition::ASSIGNED_IN_FLIGHT_MAX,
    request::{Asker, Request, Ticket},
};
use crate::{
    clock::Clock,
    metrics::{Metrics, TopicMetrics},
    order::{Announcement, Entity, LaneState},
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
    /// Lanes that one look at the time may touch.
    pub elapse_max: usize,
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
    closing: Closing,
    topics: BTreeMap<String, Topic>,
    pub in_flight: InFlight,
    pub live: Arc<LiveStreams>,
}

pub struct Topic {
    /// As it was started: its name and what is fixed at creation. The policy may have
    /// changed since.
    pub spec: TopicSpec,
    terminal_types: RwLock<BTreeSet<String>>,
    pub metrics: Arc<TopicMetrics>,
    partitions: Vec<(PartitionId, mpsc::UnboundedSender<Submission>)>,
}

/// Run until the [`Ingest`] they came with is closed and all queues are empty.
pub type Tasks = JoinSet<()>;

impl Topic {
    /// Is this type terminal by the configuration, as far as this sidecar knows?
    pub fn is_terminal(&self, kind: &str) -> bool {
        self.terminal_types.read().expect("nobody panics holding it").contains(kind)
    }
}

impl Ingest {
    /// Starts a task per partition. The topics must be open in the store.
    pub fn start(
        topics: Vec<TopicSpec>,
        options: Options,
        ports: Ports,
        mut random: Random,
    ) -> (Arc<Self>, Tasks) {
        let mut tasks = JoinSet::new();
        let closing = Closing::default();
        let mut started = BTreeMap::new();
        let live = Arc::new(LiveStreams::default());
        let turns = Arc::new(Semaphore::new(elapse::TOPICS_AT_ONCE));
        let calls = Arc::new(Semaphore::new(partition::BUSY_CALLS_MAX));
        for spec in topics {
            let metrics = Arc::new(ports.metrics.topic(&spec.name));
            let mut partitions = Vec::new();
            for index in 0..spec.partitions {
                let id = PartitionId { topic: spec.name.as_str().into(), index };
                // Unbounded by itself; bounded by InFlight, which every submission holds.
                let (sender, queue) = mpsc::unbounded_channel();
                let jitter = Random::from_seed(random.draw());
                let hints = Hints::new(spec.policy.first, spec.partitions);
                let metrics = metrics.clone();
                let (options, ports, calls) = (options.clone(), ports.clone(), calls.clone());
                let owner = Owner::new(id.clone(), hints, options, ports, metrics, jitter, calls);
                tasks.spawn(owner.run(queue, closing.clone()));
                partitions.push((id, sender));
            }
            let ids: Vec<PartitionId> = partitions.iter().map(|(id, _)| id.clone()).collect();
            let ticker = Ticker {
                partitions: ids.clone(),
                ports: ports.clone(),
                metrics: metrics.clone(),
                random: Random::from_seed(random.draw()),
                elapse_max: options.elapse_max,
                turns: turns.clone(),
            };
            tasks.spawn(ticker.run(closing.clone()));
            let jitter = Random::from_seed(random.draw());
            let trimmer = Trimmer::new(ids, ports.clone(), metrics.clone(), jitter, turns.clone());
            tasks.spawn(trimmer.run(closing.clone()));
            let listener = Listener {
                topic: spec.name.as_str().into(),
                partitions: spec.partitions,
                live: live.clone(),
                ports: ports.clone(),
                metrics: metrics.clone(),
            };
            tasks.spawn(listener.run(closing.clone()));
            let terminal_types = RwLock::new(spec.policy.terminal_types.clone());
            started.insert(spec.name.clone(), Topic { spec, terminal_types, metrics, partitions });
        }
        let in_flight =
            InFlight::new(options.in_flight_events, options.in_flight_bytes, ports.metrics.clone());
        (Arc::new(Ingest { ports, closing, topics: started, in_flight, live }), tasks)
    }

    /// Lets the tasks end once what was submitted is answered. What is submitted after
    /// that is answered "unavailable".
    pub fn close(&self) {
        self.closing.begin();
    }

    pub fn topic(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    pub fn topic_names(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
    }

    /// The time, as `received` counts it.
    pub fn now(&self) -> Duration {
        self.ports.clock.now()
    }

    /// Hands a request's events, which came then, to their partitions. Each is either an offer or
    /// already answered; the request completes when all are.
    pub fn submit(
        &self,
        topic: &Topic,
        events: impl ExactSizeIterator<Item = Result<Offer, Outcome>>,
        request: Request,
        received: Duration,
    ) {
        let tickets = request.into_tickets(events.len());
        for (ticket, event) in tickets.zip(events) {
            match event {
                Ok(offer) => {
                    let index = partition_of(&offer.entity, topic.spec.partitions) as usize;
                    let submission = Submission { offer, ticket, received };
                    // A closed queue drops the ticket, which answers "unavailable".
                    let _ = topic.partitions[index].1.send(submission);
                }
                Err(outcome) => {
                    outcome.count(&topic.metrics);
                    drop(ticket.settle(outcome));
                }
            }
        }
    }

    /// A topic's policy changed; the store knows already.
    pub fn reload(&self, spec: &TopicSpec) {
        if let Some(topic) = self.topics.get(&spec.name) {
            let types = spec.policy.terminal_types.clone();
            *topic.terminal_types.write().expect("nobody panics holding it") = types;
        }
    }

    /// Notes that an entity will exist, and in how many milliseconds it should begin.
    pub async fn announce(
        &self,
        topic: &Topic,
        entity: &Entity,
        within_ms: u64,
    ) -> Result<Announcement, StoreError> {
        let index = partition_of(entity, topic.spec.partitions) as usize;
        self.ports.store.announce(&topic.partitions[index].0, entity, within_ms).await
    }

    /// Where an entity stands.
    pub async fn resume(&self, topic: &Topic, entity: &Entity) -> Result<Option<LaneState>, StoreError> {
        let index = partition_of(entity, topic.spec.partitions) as usize;
        self.ports.store.resume(&topic.partitions[index].0, entity).await
    }
}
