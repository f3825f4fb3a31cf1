//! The producer's side, in Rust: connections to a sidecar.
//!
//! [`Publisher`] is one stream with nothing of its own.

mod connect;
mod dispatcher;
mod link;
mod numbers;
mod open;
mod producer;
mod publisher;
mod ring;

use std::time::Duration;

use tonic::Status;

pub use self::{
    connect::connect,
    numbers::Numbers,
    producer::{Answer, Producer, ProducerOptions},
    publisher::Publisher,
};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{target} is not an address; write http://host:port or unix:/path/to/socket")]
    Target { target: String },
    #[error("cannot reach {target}: {reason}; is the sidecar running there?")]
    Unreachable { target: String, reason: String },
    #[error("the sidecar answered: {0}")]
    Status(Box<Status>),
    #[error("the connection to the sidecar was lost before the answer came; publishing again is safe")]
    Lost,
    #[error("{message}")]
    Failed { code: u32, message: String, retry_after_ms: u32 },
    #[error("no verdict within {after:?}: {last}; the event may be there, publishing it again is safe")]
    GaveUp { after: Duration, last: String },
    #[error("{open_max} events have no answer yet (open_max); await some of them, or publish_when_room")]
    Full { open_max: usize },
    #[error("the producer was dropped before the answer came; publishing the event again is safe")]
    Closed,
}
