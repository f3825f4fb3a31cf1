//! The bound on what this sidecar holds in memory: events received and not answered.
//!
//! A request that finds no room waits its turn, in order of arrival. What waits is in
//! memory, too, so it is bounded as well: by as many bytes again.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::metrics::Metrics;

pub struct InFlight {
    room: Arc<Room>,
}

struct Room {
    events: Semaphore,
    bytes: Semaphore,
    waiting_bytes: Semaphore,
    bytes_max: usize,
    metrics: Arc<Metrics>,
}

/// A share; given back when dropped. Of one request, or of several together: to give back costs as much for one
/// as for all.
#[derive(Default)]
pub struct Taken {
    room: Option<Arc<Room>>,
    events: usize,
    bytes: usize,
}

/// Even the room to wait is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overloaded;

impl InFlight {
    pub fn new(events: usize, bytes: usize, metrics: Arc<Metrics>) -> Self {
        let room = Room {
            events: Semaphore::new(events),
            bytes: Semaphore::new(bytes),
            waiting_bytes: Semaphore::new(bytes),
            bytes_max: bytes,
            metrics,
        };
        InFlight { room: Arc::new(room) }
    }

    /// Takes a share, waiting for it if need be.
    pub async fn take(&self, events: usize, bytes: usize) -> Result<Taken, Overloaded> {
        if let Some(taken) = self.take_now(events, bytes) {
            return Ok(taken);
        }
        let (events, bytes) = self.room.permits(events, bytes);
        Ok(self.keep(self.room.wait(events, bytes).await?))
    }

    /// Takes a share if it need not be waited for.
    pub fn take_now(&self, events: usize, bytes: usize) -> Option<Taken> {
        let (events, bytes) = self.room.permits(events, bytes);
        self.room.take_now(events, bytes).map(|taken| self.keep(taken))
    }

    fn keep(&self, (events, bytes): Permits<'_>) -> Taken {
        let taken =
            Taken { room: Some(self.room.clone()), events: events.num_permits(), bytes: bytes.num_permits() };
        events.forget();
        bytes.forget();
        self.room.metrics.in_flight_events.inc_by(taken.events as i64);
        self.room.metrics.in_flight_bytes.inc_by(taken.bytes as i64);
        taken
    }
}

/// Of events, and of bytes.
type Permits<'a> = (SemaphorePermit<'a>, SemaphorePermit<'a>);

impl Room {
    /// Weights include bookkeeping, so the largest request may weigh more than there is; it then takes all of it instead
    /// of waiting for ever.
    fn permits(&self, events: usize, bytes: usize) -> (u32, u32) {
        (permits(events), permits(bytes.min(self.bytes_max)))
    }

    /// Where nobody waits; nobody is overtaken.
    fn take_now(&self, events: u32, bytes: u32) -> Option<Permits<'_>> {
        let events = self.events.try_acquire_many(events).ok()?;
        Some((events, self.bytes.try_acquire_many(bytes).ok()?))
    }

    async fn wait(&self, events: u32, bytes: u32) -> Result<Permits<'_>, Overloaded> {
        let _waiting = self.waiting_bytes.try_acquire_many(bytes).map_err(|_| Overloaded)?;
        let events = self.events.acquire_many(events).await.expect("it is never closed");
        let bytes = self.bytes.acquire_many(bytes).await.expect("it is never closed");
        Ok((events, bytes))
    }
}

fn permits(count: usize) -> u32 {
    u32::try_from(count).expect("limits are validated to fit")
}

impl Taken {
    /// Both will be given back together.
    pub fn join(&mut self, mut other: Taken) {
        // All are of the one room that a sidecar has.
        self.room = self.room.take().or(other.room.take());
        self.events += std::mem::take(&mut other.events);
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.metrics.in_flight_events.dec_by(self.events as i64);
            room.metrics.in_flight_bytes.dec_by(self.bytes as i64);
            room.events.add_permits(self.events);
            room.bytes.add_permits(self.bytes);
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
    fn shares_that_are_joined_are_given_back_together() {
        let in_flight = InFlight::new(3, 100, Arc::default());
        let mut all = Taken::default();
        all.join(now(&in_flight, 1, 10).unwrap().unwrap());
        all.join(now(&in_flight, 2, 20).unwrap().unwrap());
        all.join(Taken::default());
        assert!(now(&in_flight, 1, 1).is_none());
        drop(all);
        assert!(now(&in_flight, 3, 100).unwrap().is_ok());
        assert_eq!(in_flight.room.metrics.in_flight_bytes.get(), 0);
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
