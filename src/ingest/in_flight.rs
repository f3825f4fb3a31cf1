//! The bound on what this sidecar holds in memory: events received and not answered.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics::Metrics;

pub struct InFlight {
    events: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_max: usize,
    metrics: Arc<Metrics>,
}

/// A request's share; given back when dropped.
pub struct Taken {
    permits: Option<(OwnedSemaphorePermit, OwnedSemaphorePermit, Arc<Metrics>)>,
}

impl InFlight {
    pub fn new(events: usize, bytes: usize, metrics: Arc<Metrics>) -> Self {
        InFlight {
            events: Arc::new(Semaphore::new(events)),
            bytes: Arc::new(Semaphore::new(bytes)),
            bytes_max: bytes,
            metrics,
        }
    }

    /// Takes a share if there is room; else the name of the limit.
    pub fn try_take(&self, events: usize, bytes: usize) -> Result<Taken, &'static str> {
        let events = self.events.clone().try_acquire_many_owned(permits(events));
        let events = events.map_err(|_| "in_flight_events")?;
        let bytes = self.bytes.clone().try_acquire_many_owned(self.share(bytes));
        Ok(self.taken(events, bytes.map_err(|_| "in_flight_bytes")?))
    }

    /// Waits until there is room, in order of arrival.
    pub async fn take(&self, events: usize, bytes: usize) -> Taken {
        let events = self.events.clone().acquire_many_owned(permits(events)).await;
        let bytes = self.bytes.clone().acquire_many_owned(self.share(bytes)).await;
        self.taken(events.expect("it is never closed"), bytes.expect("it is never closed"))
    }

    /// Weights include bookkeeping, so the largest request may weigh more than there
    /// is; it then takes all of it instead of waiting for ever.
    fn share(&self, bytes: usize) -> u32 {
        permits(bytes.min(self.bytes_max))
    }

    fn taken(&self, events: OwnedSemaphorePermit, bytes: OwnedSemaphorePermit) -> Taken {
        self.metrics.in_flight_events.inc_by(events.num_permits() as i64);
        self.metrics.in_flight_bytes.inc_by(bytes.num_permits() as i64);
        Taken { permits: Some((events, bytes, self.metrics.clone())) }
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
    use super::*;

    #[test]
    fn the_limit_that_is_reached_is_named_and_room_comes_back() {
        let in_flight = InFlight::new(2, 100, Arc::default());
        let first = in_flight.try_take(2, 10).ok().unwrap();
        assert_eq!(in_flight.try_take(1, 1).err(), Some("in_flight_events"));
        drop(first);
        let second = in_flight.try_take(1, 60).ok().unwrap();
        assert_eq!(in_flight.try_take(1, 60).err(), Some("in_flight_bytes"));
        // A refused request leaves nothing behind.
        drop(second);
        assert!(in_flight.try_take(2, 100).is_ok());
    }

    #[test]
    fn a_request_heavier_than_the_limit_takes_all_there_is() {
        let in_flight = InFlight::new(2, 100, Arc::default());
        let all = in_flight.try_take(1, 5000).ok().unwrap();
        assert_eq!(in_flight.try_take(1, 1).err(), Some("in_flight_bytes"));
        drop(all);
        assert!(in_flight.try_take(1, 1).is_ok());
    }
}
