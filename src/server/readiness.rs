//! Is the sidecar of use? Told to gRPC health, to `/readyz` and to a metric alike.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tonic_health::{
    ServingStatus,
    pb::health_server::{Health, HealthServer},
    server::{HealthReporter, health_reporter},
};
use tracing::{info, warn};

use crate::{clock::Clock, grpc::SERVICE, metrics::Metrics, store::Store};

/// How often the store is asked whether it is there.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Readiness {
    ready: Arc<watch::Sender<bool>>,
    reporter: HealthReporter,
    metrics: Arc<Metrics>,
}

impl Readiness {
    pub fn new(metrics: Arc<Metrics>) -> (Self, HealthServer<impl Health>) {
        let (reporter, health) = health_reporter();
        (Readiness { ready: Arc::new(watch::Sender::new(false)), reporter, metrics }, health)
    }

    pub fn watch(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    pub async fn set(&self, ready: bool) {
        let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
        // The empty name stands for the server as a whole.
        for service in ["", SERVICE] {
            self.reporter.set_service_status(service, status).await;
        }
        self.metrics.ready.set(i64::from(ready));
        self.ready.send_replace(ready);
    }

    /// Follows the store, for ever.
    pub async fn watch_store(self, store: Arc<dyn Store>, clock: Arc<dyn Clock>) {
        loop {
            clock.sleep(ASK_EVERY).await;
            let answer = store.ping().await;
            let was_ready = *self.ready.borrow();
            if answer.is_ok() != was_ready {
                match &answer {
                    Ok(()) => info!("ready: the store answers"),
                    Err(error) => warn!(%error, "not ready: the store does not answer"),
                }
                self.set(answer.is_ok()).await;
            }
        }
    }
}
