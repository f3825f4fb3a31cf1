//! A topic in a store, and workers that write down what they were given.

use std::{sync::Arc, time::Duration};

use seriatim::{
    cli::PrivateRedis,
    clock::SystemClock,
    deliver::{Consumer, ConsumerOptions, Delivered, Delivery, retry::RetryPolicy},
    order::{Entity, Epoch, Event, Policy, Position, Sequence},
    random::Random,
    store::{
        Batch, Layout, MemoryStore, Numbering, Offer, PartitionId, Payload, Store, TopicSpec, partition_of,
    },
};

use crate::support::{direct, redis_server, redis_store};

pub const TOPIC: &str = "jobs";
pub const PARTITIONS: u32 = 4;
/// How long anything may take before it counts as hanging.
pub const BOUND: Duration = Duration::from_secs(30);

pub struct World {
    pub store: Arc<dyn Store>,
    pub redis: Option<PrivateRedis>,
    pub partitions: u32,
    pub layout: Layout,
}

impl World {
    pub async fn redis() -> Self {
        Self::redis_with(PARTITIONS).await
    }

    pub async fn redis_with(partitions: u32) -> Self {
        let redis = redis_server(&[]);
        let store = Arc::new(redis_store(&redis.url()));
        Self::open(store, Some(redis), partitions, Layout::Entry).await
    }

    pub async fn memory() -> Self {
        Self::open(Arc::new(MemoryStore::default()), None, PARTITIONS, Layout::Entry).await
    }

    /// Both stores, with one partition in `batch` layout.
    pub async fn batches() -> [Self; 2] {
        let redis = redis_server(&[]);
        let store = Arc::new(redis_store(&redis.url()));
        [
            Self::open(Arc::new(MemoryStore::default()), None, 1, Layout::Batch).await,
            Self::open(store, Some(redis), 1, Layout::Batch).await,
        ]
    }

    async fn open(
        store: Arc<dyn Store>,
        redis: Option<PrivateRedis>,
        partitions: u32,
        layout: Layout,
    ) -> Self {
        let world = World { store, redis, partitions, layout };
        world.policy(Policy::default()).await;
        world
    }

    /// The same topic through somebody who watches, or loses, what passes.
    pub fn through(&self, store: Arc<dyn Store>) -> Self {
        World { store, redis: None, partitions: self.partitions, layout: self.layout }
    }

    /// The topic is opened anew, with this policy.
    pub async fn policy(&self, policy: Policy) {
        let (name, partitions, layout) = (TOPIC.into(), self.partitions, self.layout);
        let topic = TopicSpec { name, partitions, layout, numbering: Numbering::Producer, policy };
        self.store.open(&topic).await.unwrap();
    }

    pub fn partition_of(&self, entity: &str) -> PartitionId {
        let index = partition_of(&Entity::new(entity).unwrap(), self.partitions);
        PartitionId { topic: TOPIC.into(), index }
    }

    /// Publishes events of one entity in one call.
    pub async fn publish(&self, entity: &str, sequences: impl IntoIterator<Item = u64>) {
        self.publish_all(sequences.into_iter().map(|sequence| (entity.to_owned(), sequence)).collect()).await;
    }

    pub async fn publish_all(&self, events: Vec<(String, u64)>) {
        for index in 0..self.partitions {
            let of_partition: Vec<(Offer, ())> = events
                .iter()
                .filter(|(entity, _)| self.partition_of(entity).index == index)
                .map(|(entity, sequence)| (offer(entity, *sequence), ()))
                .collect();
            for batch in of_partition.chunks(400) {
                let id = PartitionId { topic: TOPIC.into(), index };
                let offers = batch.iter().map(|(offer, ())| (offer.clone(), ())).collect();
                self.store.admit(&id, &Batch::form(offers).0).await.unwrap();
            }
        }
    }

    pub async fn consumer(&self, options: ConsumerOptions) -> Consumer {
        let clock = Arc::new(SystemClock::default());
        Consumer::start(self.store.clone(), clock, Random::from_system(), options).await.unwrap()
    }
}

fn offer(entity: &str, sequence: u64) -> Offer {
    let event = Event {
        epoch: Epoch::new(0).unwrap(),
        position: Position::Given(Sequence::new(sequence).unwrap()),
        terminal: false,
        payload: Payload {
            kind: "step".into(),
            attrs: "{}".into(),
            data: format!("{entity}/{sequence}").into(),
        },
    };
    Offer { entity: Entity::new(entity).unwrap(), event }
}

/// Quick leases and retries, for tests.
pub fn options(group: &str) -> ConsumerOptions {
    let retry =
        RetryPolicy { base_ms: 40, cap_ms: 200, jitter_percent: 20, attempts_max: 5, unsafe_retry: true };
    ConsumerOptions {
        lease: Duration::from_millis(1_200),
        renew: Duration::from_millis(150),
        missing_waits: vec![Duration::from_millis(300)],
        retry,
        ..ConsumerOptions::new(TOPIC, group)
    }
}

/// A delivery as a test reads it: `a 3`, `a gap 1-2 timeout`, `a late 1`.
pub fn shown(delivery: &Delivery) -> String {
    let (entity, sequence) = (&delivery.entity, delivery.sequence);
    match &delivery.content {
        Delivered::Event { order: "strict", data, .. } => {
            assert_eq!(*data, format!("{entity}/{sequence}"), "it is its own data");
            format!("{entity} {sequence}")
        }
        Delivered::Event { order, .. } => format!("{entity} {order} {sequence}"),
        Delivered::Gap { from, reason, .. } => format!("{entity} gap {from}-{sequence} {reason}"),
    }
}

pub async fn next(consumer: &mut Consumer) -> Delivery {
    let delivery = tokio::time::timeout(BOUND, consumer.next()).await;
    delivery.expect("a delivery comes in time").expect("the consumer is not closed")
}

/// The next one, shown and acknowledged.
pub async fn acked(consumer: &mut Consumer) -> String {
    let delivery = next(consumer).await;
    let shown = shown(&delivery);
    delivery.ack().await.unwrap();
    shown
}

/// Nothing comes for a while.
pub async fn nothing(consumer: &mut Consumer, wait: Duration) {
    if let Ok(Some(delivery)) = tokio::time::timeout(wait, consumer.next()).await {
        panic!("nothing should have come, not {}", shown(&delivery));
    }
}

pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let until = tokio::time::Instant::now() + BOUND;
    while !holds().await {
        assert!(tokio::time::Instant::now() < until, "this never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl World {
    /// The plain loop of the next round begins anew.
    pub async fn forget_plain_group(&self) {
        let url = self.redis.as_ref().unwrap().url();
        let mut connection = direct(&url).await;
        for index in 0..self.partitions {
            let id = PartitionId { topic: TOPIC.into(), index };
            let mut destroy = redis::cmd("XGROUP");
            destroy.arg("DESTROY").arg(seriatim::store::PartitionKeys::new(&id).events).arg("plain");
            let () = destroy.query_async(&mut connection).await.unwrap();
        }
    }
}
