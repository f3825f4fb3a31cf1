//! The straight way into a stream: for events of which it is foreseeable what becomes of them.
//!
//! What goes through a script is copied into its language and hashed there, byte by byte, and each of its commands
//! is prepared by an interpreter. So the entries do not go through it, nor what is parked, nor the states of lanes that
//! only go on: one transaction writes them as any client would, and a script before them (`scripts/straight.lua`) sees
//! only what the lanes must be like, as far as that is not known by heart (`known.rs`). The commands write to names that
//! nothing has (`writable:events` and so on). If all is as predicted the script puts stream and hashes there, and the last
//! commands put them back. If anything is not, or the script did not run at all, what is written goes nowhere: then nothing
//! has happened, nobody has seen anything, and the batch is offered to `admit`.
//!
//! Events that are ahead of their turn, or fill the gap that others wait for, go this way as well, where that is all
//! there is about them. Whatever else is in the same batch is offered to `admit` behind the entries, in the same
//! transaction; where that is barred from writing it does nothing, either.
//!
//! To be barred costs more than is won; so this way is for batches of some size, after calls that were as expected.

use std::fmt::Write;

use ::redis::Value;
use sha1_smol::Sha1;
use tracing::debug;

use super::{
    Opened, Straight,
    encode::{self, UNPREDICTABLE, write_after, write_before},
    known::{Known, Tokens},
    reply,
    resp::{Answers, Commands},
    script::{STRAIGHT, STRAIGHT_WAITING},
    transaction::{Transaction, Writes},
    waits::{self, Premise, Wait},
};
use crate::{
    order::{Policy, Position, Sequence, Verdict},
    store::{
        Admitted, Batch, Decision, LaneOffers, Layout, Offer, Path, Payload, StoreError,
        field::{self, push_number},
        lanes,
    },
};

/// A transaction is not worth it for fewer events.
const EVENTS_MIN: usize = 8;
/// Of an event, beside what is its own: names, lengths, its entity and state once more or twice.
const EVENT_BYTES: usize = 360;
/// Of what judges, and keys.
const HEAD_BYTES: usize = 8192;

/// What is in a transaction.
pub struct Straightened<'a> {
    rest: Option<Rest>,
    likely: &'a [Offer],
    waits: Vec<Wait<'a>>,
    /// Commands in front of the one that judges; that write beside the entries, in front of them; entries; that put
    /// back what was written to.
    in_front: usize,
    beside: usize,
    entries: usize,
    behind: usize,
    token: String,
}

/// What must be so for a transaction to be right.
struct Premises<'a> {
    /// The lanes' own, apart from those that are known by heart.
    looked_at: Vec<&'a str>,
    states: String,
    beginning: Vec<&'a str>,
    /// Something is known by heart that nobody looks at.
    rests: bool,
    /// All that are likely to be in their turn.
    lanes: usize,
}

