//! The straight way into a stream: for events of which it is foreseeable what becomes of them.
//!
//! What goes through a script is copied into its language and hashed there, byte by byte, and each of its commands
//! is prepared by an interpreter. So the entries do not go through it, nor what is parked, nor the states of lanes that
//! only go on: one transaction writes them as any client would, and a script before them (`scripts/straight.lua`) sees
//! only what the lanes must be like, as far as that is not known by heart (`known.rs`). If anything is not as predicted
//! the script bars the stream, so that the appends fail, and puts lanes and parked events aside; the last step of the
//! transaction brings back all of it. Then nothing has happened, nobody has seen anything, and the batch is offered
//! to `admit`.
//!
//! Events that are ahead of their turn, or fill the gap that others wait for, go this way as well, where that is all
//! there is about them. Whatever else is in the same batch is offered to `admit` behind the entries, in the same
//! transaction; while the stream is barred it does nothing, either.
//!
//! To be barred costs more than is won; so this way is for batches of some size, after calls that were as expected.

use std::fmt::Write;

use ::redis::{Cmd, Value};
use sha1_smol::Sha1;
use tracing::debug;

use super::{
    Opened, Straight,
    encode::{self, UNPREDICTABLE, write_after, write_before},
    known::{Known, Tokens},
    reply,
    resp::{Answers, Commands},
    script::{STRAIGHT, STRAIGHT_WAITING},
    transaction::Transaction,
    waits::{self, Wait},
};
use crate::{
    order::{Policy, Position, Sequence, Verdict},
    store::{
        Admitted, Batch, Decision, Layout, Offer, Path, Payload, StoreError,
        field::{self, push_number},
        lanes,
    },
};

/// Calls in a row that were as expected before entries go straight, at first and at the most.
const CALM_CALLS: u32 = 8;
/// A transaction and its scripts' sources are not worth it for fewer events.
const EVENTS_MIN: usize = 8;
/// Of an event, beside what is its own: names, lengths, its entity and state once more or twice.
const EVENT_BYTES: usize = 360;
/// Of what judges, and keys.
const HEAD_BYTES: usize = 8192;
/// What judges.
const BEFORE_WRITES: usize = 1;

/// How many more calls must be as expected (what was likely to be in its turn was) until entries go straight. The
/// longer that went well, the fewer.
#[derive(Default)]
pub struct Calm {
    calls: u32,
    went_well: u32,
}

impl Calm {
    /// A call that did not go straight.
    pub fn note(&mut self, is_as_expected: bool) {
        self.calls = if is_as_expected { self.calls.saturating_add(1) } else { 0 };
    }

    fn went_straight(&mut self) {
        self.went_well = (self.went_well + 1).min(CALM_CALLS - 1);
    }

    /// It was barred.
    pub fn end(&mut self) {
        *self = Calm { calls: 0, went_well: self.went_well / 2 };
    }

    fn is_long_enough(&self) -> bool {
        self.calls + self.went_well >= CALM_CALLS
    }
}

/// What is in a transaction.
pub struct Straightened<'a> {
    rest: Option<Rest<'a>>,
    likely: &'a [Offer],
    waits: Vec<Wait<'a>>,
    /// Commands that write beside the entries, in front of them.
    beside: usize,
    entries: usize,
    token: String,
}

