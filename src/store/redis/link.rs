//! The connection: one, shared, thrown away after any doubt and made anew by whoever
//! needs it next.
//!
//! A time-out is not a failure: the call may still run. So a connection on which one
//! happened is dropped, its late replies with it, and the error says "ambiguous".

use std::{sync::Arc, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, RedisError, ServerErrorKind, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    io::tcp::TcpSettings,
};
use tokio::sync::Mutex;

use super::script::Script;
use crate::store::StoreError;

/// How to reach the server.
#[derive(Clone)]
pub struct RedisSettings {
    pub url: String,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
}

pub struct Link {
    client: Client,
    config: AsyncConnectionConfig,
    address: String,
    current: Mutex<Option<Arc<MultiplexedConnection>>>,
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
        Ok(Link { client, config, address, current: Mutex::new(None) })
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Runs a script by its digest, or with its source where the server lost it.
    pub async fn run(&self, script: &Script, call: Cmd) -> Result<Value, StoreError> {
        match self.exchange(&call).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(&script.with_source(&call)).await
            }
            outcome => outcome.map_err(classify),
        }
    }

    pub async fn send(&self, command: &Cmd) -> Result<Value, StoreError> {
        self.exchange(command).await.map_err(classify)
    }

    async fn exchange(&self, command: &Cmd) -> Result<Value, RedisError> {
        let connection = self.connection().await?;
        let mut handle = MultiplexedConnection::clone(&connection);
        let outcome = handle.req_packed_command(command).await.and_then(Value::extract_error);
        if let Err(error) = &outcome
            && (error.is_io_error() || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly))
        {
            self.discard(&connection).await;
        }
        outcome
    }

    async fn connection(&self) -> Result<Arc<MultiplexedConnection>, RedisError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &*current {
            return Ok(connection.clone());
        }
        let connect = self.client.get_multiplexed_async_connection_with_config(&self.config);
        // Nothing was sent yet: whatever goes wrong here, no call was executed.
        let connection = connect
            .await
            .map_err(|error| RedisError::from((ErrorKind::Client, "cannot connect", error.to_string())))?;
        Ok(current.insert(Arc::new(connection)).clone())
    }

    /// Forgets this connection, unless somebody has already replaced it.
    async fn discard(&self, broken: &Arc<MultiplexedConnection>) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|connection| Arc::ptr_eq(connection, broken)) {
            *current = None;
        }
    }
}

fn connection_info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(|error| {
        let hint = "write redis://host:port/db, or redis+unix:///path/to/socket";
        StoreError::Broken(format!("the store's URL is not understood ({}); {hint}", error.category()))
    })?;
    let redis =
        info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3).set_lib_name("seriatim", VERSION);
    Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)).set_redis_settings(redis))
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Sorts what went wrong into what the caller must do about it.
fn classify(error: RedisError) -> StoreError {
    // Codes of replies that Redis sends before it executes anything.
    const NOT_EXECUTED: [&str; 15] = [
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
        "NOPERM",
        "NOAUTH",
        "UNINITIALISED",
    ];
    let code = error.code().unwrap_or_default();
    if error.is_io_error() {
        StoreError::Ambiguous(error.to_string())
    } else if NOT_EXECUTED.contains(&code) {
        StoreError::NotExecuted(format!("{code} {}", error.detail().unwrap_or_default()))
    } else if error.kind() == ErrorKind::Client {
        // Ours, from `Link::connection`: the only error of this kind.
        StoreError::NotExecuted(format!("cannot connect: {}", error.detail().unwrap_or_default()))
    } else {
        StoreError::Broken(error.to_string())
    }
}
