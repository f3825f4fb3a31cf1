//! What a run needs around it: a Redis of its own and, for most, a sidecar of its own. Every
//! run begins with an empty store, and everybody reaches Redis over TCP, as users do.

use std::{net::TcpListener, path::PathBuf, time::Duration};

use anyhow::Context;

use super::{
    super::{Failure, PrivateRedis, private_sidecar::PrivateSidecar},
    meter::Processes,
};
use crate::{
    config::{self, Config, ConfigError, Overrides},
    operate::verify_topic,
    random::Random,
    store::{PartitionId, RedisSettings, RedisStore, Store, Straight, TopicSpec},
};

pub const TOPIC: &str = "bench";
pub const PARTITIONS: u32 = 16;
/// A busy machine is slow, not broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the store keeps on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Persistence {
    #[default]
    Nothing,
    Everysec,
    Always,
}

/// How a topic's entries lie in its streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One entry an event.
    #[default]
    Entry,
    /// One entry a call.
    Batch,
}

impl Layout {
    pub fn name(self) -> &'static str {
        match self {
            Layout::Entry => "entry",
            Layout::Batch => "batch",
        }
    }

    /// Does this version know it?
    pub fn is_known(self) -> bool {
        topic_config(self).is_ok()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Tcp,
    /// A Unix domain socket, from the producer to the sidecar.
    Uds,
}

/// A Redis that belongs to one run.
pub struct OwnRedis {
    server: PrivateRedis,
    port: u16,
}

impl OwnRedis {
    pub fn start(program: &std::path::Path, persistence: Persistence) -> anyhow::Result<Self> {
        // Free a moment ago; nobody else is likely to take it now.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let text = port.to_string();
        let mut arguments = vec!["--port", text.as_str(), "--bind", "127.0.0.1"];
        let appendfsync = match persistence {
            Persistence::Nothing => None,
            Persistence::Everysec => Some("everysec"),
            Persistence::Always => Some("always"),
        };
        if let Some(appendfsync) = appendfsync {
            // A rewrite in the middle of a run would be measured with it.
            arguments.extend(["--appendonly", "yes", "--appendfsync", appendfsync]);
            arguments.extend(["--auto-aof-rewrite-percentage", "0"]);
        }
        let server = PrivateRedis::start(program, &arguments).context("redis-server cannot be started")?;
        Ok(OwnRedis { server, port })
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub fn store(&self) -> anyhow::Result<RedisStore> {
        let settings = RedisSettings {
            url: self.url(),
            connect_timeout: PATIENCE,
            response_timeout: PATIENCE,
            straight: Straight::default(),
        };
        Ok(RedisStore::new(settings, Random::from_system().draw())?)
    }

    pub fn processes(&self) -> Processes {
        Processes { client: Some(std::process::id()), sidecar: None, store: Some(self.pid()) }
    }
}

/// A sidecar in front of such a Redis.
pub struct OwnSidecar {
    sidecar: PrivateSidecar,
    socket: PathBuf,
}

impl OwnSidecar {
    pub async fn start(redis: &OwnRedis, layout: Layout) -> Result<Self, Failure> {
        let name = format!("bench-{:016x}", Random::from_system().draw());
        let socket = std::env::temp_dir().join(format!("{name}.sock"));
        let sidecar = PrivateSidecar::start(&config_text(&redis.url(), &socket, layout), &name).await?;
        Ok(OwnSidecar { sidecar, socket })
    }

    pub fn target(&self, transport: Transport) -> String {
        match transport {
            Transport::Tcp => self.sidecar.target(),
            Transport::Uds => format!("unix:{}", self.socket.display()),
        }
    }

    pub fn pid(&self) -> Option<u32> {
        self.sidecar.pid()
    }

    pub async fn stop(self) {
        self.sidecar.stop().await;
        let _ = std::fs::remove_file(self.socket);
    }
}

/// What differs from the defaults: nothing is trimmed, so that all of it can be read back.
fn topic_settings(layout: Layout) -> Vec<(&'static str, String)> {
    let mut settings = vec![
        ("partitions", PARTITIONS.to_string()),
        ("retain_entries", "2000000".to_owned()),
        ("entries_max", "5000000".to_owned()),
    ];
    if layout != Layout::Entry {
        settings.push(("layout", format!("{:?}", layout.name())));
    }
    settings
}

fn config_text(url: &str, socket: &std::path::Path, layout: Layout) -> String {
    let mut text = format!(
        "log = \"warn\"\n[listen]\ngrpc = \"127.0.0.1:0\"\nweb = \"127.0.0.1:0\"\nsocket = {socket:?}\n\
         [store]\nurl = {url:?}\nconnect_timeout_ms = {patience}\nresponse_timeout_ms = {patience}\n\
         wait_ms = {patience}\n[topics.{TOPIC}]\n",
        patience = PATIENCE.as_millis(),
    );
    for (key, value) in topic_settings(layout) {
        text.push_str(&format!("{key} = {value}\n"));
    }
    text
}

fn topic_config(layout: Layout) -> Result<Config, ConfigError> {
    let flag = |(key, value)| (format!("topics.{TOPIC}.{key}"), value);
    let flags = topic_settings(layout).into_iter().map(flag).collect();
    config::load(None, &Overrides { environment: Vec::new(), flags })
}

/// The topic as the store knows it.
pub fn topic_spec(layout: Layout) -> anyhow::Result<TopicSpec> {
    Ok(topic_config(layout)?.topics[TOPIC].spec(TOPIC)?)
}

/// Reads the whole topic back and proves that it is in order, and that all `accepted` events
/// are there or parked, with nothing given up, passed or doubled. Returns the events read.
pub async fn verified(redis: &OwnRedis, accepted: u64) -> anyhow::Result<u64> {
    let store = redis.store()?;
    let record = store.record(TOPIC).await?.context("the topic is there")?;
    let report = verify_topic(&store, TOPIC, &record, |_| ()).await?;
    let mut parked = 0;
    for index in 0..record.partitions {
        parked += store.measure(&PartitionId { topic: TOPIC.into(), index }).await?.parked;
    }
    anyhow::ensure!(report.ok, "not in order: {:?}", report.findings.first());
    let odd = report.markers + report.passed + report.late;
    anyhow::ensure!(
        odd == 0,
        "{} markers, {} passed and {} late events, where all should have come in order",
        report.markers,
        report.passed,
        report.late
    );
    anyhow::ensure!(
        report.entries + parked == accepted,
        "{accepted} events were accepted, but {} were released and {parked} are parked",
        report.entries
    );
    Ok(report.entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sidecars_configuration_is_the_stores_topic() {
        let text = config_text("redis://127.0.0.1:1", "/tmp/s".as_ref(), Layout::Entry);
        let parsed: Config = toml::from_str(&text).unwrap();
        parsed.validate().unwrap();
        assert_eq!(parsed.topics[TOPIC].spec(TOPIC).unwrap(), topic_spec(Layout::Entry).unwrap());
        assert!(Layout::Entry.is_known());
    }
}