/// What must be so for a transaction to be right.
struct Premises<'a> {
    /// The lanes' own, apart from those that are known by heart.
    going_on: Vec<&'a str>,
    beginning: Vec<&'a str>,
    states: String,
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
) -> Option<(Transaction, Straightened<'a>)> {
    let Opened { keys, topic, .. } = opened;
    let (policy, known) = (&topic.policy, &mut *opened.known());
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
    let waits = waits::foreseen(others, batch.guesses(), policy, |offer, run| {
        rests.then(|| known.take_behind(offer, run)).flatten()
    });
    let rest = &others[waits.len()..];
    // In `batch` layout a call's events are one entry.
    if (likely.is_empty() && waits.is_empty()) || (topic.layout == Layout::Batch && !rest.is_empty()) {
        return None;
    }
    let appended: Vec<&Offer> = likely.iter().chain(waits.iter().flat_map(Wait::appended)).collect();
    if !encode::fits(appended.len() + rest.len(), policy) {
        return None;
    }
    let mut premises = Premises::of(likely, policy, rests.then_some(&*known))?;
    premises.rests |= waits.iter().any(|wait| matches!(wait, Wait::Fills(..)));

    let token = tokens.draw();
    let events = batch.offers().iter().chain(waits.iter().flat_map(Wait::appended));
    let bytes = events.map(|offer| offer.size() + EVENT_BYTES).sum::<usize>();
    let mut transaction = Transaction::begin(bytes + HEAD_BYTES);
    let commands = &mut transaction.commands;
    settle(commands, opened, &premises, &waits, known.token(), &token);
    if premises.lanes > 0 {
        go_ahead(commands.begin("HSET", 2 + 2 * premises.lanes).arg(&keys.lanes), likely, policy);
    }
    waits::park(commands, keys, policy, &waits);
    let beside = transaction.length() - BEFORE_WRITES;
    let commands = &mut transaction.commands;
    match topic.layout {
        Layout::Entry => appended.iter().for_each(|offer| append(commands, &keys.events, offer)),
        Layout::Batch if appended.is_empty() => {}
        Layout::Batch => {
            let append = commands.begin("XADD", 4 + 2 * appended.len());
            append.arg(&keys.events).args(["NOMKSTREAM", "*"]);
            add_pairs(append, &appended, policy);
        }
    }
    let rest = (!rest.is_empty()).then(|| {
        let call = encode::admit(opened, rest, Some(appended.len()), &token);
        Rest { offers: rest, call, answer: None }
    });
    rest.iter().for_each(|rest| commands.add(&rest.call));
    transaction.unbar(keys);
    let entries = match topic.layout {
        Layout::Entry => appended.len(),
        Layout::Batch => appended.len().min(1),
    };
    Some((transaction.end(), Straightened { rest, likely, waits, beside, entries, token }))
}

impl<'a> Premises<'a> {
    /// Of lanes that are likely to be in their turn; nothing if one cannot be predicted, or is known to be elsewhere.
    fn of(likely: &'a [Offer], policy: &Policy, known: Option<&Known>) -> Option<Self> {
        let (going_on, beginning, states) = (Vec::new(), Vec::new(), String::new());
        let mut premises = Premises { going_on, beginning, states, rests: false, lanes: 0 };
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
                None => {
                    premises.states.push_str(if premises.going_on.is_empty() { "" } else { "," });
                    premises.states.push_str(&state);
                    premises.going_on.push(entity);
                }
            }
            premises.lanes += 1;
        }
        Some(premises)
    }
}

/// The states that lanes have when these were released.
fn go_ahead(states: &mut Commands, likely: &[Offer], policy: &Policy) {
    let mut state = String::new();
    for lane in lanes(likely) {
        write_after(&mut state, lane, policy);
        states.arg(lane[0].entity.as_str()).arg(&state);
    }
}

