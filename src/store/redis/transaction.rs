//! Commands that run as one step, or not at all; and whether one can be made to come to nothing.

use ::redis::Value;

use super::{
    resp::{Answers, Commands},
    script::{STRAIGHT, UNBAR},
};
use crate::store::keys::PartitionKeys;

/// MULTI, which is the first of its commands.
const OPENING: usize = 1;

pub struct Transaction {
    pub commands: Commands,
}

impl Transaction {
    /// About as many bytes as will be in it.
    pub fn begin(bytes: usize) -> Self {
        let mut commands = Commands::with_capacity(bytes);
        commands.begin("MULTI", 1);
        Transaction { commands }
    }

    /// Commands in it so far.
    pub fn length(&self) -> usize {
        self.commands.count() - OPENING
    }

    /// Brings back what was barred, if anything was.
    pub fn unbar(&mut self, keys: &PartitionKeys) {
        let keys =
            [&keys.events, &keys.barred, &keys.lanes, &keys.barred_lanes, &keys.parked, &keys.barred_parked];
        let unbar = self.commands.begin("EVAL", 3 + keys.len());
        unbar.arg(UNBAR.as_str()).number(keys.len() as u64).args(keys);
    }

    pub fn end(mut self) -> Self {
        self.commands.begin("EXEC", 1);
        self
    }
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
            parked: of_trial(&self.keys.parked),
            barred: of_trial(&self.keys.barred),
            barred_lanes: of_trial(&self.keys.barred_lanes),
            barred_parked: of_trial(&self.keys.barred_parked),
            ..self.keys.clone()
        };
        const BYTES: usize = 4096;
        let mut transaction = Transaction::begin(BYTES);
        let commands = &mut transaction.commands;
        commands.begin("XADD", 5).args([&keys.events, "5-1", "a", "trial"]);
        commands.begin("HSET", 4).args([&keys.lanes, "a", "trial"]);
        commands.begin("HSET", 4).args([&keys.parked, "a", "trial"]);
        // No header is empty: this is not as predicted.
        let of_settle = keys.of_straight();
        let settle = commands.begin("EVAL", 10 + of_settle.len());
        settle.arg(STRAIGHT.as_str()).number(of_settle.len() as u64).args(of_settle);
        settle.args(["", "", "", "", "0", "", ""]);
        commands.begin("HSET", 4).args([&keys.lanes, "b", "trial"]);
        commands.begin("HDEL", 3).args([&keys.parked, "a"]);
        commands.begin("XADD", 5).args([&keys.events, "*", "a", "trial"]);
        transaction.unbar(&keys);
        let commands = &mut transaction.commands;
        commands.begin("XADD", 5).args([&keys.events, "5-2", "a", "trial"]);
        commands.begin("XLEN", 2).arg(&keys.events);
        commands.begin("HMGET", 4).args([&keys.lanes, "a", "b"]);
        commands.begin("HMGET", 3).args([&keys.parked, "a"]);
        let all =
            [&keys.events, &keys.lanes, &keys.parked, &keys.barred, &keys.barred_lanes, &keys.barred_parked];
        commands.begin("DEL", 1 + all.len()).args(all);
        transaction.end()
    }

    /// What came while it was barred was not written, what came afterwards was.
    pub fn is_passed(&self, mut answers: Answers) -> bool {
        let answers: Vec<Value> = std::iter::from_fn(|| answers.value().ok()).collect();
        let [
            _,
            _,
            _,
            settled,
            _,
            _,
            Value::ServerError(_),
            Value::Nil,
            _,
            Value::Int(2),
            lanes,
            parked,
            Value::Int(3),
        ] = &answers[..]
        else {
            return false;
        };
        let trial = || Value::BulkString(b"trial".to_vec());
        matches!(settled, Value::Array(words) if words.first() == Some(&Value::Int(0)))
            && *lanes == Value::Array(vec![trial(), Value::Nil])
            && *parked == Value::Array(vec![trial()])
    }
}
