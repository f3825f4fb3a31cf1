//! The two engines behind the one port, and how each begins in a given state.

use redis::{AsyncCommands, aio::MultiplexedConnection};
use seriatim::{
    order::{Entity, LaneState},
    store::{MemoryStore, PartitionId, PartitionKeys, RedisStore, Store},
};

use super::support;

pub enum Engine {
    Memory(MemoryStore),
    Redis { store: Box<RedisStore>, direct: MultiplexedConnection },
}

impl Engine {
    pub fn memory() -> Self {
        Engine::Memory(MemoryStore::default())
    }

    pub async fn redis(url: &str) -> Self {
        let client = redis::Client::open(url).expect("the URL is well formed");
        let direct = client.get_multiplexed_async_connection().await.expect("the server answers");
        Engine::Redis { store: Box::new(support::redis_store(url)), direct }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Engine::Memory(_) => "memory",
            Engine::Redis { .. } => "redis",
        }
    }

    pub fn store(&self) -> &dyn Store {
        match self {
            Engine::Memory(store) => store,
            Engine::Redis { store, .. } => &**store,
        }
    }

    /// Puts a lane there that nobody admitted.
    pub async fn plant(&self, partition: &PartitionId, entity: &Entity, state: &LaneState) {
        match self {
            Engine::Memory(store) => store.restore(partition, entity.clone(), state.clone()),
            Engine::Redis { direct, .. } => {
                let lanes = PartitionKeys::new(partition).lanes;
                let planted = direct.clone().hset(lanes, entity.as_str(), state.to_string()).await;
                planted.unwrap_or_else(|error| panic!("a lane cannot be planted: {error}"))
            }
        }
    }
}
