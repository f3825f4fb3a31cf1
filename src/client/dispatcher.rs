//! The task behind a [`Producer`](super::Producer): the only one that touches its events
//! once they are published.
//!
//! It waits for three things at once (what is published, what the sidecar says, a timer)
//! and sends whatever may go after each of them.

use std::{
    collections::VecDeque,
    error::Error,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::{
    ClientError,
    connect::outcome_of,
    link::{Happened, Link},
    open::{Caller, OpenEvents, Outcome},
    ring::Ring,
};
use crate::{clock::Clock, grpc::pb};

pub struct Dispatcher {
    pub topic: String,
    pub link: Link,
    pub open: OpenEvents,
    pub ring: Arc<Mutex<Ring>>,
    /// None if they are not to be answered.
    pub asks: Option<VecDeque<pb::Resend>>,
    pub counts: Arc<Counts>,
    pub clock: Arc<dyn Clock>,
    /// How long what is open at the end is waited for.
    pub give_up_after: Duration,
}

pub struct Published {
    pub event: pb::Event,
    pub caller: Caller,
}

#[derive(Default)]
pub struct Counts {
    pub resends_asked: AtomicU64,
    pub resent: AtomicU64,
}

/// Events taken over at once.
const TAKEN_MAX: usize = 256;
/// Resends that wait to be answered. The sidecar asks again for what it still misses.
const ASKS_MAX: usize = 1024;
/// Events that are open at once because they were asked for: new ones stand in the same line.
const RESENDS_OPEN_MAX: usize = 256;
/// A sidecar that has requests and answers none of them for so long will not do it any more:
/// if it waits for its store, it says so earlier.
const SILENCE_MAX: Duration = Duration::from_secs(30);

impl Dispatcher {
    /// Runs until the other end of `published` is dropped and nothing is open.
    pub async fn run(mut self, mut published: mpsc::UnboundedReceiver<Published>) {
        let mut timer = Timer { clock: self.clock.clone(), armed: None };
        let mut taken = Vec::new();
        let mut ends_by = None;
        loop {
            let now = self.clock.now();
            self.elapse(now);
            let is_done = self.open.is_empty() && self.asks.as_ref().is_none_or(VecDeque::is_empty);
            if ends_by.is_some_and(|by| is_done || by <= now) {
                break;
            }
            let wakes = [self.open.next_wake(), self.link.next_wake(), self.silent_until(), ends_by];
            let wake = wakes.into_iter().flatten().min();
            tokio::select! {
                count = published.recv_many(&mut taken, TAKEN_MAX), if ends_by.is_none() => {
                    let now = self.clock.now();
                    if count == 0 {
                        ends_by = Some(now.saturating_add(self.give_up_after));
                    }
                    for Published { event, caller } in taken.drain(..) {
                        self.open.publish(Arc::new(event), Some(caller), now);
                    }
                }
                happened = self.link.happened() => self.note(happened),
                () = timer.reach(wake, now) => {}
            }
        }
        self.link.end().await;
    }

    /// When a stream on which nothing is answered counts as lost.
    fn silent_until(&self) -> Option<Duration> {
        self.open.silent_since().map(|since| since + SILENCE_MAX)
    }

    /// Does all that may be done now.
    fn elapse(&mut self, now: Duration) {
        if self.silent_until().is_some_and(|until| until <= now) {
            self.open.lost();
            let reason = format!("it has requests and answered none of them for {SILENCE_MAX:?}");
            self.link.down(&self.link.unreachable(reason), now);
        }
        self.link.elapse(now);
        self.open.elapse(now, self.link.why_down());
        if let Some(target) = self.link.wrong_target() {
            self.open.fail_all(|| ClientError::Target { target: target.to_owned() });
        }
        self.resend(now);
        while self.link.is_up()
            && let Some(sending) = self.open.send(now)
        {
            if sending.is_new && self.asks.is_some() {
                self.ring.lock().expect("nobody panics holding it").put(sending.event.clone());
            }
            let events = vec![pb::Event::clone(&sending.event)];
            let topic = self.topic.clone();
            self.link.send(pb::PublishStreamRequest { number: sending.number, topic, events });
        }
    }

    fn note(&mut self, happened: Happened) {
        let now = self.clock.now();
        match happened {
            Happened::Opened(Ok(stream)) => self.link.up(stream),
            Happened::Opened(Err(error)) => self.link.down(&error, now),
            Happened::Read(response) => self.read(response, now),
            Happened::Ended(ended) => {
                let error = error_of(ended);
                // A sidecar answers all it has read before it refuses to read on: so it was
                // the first of what it did not answer.
                if let ClientError::Status(status) = &error
                    && matches!(status.code(), Code::OutOfRange | Code::InvalidArgument)
                {
                    let first = self.open.fail_first_in_flight(ClientError::Status(status.clone()));
                    first.iter().for_each(|event| self.forget(event));
                }
                self.open.lost();
                self.link.down(&error, now);
            }
        }
    }

    fn read(&mut self, response: pb::PublishStreamResponse, now: Duration) {
        for answer in response.answers {
            let number = answer.number;
            let hopeless = self.open.answered(number, only_result(answer), now);
            hopeless.iter().for_each(|event| self.forget(event));
        }
        self.counts.resends_asked.fetch_add(response.resends.len() as u64, Ordering::Relaxed);
        if let Some(asks) = &mut self.asks {
            let of_topic = response.resends.into_iter().filter(|ask| ask.topic == self.topic);
            asks.extend(of_topic.take(ASKS_MAX - asks.len()));
        }
    }

    /// An event that no lane will ever have is not worth being asked for.
    fn forget(&self, event: &Arc<pb::Event>) {
        self.ring.lock().expect("nobody panics holding it").forget(event);
    }

    /// Lets what was asked for stand in line, as far as there is room for it.
    fn resend(&mut self, now: Duration) {
        let Some(asks) = &mut self.asks else { return };
        while let Some(ask) = asks.front_mut() {
            let room = RESENDS_OPEN_MAX - self.open.resends();
            if room == 0 {
                return;
            }
            let found = self.ring.lock().expect("nobody panics holding it").asked(ask, room);
            let last = found.last().map(|event| event.sequence());
            let is_cut = found.len() == room && last.is_some_and(|last| last < ask.to);
            self.counts.resent.fetch_add(found.len() as u64, Ordering::Relaxed);
            found.into_iter().for_each(|event| self.open.publish(event, None, now));
            match last {
                Some(last) if is_cut => ask.from = last + 1,
                _ => drop(asks.pop_front()),
            }
        }
    }
}

/// Why a stream ended.
fn error_of(ended: Option<Status>) -> ClientError {
    match ended {
        // It has a cause here: nobody answered, the connection broke.
        Some(status) if status.source().is_none() => ClientError::Status(Box::new(status)),
        Some(_) | None => ClientError::Lost,
    }
}

/// Our requests have one event each.
fn only_result(answer: pb::Answer) -> Outcome {
    let result = outcome_of(answer)?.into_iter().next();
    result.ok_or_else(|| ClientError::Failed {
        code: Code::Internal as u32,
        message: "the sidecar answered without a result; is it a sidecar of this version?".to_owned(),
        retry_after_ms: 0,
    })
}

/// Armed anew only for an earlier time: to wake for nothing is harmless.
struct Timer {
    clock: Arc<dyn Clock>,
    armed: Option<(Duration, BoxFuture<'static, ()>)>,
}

impl Timer {
    async fn reach(&mut self, wake: Option<Duration>, now: Duration) {
        let Some(wake) = wake else { return pending().await };
        if self.armed.as_ref().is_none_or(|(at, _)| *at > wake) {
            self.armed = Some((wake, self.clock.sleep(wake.saturating_sub(now))));
        }
        if let Some((_, armed)) = &mut self.armed {
            armed.await;
        }
        self.armed = None;
    }
}
