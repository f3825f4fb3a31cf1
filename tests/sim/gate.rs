//! A value that others wait on, woken in the order in which they came.
//!
//! Not a watch channel: that one wakes those who wait in a random order, and a run could not
//! be repeated.

use std::sync::Mutex;

use tokio::sync::Notify;

pub struct Gate<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy + PartialEq> Gate<T> {
    pub fn new(value: T) -> Self {
        Gate { value: Mutex::new(value), changed: Notify::new() }
    }

    pub fn get(&self) -> T {
        *self.value.lock().unwrap()
    }

    pub fn set(&self, value: T) {
        *self.value.lock().unwrap() = value;
        self.changed.notify_waiters();
    }

    pub async fn wait_for(&self, fits: impl Fn(T) -> bool) {
        loop {
            let changed = self.changed.notified();
            if fits(self.get()) {
                return;
            }
            changed.await;
        }
    }
}
