//! The straight way into a stream: for events that are in their turn, as far as anybody can tell.
//!
//! What goes through a script is copied into its language and hashed there, byte by byte, and each of its commands
//! is prepared by an interpreter. So the entries do not go through it, nor do the states of their lanes: one
//! transaction writes them as any client would, and a script before them (`scripts/straight.lua`) sees only what the
//! lanes must be like. If anything is not as predicted the script bars the stream, so that the appends fail, and puts the
//! lanes aside; the last step of the transaction brings back both. Then nothing has happened, nobody has seen
//! anything, and the batch is offered to `admit`.
//!
//! Events of the same batch that are not likely to be in their turn are offered to `admit` behind the entries, in the
//! same transaction; while the stream is barred it does nothing, either.
//!
//! To be barred costs more than is won; so this way is for batches of some size, after calls that were as expected.

use std::{
    fmt::Write,
    sync::atomic::{AtomicU32, Ordering},
};

use ::redis::{Cmd, Pipeline, Value, cmd};
use sha1_smol::Sha1;

use super::{
    Opened, Straight,
    encode::{self, Columns},
    reply,
    script::{STRAIGHT, UNBAR},
};
use crate::{
    order::Position,
    store::{Admitted, Batch, Layout, Offer, Path, StoreError, keys::PartitionKeys},
};

/// Calls in a row that were as expected before entries go straight.
const CALM_CALLS: u32 = 8;
/// A transaction and its scripts' sources are not worth it for fewer events.
const EVENTS_MIN: usize = 8;
/// Of an entity and its state, about.
const LANE_BYTES: usize = 80;

/// How many calls in a row were as expected: what was likely to be in its turn was.
#[derive(Default)]
pub struct Calm(AtomicU32);

impl Calm {
    /// One call at a time: the promise of [`crate::store::Store::admit`].
    pub fn note(&self, is_as_expected: bool) {
        let calls = if is_as_expected { self.calls().saturating_add(1) } else { 0 };
        self.0.store(calls, Ordering::Relaxed);
    }

