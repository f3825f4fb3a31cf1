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
    request: Option<Request>,
}

/// The place of one event in its request. Dropping it unsettled answers
/// "unavailable", so that no request waits for ever.
pub struct Ticket(Option<Place>);

enum Place {
    /// Most requests have one event, and need nobody to wait for.
    Alone(Request),
    Among {
        open: Arc<(AtomicUsize, Mutex<Open>)>,
        index: usize,
    },
}

impl Request {
    pub fn new(taken: Taken, done: impl FnOnce(Vec<Outcome>) + Send + 'static) -> Self {
        Request { done: Box::new(done), taken }
    }

    /// One ticket per event; there is at least one.
    pub(super) fn into_tickets(self, events: usize) -> impl Iterator<Item = Ticket> {
        assert!(events > 0, "an empty request would never be answered");
        let (alone, among) = if events == 1 {
            (Some(self), None)
        } else {
            let open = Open { outcomes: vec![None; events], request: Some(self) };
            (None, Some(Arc::new((AtomicUsize::new(events), Mutex::new(open)))))
        };
        let among = (0..).zip(std::iter::repeat_n(among, events));
        let among = among.filter_map(|(index, open)| Some(Place::Among { open: open?, index }));
        alone.map(Place::Alone).into_iter().chain(among).map(|place| Ticket(Some(place)))
    }

    /// Gives back its share, then tells.
    fn answer(self, outcomes: Vec<Outcome>) {
        drop(self.taken);
        (self.done)(outcomes);
    }
}

impl Ticket {
    pub fn settle(mut self, outcome: Outcome) {
        self.put(outcome);
    }

    fn put(&mut self, outcome: Outcome) {
        match self.0.take() {
            None => {}
            Some(Place::Alone(request)) => request.answer(vec![outcome]),
            Some(Place::Among { open, index }) => settle_among(&open, index, outcome),
        }
    }
}

fn settle_among((unsettled, open): &(AtomicUsize, Mutex<Open>), index: usize, outcome: Outcome) {
    let mut open = open.lock().expect("nobody panics holding it");
    open.outcomes[index] = Some(outcome);
    if unsettled.fetch_sub(1, Ordering::AcqRel) > 1 {
        return;
    }
    let outcomes = std::mem::take(&mut open.outcomes);
    let request = open.request.take().expect("only the last ticket takes it");
    drop(open);
    request.answer(outcomes.into_iter().map(|outcome| outcome.expect("all are settled")).collect());
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.is_some() {
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
