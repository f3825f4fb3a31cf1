//! A process that can be suspended and killed, and its clock.
//!
//! A killed one goes on existing as memory, but nothing leaves it and nothing reaches it:
//! every wait in it lasts for ever. What it had sent may still arrive. That is all that others
//! can see of a crash.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use seriatim::clock::Clock;
use tokio::time::Instant;

use crate::gate::Gate;

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
    state: Gate<State>,
    is_leaving: Gate<bool>,
    started: Instant,
    /// How fast its clock goes, in thousandths.
    pace: u32,
}

impl Process {
    pub fn start(id: u32, pace: u32) -> Self {
        let (state, is_leaving) = (Gate::new(State::Running), Gate::new(false));
        Process(Arc::new(Inner { id, state, is_leaving, started: Instant::now(), pace }))
    }

    pub fn id(&self) -> u32 {
        self.0.id
    }

    pub fn kill(&self) {
        self.0.state.set(State::Dead);
    }

    /// Tells it to end in order.
    pub fn ask_to_leave(&self) {
        self.0.is_leaving.set(true);
    }

    /// Somebody wants it to end.
    pub async fn leaving(&self) {
        self.0.is_leaving.wait_for(|is_leaving| is_leaving).await;
        self.gate().await;
    }

    pub fn suspend(&self, suspend: bool) {
        let (from, to) =
            if suspend { (State::Running, State::Suspended) } else { (State::Suspended, State::Running) };
        if self.0.state.get() == from {
            self.0.state.set(to);
        }
    }

    /// Passes while the process runs: at once, later, or never.
    pub async fn gate(&self) {
        self.0.state.wait_for(|state| state == State::Running).await;
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
