//! The connection: one, shared, thrown away after any doubt and made anew by whoever
//! needs it next. (Transactions have their own: `pipe.rs`.)
//!
//! A time-out is not a failure: the call may still run. So a connection on which one
//! happened is dropped, its late replies with it, and the error says "ambiguous".

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, RedisError, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    io::tcp::TcpSettings,
};
use futures_util::{StreamExt, stream::BoxStream};
use tokio::sync::Mutex;

use super::script::Script;
use crate::store::StoreError;

/// How to reach the server.
#[derive(Clone)]
pub struct RedisSettings {
    pub url: String,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
    pub straight: Straight,
}

/// When batches go straight into their stream (`straight.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Straight {
    Never,
    /// When it is worth it: large batches, after some calls that were all in order.
    #[default]
    WhenCalm,
    /// Whenever it is possible; for tests.
    Always,
}

pub struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    address: String,
    current: Mutex<Current>,
    connect_timeout: Duration,
    /// Attempts to connect that ended, well or not.
    attempts: AtomicU64,
    /// Held by whoever brings the server a script that it does not know.
    lesson: Mutex<()>,
    /// Those that ended, well or not.
    lessons: AtomicU64,
}

enum Current {
    Connected(Arc<MultiplexedConnection>),
    /// Why not, as far as is known.
    Disconnected(String),
}

impl Link {
    pub fn new(settings: RedisSettings) -> Result<Self, StoreError> {
        let info = connection_info(&settings.url)?;
        let address = match info.addr() {
            // Never the password, which is part of the URL.
            ConnectionAddr::Unix(path) => path.display().to_string(),
            address => address.to_string(),
        };
        let client = Client::open(info).map_err(|error| StoreError::Broken(error.to_string()))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(settings.connect_timeout))
            .set_response_timeout(Some(settings.response_timeout));
        Ok(Link {
            client,
            config,
            address,
            current: Mutex::new(Current::Disconnected(String::new())),
            connect_timeout: settings.connect_timeout,
            attempts: AtomicU64::new(0),
            lesson: Mutex::new(()),
            lessons: AtomicU64::new(0),
        })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Runs a script by its digest, or with its source where the server does not know it. After a
    /// restart of the server all partitions miss theirs at once: one of them brings the source, the
    /// others wait for that and try again. Nobody waits for a second one.
    pub async fn run(&self, script: &Script, call: Cmd) -> Result<Value, StoreError> {
        let lessons_seen = self.lessons.load(Ordering::Acquire);
        let mut outcome = self.exchange(&call).await;
        if is_unknown_script(&outcome) {
            let lesson = self.lesson.lock().await;
            if self.lessons.load(Ordering::Acquire) == lessons_seen {
                outcome = self.exchange(&script.with_source(&call)).await;
                self.lessons.fetch_add(1, Ordering::AcqRel);
            } else {
                drop(lesson);
                outcome = self.exchange(&call).await;
            }
        }
        if is_unknown_script(&outcome) {
            outcome = self.exchange(&script.with_source(&call)).await;
        }
        outcome.map_err(classify)
    }

    pub async fn send(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.exchange(command).await.map_err(classify)
    }

