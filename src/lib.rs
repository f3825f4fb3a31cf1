//! seriatim puts the events of one entity back in order.
//!
//! Producers send numbered events over gRPC; whatever order they arrive in, through
//! whichever sidecar, after whichever crash, they come out of Redis Streams in the
//! order they happened, or with a visible mark that says why not. ARCHITECTURE.md has
//! the map; [`order`] has the rules.
#![forbid(unsafe_code)]

pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
#[cfg(test)]
mod cost;
pub mod deliver;
#[cfg(test)]
mod fuzz;
pub mod grpc;
pub mod ingest;
pub mod metrics;
pub mod operate;
pub mod order;
pub mod random;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod web;
