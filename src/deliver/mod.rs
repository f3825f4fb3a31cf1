//! The worker's side: each entity's events in order, in parallel across entities, through
//! crashes and poison.
//!
//! - [`assign`] and [`lease`] decide whose a partition is;
//! - [`feed`] is one leased partition;
//! - [`retry`] decides when what failed is tried again.
//!
//! These are machines without I/O that take the time as an argument. [`Consumer`] is the
//! handle that programs use; `worker` is the one task that drives the machines.

pub mod assign;
pub mod feed;
pub mod lease;
pub mod retry;
mod task;

mod consumer;
#[cfg(test)]
mod fuzz;
mod options;
mod worker;

pub use self::{
    consumer::{ConsumeError, Consumer, ConsumerCounts, Delivered, Delivery, Fenced},
    options::{ConsumerOptions, OptionsError, is_name},
    task::{GAP, KeptEvent},
};
