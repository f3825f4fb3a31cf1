//! The task that owns one partition: its queue, its batches, its one call in flight.
//!
//! It begins with a call without events: whatever an earlier process left half
//! drained goes on. That is all the recovery there is.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::{error, info, warn};

use super::{Options, Ports, Taken, closing::Closing, hints::Hints, outcome::Outcome, request::Ticket};
use crate::{
    metrics::TopicMetrics,
    order::{Entity, Position, Verdict},
    random::Random,
    store::{Admitted, Batch, Offer, PartitionId, StoreError},
};

/// Events of one entity that an assigned lane may have in flight: far fewer than the
/// 64 ids it remembers, so that a retry is always recognised.
pub const ASSIGNED_IN_FLIGHT_MAX: usize = 16;

/// The first wait after a store error; it doubles up to the longest.
const BACKOFF_FIRST: Duration = Duration::from_millis(5);
const BACKOFF_LONGEST: Duration = Duration::from_millis(500);

/// A partition whose last batch was at least so large is busy: its next one waits for company.
const BUSY_EVENTS: usize = 16;
/// How often all other tasks have their turn meanwhile, unless so many events are there before.
const GATHER_ROUNDS: usize = 48;
const ENOUGH_EVENTS: usize = 64;
/// Calls of busy partitions that are in the store's hands at a time. Some, so that it can go on with one while the
/// answers of another are handed out; fewer, and larger ones, than there are partitions.
pub(super) const BUSY_CALLS_MAX: usize = 8;

pub(super) struct Submission {
    pub offer: Offer,
    pub ticket: Ticket,
    /// When it arrived, on the port's clock.
    pub received: Duration,
}

pub(super) struct Owner {
    id: PartitionId,
    options: Options,
    ports: Ports,
    metrics: Arc<TopicMetrics>,
    random: Random,
    /// Shared by all partitions of this sidecar.
    turns: Arc<Semaphore>,
    waiting: VecDeque<Submission>,
    is_busy: bool,
    /// Waiting events per entity, of topics whose lanes assign sequences.
    assigned: HashMap<Entity, usize>,
    hints: Hints,
    /// The last call ran out of room, or there was none yet.
    more: bool,
    store_answers: bool,
}

impl Owner {
    pub fn new(
        id: PartitionId,
        hints: Hints,
        options: Options,
        ports: Ports,
        metrics: Arc<TopicMetrics>,
        random: Random,
        turns: Arc<Semaphore>,
    ) -> Self {
        Owner {
            id,
            options,
            ports,
            metrics,
            random,
            turns,
            waiting: VecDeque::new(),
            is_busy: false,
            assigned: HashMap::new(),
            hints,
            more: true,
            store_answers: true,
        }
    }