    /// Messages of all channels that match, on a connection of their own.
    pub async fn subscribe(&self, pattern: &str) -> Result<BoxStream<'static, Vec<u8>>, StoreError> {
        let subscribed = tokio::time::timeout(self.connect_timeout, async {
            let mut connection = self.client.get_async_pubsub().await?;
            connection.psubscribe(pattern).await?;
            Ok(connection)
        });
        let connection = subscribed
            .await
            .map_err(|_| StoreError::NotExecuted("cannot listen: no answer in time".to_owned()))?
            .map_err(|error: RedisError| StoreError::NotExecuted(format!("cannot listen: {error}")))?;
        let payload = |message: ::redis::Msg| message.get_payload_bytes().to_vec();
        Ok(connection.into_on_message().map(payload).boxed())
    }

    /// A connection for somebody who waits on it: nothing else goes over it, and an answer may
    /// take as long as its owner thinks right.
    pub async fn own_connection(&self) -> Result<MultiplexedConnection, StoreError> {
        let config = self.config.clone().set_response_timeout(None);
        let connect = self.client.get_multiplexed_async_connection_with_config(&config);
        connect.await.map_err(|error| classify(not_connected(error.to_string())))
    }

    async fn exchange(&self, command: &Cmd) -> Result<Value, RedisError> {
        let connected = self.connection().await?;
        let mut handle = MultiplexedConnection::clone(&connected);
        let outcome = handle.req_packed_command(command).await.and_then(Value::extract_error);
        if let Err(error) = &outcome
            && (error.is_io_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly))
        {
            self.discard(&connected).await;
        }
        outcome
    }

    async fn connection(&self) -> Result<Arc<MultiplexedConnection>, RedisError> {
        let attempts_seen = self.attempts.load(Ordering::Acquire);
        let mut current = self.current.lock().await;
        match &*current {
            Current::Connected(connected) => return Ok(connected.clone()),
            // Whoever held the lock has just tried in vain: all who waited share that
            // answer, or a server that does not answer would be asked once by each.
            Current::Disconnected(reason) if self.attempts.load(Ordering::Acquire) != attempts_seen => {
                return Err(not_connected(reason.clone()));
            }
            Current::Disconnected(_) => {}
        }
        let connect = self.client.get_multiplexed_async_connection_with_config(&self.config);
        let outcome = connect.await;
        self.attempts.fetch_add(1, Ordering::AcqRel);
        match outcome {
            Ok(connection) => {
                let connected = Arc::new(connection);
                *current = Current::Connected(connected.clone());
                Ok(connected)
            }
            Err(error) => {
                *current = Current::Disconnected(error.to_string());
                Err(not_connected(error.to_string()))
            }
        }
    }

    /// Forgets this connection, unless somebody has already replaced it.
    async fn discard(&self, broken: &Arc<MultiplexedConnection>) {
        let mut current = self.current.lock().await;
        if matches!(&*current, Current::Connected(connected) if Arc::ptr_eq(connected, broken)) {
            *current = Current::Disconnected("the connection was lost".to_owned());
        }
    }
}

fn is_unknown_script(outcome: &Result<Value, RedisError>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
}

/// Nothing was sent: whatever went wrong, no call was executed.
fn not_connected(reason: String) -> RedisError {
    RedisError::from((ErrorKind::Client, "cannot connect", reason))
}

pub fn connection_info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(|error| {
        let hint = "write redis://host:port/db, or redis+unix:///path/to/socket";
        StoreError::Broken(format!("the store's URL is not understood ({}); {hint}", error.category()))
    })?;
    let redis =
        info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_lib_name(LIBRARY, VERSION);
    Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)).set_redis_settings(redis))
}

/// Who we are, for those who list a server's clients.
pub const LIBRARY: &str = "seriatim";
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Sorts what went wrong into what the caller must do about it.
pub fn classify(error: RedisError) -> StoreError {
    // Codes of replies that Redis sends before it executes anything.
    const NOT_EXECUTED: [&str; 16] = [
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "READONLY",
        "LOADING",
        "MASTERDOWN",
        "CLUSTERDOWN",
        "MOVED",
        "ASK",
        "TRYAGAIN",
        "BUSY",
        "NOSCRIPT",
        "NOAUTH",
        "UNINITIALISED",
        "ANOTHER",
        "NOGROUP",
    ];
    let code = error.code().unwrap_or_default();
    if error.is_io_error() {
        StoreError::Ambiguous(error.to_string())
    } else if NOT_EXECUTED.contains(&code) {
        let detail = error.detail().unwrap_or_default();
        StoreError::NotExecuted(format!("{code} {detail}{}", advice(code, detail)))
    } else if error.kind() == ErrorKind::Client {
        // Ours, from `not_connected`: the only error of this kind.
        StoreError::NotExecuted(format!("cannot connect: {}", error.detail().unwrap_or_default()))
    } else {
        StoreError::Broken(error.to_string())
    }
}

/// A write that the full disk cuts short leaves a hole in the file, which Redis notices when it is started again.
fn advice(code: &str, detail: &str) -> &'static str {
    if code == "MISCONF" && detail.contains("AOF") {
        "; once its disk has room, run BGREWRITEAOF before Redis is restarted, or it may not start"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(reply: &str) -> StoreError {
        let value = ::redis::parse_redis_value(format!("-{reply}\r\n").as_bytes()).unwrap();
        classify(value.extract_error().unwrap_err())
    }

    #[test]
    fn a_full_disk_comes_with_advice_and_nothing_else_does() {
        let full = refused("MISCONF Errors writing to the AOF file: No space left on device");
        let StoreError::NotExecuted(said) = &full else { panic!("{full:?}") };
        assert!(said.starts_with("MISCONF Errors writing to the AOF file"), "{said}");
        assert!(said.contains("BGREWRITEAOF"), "{said}");
        for reply in
            ["MISCONF Redis is configured to save RDB snapshots", "OOM command not allowed", "READONLY x"]
        {
            let other = refused(reply);
            assert_eq!(other, StoreError::NotExecuted(reply.to_owned()));
        }
    }
}
