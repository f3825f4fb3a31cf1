//! The producer's side, in Rust: connections to a sidecar.
//!
//! [`Publisher`] is one stream with nothing of its own.

mod connect;
mod publisher;

use tonic::Status;

pub use self::{connect::connect, publisher::Publisher};

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
}
