//! What every command that needs the configuration takes, and the store it leads to.

use std::path::PathBuf;

use clap::Args;

use super::Failure;
use crate::{
    config::{Config, MEMORY_URL, Overrides, Source},
    random::Random,
    store::{OpenError, RedisSettings, RedisStore, StoreError, Straight},
};

#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Configuration file. Without one, built-in defaults with one topic, `evaluations`.
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Sets one key of the configuration, for example --set limits.batch_events=64; may
    /// be repeated. Stands above SERIATIM__LIMITS__BATCH_EVENTS, which stands above the file.
    #[arg(long = "set", value_name = "KEY=VALUE", global = true)]
    pub set: Vec<String>,
    /// Short for --set store.url=URL: redis://host:port/db, redis+unix:///path or memory:
    #[arg(long, value_name = "URL", global = true)]
    pub redis: Option<String>,
}

impl ConfigArgs {
    pub fn load(&self, more: Vec<(String, String)>) -> Result<Config, Failure> {
        self.source(more)?.load().map_err(|error| Failure::Usage(error.into()))
    }

    /// Where the configuration comes from.
    pub fn source(&self, more: Vec<(String, String)>) -> Result<Source, Failure> {
        let mut flags = Vec::new();
        for assignment in &self.set {
            let (key, value) = assignment.split_once('=').ok_or_else(|| {
                Failure::Usage(anyhow::anyhow!(
                    "--set {assignment}: write KEY=VALUE, for example store.wait_ms=2000"
                ))
            })?;
            flags.push((key.to_owned(), value.to_owned()));
        }
        flags.extend(self.redis.iter().map(|url| ("store.url".to_owned(), url.clone())));
        flags.extend(more);
        Ok(Source { file: self.config.clone(), overrides: Overrides::from_environment(flags) })
    }
}

/// The Redis that the configuration names; the embedded store is refused.
pub fn open_redis(config: &Config, random: &mut Random) -> Result<RedisStore, Failure> {
    if config.store.url == MEMORY_URL {
        let error = anyhow::anyhow!(
            "the embedded store lives inside its sidecar and cannot be read from outside; give --redis URL"
        );
        return Err(Failure::Usage(error));
    }
    let settings = RedisSettings {
        url: config.store.url.clone(),
        connect_timeout: config.store.connect_timeout(),
        response_timeout: config.store.response_timeout(),
        straight: if config.store.straight { Straight::WhenCalm } else { Straight::Never },
    };
    RedisStore::new(settings, random.draw()).map_err(|error| Failure::Usage(error.into()))
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if error.is_passing() { Failure::Unreachable(error.into()) } else { Failure::Other(error.into()) }
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match &error {
            OpenError::Store { source, .. } if source.is_passing() => Failure::Unreachable(error.into()),
            OpenError::Store { .. } => Failure::Other(error.into()),
            OpenError::Mismatch { .. } => Failure::Usage(error.into()),
        }
    }
}

/// Runs a command that needs no more than one thread.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be built").block_on(work)
}
