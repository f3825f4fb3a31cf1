//! One request's events on their way through different partitions, and the moment
//! when all of them are answered.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use super::{in_flight::Taken, outcome::Outcome};

/// Who has many requests, and wants to know what became of each of them.
pub trait Asker: Send + Sync {
    /// Told once for each, when every event of it is answered, in the order of the request.
    fn answer(&self, number: u64, outcomes: Outcomes<'_>);
}

/// What became of a request's events, in its order.
type Outcomes<'a> = &'a mut dyn ExactSizeIterator<Item = Outcome>;

/// Who is told.
enum Done {
    Once(Box<dyn FnOnce(Outcomes<'_>) + Send>),
    /// This request of many.
    Asker(Arc<dyn Asker>, u64),
}

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
    pub fn new(taken: Taken, done: impl FnOnce(Outcomes<'_>) + Send + 'static) -> Self {
        Request { done: Done::Once(Box::new(done)), taken }
    }

    /// The one that has this number there.
    pub fn of(asker: Arc<dyn Asker>, number: u64, taken: Taken) -> Self {
        Request { done: Done::Asker(asker, number), taken }
    }

    /// One ticket per event; there is at least one.
    pub(super) fn into_tickets(self, events: usize) -> impl Iterator<Item = Ticket> {
        assert!(events > 0, "an empty request would never be answered");
        let (mut alone, among) = if events == 1 {
            (Some(self), None)
        } else {
            let open = Open { outcomes: vec![None; events], request: Some(self) };
            (None, Some(Arc::new((AtomicUsize::new(events), Mutex::new(open)))))
        };
        (0..events).map(move |index| {
            let among = || among.clone().map(|open| Place::Among { open, index });
            Ticket(alone.take().map(Place::Alone).or_else(among))
        })
    }

    /// Tells; what is left is its share.
    fn answer(self, outcomes: Outcomes<'_>) -> Taken {
        match self.done {
            Done::Once(done) => done(outcomes),
            Done::Asker(asker, number) => asker.answer(number, outcomes),
        }
        self.taken
    }
}

impl Ticket {
    /// Returns what its request had taken, if this was the last of its events.
    #[must_use = "what it returns may be given back together with that of others"]
    pub fn settle(mut self, outcome: Outcome) -> Taken {
        self.put(outcome)
    }

    fn put(&mut self, outcome: Outcome) -> Taken {
        match self.0.take() {
            None => Taken::default(),
            Some(Place::Alone(request)) => request.answer(&mut std::iter::once(outcome)),
            Some(Place::Among { open, index }) => settle_among(&open, index, outcome),
        }
    }
}

fn settle_among((unsettled, open): &(AtomicUsize, Mutex<Open>), index: usize, outcome: Outcome) -> Taken {
    let mut open = open.lock().expect("nobody panics holding it");
    open.outcomes[index] = Some(outcome);
    if unsettled.fetch_sub(1, Ordering::AcqRel) > 1 {
        return Taken::default();
    }
    let outcomes = std::mem::take(&mut open.outcomes);
    let request = open.request.take().expect("only the last ticket takes it");
    drop(open);
    request.answer(&mut outcomes.into_iter().map(|outcome| outcome.expect("all are settled")))
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.0.is_some() {
            drop(self.put(Outcome::Unavailable("this sidecar is stopping".to_owned())));
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
        let tell = move |outcomes: &mut dyn ExactSizeIterator<Item = Outcome>| {
            sender.send(outcomes.collect::<Vec<_>>()).unwrap();
        };
        let request = Request::new(Taken::default(), tell);
        let mut tickets: Vec<Ticket> = request.into_tickets(3).collect();
        drop(tickets.pop().unwrap().settle(outcome("third")));
        drop(tickets.remove(0).settle(outcome("first")));
        assert!(receiver.try_recv().is_err());
        drop(tickets.pop().unwrap().settle(outcome("second")));
        assert_eq!(receiver.try_recv().unwrap(), ["first", "second", "third"].map(outcome));
    }

    #[test]
    fn a_ticket_that_is_dropped_answers_too() {
        let (sender, receiver) = channel();
        let tell = move |outcomes: &mut dyn ExactSizeIterator<Item = Outcome>| {
            sender.send(outcomes.collect::<Vec<_>>()).unwrap();
        };
        let request = Request::new(Taken::default(), tell);
        drop(request.into_tickets(2).collect::<Vec<_>>());
        let outcomes = receiver.try_recv().unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Unavailable(_))));
    }
}