    pub async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Submission>, closing: Closing) {
        loop {
            if self.waiting.is_empty() && !self.more {
                tokio::select! {
                    biased;
                    first = queue.recv() => match first {
                        Some(first) => self.enqueue(first),
                        None => return,
                    },
                    () = closing.begun() => return,
                }
                // Lets the connections finish decoding what they have already read:
                // a burst then becomes one batch instead of a small and a large one.
                tokio::task::yield_now().await;
            }
            let turn = self.turn().await;
            self.gather(&mut queue).await;
            self.commit(turn).await;
            // Whoever is told to end does so even if a lane is left half drained: others
            // go on with it.
            if closing.has_begun() && self.waiting.is_empty() && queue.is_empty() {
                return;
            }
        }
    }

    /// Whoever is busy waits until fewer others are in the store's hands, and takes what has come meanwhile.
    async fn turn(&mut self) -> Option<OwnedSemaphorePermit> {
        if !self.is_busy {
            return None;
        }
        Some(self.turns.clone().acquire_owned().await.expect("it is never closed"))
    }

    /// Takes what is there. Where many events come, a call costs as much as some ten of them, and while the store is busy
    /// with other partitions a small call is not answered sooner than a large one: so there it waits for some more.
    /// Where few come, nobody waits.
    async fn gather(&mut self, queue: &mut mpsc::UnboundedReceiver<Submission>) {
        let rounds = if self.is_busy { GATHER_ROUNDS } else { 0 };
        for _ in 0..rounds {
            if self.waiting.len() + queue.len() >= ENOUGH_EVENTS {
                break;
            }
            tokio::task::yield_now().await;
        }
        while let Ok(submission) = queue.try_recv() {
            self.enqueue(submission);
        }
        self.is_busy = self.waiting.len() >= BUSY_EVENTS;
    }

    fn enqueue(&mut self, submission: Submission) {
        if let Position::Assigned { .. } = submission.offer.event.position {
            let waiting = self.assigned.entry(submission.offer.entity.clone()).or_default();
            if *waiting >= ASSIGNED_IN_FLIGHT_MAX {
                let detail = format!(
                    "{ASSIGNED_IN_FLIGHT_MAX} events of this entity are in flight; wait for their verdicts"
                );
                let outcome = Outcome::Refused { reason: "assigned_in_flight", detail };
                outcome.count(&self.metrics);
                drop(submission.ticket.settle(outcome));
                return;
            }
            *waiting += 1;
        }
        self.waiting.push_back(submission);
    }

    /// Offers the next batch and answers what was decided.
    async fn commit(&mut self, turn: Option<OwnedSemaphorePermit>) {
        let (batch, submitted) = self.next_batch();
        let oldest = submitted.iter().map(|(_, received)| *received).min();
        let offered = self.offer(&batch, oldest, turn).await;
        let now = self.ports.clock.now();
        match offered {
            Ok(admitted) => {
                self.more = admitted.more;
                self.metrics.drained.inc_by(admitted.drained);
                self.metrics.after_terminal.inc_by(admitted.after_terminal);
                self.metrics.note(&admitted.notes);
                self.note_events(now, &admitted, &submitted);
                let mut undecided = Vec::new();
                let mut taken = Taken::default();
                for ((decision, offer), (ticket, received)) in
                    admitted.decisions.into_iter().zip(batch.into_offers()).zip(submitted)
                {
                    if decision.verdict == Verdict::Again {
                        undecided.push(Submission { offer, ticket, received });
                        continue;
                    }
                    self.hints.learn(&offer, decision.verdict);
                    taken.join(self.settle(&offer, ticket, Outcome::Decided(decision)));
                }
                undecided.into_iter().rev().for_each(|submission| self.waiting.push_front(submission));
            }
            Err(error) => {
                // What was left half drained is still there; try again unless it is no use.
                self.more &= error.is_passing();
                for (offer, (ticket, _)) in batch.into_offers().into_iter().zip(submitted) {
                    let outcome = match &error {
                        StoreError::NotExecuted(_) | StoreError::Ambiguous(_) => {
                            Outcome::Unavailable(error.to_string())
                        }
                        StoreError::Broken(_) => Outcome::Broken(error.to_string()),
                    };
                    drop(self.settle(&offer, ticket, outcome));
                }
                self.give_up_waiting(now, &error);
            }
        }
    }

    /// Answers those behind a failed batch whose own time is up, too: or the waits
    /// would add up along the queue.
    fn give_up_waiting(&mut self, now: Duration, error: &StoreError) {
        let is_late = |s: &Submission| now.saturating_sub(s.received) >= self.options.store_wait;
        let late = self.waiting.iter().take_while(|submission| is_late(submission)).count();
        let given_up: Vec<Submission> = self.waiting.drain(..late).collect();
        for Submission { offer, ticket, .. } in given_up {
            drop(self.settle(&offer, ticket, Outcome::Unavailable(error.to_string())));
        }
    }

    fn settle(&mut self, offer: &Offer, ticket: Ticket, outcome: Outcome) -> Taken {
        if let Position::Assigned { .. } = offer.event.position {
            let waiting = self.assigned.get_mut(&offer.entity).expect("it was counted when it came");
            *waiting -= 1;
            if *waiting == 0 {
                self.assigned.remove(&offer.entity);
            }
        }
        outcome.count(&self.metrics);
        ticket.settle(outcome)
    }

    /// The longest run of waiting events within the limits; a large one alone.
    fn next_batch(&mut self) -> (Batch, Vec<(Ticket, Duration)>) {
        let (mut events, mut bytes) = (0, 0);
        for submission in self.waiting.iter().take(self.options.batch_events) {
            bytes += submission.offer.size();
            if events > 0 && bytes > self.options.batch_bytes {
                break;
            }
            events += 1;
        }
        let taken = self.waiting.drain(..events).map(|s| (s.offer, (s.ticket, s.received)));
        Batch::form_by(taken.collect(), |lane| self.hints.guess(lane))
    }

    /// Offers a batch until the store answers, or for as long as its oldest event may
    /// wait; at least once. Its turn ends with the first answer: nobody waits for who tries again.
    async fn offer(
        &mut self,
        batch: &Batch,
        oldest: Option<Duration>,
        mut turn: Option<OwnedSemaphorePermit>,
    ) -> Result<Admitted, StoreError> {
        let begun = oldest.unwrap_or_else(|| self.ports.clock.now());
        let mut backoff = BACKOFF_FIRST;
        loop {
            let called = self.ports.clock.now();
            let outcome = self.ports.store.admit(&self.id, batch).await;
            drop(turn.take());
            let now = self.ports.clock.now();
            match outcome {
                Ok(admitted) => {
                    self.note_answer(batch, &admitted, now.saturating_sub(called));
                    return Ok(admitted);
                }
                Err(error) => {
                    self.note_error(&error);
                    let waited = now.saturating_sub(begun);
                    if !error.is_passing() || waited + backoff > self.options.store_wait {
                        return Err(error);
                    }
                }
            }
            let wait = self.jittered(backoff);
            self.ports.clock.sleep(wait).await;
            backoff = (backoff * 2).min(BACKOFF_LONGEST);
        }
    }

    /// Between half and all of it, so that partitions do not knock together.
    fn jittered(&mut self, wait: Duration) -> Duration {
        let half = wait / 2;
        half + Duration::from_micros(self.random.below(half.as_micros().max(1) as u64))
    }

    fn note_answer(&mut self, batch: &Batch, admitted: &Admitted, took: Duration) {
        if !self.store_answers {
            self.store_answers = true;
            info!(partition = %self.id, "the store answers again");
        }
        self.metrics.call_seconds[admitted.path as usize].observe(took.as_secs_f64());
        self.ports.metrics.batch_events.observe(batch.offers().len() as f64);
    }

    /// How deep in its lane each event that was decided is, and how long it took.
    fn note_events(&self, now: Duration, admitted: &Admitted, submitted: &[(Ticket, Duration)]) {
        let decided =
            || admitted.decisions.iter().zip(submitted).filter(|(d, _)| d.verdict != Verdict::Again);
        self.metrics.lane_depth.observe_all(decided().map(|(decision, _)| match decision.verdict {
            Verdict::Parked { depth } => depth as f64,
            _ => 0.0,
        }));
        let took = |received: &Duration| now.saturating_sub(*received).as_secs_f64();
        self.metrics.publish_seconds.observe_all(decided().map(|(_, (_, received))| took(received)));
    }

    fn note_error(&mut self, error: &StoreError) {
        self.ports.metrics.count_store_error(error.class());
        // Once per outage: a line for every attempt would bury everything else.
        if std::mem::replace(&mut self.store_answers, false) {
            if error.is_passing() {
                warn!(partition = %self.id, %error, "the store does not answer; offering again");
            } else {
                error!(partition = %self.id, %error, "events of this partition are turned away");
            }
        }
    }
}