/// A batch as a transaction that leaves a token; nothing if it had better not, or cannot, go straight.
pub fn straighten<'a>(
    when: Straight,
    opened: &Opened,
    batch: &'a Batch,
    tokens: &Tokens,
    room: impl FnOnce() -> Vec<u8>,
) -> Option<(Transaction, Straightened<'a>)> {
    let Opened { keys, topic, .. } = opened;
    let (policy, known) = (&topic.policy, &*opened.known());
    let (likely, others) = batch.parts();
    let is_wanted = match when {
        Straight::Never => false,
        Straight::WhenCalm => batch.offers().len() >= EVENTS_MIN && opened.calm().is_long_enough(),
        Straight::Always => !batch.is_empty(),
    };
    if !is_wanted || policy.lifecycle.is_some() {
        return None;
    }
    let rests = known.is_of_use(when == Straight::Always);
    let (mut waits, mut rest, mut place) = (Vec::new(), Rest::default(), likely.len());
    for (lane, guess) in lanes(others).zip(batch.guesses()) {
        match waits::foresee(lane, *guess, policy, known, rests) {
            Some(wait) => waits.push(wait),
            None => rest.add(place, lane),
        }
        place += lane.len();
    }
    // In `batch` layout a call's events are one entry.
    if (likely.is_empty() && waits.is_empty()) || (topic.layout == Layout::Batch && !rest.offers.is_empty()) {
        return None;
    }
    let appended: Vec<&Offer> = likely.iter().chain(waits.iter().flat_map(Wait::appended)).collect();
    if !encode::fits(appended.len() + rest.offers.len(), policy) {
        return None;
    }
    let premises = Premises::of(likely, &waits, policy, rests.then_some(known))?;

    let token = tokens.draw();
    let events = batch.offers().iter().chain(waits.iter().flat_map(Wait::appended));
    let bytes = events.map(|offer| offer.size() + EVENT_BYTES).sum::<usize>();
    let mut transaction = Transaction::begin(room(), bytes + HEAD_BYTES);
    let writes = if waits.is_empty() { Writes::Events } else { Writes::Parked };
    transaction.secure(keys, writes);
    let in_front = transaction.length();
    let commands = &mut transaction.commands;
    settle(commands, opened, &premises, (&waits, &rest.offers), known.token(), &token);
    let judged = transaction.length();
    let commands = &mut transaction.commands;
    let lanes = premises.lanes + waits.iter().filter_map(Wait::state).count();
    if lanes > 0 {
        go_ahead(commands.begin("HSET", 2 + 2 * lanes).arg(&keys.writable_lanes), likely, &waits, policy);
    }
    waits::park(commands, keys, policy, &waits);
    let beside = transaction.length() - judged;
    let commands = &mut transaction.commands;
    match topic.layout {
        Layout::Entry => appended.iter().for_each(|offer| append(commands, &keys.writable_events, offer)),
        Layout::Batch if appended.is_empty() => {}
        Layout::Batch => {
            let append = commands.begin("XADD", 4 + 2 * appended.len());
            append.arg(&keys.writable_events).args(["NOMKSTREAM", "*"]);
            add_pairs(append, &appended, policy);
        }
    }
    let entries = transaction.length() - judged - beside;
    transaction.put_back(keys, writes);
    let behind = transaction.length() - judged - beside - entries;
    let rest = (!rest.offers.is_empty()).then_some(rest);
    if let Some(Rest { offers, .. }) = &rest {
        transaction.commands.add(&encode::admit(opened, offers, Some(appended.len()), &token));
    }
    let straightened = Straightened { rest, likely, waits, in_front, beside, entries, behind, token };
    Some((transaction.end(keys, writes), straightened))
}

impl<'a> Premises<'a> {
    /// Of lanes that are likely to be in their turn, and such that wait; nothing if one cannot be predicted, or is known
    /// to be elsewhere.
    fn of(likely: &'a [Offer], waits: &[Wait<'a>], policy: &Policy, known: Option<&Known>) -> Option<Self> {
        let (looked_at, beginning, states) = (Vec::new(), Vec::new(), String::new());
        let mut premises = Premises { looked_at, states, beginning, rests: false, lanes: 0 };
        let mut state = String::new();
        for lane in lanes(likely) {
            let (entity, event) = (lane[0].entity.as_str(), &lane[0].event);
            let Position::Given(sequence) = event.position else { return None };
            let place = known.and_then(|known| known.place_of(entity));
            write_before(&mut state, lane, policy, true);
            match place {
                _ if state == UNPREDICTABLE => return None,
                Some(place) if place != (event.epoch, sequence) => return None,
                Some(_) => premises.rests = true,
                None if state.is_empty() => premises.beginning.push(entity),
                None => premises.look_at(entity, &state),
            }
            premises.lanes += 1;
        }
        for wait in waits {
            let entity = wait.offer.entity.as_str();
            match &wait.premise {
                Premise::Begins => premises.beginning.push(entity),
                Premise::ByHeart => premises.rests = true,
                Premise::Looks(state) => premises.look_at(entity, state),
            }
            // A state does not tell what the events are that are parked.
            premises.rests |= wait.behind.is_some();
        }
        Some(premises)
    }

    fn look_at(&mut self, entity: &'a str, state: &str) {
        self.states.push_str(if self.looked_at.is_empty() { "" } else { "\n" });
        self.states.push_str(state);
        self.looked_at.push(entity);
    }
}

