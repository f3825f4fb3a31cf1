//! A process that can be suspended and killed, and its clock.
//!
//! A killed one goes on existing as memory, but nothing leaves it and nothing reaches it:
//! every wait in it lasts for ever. What it had sent may still arrive. That is all that others
//! can see of a crash.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use seriatim::clock::Clock;
use tokio::{sync::watch, time::Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Suspended,
    Dead,
}

#[derive(Clone)]
pub struct Process(Arc<Inner>);

struct Inner {
    /// Unique among all processes of a run.
    id: u32,
    state: watch::Sender<State>,
    started: Instant,
    /// How fast its clock goes, in thousandths.
    pace: u32,
}

impl Process {
    pub fn start(id: u32, pace: u32) -> Self {
        let (state, _) = watch::channel(State::Running);
        Process(Arc::new(Inner { id, state, started: Instant::now(), pace }))
    }

    pub fn id(&self) -> u32 {
        self.0.id
    }

    pub fn is_running(&self) -> bool {
        *self.0.state.borrow() == State::Running
    }

    pub fn kill(&self) {
        self.0.state.send_replace(State::Dead);
    }

    pub fn suspend(&self, suspend: bool) {
        let (from, to) =
            if suspend { (State::Running, State::Suspended) } else { (State::Suspended, State::Running) };
        self.0.state.send_if_modified(|state| {
            let changes = *state == from;
            if changes {
                *state = to;
            }
            changes
        });
    }

    /// Passes while the process runs: at once, later, or never.
    pub async fn gate(&self) {
        if self.is_running() {
            return;
        }
        let mut state = self.0.state.subscribe();
        if state.wait_for(|state| *state == State::Running).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Clock for Process {
    fn now(&self) -> Duration {
        self.0.started.elapsed() * self.0.pace / 1_000
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let process = self.clone();
        async move {
            tokio::time::sleep(duration * 1_000 / process.0.pace).await;
            process.gate().await;
        }
        .boxed()
    }
}
