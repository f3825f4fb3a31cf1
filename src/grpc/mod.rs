//! The gRPC front: the wire contract, its limits and its status codes.
//!
//! Generated types stop at this module and its clients. A handler only translates,
//! submits and waits; it owns no state, because it is dropped when its client goes
//! away.

mod codec;
mod connections;
#[cfg(test)]
mod cost;
mod delivery_service;
#[cfg(test)]
mod fuzz;
mod ingest_service;
mod outbox;
mod oversize;
mod publish_stream;
mod server;
mod status;
mod wire;

pub use self::{
    connections::{Connections, Listener},
    delivery_service::DeliveryService,
    ingest_service::IngestService,
    oversize::NamesTheSetting,
    server::{SERVICE, serve},
};

/// The generated types of `proto/seriatim/v1`.
#[allow(clippy::all, clippy::pedantic, reason = "generated code")]
pub mod pb {
    tonic::include_proto!("seriatim.v1");

    /// For reflection.
    pub const DESCRIPTOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/seriatim_descriptor.bin"));
}

/// What the handlers need to know of the configuration.
#[derive(Clone, Debug)]
pub struct Limits {
    pub event_bytes: usize,
    pub attribute_bytes: usize,
    pub request_events: usize,
    pub request_bytes: usize,
    pub stream_in_flight: usize,
    pub connection_requests: usize,
}
