//! From an address to a stream.

use std::{error::Error, time::Duration};

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::{
    Streaming,
    transport::{Channel, Endpoint},
};

use super::ClientError;
use crate::grpc::pb::{self, ingest_client::IngestClient};

/// A sidecar is next to its clients: whoever waits longer waits in vain.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(20);
const KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// Connects to `http://host:port` or `unix:/path`.
pub async fn connect(target: &str) -> Result<IngestClient<Channel>, ClientError> {
    connect_to(endpoint(target)?, target).await
}

/// The same for a connection that is kept: one whose other side has vanished without a
/// word is found out, and lost.
pub async fn connect_watched(target: &str) -> Result<IngestClient<Channel>, ClientError> {
    let watched = endpoint(target)?
        .http2_keep_alive_interval(KEEPALIVE_EVERY)
        .keep_alive_timeout(KEEPALIVE_WAIT)
        .keep_alive_while_idle(true);
    connect_to(watched, target).await
}

fn endpoint(target: &str) -> Result<Endpoint, ClientError> {
    let address = if target.contains("://") || target.starts_with("unix:") {
        target.to_owned()
    } else {
        format!("http://{target}")
    };
    let endpoint = Endpoint::from_shared(address);
    let endpoint = endpoint.map_err(|_| ClientError::Target { target: target.to_owned() })?;
    Ok(endpoint.tcp_nodelay(true).connect_timeout(CONNECT_TIMEOUT))
}

async fn connect_to(endpoint: Endpoint, target: &str) -> Result<IngestClient<Channel>, ClientError> {
    let unreachable = |reason: String| ClientError::Unreachable { target: target.to_owned(), reason };
    let channel = endpoint.connect().await.map_err(|error| unreachable(innermost(&error)))?;
    Ok(IngestClient::new(channel))
}

fn innermost(error: &dyn Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

/// Both sides of one `PublishStream` call.
pub struct Stream {
    /// Unbounded by itself; whoever sends bounds what is unanswered. Dropping it closes
    /// the producer's side.
    pub requests: mpsc::UnboundedSender<pb::PublishStreamRequest>,
    pub answers: Streaming<pb::PublishStreamResponse>,
}

impl Stream {
    pub async fn open(mut client: IngestClient<Channel>) -> Result<Self, ClientError> {
        let (requests, queue) = mpsc::unbounded_channel();
        let outgoing = stream::unfold(queue, |mut queue: mpsc::UnboundedReceiver<_>| async move {
            queue.recv().await.map(|request| (request, queue))
        });
        let answers = client.publish_stream(outgoing).await;
        let answers = answers.map_err(|status| ClientError::Status(Box::new(status)))?.into_inner();
        Ok(Stream { requests, answers })
    }
}

/// What an answer says of its request.
pub fn outcome_of(answer: pb::Answer) -> Result<Vec<pb::Result>, ClientError> {
    match answer.failure {
        None => Ok(answer.results),
        Some(pb::Failure { code, message, retry_after_ms }) => {
            Err(ClientError::Failed { code, message, retry_after_ms })
        }
    }
}
