//! The connection to a sidecar: one stream at a time, opened again after every end.

use std::{future::pending, time::Duration};

use futures_util::{FutureExt, future::BoxFuture};
use tokio::time::timeout;
use tonic::Status;

use super::{
    ClientError,
    connect::{Stream, connect_watched},
};
use crate::{grpc::pb, random::Random};

pub struct Link {
    target: String,
    random: Random,
    /// Attempts since something was last read.
    failures: u32,
    state: State,
    /// Why it is not up.
    why: String,
}

enum State {
    Down {
        until: Duration,
    },
    Opening(BoxFuture<'static, Result<Stream, ClientError>>),
    Up(Box<Stream>),
    /// The target is not an address, and never will be.
    Wrong,
}

pub enum Happened {
    Opened(Result<Stream, ClientError>),
    Read(pb::PublishStreamResponse),
    /// The sidecar ended the stream, or the connection was lost.
    Ended(Option<Status>),
}

/// From an attempt's begin to an open stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The wait before the first attempt; it doubles with each, and a part of it is random,
/// so that not all producers of a sidecar come back at once.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How long a sidecar may take to end a stream on which all is answered.
const END_TIMEOUT: Duration = Duration::from_secs(5);

impl Link {
    pub fn new(target: &str, random: Random) -> Self {
        let state = State::Down { until: Duration::ZERO };
        let why = format!("no connection to {target} yet");
        Link { target: target.to_owned(), random, failures: 0, state, why }
    }

    /// Tries again once its time has come.
    pub fn elapse(&mut self, now: Duration) {
        if matches!(self.state, State::Down { until } if until <= now) {
            self.state = State::Opening(open(self.target.clone()).boxed());
        }
    }

    /// When [`elapse`](Self::elapse) has something to do.
    pub fn next_wake(&self) -> Option<Duration> {
        match self.state {
            State::Down { until } => Some(until),
            State::Opening(_) | State::Up(_) | State::Wrong => None,
        }
    }

    /// Why there is no stream, if there is none.
    pub fn why_down(&self) -> Option<&str> {
        match self.state {
            State::Up(_) => None,
            State::Down { .. } | State::Opening(_) | State::Wrong => Some(&self.why),
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// The target, if it is not an address.
    pub fn wrong_target(&self) -> Option<&str> {
        matches!(self.state, State::Wrong).then_some(&self.target)
    }

    /// Waits for what happens next. May be dropped at any time without losing anything.
    pub async fn happened(&mut self) -> Happened {
        match &mut self.state {
            State::Down { .. } | State::Wrong => pending().await,
            State::Opening(opening) => Happened::Opened(opening.await),
            State::Up(stream) => match stream.answers.message().await {
                Ok(Some(response)) => {
                    self.failures = 0;
                    Happened::Read(response)
                }
                Ok(None) => Happened::Ended(None),
                Err(status) => Happened::Ended(Some(status)),
            },
        }
    }

    pub fn unreachable(&self, reason: String) -> ClientError {
        ClientError::Unreachable { target: self.target.clone(), reason }
    }

    pub fn up(&mut self, stream: Stream) {
        self.state = State::Up(Box::new(stream));
    }

    pub fn down(&mut self, error: &ClientError, now: Duration) {
        self.why = error.to_string();
        self.state = match error {
            ClientError::Target { .. } => State::Wrong,
            _ => State::Down { until: now + backoff(self.failures, &mut self.random) },
        };
        self.failures = self.failures.saturating_add(1);
    }

    /// Only if it is up. If the stream has ended, reading from it says so.
    pub fn send(&self, request: pb::PublishStreamRequest) {
        if let State::Up(stream) = &self.state {
            let _ = stream.requests.send(request);
        }
    }

    /// Closes our side and waits until the sidecar has closed its own.
    pub async fn end(self) {
        if let State::Up(stream) = self.state {
            let Stream { requests, mut answers } = *stream;
            drop(requests);
            let ended = async { while let Ok(Some(_)) = answers.message().await {} };
            let _ = timeout(END_TIMEOUT, ended).await;
        }
    }
}

async fn open(target: String) -> Result<Stream, ClientError> {
    let opening = async { Stream::open(connect_watched(&target).await?).await };
    timeout(OPEN_TIMEOUT, opening).await.unwrap_or_else(|_| {
        let reason = format!("it did not answer within {OPEN_TIMEOUT:?}");
        Err(ClientError::Unreachable { target: target.clone(), reason })
    })
}

/// Between half of a wait that doubles and all of it.
fn backoff(failures: u32, random: &mut Random) -> Duration {
    let doubled = BACKOFF_MIN.saturating_mul(2_u32.saturating_pow(failures));
    let half_us = u64::try_from(doubled.min(BACKOFF_MAX).as_micros()).unwrap_or(u64::MAX) / 2;
    Duration::from_micros(half_us + random.below(half_us + 1))
}

#[test]
fn attempts_become_rarer_and_are_spread() {
    let mut random = Random::from_seed(1);
    let mut waits = |failures| -> Vec<Duration> { (0..50).map(|_| backoff(failures, &mut random)).collect() };
    for (failures, most) in
        [(0, BACKOFF_MIN), (1, BACKOFF_MIN * 2), (30, BACKOFF_MAX), (u32::MAX, BACKOFF_MAX)]
    {
        let waits = waits(failures);
        assert!(waits.iter().all(|wait| (most / 2..=most).contains(wait)), "{failures}: {waits:?}");
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{failures}: {waits:?}");
    }
}
