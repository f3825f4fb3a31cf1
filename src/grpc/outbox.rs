//! A stream's answers on their way out.
//!
//! A call to the store answers hundreds of events at once, most of them of one stream. So answers are put where the
//! stream takes them all together: no message between tasks for each, and nobody is woken but by the first.
//!
//! What is in here has places in the stream's window, or is one of a bounded number of questions.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::Notify;
use tonic::Status;

use super::{pb, status, wire};
use crate::ingest::{Asker, Outcome};

/// Answers that travel in one message, at most.
const ANSWERS_MAX: usize = 256;

/// Room for so many is made at once.
const ANSWERS_USUAL: usize = 32;

/// Questions to the producer that wait to be sent; further ones are dropped, and asked
/// again by the next probe.
const RESENDS_UNSENT_MAX: usize = 256;

/// Where answers are put. Shared by the reader and all requests that are not answered; the stream ends when the last
/// of them is gone.
pub struct Outbox {
    shared: Arc<Shared>,
    /// The most places that a request has in the window.
    places_max: usize,
}

/// Where they are taken.
pub struct Outgoing {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    unsent: Mutex<Unsent>,
    /// There is something to send where nothing was, or the stream ends.
    came: Notify,
    /// Nobody takes answers any more.
    gone: Notify,
}

#[derive(Default)]
struct Unsent {
    answers: VecDeque<pb::Answer>,
    /// How many places in the window they have.
    places: usize,
    resends: Vec<pb::Resend>,
    failure: Option<Status>,
    /// Nothing will come any more.
    is_closed: bool,
}

/// What goes out next.
pub struct Ready {
    pub response: pb::PublishStreamResponse,
    /// Places in the window that are free by that.
    pub places: usize,
    /// How the stream ends behind it, if it does.
    pub failure: Option<Status>,
}

/// Of a stream whose window has so many places.
pub fn outbox(places_max: usize) -> (Outbox, Outgoing) {
    let shared = Arc::<Shared>::default();
    (Outbox { shared: shared.clone(), places_max }, Outgoing { shared })
}

impl Shared {
    fn unsent(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().expect("nobody panics holding it")
    }
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.answers.is_empty() && self.resends.is_empty() && self.failure.is_none()
    }

    /// All of it, if it is not too much for a message.
    fn take(&mut self) -> Ready {
        let answers = match self.answers.len() {
            // Nearly always; nothing is copied.
            ..=ANSWERS_MAX => std::mem::take(&mut self.answers).into(),
            _ => self.answers.drain(..ANSWERS_MAX).collect(),
        };
        // Whoever sends more than one message frees the places with the last.
        let places = if self.answers.is_empty() { std::mem::take(&mut self.places) } else { 0 };
        let failure = if self.answers.is_empty() { self.failure.take() } else { None };
        let response = pb::PublishStreamResponse { answers, resends: std::mem::take(&mut self.resends) };
        Ready { response, places, failure }
    }
}

impl Outbox {
    /// How many places a request with so many events has in the window.
    pub fn places(&self, events: usize) -> usize {
        events.clamp(1, self.places_max)
    }

    pub fn answer(&self, answer: pb::Answer, places: usize) {
        self.put(|unsent| {
            if unsent.answers.is_empty() {
                unsent.answers.reserve(ANSWERS_USUAL);
            }
            unsent.answers.push_back(answer);
            unsent.places += places;
        });
    }

    pub fn ask(&self, resend: pb::Resend) {
        self.put(|unsent| {
            if unsent.resends.len() < RESENDS_UNSENT_MAX {
                unsent.resends.push(resend);
            }
        });
    }

    /// The stream cannot go on.
    pub fn fail(&self, status: Status) {
        self.put(|unsent| unsent.failure = Some(status));
    }

    fn put(&self, put: impl FnOnce(&mut Unsent)) {
        let mut unsent = self.shared.unsent();
        let was_empty = unsent.is_empty();
        put(&mut unsent);
        drop(unsent);
        if was_empty {
            self.shared.came.notify_one();
        }
    }

    /// Until nobody takes answers any more. One at a time may wait for it.
    pub async fn gone(&self) {
        self.shared.gone.notified().await;
    }
}

impl Asker for Outbox {
    fn answer(&self, number: u64, outcomes: &mut dyn ExactSizeIterator<Item = Outcome>) {
        let places = self.places(outcomes.len());
        let (results, failure) = match wire::results(outcomes) {
            Ok(results) => (results, None),
            Err(failed) => (Vec::new(), Some(status::failure(&status::failed(failed)))),
        };
        self.answer(pb::Answer { number, results, failure }, places);
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.shared.unsent().is_closed = true;
        self.shared.came.notify_one();
    }
}

impl Outgoing {
    /// What is ready; nothing if the stream has ended.
    pub async fn next(&mut self) -> Option<Ready> {
        loop {
            {
                let mut unsent = self.shared.unsent();
                if !unsent.is_empty() {
                    return Some(unsent.take());
                }
                if unsent.is_closed {
                    return None;
                }
            }
            self.shared.came.notified().await;
        }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.shared.gone.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn answer(number: u64) -> pb::Answer {
        pb::Answer { number, ..Default::default() }
    }

    #[test]
    fn what_is_ready_goes_together_and_not_too_much_of_it() {
        let (outbox, mut outgoing) = outbox(1024);
        assert!(outgoing.next().now_or_never().is_none());
        for number in 0..ANSWERS_MAX as u64 + 2 {
            outbox.answer(answer(number), 1);
        }
        outbox.fail(Status::unavailable("it ends"));
        let first = outgoing.next().now_or_never().unwrap().unwrap();
        assert_eq!((first.response.answers.len(), first.places, first.failure.is_none()), (256, 0, true));
        let second = outgoing.next().now_or_never().unwrap().unwrap();
        let numbers: Vec<u64> = second.response.answers.iter().map(|answer| answer.number).collect();
        assert_eq!((numbers, second.places, second.failure.is_some()), (vec![256, 257], 258, true));
        assert!(outgoing.next().now_or_never().is_none(), "a request may still be answered");
        drop(outbox);
        assert!(outgoing.next().now_or_never().unwrap().is_none());
    }

    #[tokio::test]
    async fn whoever_waits_is_woken_by_the_first_answer_and_by_the_end() {
        let (outbox, mut outgoing) = outbox(1024);
        let taken = tokio::spawn(async move {
            let mut taken = 0;
            while let Some(ready) = outgoing.next().await {
                taken += ready.response.answers.len();
            }
            taken
        });
        for number in 0..3 {
            tokio::task::yield_now().await;
            outbox.answer(answer(number), 1);
        }
        drop(outbox);
        assert_eq!(taken.await.unwrap(), 3);
    }

    #[test]
    fn questions_are_bounded_and_an_end_is_told() {
        let (outbox, mut outgoing) = outbox(1024);
        (0..=RESENDS_UNSENT_MAX).for_each(|_| outbox.ask(pb::Resend::default()));
        let ready = outgoing.next().now_or_never().unwrap().unwrap();
        assert_eq!(ready.response.resends.len(), RESENDS_UNSENT_MAX);
        assert!(outbox.gone().now_or_never().is_none());
        drop(outgoing);
        assert!(outbox.gone().now_or_never().is_some(), "also if nobody was waiting for it");
    }
}
