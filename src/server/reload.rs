//! Reads the configuration again: on SIGHUP, and when the file's content has changed.
//!
//! The content is compared, not watched for: a ConfigMap is replaced behind a symlink, and
//! watchers miss that. A new file takes effect whole or not at all.

use std::{sync::Arc, time::Duration};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info};

use crate::{
    config::{Config, ConfigError, Source},
    ingest::{Ingest, Ports},
    store::{OpenError, TopicSpec},
};

pub struct Reloader {
    pub source: Source,
    /// What is in force.
    pub config: Config,
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
    pub async fn run(mut self) {
        let mut hangup = signal(SignalKind::hangup()).expect("signals can be listened to");
        let mut seen = self.source.content();
        loop {
            let asked = self.wait(&mut hangup).await;
            let content = self.source.content();
            if !asked && content == seen {
                continue;
            }
            seen = content;
            match self.reload().await {
                Ok(changed) => {
                    self.ports.metrics.count_reload("done");
                    info!(changed = changed.join(", "), "the configuration was read again");
                }
                Err(error) => {
                    self.ports.metrics.count_reload("refused");
                    error!(%error, "the new configuration is refused whole; the old one stays in force");
                    // A store that did not answer: the same content is tried again.
                    if matches!(error, ReloadError::Open(OpenError::Store { .. })) {
                        seen = None;
                    }
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
        let changed = new.topics.iter().filter(|(name, topic)| self.config.topics[*name] != **topic);
        let specs = changed.map(|(name, topic)| topic.spec(name)).collect::<Result<Vec<TopicSpec>, _>>()?;
        for spec in &specs {
            self.ports.store.open(spec).await?;
            self.ingest.reload(spec);
        }
        self.config = new;
        Ok(specs.into_iter().map(|spec| spec.name).collect())
    }
}