/// The call that judges.
fn settle(
    commands: &mut Commands,
    opened: &Opened,
    premises: &Premises<'_>,
    waits: &[Wait<'_>],
    left: &str,
    token: &str,
) {
    let Opened { keys, header, channel, topic, .. } = opened;
    let keys = keys.of_straight();
    let Premises { going_on, beginning, states, rests, .. } = premises;
    let mut tombs = String::with_capacity(16 * beginning.len());
    beginning.iter().for_each(|entity| push_tomb_name(&mut tombs, entity));
    let entities = going_on.len() + waits.len() + beginning.len();
    let of_waits = if waits.is_empty() { 0 } else { waits::ARGS * waits.len() + 3 };
    let script = if waits.is_empty() { &STRAIGHT } else { &STRAIGHT_WAITING };
    let settle = commands.begin("EVAL", 11 + keys.len() + entities + of_waits);
    settle.arg(script.as_str()).number(keys.len() as u64).args(keys);
    settle.args([header.as_str(), left, token, if *rests { "rests" } else { "" }]);
    settle.number(going_on.len() as u64).arg(states).arg(tombs).number(waits.len() as u64);
    settle.args(going_on).args(waits.iter().map(|wait| wait.offer().entity.as_str())).args(beginning);
    if !waits.is_empty() {
        waits.iter().for_each(|wait| wait.add_to(settle, &topic.policy));
        settle.arg(waits::limits(&topic.policy)).number(topic.policy.first.get()).arg(channel);
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
pub struct Settled<'a> {
    /// About what this way decides.
    pub admitted: Admitted,
    pub rest: Option<Rest<'a>>,
}

/// Events of which more is to be said than this way allows.
pub struct Rest<'a> {
    pub offers: &'a [Offer],
    /// It is made for them behind the entries.
    pub call: Cmd,
    /// Nothing before it was made, or if it failed.
    pub answer: Option<Value>,
}

impl<'a> Straightened<'a> {
    /// What became of it, and what is known by that; nothing if it was barred.
    pub fn settled(self, answers: Answers, opened: &Opened) -> Result<Option<Settled<'a>>, StoreError> {
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

    /// Nothing has happened. If nobody else was there, all that was known is so still.
    fn undo(self, known: &mut Known, is_alone: bool) {
        if !is_alone {
            known.lose();
        }
        self.waits.iter().flat_map(Wait::behind).for_each(|offer| known.parked(offer));
    }

    fn read(
        self,
        mut answers: Answers,
        opened: &Opened,
        known: &mut Known,
    ) -> Result<Option<Settled<'a>>, StoreError> {
        let judged = match reply::settled(answers.value()?)? {
            Ok(judged) => judged,
            Err(barred) => {
                debug!(reason = barred.reason, "a batch did not go straight");
                self.undo(known, barred.found_token);
                return Ok(None);
            }
        };
        // One that fails inside a transaction does not stop those around it.
        let failed = |error| StoreError::Broken(format!("a batch could not be written whole: {error}"));
        (0..self.beside).try_for_each(|_| answers.okay()).map_err(failed)?;
        let ids = (0..self.entries).map(|_| answers.id()).collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let mut rest = self.rest;
        if let Some(rest) = &mut rest {
            rest.answer = answers.value()?.extract_error().ok();
        }
        known.leave(self.token, judged.found_token);
        let (mut ids, mut depths) = (ids.into_iter().cycle(), judged.depths.into_iter());
        let (mut decisions, mut drained) = (Vec::with_capacity(self.likely.len() + self.waits.len()), 0);
        let released =
            |offer: &Offer, id| Decision { verdict: Verdict::Released { sequence: given(offer) }, id };
        for lane in lanes(self.likely) {
            decisions.extend(lane.iter().map(|offer| released(offer, ids.next())));
            let is_closed = opened.topic.policy.is_terminal(&lane[lane.len() - 1].event);
            known.moved(&lane[lane.len() - 1], is_closed);
        }
        for wait in self.waits {
            let Some(depth) = depths.next() else {
                return Err(reply::unexpected("a depth for each lane that waits", &decisions.len()));
            };
            let is_closed = wait.closes(&opened.topic.policy);
            match wait {
                Wait::Ahead(offer) => {
                    decisions.push(Decision { verdict: Verdict::Parked { depth }, id: None });
                    known.parked(offer);
                }
                Wait::Fills(offer, behind) => {
                    decisions.push(released(offer, ids.next()));
                    drained += behind.len() as u64;
                    ids.by_ref().take(behind.len()).for_each(|_| {});
                    if depth == 0 {
                        known.moved(behind.last().unwrap_or(offer), is_closed);
                    }
                }
            }
        }
        rest.iter().for_each(|rest| known.forget(rest.offers));
        let admitted = Admitted {
            decisions,
            path: Path::Straight,
            more: false,
            drained,
            after_terminal: 0,
            notes: judged.notes,
        };
        Ok(Some(Settled { admitted, rest }))
    }
}
