//! The bound on what this sidecar holds in memory: events received and not answered.
//!
//! A request that finds no room waits its turn, in order of arrival. What waits is in
//! memory, too, so it is bounded as well: by as many bytes again.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;

pub struct InFlight {
    events: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    waiting_bytes: Arc<Semaphore>,
    bytes_max: usize,
    metrics: Arc<Metrics>,
}

/// A request's share; given back when dropped.
pub struct Taken {
    permits: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit, Arc<Metrics>)>,
}

/// Even the room to wait is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overloaded;

impl InFlight {
    pub fn new(events: usize, bytes: usize, metrics: Arc<Metrics>) -> Self {
        InFlight {
            events: Arc::new(Semaphore::new(events)),
            bytes: Arc::new(Semaphore::new(bytes)),
            waiting_bytes: Arc::new(Semaphore::new(bytes)),
            bytes_max: bytes,
            metrics,
        }
    }

    /// Takes a share, waiting for it if need be.
    pub async fn take(&self, events: usize, bytes: usize) -> Result<Taken, Overloaded> {
        let (events, bytes) = (permits(events), self.share(bytes));
        let waiting = self.waiting_bytes.clone().try_acquire_many_owned(bytes).map_err(|_| Overloaded)?;
        let events = self.events.clone().acquire_many_owned(events).await.expect("it is never closed");
        let bytes = self.bytes.clone().acquire_many_owned(bytes).await.expect("it is never closed");
        drop(waiting);
        self.metrics.in_flight_events.inc_by(events.num_permits() as i64);
        self.metrics.in_flight_bytes.inc_by(bytes.num_permits() as i64);
        Ok(Taken { permits: Some((events, bytes, self.metrics.clone())) })
    }

    /// Weights include bookkeeping, so the largest request may weigh more than there
    /// is; it then takes all of it instead of waiting for ever.
    fn share(&self, bytes: usize) -> u32 {
        permits(bytes.min(self.bytes_max))
    }
}

fn permits(count: usize) -> u32 {
    u32::try_from(count).expect("limits are validated to fit")
}

impl Taken {
    #[cfg(test)]
    pub(super) fn nothing() -> Self {
        Taken { permits: None }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some((events, bytes, metrics)) = &self.permits {
            metrics.in_flight_events.dec_by(events.num_permits() as i64);
            metrics.in_flight_bytes.dec_by(bytes.num_permits() as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// What `take` gives at once; `None` if it would wait.
    fn now(in_flight: &InFlight, events: usize, bytes: usize) -> Option<Result<Taken, Overloaded>> {
        in_flight.take(events, bytes).now_or_never()
    }

    #[test]
    fn without_room_a_request_waits_and_room_comes_back() {
        let in_flight = InFlight::new(2, 100, Arc::default());
        let first = now(&in_flight, 2, 10).unwrap().unwrap();
        assert!(now(&in_flight, 1, 1).is_none());
        drop(first);
        let second = now(&in_flight, 1, 60).unwrap().unwrap();
        assert!(now(&in_flight, 1, 60).is_none());
        // One that gave up waiting leaves nothing behind.
        drop(second);
        assert!(now(&in_flight, 2, 100).unwrap().is_ok());
    }

    #[test]
    fn what_waits_is_bounded_too() {
        let in_flight = InFlight::new(1, 100, Arc::default());
        let _taken = now(&in_flight, 1, 100).unwrap().unwrap();
        let mut waiting = Box::pin(in_flight.take(1, 80));
        assert!((&mut waiting).now_or_never().is_none());
        assert!(now(&in_flight, 1, 30).unwrap().is_err());
    }

    #[test]
    fn a_request_heavier_than_the_limit_takes_all_there_is() {
        let in_flight = InFlight::new(2, 100, Arc::default());
        let all = now(&in_flight, 1, 5000).unwrap().unwrap();
        assert!(now(&in_flight, 1, 1).is_none());
        drop(all);
        assert!(now(&in_flight, 1, 1).unwrap().is_ok());
    }
}
