//! Reads the configuration again: on SIGHUP, and when the file's content has changed.
//!
//! The content is compared, not watched for: a ConfigMap is replaced behind a symlink, and
//! watchers miss that. A new file takes effect whole or not at all.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::signal::unix::Signal;
use tracing::{error, info};

use crate::{
    config::{Config, ConfigError, Source, TopicConfig},
    ingest::{Ingest, Ports},
    store::{OpenError, TopicSpec},
};

pub struct Reloader {
    pub source: Source,
    /// What is in force, but for the topics that are unsure.
    pub config: Config,
    /// Topics of a reload that the store did not take everywhere: they are offered again,
    /// whatever the file says by then.
    pub unsure: BTreeSet<String>,
    pub ingest: Arc<Ingest>,
    pub ports: Ports,
}

/// Why a new configuration is not in force.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("{0} cannot change while the process runs; restart it, or take that change back")]
    NeedsRestart(String),
    #[error(transparent)]
    Open(#[from] OpenError),
}

impl Reloader {
    pub async fn run(mut self, mut hangup: Signal) {
        // The file may have changed since the process read it: it is read once more at first.
        let mut seen = None;
        // A file that is being written changes from look to look: it is read once it does not.
        let mut unsettled = self.source.content();
        loop {
            let asked = self.wait(&mut hangup).await;
            let content = self.source.content();
            let is_settled = content == unsettled;
            unsettled.clone_from(&content);
            let is_changed = content != seen || !self.unsure.is_empty();
            let is_time = asked || (is_changed && is_settled);
            if !is_time {
                continue;
            }
            seen = content;
            match self.reload().await {
                Ok(changed) if changed.is_empty() && !asked => {}
                Ok(changed) => {
                    self.ports.metrics.count_reload("done");
                    info!(changed = changed.join(", "), "the configuration was read again");
                }
                Err(error @ ReloadError::Open(_)) => {
                    self.ports.metrics.count_reload("unfinished");
                    error!(%error, "the store did not take the new configuration everywhere; trying again");
                }
                Err(error) => {
                    self.ports.metrics.count_reload("refused");
                    error!(%error, "the new configuration is refused whole; the old one stays in force");
                }
            }
        }
    }

    /// True if somebody asked; false if it is only time to look.
    async fn wait(&self, hangup: &mut Signal) -> bool {
        let every = Duration::from_millis(self.config.reload_ms);
        tokio::select! {
            _ = hangup.recv() => true,
            () = self.ports.clock.sleep(every), if self.config.reload_ms > 0 => false,
        }
    }

    /// Puts a new configuration in force; returns the topics whose policy changed.
    async fn reload(&mut self) -> Result<Vec<String>, ReloadError> {
        let new = self.source.load()?;
        if let Some(key) = self.config.needs_restart(&new) {
            return Err(ReloadError::NeedsRestart(key));
        }
        let is_to_be_offered = |name: &String, topic: &TopicConfig| {
            self.unsure.contains(name) || self.config.topics[name] != *topic
        };
        let changed = new.topics.iter().filter(|(name, topic)| is_to_be_offered(name, topic));
        let specs = changed.map(|(name, topic)| topic.spec(name)).collect::<Result<Vec<TopicSpec>, _>>()?;
        self.unsure.extend(specs.iter().map(|spec| spec.name.clone()));
        for spec in &specs {
            self.ports.store.open(spec).await?;
            self.ingest.reload(spec);
        }
        self.unsure.clear();
        self.config = new;
        Ok(specs.into_iter().map(|spec| spec.name).collect())
    }
}
