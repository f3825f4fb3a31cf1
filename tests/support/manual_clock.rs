//! A wall clock that stands still until a test moves it, for the store in memory.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::future::BoxFuture;
use seriatim::clock::Clock;

pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn at(ms: u64) -> Self {
        ManualClock(AtomicU64::new(ms))
    }

    /// Sets the clock forward, or back, by so much.
    pub fn step(&self, ms: i64) {
        let now = self.0.load(Ordering::Relaxed);
        self.0.store(now.checked_add_signed(ms).expect("the clock stays above 0"), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        unreachable!("a store does not sleep")
    }
}
