//! One request's events on their way through different partitions, and the moment
//! when all of them are answered.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use super::{in_flight::Taken, outcome::Outcome};

/// Told once, when every event of a request is answered, in the order of the request.
type Done = Box<dyn FnOnce(Vec<Outcome>) + Send>;

pub struct Request {
    done: Done,
    taken: Taken,
}

struct Open {
    outcomes: Vec<Option<Outcome>>,
    done: Option<Done>,
    /// Given back when the request is answered or forgotten.
    _taken: Taken,
}

/// The place of one event in its request. Dropping it unsettled answers
/// "unavailable", so that no request waits for ever.
pub struct Ticket {
    open: Arc<(AtomicUsize, Mutex<Open>)>,
    index: usize,
    settled: bool,
}

impl Request {
    pub fn new(taken: Taken, done: impl FnOnce(Vec<Outcome>) + Send + 'static) -> Self {
        Request { done: Box::new(done), taken }
    }

    /// One ticket per event; there is at least one.
    pub(super) fn into_tickets(self, events: usize) -> impl Iterator<Item = Ticket> {
        assert!(events > 0, "an empty request would never be answered");
        let open = Open { outcomes: vec![None; events], done: Some(self.done), _taken: self.taken };
        let open = Arc::new((AtomicUsize::new(events), Mutex::new(open)));
        (0..events).map(move |index| Ticket { open: open.clone(), index, settled: false })
    }
}

impl Ticket {
    pub fn settle(mut self, outcome: Outcome) {
        self.put(outcome);
    }

    fn put(&mut self, outcome: Outcome) {
        self.settled = true;
        let (unsettled, open) = &*self.open;
        let mut open = open.lock().expect("nobody panics holding it");
        open.outcomes[self.index] = Some(outcome);
        if unsettled.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let outcomes = std::mem::take(&mut open.outcomes);
        let done = open.done.take().expect("only the last ticket takes it");
        drop(open);
        done(outcomes.into_iter().map(|outcome| outcome.expect("all are settled")).collect());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            self.put(Outcome::Unavailable("this sidecar is stopping".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn outcome(text: &str) -> Outcome {
        Outcome::Unavailable(text.to_owned())
    }

    #[test]
    fn a_request_is_answered_once_all_its_events_are_in_their_order() {
        let (sender, receiver) = channel();
        let request = Request::new(Taken::nothing(), move |outcomes| sender.send(outcomes).unwrap());
        let mut tickets: Vec<Ticket> = request.into_tickets(3).collect();
        tickets.pop().unwrap().settle(outcome("third"));
        tickets.remove(0).settle(outcome("first"));
        assert!(receiver.try_recv().is_err());
        tickets.pop().unwrap().settle(outcome("second"));
        assert_eq!(receiver.try_recv().unwrap(), ["first", "second", "third"].map(outcome));
    }

    #[test]
    fn a_ticket_that_is_dropped_answers_too() {
        let (sender, receiver) = channel();
        let request = Request::new(Taken::nothing(), move |outcomes| sender.send(outcomes).unwrap());
        drop(request.into_tickets(2).collect::<Vec<_>>());
        let outcomes = receiver.try_recv().unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unavailable(_))));
    }
}
