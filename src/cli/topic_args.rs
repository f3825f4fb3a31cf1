//! Which topic in which Redis: what most commands begin with.

use clap::Args;

use super::{
    Failure,
    config_args::{ConfigArgs, open_redis},
};
use crate::{
    config::Config,
    random::Random,
    store::{PartitionId, RedisStore, Store, TopicRecord},
};

#[derive(Args)]
pub struct TopicArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The topic.
    #[arg(id = "topic", long = "topic", value_name = "TOPIC", default_value = "evaluations", global = true)]
    pub name: String,
}

impl TopicArgs {
    pub fn open(&self) -> Result<(Config, RedisStore), Failure> {
        let config = self.config.load(Vec::new())?;
        let store = open_redis(&config, &mut Random::from_system())?;
        Ok((config, store))
    }

    pub async fn record(&self, store: &dyn Store) -> Result<TopicRecord, Failure> {
        store.record(&self.name).await?.ok_or_else(|| no_such_topic(&self.name))
    }

    pub fn partition(&self, index: u32) -> PartitionId {
        PartitionId { topic: self.name.as_str().into(), index }
    }
}

pub fn no_such_group(topic: &str, group: &str) -> Failure {
    Failure::Usage(anyhow::anyhow!(
        "there is no group {group:?} of topic {topic}; `seriatim group list --topic {topic}` shows what there is"
    ))
}

pub fn no_such_topic(name: &str) -> Failure {
    let error = anyhow::anyhow!(
        "there is no topic {name:?} in this store; `seriatim topic list` shows what there is"
    );
    Failure::Usage(error)
}
