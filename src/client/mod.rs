//! The producer's side, in Rust: what a program needs to publish and to be sure of it.
//!
//! Whoever publishes by hand meets the same questions each time. The connection broke: did
//! the event arrive? It was refused: when may it come again? A relay lost it after saying
//! yes: who still has it? Publishing is idempotent, so all three have one answer, to publish
//! the same event again, and [`Producer`] gives it: until there is a verdict, and later when
//! the sidecar finds a gap and asks. [`Numbers`] counts for those who have no count of their
//! own.
//!
//! ```no_run
//! # async fn example() -> Result<(), seriatim::client::ClientError> {
//! use seriatim::{
//!     client::{Numbers, Producer, ProducerOptions},
//!     grpc::pb,
//! };
//!
//! let producer = Producer::start("http://127.0.0.1:7401", "evaluations", ProducerOptions::default());
//! let mut numbers = Numbers::new(0);
//! let mut answers = Vec::new();
//! for step in ["provisioning", "running", "completed"] {
//!     let event = pb::Event {
//!         entity: "evaluation-7".to_owned(),
//!         sequence: Some(numbers.next("evaluation-7", 0)),
//!         r#type: step.to_owned(),
//!         terminal: step == "completed",
//!         ..Default::default()
//!     };
//!     answers.push(producer.publish_when_room(event).await); // sent; its verdict comes later
//! }
//! numbers.forget("evaluation-7");
//! for answer in answers {
//!     println!("{:?}", answer.await?.verdict());
//! }
//! producer.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! What it does not do: it keeps nothing on disk, so what a process had not published when it
//! was killed is published again by whoever knows it ([`Numbers::resume`] says where to go on);
//! and it speaks to one sidecar, because any sidecar will do.
//!
//! [`Publisher`] is one stream with nothing of its own, for those who want to see every loss.
//!
//! How it is made: [`Producer`] is a handle to one task (`dispatcher`), which owns the
//! connection (`link`), what has no verdict yet (`open`, which knows no connection), and what
//! was sent lately (`ring`).

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
    #[error("gave up after {after:?}, though publishing the event again is always safe: {last}")]
    GaveUp { after: Duration, last: String },
    #[error("{open_max} events have no answer yet (open_max); await some of them, or publish_when_room")]
    Full { open_max: usize },
    #[error("the producer was dropped before the answer came; publishing the event again is safe")]
    Closed,
}
