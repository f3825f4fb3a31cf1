//! What is published and has no verdict yet: who stands in line, who is in flight, who
//! was turned away and comes again, and whose time is up.
//!
//! Knows no connection; time is an argument. Every event is in exactly one stage, and
//! leaves by an answer, by being given up, or by a failure that repeating cannot mend.
//!
//! Turns are given in the order of the calls. What a lost connection left unanswered keeps
//! its turns, so it goes again first and in order; what was turned away gets a new turn
//! when its time has come, so neither it nor what is new can starve the other.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tonic::Code;

use super::ClientError;
use crate::grpc::pb::{self, Verdict};

pub type Outcome = Result<pb::Result, ClientError>;

/// The one who published the event, and its share of `open_max`.
pub struct Caller {
    pub answer: oneshot::Sender<Outcome>,
    pub place: OwnedSemaphorePermit,
}

pub struct OpenEvents {
    in_flight_max: usize,
    give_up_after: Duration,
    next_id: u64,
    next_turn: u64,
    /// By age, and so in the order of their deadlines.
    open: BTreeMap<u64, Open>,
    /// Ids by turn.
    line: BTreeMap<u64, u64>,
    /// Ids by turn, which is the number of the request. One that was given up stays until
    /// its answer comes or the stream ends: it may still lie in a buffer on its way.
    in_flight: BTreeMap<u64, u64>,
    /// Since when something is in flight and nothing is answered.
    silent_since: Option<Duration>,
    /// When each comes again, and its id.
    away: BTreeSet<(Duration, u64)>,
    resends: usize,
}

struct Open {
    event: Arc<pb::Event>,
    /// Nobody waits for an event that is published again because it was asked for.
    caller: Option<Caller>,
    deadline: Duration,
    stage: Stage,
    is_new: bool,
    /// How it was turned away the last time.
    turned_away: Option<String>,
}

#[derive(Clone, Copy)]
enum Stage {
    InLine { turn: u64 },
    InFlight,
    Away { due: Duration },
}

/// A request to be sent now.
pub struct Sending {
    pub number: u64,
    pub event: Arc<pb::Event>,
    /// It was never sent before.
    pub is_new: bool,
}

/// An answer that says no time to come again means this.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Of a sentence that came from outside, in characters: many events may keep one.
const REASON_SHOWN: usize = 200;

