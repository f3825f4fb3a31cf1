//! Plain HTTP on a port of its own: probes, metrics and, for the embedded store only,
//! what is in its streams (a Redis has its own door).

mod entries;
#[cfg(test)]
mod fuzz;

pub use entries::EntryJson;

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use tokio::{net::TcpListener, sync::watch};

use crate::{metrics::Metrics, store::Store};

#[derive(Clone)]
pub struct WebState {
    pub metrics: Arc<Metrics>,
    pub ready: watch::Receiver<bool>,
    pub store: Arc<dyn Store>,
}

const INDEX: &str =
    "seriatim\n\n/livez    is the process alive?\n/readyz   is it of use?\n/metrics  for Prometheus\n";

/// Serves for as long as the process lives: probes must answer while it drains.
pub async fn serve(listener: TcpListener, state: WebState) {
    let routes = Router::new()
        .route("/", get(|| async { INDEX }))
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/entries", get(entries::page))
        .with_state(state);
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::error!(%error, "the web server stopped");
    }
}

async fn readyz(State(state): State<WebState>) -> impl IntoResponse {
    if *state.ready.borrow() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: the store does not answer, or the process drains\n")
    }
}

async fn metrics(State(state): State<WebState>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([("content-type", kind)], state.metrics.render())
}
