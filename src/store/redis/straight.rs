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
    known::Known,
    reply,
    script::{STRAIGHT, STRAIGHT_WAITING},
    transaction::Transaction,
    waits::{self, Wait},
};
use crate::{
    order::{Policy, Position, Verdict},
    store::{Admitted, Batch, Decision, Layout, Offer, Path, StoreError, lanes},
};

/// Calls in a row that were as expected before entries go straight, at first and at the most.
const CALM_CALLS: u32 = 8;
/// A transaction and its scripts' sources are not worth it for fewer events.
const EVENTS_MIN: usize = 8;
/// Of an entity and its state, about.
const LANE_BYTES: usize = 80;
/// MULTI, and what judges.
const BEFORE_WRITES: usize = 2;

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

/// A batch as a transaction.
pub struct Straightened<'a> {
    pub transaction: Transaction,
    /// Events of which more is to be said than this way allows, and the call that is made for them in it.
    pub rest: Option<(Cmd, &'a [Offer])>,
    likely: &'a [Offer],
    waits: Vec<Wait<'a>>,
    /// Commands that write beside the entries, in front of them.
    beside: usize,
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
}

/// A batch as a transaction that leaves this token; nothing if it had better not, or cannot, go straight.
pub fn straighten<'a>(
    when: Straight,
    opened: &Opened,
    batch: &'a Batch,
    token: String,
) -> Option<Straightened<'a>> {
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
    let mut go_ahead = Cmd::with_capacity(2 + 2 * batch.offers().len(), LANE_BYTES * batch.offers().len());
    go_ahead.arg("HSET").arg(&keys.lanes);
    let mut premises = Premises::of(likely, policy, rests.then_some(&*known), &mut go_ahead)?;
    premises.rests |= waits.iter().any(|wait| matches!(wait, Wait::Fills(..)));

    let mut transaction = Transaction::begin(appended.len());
    transaction.add(settle(opened, &premises, &waits, known.token(), &token));
    if !likely.is_empty() {
        transaction.add(go_ahead);
    }
    waits::park(&mut transaction, keys, policy, &waits);
    let beside = transaction.length - BEFORE_WRITES;
    match topic.layout {
        Layout::Entry => {
            for offer in &appended {
                transaction.add(append(&keys.events, offer)?);
            }
        }
        Layout::Batch if appended.is_empty() => {}
        Layout::Batch => {
            let bytes = appended.iter().map(|offer| encode::bytes_of_one(offer)).sum();
            let mut append = Cmd::with_capacity(4 + 2 * appended.len(), bytes);
            append.arg("XADD").arg(&keys.events).arg("NOMKSTREAM").arg("*");
            encode::add_pairs(&mut append, appended.iter().copied(), policy);
            transaction.add(append);
        }
    }
    let rest = (!rest.is_empty()).then(|| (encode::admit(opened, rest, Some(appended.len()), &token), rest));
    rest.iter().for_each(|(call, _)| transaction.add(call.clone()));
    transaction.unbar(keys);
    Some(Straightened { transaction: transaction.end(), rest, likely, waits, beside, token })
}

impl<'a> Premises<'a> {
    /// Of lanes that are likely to be in their turn, and how they go ahead; nothing if one cannot be predicted, or is
    /// known to be elsewhere.
    fn of(likely: &'a [Offer], policy: &Policy, known: Option<&Known>, go_ahead: &mut Cmd) -> Option<Self> {
        let mut premises =
            Premises { going_on: Vec::new(), beginning: Vec::new(), states: String::new(), rests: false };
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
            write_after(&mut state, lane, policy);
            go_ahead.arg(entity).arg(state.as_str());
        }
        Some(premises)
    }
}

/// The call that judges.
fn settle(opened: &Opened, premises: &Premises<'_>, waits: &[Wait<'_>], left: &str, token: &str) -> Cmd {
    const HEAD_BYTES: usize = 4096;
    let Opened { keys, header, channel, topic, .. } = opened;
    let keys = keys.of_straight();
    let mut tombs = String::with_capacity(16 * premises.beginning.len());
    premises.beginning.iter().for_each(|entity| push_tomb_name(&mut tombs, entity));
    let entities = premises.going_on.len() + premises.beginning.len() + 8 * waits.len();
    let mut settle = Cmd::with_capacity(13 + keys.len() + entities, HEAD_BYTES + LANE_BYTES * entities);
    let script = if waits.is_empty() { &STRAIGHT } else { &STRAIGHT_WAITING };
    settle.arg("EVAL").arg(script.as_str()).arg(keys.len()).arg(&keys);
    settle.arg(header).arg(left).arg(token).arg(if premises.rests { "rests" } else { "" });
    settle.arg(premises.going_on.len()).arg(&premises.states).arg(tombs).arg(waits.len());
    settle.arg(&premises.going_on);
    for wait in waits {
        settle.arg(wait.offer().entity.as_str());
    }
    settle.arg(&premises.beginning);
    if !waits.is_empty() {
        for wait in waits {
            wait.add_to(&mut settle, &topic.policy);
        }
        settle.arg(waits::limits(&topic.policy)).arg(topic.policy.first.get()).arg(channel);
    }
    settle
}

