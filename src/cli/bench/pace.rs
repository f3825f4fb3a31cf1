//! When events are due. In a closed loop the next one is due whenever fewer than a window of
//! them are unanswered. In an open loop each has a time at which it is meant to be sent,
//! whatever happened to those before it, and latency counts from that time: a system that
//! stalls cannot hide it by being sent less.
//!
//! Timers of the runtime count in milliseconds, which is more than what is measured; so a
//! thread of its own says what is due, twice in a millisecond.

use std::{
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Events due in this time come as one burst, meant for its beginning.
pub const BURST_EVERY: Duration = Duration::from_micros(500);

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At most so many unanswered.
    Closed { window: u64 },
    /// So many in a second.
    Open { per_second: u64 },
}

/// The times at which events of an open loop are meant to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Timetable {
    per_second: u64,
}

const BURSTS_PER_SECOND: u64 = 1_000_000 / BURST_EVERY.as_micros() as u64;

impl Timetable {
    pub fn new(per_second: u64) -> Self {
        Timetable { per_second }
    }

    /// When event n is meant to be sent, after the start.
    pub fn intended(&self, n: u64) -> Duration {
        let burst = n * BURSTS_PER_SECOND / self.per_second;
        BURST_EVERY * u32::try_from(burst).expect("a run is shorter than weeks")
    }

    /// Events that are due after so long. Where a second's do not divide by its bursts, some have one more than others.
    fn due(&self, elapsed: Duration) -> u64 {
        let bursts =
            u64::try_from(elapsed.as_micros() / BURST_EVERY.as_micros()).expect("a run is short") + 1;
        (bursts * self.per_second).div_ceil(BURSTS_PER_SECOND)
    }
}

/// What may be sent by now, shared by the thread that says it and the task that sends.
#[derive(Clone)]
pub struct Due(Arc<Mutex<State>>);

struct State {
    due: u64,
    waker: Option<Waker>,
    stopped: bool,
}

impl Due {
    pub fn new(due: u64) -> Self {
        Due(Arc::new(Mutex::new(State { due, waker: None, stopped: false })))
    }

    /// Is event n due? Whoever asks in vain is woken when something changes.
    pub fn poll(&self, n: u64, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.state();
        if state.stopped {
            Poll::Ready(false)
        } else if n < state.due {
            Poll::Ready(true)
        } else {
            state.waker = Some(context.waker().clone());
            Poll::Pending
        }
    }

    /// Is event n due? False once it is over.
    pub async fn wait(&self, n: u64) -> bool {
        std::future::poll_fn(|context| self.poll(n, context)).await
    }

    /// Events up to this number may be sent.
    pub fn set(&self, due: u64) {
        self.change(|state| state.due = due);
    }

    /// So many more may be sent.
    pub fn add(&self, more: u64) {
        self.change(|state| state.due += more);
    }

    /// Nothing more is to be sent.
    pub fn stop(&self) {
        self.change(|state| state.stopped = true);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let waker = {
            let mut state = self.state();
            change(&mut state);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics holding it")
    }
}

/// Says what is due until it is stopped, or for as long as a run may take.
#[allow(clippy::disallowed_methods, reason = "a thread of its own, on which no runtime runs")]
pub fn keep_time(timetable: Timetable, start: Instant, due: Due, longest: Duration) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut tick = 0;
        while start.elapsed() < longest && !due.state().stopped {
            due.set(timetable.due(start.elapsed()));
            tick += 1;
            thread::sleep((start + BURST_EVERY * tick).saturating_duration_since(Instant::now()));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_what_was_intended_by_then() {
        let timetable = Timetable::new(20_000);
        assert_eq!(timetable.intended(0), Duration::ZERO);
        assert_eq!(timetable.intended(9), Duration::ZERO);
        assert_eq!(timetable.intended(10), BURST_EVERY);
        assert_eq!(timetable.intended(20_000), Duration::from_secs(1));
        for per_second in [300, 5_000, 20_000, 60_000] {
            let timetable = Timetable::new(per_second);
            assert_eq!(timetable.intended(per_second), Duration::from_secs(1), "so many in a second");
            for micros in [0, 499, 500, 12_345, 1_000_000] {
                let elapsed = Duration::from_micros(micros);
                let due = timetable.due(elapsed);
                let is_due = timetable.intended(due - 1) <= elapsed && timetable.intended(due) > elapsed;
                assert!(is_due, "{per_second} {micros}");
            }
        }
    }

    #[tokio::test]
    async fn a_sender_waits_until_its_event_is_due_and_ends_when_it_is_over() {
        let due = Due::new(1);
        assert!(due.wait(0).await);
        assert!(due.poll(1, &Context::from_waker(Waker::noop())).is_pending());
        let (waiting, said) = (
            tokio::spawn({
                let due = due.clone();
                async move { due.wait(2).await }
            }),
            due.clone(),
        );
        tokio::task::yield_now().await;
        said.add(2);
        assert!(waiting.await.unwrap());
        due.stop();
        assert!(!due.wait(0).await);
    }
}
