//! What the server says about itself, for people: `doctor` and the start-up log.

use std::collections::HashMap;

use ::redis::{Value, cmd};

use super::{link::Link, reply};
use crate::store::StoreError;

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ServerReport {
    pub address: String,
    pub server: String,
    pub version: String,
    pub role: String,
    pub connected_replicas: u64,
    pub used_memory_bytes: u64,
    pub maxmemory_bytes: u64,
    pub maxmemory_policy: String,
    pub aof_enabled: bool,
    /// `None` where CONFIG is not allowed to us.
    pub appendfsync: Option<String>,
    pub rdb_save: Option<String>,
}

impl ServerReport {
    /// Major and minor version.
    pub fn version_numbers(&self) -> Option<(u32, u32)> {
        let mut parts = self.version.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    pub fn evicts(&self) -> bool {
        self.maxmemory_bytes > 0 && self.maxmemory_policy != "noeviction"
    }

    /// What an acknowledged event is worth on this server, in plain words.
    pub fn what_could_be_lost(&self) -> String {
        let on_crash = match (self.aof_enabled, self.appendfsync.as_deref()) {
            (true, Some("always")) => {
                "a crash of Redis or of its machine loses nothing that was acknowledged"
            }
            (true, Some("everysec") | None) => {
                "a crash of Redis loses nothing; a power cut loses up to about 2 seconds of acknowledged events"
            }
            (true, Some(_)) => {
                "a crash of Redis loses nothing; a power cut loses what the kernel had not written, often 30 seconds"
            }
            (false, _) if self.rdb_save.as_deref() == Some("") => {
                "there is no persistence: a restart of Redis loses everything"
            }
            (false, _) => {
                "only snapshots are kept: a crash of Redis loses all events since the last one, often minutes"
            }
        };
        let on_failover = match self.connected_replicas {
            0 => "there is no replica: without this machine there is no service",
            _ => "replication is asynchronous: a failover loses what the replica had not received",
        };
        format!("{on_crash}; {on_failover}")
    }
}

pub async fn read(link: &Link) -> Result<ServerReport, StoreError> {
    Ok(ServerReport {
        address: link.address().to_owned(),
        appendfsync: setting(link, "appendfsync").await,
        rdb_save: setting(link, "save").await,
        ..of_info(link.send(&cmd("INFO")).await?)?
    })
}

/// What the reply of INFO says; the rest is left open.
pub(super) fn of_info(value: Value) -> Result<ServerReport, StoreError> {
    let info = reply::text(verbatim(value))?;
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    let fields: HashMap<&str, &str> = lines.collect();
    let field = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
    let number = |name: &str| field(name).parse().unwrap_or(0);
    let valkey = field("valkey_version");
    Ok(ServerReport {
        address: String::new(),
        server: if valkey.is_empty() { "Redis".to_owned() } else { "Valkey".to_owned() },
        version: if valkey.is_empty() { field("redis_version") } else { valkey },
        role: field("role"),
        connected_replicas: number("connected_slaves"),
        used_memory_bytes: number("used_memory"),
        maxmemory_bytes: number("maxmemory"),
        maxmemory_policy: field("maxmemory_policy"),
        aof_enabled: field("aof_enabled") == "1",
        appendfsync: None,
        rdb_save: None,
    })
}

/// A setting of the server, if we may ask. Managed services often forbid it.
async fn setting(link: &Link, name: &str) -> Option<String> {
    let mut query = cmd("CONFIG");
    query.arg("GET").arg(name);
    let pairs = reply::pairs(link.send(&query).await.ok()?).ok()?;
    pairs.into_iter().find(|(field, _)| field == name).map(|(_, value)| value)
}

fn verbatim(value: Value) -> Value {
    match value {
        Value::VerbatimString { text, .. } => Value::SimpleString(text),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(aof_enabled: bool, appendfsync: &str, save: &str) -> ServerReport {
        ServerReport {
            address: "somewhere".into(),
            server: "Redis".into(),
            version: "7.0.15".into(),
            role: "master".into(),
            connected_replicas: 0,
            used_memory_bytes: 1,
            maxmemory_bytes: 0,
            maxmemory_policy: "allkeys-lru".into(),
            aof_enabled,
            appendfsync: Some(appendfsync.into()),
            rdb_save: Some(save.into()),
        }
    }

    #[test]
    fn what_could_be_lost_depends_on_persistence() {
        assert!(
            report(true, "always", "").what_could_be_lost().contains("loses nothing that was acknowledged")
        );
        assert!(report(true, "everysec", "").what_could_be_lost().contains("2 seconds"));
        assert!(report(false, "everysec", "3600 1").what_could_be_lost().contains("only snapshots"));
        assert!(report(false, "everysec", "").what_could_be_lost().contains("no persistence"));
    }

    #[test]
    fn eviction_needs_a_limit_to_happen() {
        let mut report = report(true, "always", "");
        assert!(!report.evicts());
        report.maxmemory_bytes = 1;
        assert!(report.evicts());
        assert_eq!(report.version_numbers(), Some((7, 0)));
    }
}
