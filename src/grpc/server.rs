//! The HTTP/2 server under the services, with every limit set by hand: an unset
//! tonic builder takes some of hyper's protections away.

use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use tokio::sync::watch;
use tonic::{
    server::NamedService,
    transport::{Error, Server},
};
use tonic_health::pb::health_server::{Health, HealthServer};

use super::{Connections, DeliveryService, IngestService, Limits, Listener, NamesTheSetting, pb};

/// What a client may send ahead of being read: memory that no other limit counts.
const STREAM_WINDOW: u32 = 256 << 10;
/// Larger than a stream's, or one stalled stream would stop its neighbours.
const CONNECTION_WINDOW: u32 = 2 << 20;
const HEADER_LIST_BYTES: u32 = 16 << 10;
/// What hyper and h2 have by default against rapid resets; unset means unlimited.
const PENDING_RESETS: usize = 20;
const LOCAL_RESETS: usize = 1024;
const KEEPALIVE_EVERY: Duration = Duration::from_secs(30);
const KEEPALIVE_WAIT: Duration = Duration::from_secs(10);

/// A worker's answer: a number, and at most a reason.
const ANSWER_BYTES_MAX: usize = 64 << 10;

pub const SERVICE: &str = <pb::ingest_server::IngestServer<IngestService> as NamedService>::NAME;

/// Serves on all listeners until draining begins, then until the last client left.
pub async fn serve(
    service: IngestService,
    delivery: DeliveryService,
    health: HealthServer<impl Health>,
    listeners: Vec<Listener>,
    connections: Connections,
    mut draining: watch::Receiver<bool>,
    limits: Limits,
) -> Result<(), Error> {
    let ingest =
        pb::ingest_server::IngestServer::new(service).max_decoding_message_size(limits.request_bytes);
    let ingest = NamesTheSetting { inner: ingest, request_bytes: limits.request_bytes };
    let delivery =
        pb::delivery_server::DeliveryServer::new(delivery).max_decoding_message_size(ANSWER_BYTES_MAX);
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pb::DESCRIPTOR)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let requests = u32::try_from(limits.connection_requests).unwrap_or(u32::MAX);
    let incoming = stream::select_all(listeners.into_iter().map(|listener| connections.of(listener).boxed()));
    Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(requests)
        .http2_max_header_list_size(HEADER_LIST_BYTES)
        .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS))
        .http2_max_local_error_reset_streams(Some(LOCAL_RESETS))
        .http2_keepalive_interval(Some(KEEPALIVE_EVERY))
        .http2_keepalive_timeout(Some(KEEPALIVE_WAIT))
        .concurrency_limit_per_connection(limits.connection_requests)
        .load_shed(true)
        .add_service(health)
        .add_service(reflection().build_v1().expect("the descriptor is our own"))
        // Older tools, grpcio's among them, still ask for this one.
        .add_service(reflection().build_v1alpha().expect("the descriptor is our own"))
        .add_service(ingest)
        .add_service(delivery)
        .serve_with_incoming_shutdown(incoming, async move {
            let _ = draining.wait_for(|draining| *draining).await;
        })
        .await
}