/// The states that lanes have afterwards, where that does not take the time.
fn go_ahead(states: &mut Commands, likely: &[Offer], waits: &[Wait<'_>], policy: &Policy) {
    let mut state = String::new();
    for lane in lanes(likely) {
        write_after(&mut state, lane, policy);
        states.arg(lane[0].entity.as_str()).arg(&state);
    }
    for wait in waits {
        if let Some(left) = wait.state() {
            states.arg(wait.offer.entity.as_str()).arg(left.to_string());
        }
    }
}

/// The call that judges.
fn settle(
    commands: &mut Commands,
    opened: &Opened,
    premises: &Premises<'_>,
    (waits, rest): (&[Wait<'_>], &[Offer]),
    left: &str,
    token: &str,
) {
    let Opened { keys, header, channel, topic, .. } = opened;
    let keys = keys.of_straight();
    let Premises { looked_at, states, beginning, rests, .. } = premises;
    let mut tombs = String::with_capacity(16 * beginning.len());
    beginning.iter().for_each(|entity| push_tomb_name(&mut tombs, entity));
    let entities = looked_at.len() + beginning.len();
    let script = if waits.is_empty() { &STRAIGHT } else { &STRAIGHT_WAITING };
    let settle = commands.begin("EVALSHA", 11 + keys.len() + entities + waits::args(waits));
    settle.arg(script.sha()).number(keys.len() as u64).args(keys);
    settle.args([header.as_str(), left, token, if *rests { "rests" } else { "" }]);
    settle.number(looked_at.len() as u64).arg(states).arg(tombs);
    settle.arg(if rest.is_empty() { "" } else { "rest" }).args(looked_at).args(beginning);
    if !waits.is_empty() {
        waits::settle(settle, &topic.policy, channel, waits, rest);
    }
}

/// The first digits of its SHA-1.
fn push_tomb_name(names: &mut String, entity: &str) {
    let digest = Sha1::from(entity).digest().bytes();
    let first = digest.first_chunk().expect("a digest is longer");
    write!(names, "{:016x}", u64::from_be_bytes(*first)).expect("a string takes it");
}

/// An entry as `scripts/admit_fast_entry.lua` writes it.
fn append(commands: &mut Commands, events: &str, offer: &Offer) {
    let Offer { entity, event } = offer;
    let payload = &event.payload;
    let append = commands.begin("XADD", 18);
    append.arg(events).arg("NOMKSTREAM").arg("*").arg("entity").arg(entity.as_str());
    append.arg("epoch").number(event.epoch.get()).arg("sequence").number(given(offer).get());
    append.arg("type").arg(&*payload.kind).arg("order").arg("strict");
    append.arg("attrs").arg(&*payload.attrs).arg("data").arg(&payload.data);
}

/// An entry as `scripts/admit_fast_batch.lua` writes it.
fn add_pairs(append: &mut Commands, offers: &[&Offer], policy: &Policy) {
    let (mut name, mut prefix) = (String::new(), String::new());
    for (index, offer) in offers.iter().enumerate() {
        let Offer { entity, event } = offer;
        field::write_name(&mut name, index, event.epoch, entity.as_str(), |name| {
            push_number(name, given(offer).get());
            name.push_str(":strict");
        });
        let Payload { kind, attrs, data } = &event.payload;
        field::write_prefix(&mut prefix, policy.is_terminal(event), &event.payload);
        append.arg(&name).joined(&[prefix.as_bytes(), kind.as_bytes(), attrs.as_bytes(), data]);
    }
}

/// The sequence of an event that may go this way.
fn given(offer: &Offer) -> Sequence {
    let Position::Given(sequence) = offer.event.position else { unreachable!("it would not be here") };
    sequence
}

/// What a transaction's commands answered.
pub struct Settled {
    /// About what this way decides.
    pub admitted: Admitted,
    pub rest: Option<Rest>,
}

/// Events of which more is to be said than this way allows.
#[derive(Default)]
pub struct Rest {
    pub offers: Vec<Offer>,
    /// Where in the batch each of them is.
    pub places: Vec<usize>,
    /// What a call of `admit` behind the entries said of them; nothing before it was made, or if it failed.
    pub answer: Option<Value>,
}

impl Rest {
    /// An entity's offers, the first of which has this place.
    fn add(&mut self, place: usize, lane: LaneOffers<'_>) {
        self.places.extend(place..place + lane.len());
        self.offers.extend_from_slice(lane);
    }
}

impl<'a> Straightened<'a> {
    /// What became of it, and what is known by that; nothing if it was barred. It was not executed, either, if nobody
    /// judged it.
    pub fn settled(self, answers: Answers, opened: &Opened) -> Result<Option<Settled>, StoreError> {
        let known = &mut *opened.known();
        let settled = self.read(answers, opened, known);
        match settled {
            Ok(Some(_)) => opened.calm().went_straight(),
            Ok(None) => opened.calm().end(),
            Err(_) => {
                known.lose();
                opened.calm().end();
            }
        }
        settled
    }

    fn read(
        self,
        mut answers: Answers,
        opened: &Opened,
        known: &mut Known,
    ) -> Result<Option<Settled>, StoreError> {
        // Whatever they answered: the script judges what they left.
        for _ in 0..self.in_front {
            answers.value()?;
        }
        let answer = answers.value()?;
        if let Value::ServerError(error) = &answer {
            return Err(StoreError::NotExecuted(error.to_string()));
        }
        let judged = match reply::settled(answer)? {
            Ok(judged) => judged,
            Err(barred) => {
                debug!(reason = barred.reason, "a batch did not go straight");
                // Nothing has happened. If nobody else was there, all that was known is so still.
                if !barred.found_token {
                    known.lose();
                }
                if self.waits.iter().any(|wait| wait.premise == Premise::Begins) {
                    known.expect_no_beginnings();
                }
                return Ok(None);
            }
        };
        // One that fails inside a transaction does not stop those around it.
        let failed = |error| StoreError::Broken(format!("a batch could not be written whole: {error}"));
        (0..self.beside).try_for_each(|_| answers.okay()).map_err(failed)?;
        let ids = (0..self.entries).map(|_| answers.id()).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        (0..self.behind).try_for_each(|_| answers.okay()).map_err(failed)?;
        let mut rest = self.rest;
        if let Some(rest) = &mut rest {
            rest.answer = answers.value()?.extract_error().ok();
        }
        known.leave(self.token, judged.found_token);
        let mut ids = ids.into_iter().cycle();
        let mut admitted = Admitted {
            decisions: Vec::with_capacity(self.likely.len() + self.waits.len()),
            path: Path::Straight,
            more: false,
            drained: 0,
            after_terminal: 0,
            notes: Vec::new(),
        };
        let released =
            |offer: &Offer, id| Decision { verdict: Verdict::Released { sequence: given(offer) }, id };
        for lane in lanes(self.likely) {
            admitted.decisions.extend(lane.iter().map(|offer| released(offer, ids.next())));
            let is_closed = opened.topic.policy.is_terminal(&lane[lane.len() - 1].event);
            known.moved(&lane[lane.len() - 1], is_closed);
        }
        for wait in self.waits {
            admitted.notes.extend(wait.notes(judged.time));
            let Wait { offer, behind, foreseen, .. } = wait;
            let (depth, state) = (foreseen.depth(), foreseen.at(judged.time));
            let Some(behind) = behind else {
                admitted.decisions.push(Decision { verdict: Verdict::Parked { depth }, id: None });
                known.waits(&offer.entity, state, &[offer]);
                continue;
            };
            admitted.decisions.push(released(offer, ids.next()));
            admitted.drained += behind.len() as u64;
            ids.by_ref().take(behind.len()).for_each(|_| {});
            if depth > 0 {
                known.waits(&offer.entity, state, &[]);
            } else {
                known.filled(behind.last().unwrap_or(offer), state.closed);
            }
        }
        rest.iter().for_each(|rest| known.doubt(&rest.offers));
        Ok(Some(Settled { admitted, rest }))
    }
}