    fn calls(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Commands that run as one step, or not at all.
pub struct Transaction {
    pub commands: Pipeline,
    pub length: usize,
}

/// A batch as a transaction.
pub struct Straightened {
    pub transaction: Transaction,
    /// The call that is made in it for the events that are not likely to be in their turn.
    pub rest: Option<Cmd>,
}

impl Transaction {
    /// The library has transactions of its own, which panic where MULTI is not allowed.
    fn begin(appends: usize) -> Self {
        let mut commands = Pipeline::with_capacity(appends + 4);
        commands.add_command(cmd("MULTI"));
        Transaction { commands, length: 1 }
    }

    fn add(&mut self, command: Cmd) {
        self.commands.add_command(command);
        self.length += 1;
    }

    fn run(&mut self, name: &str, args: &[&str]) {
        let mut command = cmd(name);
        command.arg(args);
        self.add(command);
    }

    fn end(mut self) -> Self {
        self.add(cmd("EXEC"));
        self
    }
}

/// A batch as a transaction; nothing if it had better not, or cannot, go straight.
pub fn straighten(when: Straight, opened: &Opened, batch: &Batch) -> Option<Straightened> {
    let Opened { calm, keys, header, topic, .. } = opened;
    let (likely, others) = batch.parts();
    let is_wanted = match when {
        Straight::Never => false,
        Straight::WhenCalm => likely.len() >= EVENTS_MIN && calm.calls() >= CALM_CALLS,
        Straight::Always => !likely.is_empty(),
    };
    // In `batch` layout a call's events are one entry.
    if !is_wanted || (topic.layout == Layout::Batch && !others.is_empty()) {
        return None;
    }
    let columns = Columns::of(likely, others.len(), &topic.policy);
    let settle = settle(keys, header, &columns)?;
    let mut transaction = Transaction::begin(likely.len() + usize::from(!others.is_empty()));
    transaction.add(settle);
    transaction.add(go_ahead(keys, &columns));
    match topic.layout {
        Layout::Entry => {
            for offer in likely {
                transaction.add(append(&keys.events, offer)?);
            }
        }
        Layout::Batch => {
            let mut append = Cmd::with_capacity(4 + 2 * likely.len(), encode::bytes_of(likely));
            append.arg("XADD").arg(&keys.events).arg("NOMKSTREAM").arg("*");
            encode::add_pairs(&mut append, likely, &topic.policy);
            transaction.add(append);
        }
    }
    let rest = (!others.is_empty()).then(|| encode::admit(opened, others, likely.len()));
    rest.iter().for_each(|rest| transaction.add(rest.clone()));
    transaction.add(unbar(keys));
    Some(Straightened { transaction: transaction.end(), rest })
}

/// The call that judges; nothing if some lane cannot be predicted.
fn settle(keys: &PartitionKeys, header: &str, columns: &Columns<'_>) -> Option<Cmd> {
    const HEAD_BYTES: usize = 4096;
    let keys = keys.of_straight();
    let joined = columns.joined()?;
    let mut tombs = String::with_capacity(16 * columns.firsts);
    columns.beginning().for_each(|entity| push_tomb_name(&mut tombs, entity));
    let args = 3 + keys.len() + 4 + columns.lanes;
    let mut settle = Cmd::with_capacity(args, HEAD_BYTES + LANE_BYTES * columns.lanes);
    settle.arg("EVAL").arg(STRAIGHT.as_str()).arg(keys.len()).arg(&keys);
    settle.arg(header).arg(columns.lanes - columns.firsts).arg(joined).arg(tombs);
    columns.going_on().chain(columns.beginning()).for_each(|entity| {
        settle.arg(entity);
    });
    Some(settle)
}

/// The first digits of its SHA-1.
fn push_tomb_name(names: &mut String, entity: &str) {
    let digest = Sha1::from(entity).digest().bytes();
    let first = digest.first_chunk().expect("a digest is longer");
    write!(names, "{:016x}", u64::from_be_bytes(*first)).expect("a string takes it");
}

/// Lets the lanes go ahead.
fn go_ahead(keys: &PartitionKeys, columns: &Columns<'_>) -> Cmd {
    let mut go_ahead = Cmd::with_capacity(2 + 2 * columns.lanes, LANE_BYTES * columns.lanes);
    go_ahead.arg("HSET").arg(&keys.lanes);
    columns.add_after(&mut go_ahead);
    go_ahead
}

fn unbar(keys: &PartitionKeys) -> Cmd {
    let mut unbar = cmd("EVAL");
    unbar
        .arg(UNBAR.as_str())
        .arg(4)
        .arg(&keys.events)
        .arg(&keys.barred)
        .arg(&keys.lanes)
        .arg(&keys.barred_lanes);
    unbar
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

/// What a transaction's commands answered: of the entries, and of the call behind them.
pub struct Settled {
    pub admitted: Admitted,
    pub rest: Option<Value>,
}

/// Nothing if it was barred.
pub fn settled(answers: Vec<Value>, batch: &Batch, layout: Layout) -> Result<Option<Settled>, StoreError> {
    let (likely, others) = batch.parts();
    let mut answers = answers.into_iter();
    let is_settled = reply::number(answers.next().unwrap_or(Value::Okay))? == 1;
    answers.next_back();
    let rest = if others.is_empty() { None } else { answers.next_back() };
    if !is_settled {
        return Ok(None);
    }
    // One that fails inside a transaction does not stop those around it.
    let failed = |error| StoreError::Broken(format!("a batch could not be written whole: {error}"));
    let gone_ahead = answers.next().unwrap_or(Value::Nil);
    reply::number(gone_ahead.extract_error().map_err(failed)?)?;
    let ids = answers.map(|answer| answer.extract_error().map_err(failed)).collect::<Result<_, _>>()?;
    let admitted = reply::released(ids, likely, layout, Path::Straight)?;
    Ok(Some(Settled { admitted, rest }))
}

/// Whether a stream can be barred, and opened again, at all. For a user who lacks a permission, or behind a proxy that
/// does not know transactions, entries would be appended that must not be; so each connection tries it out once, on a
/// stream that is nobody's.
pub struct Trial<'a> {
    pub keys: &'a PartitionKeys,
}

impl Trial<'_> {
    pub fn transaction(&self) -> Transaction {
        let of_trial = |key: &str| format!("{key}:trial");
        let keys = PartitionKeys {
            events: of_trial(&self.keys.events),
            lanes: of_trial(&self.keys.lanes),
            barred: of_trial(&self.keys.barred),
            barred_lanes: of_trial(&self.keys.barred_lanes),
            ..self.keys.clone()
        };
        let mut transaction = Transaction::begin(8);
        transaction.run("XADD", &[&keys.events, "5-1", "a", "trial"]);
        transaction.run("HSET", &[&keys.lanes, "a", "trial"]);
        // No header is empty: this is not as predicted.
        let of_settle = keys.of_straight();
        let mut settle = cmd("EVAL");
        settle.arg(STRAIGHT.as_str()).arg(of_settle.len()).arg(&of_settle).arg(&["", "0", "", ""]);
        transaction.add(settle);
        transaction.run("HSET", &[&keys.lanes, "b", "trial"]);
        transaction.run("XADD", &[&keys.events, "*", "a", "trial"]);
        transaction.add(unbar(&keys));
        transaction.run("XADD", &[&keys.events, "5-2", "a", "trial"]);
        transaction.run("XLEN", &[&keys.events]);
        transaction.run("HMGET", &[&keys.lanes, "a", "b"]);
        transaction.run("DEL", &[&keys.events, &keys.lanes, &keys.barred, &keys.barred_lanes]);
        transaction.end()
    }

    /// What came while it was barred was not written, what came afterwards was.
    pub fn is_passed(&self, answers: &[Value]) -> bool {
        let [
            _,
            _,
            Value::Int(0),
            _,
            Value::ServerError(_),
            Value::Nil,
            _,
            Value::Int(2),
            lanes,
            Value::Int(2),
        ] = answers
        else {
            return false;
        };
        *lanes == Value::Array(vec![Value::BulkString(b"trial".to_vec()), Value::Nil])
    }
}