/// The first digits of its SHA-1.
fn push_tomb_name(names: &mut String, entity: &str) {
    let digest = Sha1::from(entity).digest().bytes();
    let first = digest.first_chunk().expect("a digest is longer");
    write!(names, "{:016x}", u64::from_be_bytes(*first)).expect("a string takes it");
}

/// An entry as `scripts/admit_fast_entry.lua` writes it.
fn append(events: &str, Offer { entity, event }: &Offer) -> Option<Cmd> {
    const ARGS: usize = 18;
    const NAMES_BYTES: usize = 128;
    let Position::Given(sequence) = event.position else { return None };
    let payload = &event.payload;
    let bytes = entity.as_str().len() + payload.kind.len() + payload.attrs.len() + payload.data.len();
    let mut append = Cmd::with_capacity(ARGS, bytes + events.len() + NAMES_BYTES);
    append.arg("XADD").arg(events).arg("NOMKSTREAM").arg("*").arg("entity").arg(entity.as_str());
    append.arg("epoch").arg(event.epoch.get()).arg("sequence").arg(sequence.get());
    append.arg("type").arg(&*payload.kind).arg("order").arg("strict");
    append.arg("attrs").arg(&*payload.attrs).arg("data").arg(&payload.data[..]);
    Some(append)
}

/// What a transaction's commands answered: of what this way decides, and of the call behind it.
pub struct Settled {
    pub admitted: Admitted,
    pub rest: Option<Value>,
}

impl Straightened<'_> {
    /// What became of it, and what is known by that; nothing if it was barred.
    pub fn settled(self, answers: Vec<Value>, opened: &Opened) -> Result<Option<Settled>, StoreError> {
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
        for wait in &self.waits {
            if let Wait::Fills(_, behind) = wait {
                behind.iter().for_each(|offer| known.parked(offer));
            }
        }
    }

    fn read(
        self,
        answers: Vec<Value>,
        opened: &Opened,
        known: &mut Known,
    ) -> Result<Option<Settled>, StoreError> {
        let mut answers = answers.into_iter();
        let judged = reply::settled(answers.next().unwrap_or(Value::Okay))?;
        answers.next_back();
        let rest = self.rest.as_ref().and_then(|_| answers.next_back());
        let judged = match judged {
            Ok(judged) => judged,
            Err(barred) => {
                debug!(reason = barred.reason, "a batch did not go straight");
                self.undo(known, barred.found_token);
                return Ok(None);
            }
        };
        // One that fails inside a transaction does not stop those around it.
        let failed = |error| StoreError::Broken(format!("a batch could not be written whole: {error}"));
        let answers = answers.map(|answer| answer.extract_error().map_err(failed));
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        let mut answers = answers.into_iter();
        answers.by_ref().take(self.beside).try_for_each(|count| reply::number(count).map(drop))?;
        let ids = answers.map(reply::id).collect::<Result<Vec<_>, _>>()?;
        let appended = self.likely.iter().chain(self.waits.iter().flat_map(Wait::appended)).count();
        let entries = match opened.topic.layout {
            Layout::Entry => appended,
            Layout::Batch => appended.min(1),
        };
        if ids.len() != entries {
            return Err(reply::unexpected("an id for each entry", &ids.len()));
        }
        known.leave(self.token, judged.found_token);
        let (mut ids, mut depths) = (ids.iter().cycle(), judged.depths.into_iter());
        let (mut decisions, mut drained) = (Vec::with_capacity(appended), 0);
        let released = |offer: &Offer, id| {
            let Position::Given(sequence) = offer.event.position else {
                unreachable!("it would not be here")
            };
            Decision { verdict: Verdict::Released { sequence }, id }
        };
        for lane in lanes(self.likely) {
            decisions.extend(lane.iter().map(|offer| released(offer, ids.next().copied())));
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
                    decisions.push(released(offer, ids.next().copied()));
                    drained += behind.len() as u64;
                    ids.by_ref().take(behind.len()).for_each(|_| {});
                    if depth == 0 {
                        known.moved(behind.last().unwrap_or(offer), is_closed);
                    }
                }
            }
        }
        if let Some((_, rest)) = &self.rest {
            known.forget(rest);
        }
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