impl OpenEvents {
    pub fn new(in_flight_max: usize, give_up_after: Duration) -> Self {
        OpenEvents {
            in_flight_max,
            give_up_after,
            next_id: 0,
            next_turn: 0,
            open: BTreeMap::new(),
            line: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            silent_since: None,
            away: BTreeSet::new(),
            resends: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many of them are published again because they were asked for.
    pub fn resends(&self) -> usize {
        self.resends
    }

    /// Puts an event at the end of the line.
    pub fn publish(&mut self, event: Arc<pb::Event>, caller: Option<Caller>, now: Duration) {
        self.resends += usize::from(caller.is_none());
        let id = next(&mut self.next_id);
        let stage = Stage::InLine { turn: self.join_line(id) };
        let deadline = now.saturating_add(self.give_up_after);
        self.open.insert(id, Open { event, caller, deadline, stage, is_new: true, turned_away: None });
    }

    /// Takes the first of the line, unless enough are in flight.
    pub fn send(&mut self, now: Duration) -> Option<Sending> {
        if self.in_flight.len() >= self.in_flight_max {
            return None;
        }
        let (turn, id) = self.line.pop_first()?;
        self.in_flight.insert(turn, id);
        self.silent_since.get_or_insert(now);
        let open = self.open.get_mut(&id).expect("what stands in line is open");
        open.stage = Stage::InFlight;
        let is_new = mem::replace(&mut open.is_new, false);
        Some(Sending { number: turn, event: open.event.clone(), is_new })
    }

    /// Takes in an answer. Returns the event if it will never be in a lane. An answer that
    /// nobody waits for any more changes nothing.
    pub fn answered(&mut self, number: u64, outcome: Outcome, now: Duration) -> Option<Arc<pb::Event>> {
        let id = self.in_flight.remove(&number)?;
        self.silent_since = (!self.in_flight.is_empty()).then_some(now);
        let open = self.open.get_mut(&id)?;
        if let Some((after, why)) = turned_away(&outcome) {
            let due = now + after;
            open.stage = Stage::Away { due };
            open.turned_away = Some(why.chars().take(REASON_SHOWN).collect());
            self.away.insert((due, id));
            return None;
        }
        let verdict = outcome.as_ref().map_or(Verdict::Unspecified, pb::Result::verdict);
        let event = self.settle(id, outcome);
        matches!(verdict, Verdict::Invalid | Verdict::Conflict | Verdict::Stale).then_some(event)
    }

    /// The connection was lost: what is in flight stands in line again, at its old turns.
    pub fn lost(&mut self) {
        self.silent_since = None;
        for (turn, id) in mem::take(&mut self.in_flight) {
            if let Some(open) = self.open.get_mut(&id) {
                open.stage = Stage::InLine { turn };
                self.line.insert(turn, id);
            }
        }
    }

    /// Of what is in flight, what was sent first cannot be sent. Returns it.
    pub fn fail_first_in_flight(&mut self, error: ClientError) -> Option<Arc<pb::Event>> {
        let (_, id) = self.in_flight.pop_first()?;
        self.open.contains_key(&id).then(|| self.settle(id, Err(error)))
    }

    pub fn fail_all(&mut self, error: impl Fn() -> ClientError) {
        while let Some((id, _)) = self.open.first_key_value() {
            self.leave(*id, Err(error()));
        }
    }

    /// Since when something is in flight and nothing is answered.
    pub fn silent_since(&self) -> Option<Duration> {
        self.silent_since
    }

    /// When [`elapse`](Self::elapse) has something to do.
    pub fn next_wake(&self) -> Option<Duration> {
        let gives_up = self.open.values().next().map(|open| open.deadline);
        let comes_again = self.away.first().map(|(due, _)| *due);
        gives_up.into_iter().chain(comes_again).min()
    }

    /// Lets those stand in line again whose time has come, and gives up those whose time
    /// is up; `down` says why there is no connection, if there is none.
    pub fn elapse(&mut self, now: Duration, down: Option<&str>) {
        while let Some((id, open)) = self.open.first_key_value().filter(|(_, open)| open.deadline <= now) {
            let last = match (down, &open.turned_away, open.stage) {
                (Some(down), _, _) => down.to_owned(),
                (None, Some(why), _) => why.clone(),
                (None, None, Stage::InFlight) => "it was sent, but no answer came".to_owned(),
                (None, None, Stage::InLine { .. } | Stage::Away { .. }) => {
                    format!("in_flight_max ({}) events before it have no answer", self.in_flight_max)
                }
            };
            self.leave(*id, Err(ClientError::GaveUp { after: self.give_up_after, last }));
        }
        while let Some((_, id)) = self.away.first().copied().filter(|(due, _)| *due <= now) {
            self.away.pop_first();
            let turn = self.join_line(id);
            self.open.get_mut(&id).expect("what is away is open").stage = Stage::InLine { turn };
        }
    }

    fn join_line(&mut self, id: u64) -> u64 {
        let turn = next(&mut self.next_turn);
        self.line.insert(turn, id);
        turn
    }

    /// Ends an open event, whatever its stage.
    fn leave(&mut self, id: u64, outcome: Outcome) {
        match self.open[&id].stage {
            Stage::InLine { turn } => drop(self.line.remove(&turn)),
            Stage::InFlight => {}
            Stage::Away { due } => drop(self.away.remove(&(due, id))),
        }
        self.settle(id, outcome);
    }

    /// Ends an open event that is neither in line nor away any more.
    fn settle(&mut self, id: u64, outcome: Outcome) -> Arc<pb::Event> {
        let open = self.open.remove(&id).expect("it is settled once");
        match open.caller {
            Some(Caller { answer, place }) => {
                // Whoever awaits the answer finds the place free.
                drop(place);
                // Nobody listens any more if the answer was dropped: harmless.
                let _ = answer.send(outcome);
            }
            None => self.resends -= 1,
        }
        open.event
    }
}

fn next(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter - 1
}

/// If the event is to be published again: after what time, and why.
fn turned_away(outcome: &Outcome) -> Option<(Duration, String)> {
    let after = |retry_after_ms: u32| match retry_after_ms {
        0 => RETRY_AFTER,
        ms => Duration::from_millis(ms.into()),
    };
    match outcome {
        Ok(result) if result.verdict() == Verdict::Refused => {
            Some((after(result.retry_after_ms), format!("REFUSED ({}): {}", result.reason, result.detail)))
        }
        Err(ClientError::Failed { code, message, retry_after_ms })
            if *retry_after_ms > 0 || *code == Code::Unavailable as u32 =>
        {
            Some((after(*retry_after_ms), message.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
