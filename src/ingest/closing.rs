//! Tells all tasks of an ingest that nothing more will be submitted, and wakes them in the order in which they began to
//! wait.
//!
//! Not a watch channel: that one wakes them in an order that depends on chance, so a simulated run in which a sidecar
//! leaves would not be the same each time.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::Notify;

#[derive(Clone, Default)]
pub struct Closing(Arc<Inner>);

#[derive(Default)]
struct Inner {
    has_begun: AtomicBool,
    begins: Notify,
}

impl Closing {
    pub fn begin(&self) {
        self.0.has_begun.store(true, Ordering::Release);
        self.0.begins.notify_waiters();
    }

    pub fn has_begun(&self) -> bool {
        self.0.has_begun.load(Ordering::Acquire)
    }

    /// Returns once it has begun.
    pub async fn begun(&self) {
        // Waits from here on: nothing is missed that happens after the look.
        let begins = self.0.begins.notified();
        if !self.has_begun() {
            begins.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, atomic::AtomicUsize};

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn all_are_told_in_the_order_in_which_they_wait_and_whoever_asks_later_at_once() {
        const TASKS: usize = 64;
        let (closing, told) = (Closing::default(), Arc::new(Mutex::new(Vec::new())));
        let asked = Arc::new(AtomicUsize::new(0));
        let waiting: Vec<_> = (0..TASKS)
            .map(|n| {
                let (closing, told, asked) = (closing.clone(), told.clone(), asked.clone());
                tokio::spawn(async move {
                    asked.fetch_add(1, Ordering::Relaxed);
                    closing.begun().await;
                    told.lock().unwrap().push(n);
                })
            })
            .collect();
        while asked.load(Ordering::Relaxed) < TASKS {
            tokio::task::yield_now().await;
        }
        assert!(!closing.has_begun() && closing.begun().now_or_never().is_none());
        closing.begin();
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(*told.lock().unwrap(), Vec::from_iter(0..TASKS));
        assert!(closing.has_begun() && closing.begun().now_or_never().is_some());
    }
}
