//! Commands that run as one step, or not at all; and whether one can be made to come to nothing.

use ::redis::{Cmd, Pipeline, Value, cmd};

use super::script::{STRAIGHT, UNBAR};
use crate::store::keys::PartitionKeys;

pub struct Transaction {
    pub commands: Pipeline,
    pub length: usize,
}

impl Transaction {
    /// The library has transactions of its own, which panic where MULTI is not allowed.
    pub fn begin(appends: usize) -> Self {
        let mut commands = Pipeline::with_capacity(appends + 6);
        commands.add_command(cmd("MULTI"));
        Transaction { commands, length: 1 }
    }

    pub fn add(&mut self, command: Cmd) {
        self.commands.add_command(command);
        self.length += 1;
    }

    fn run(&mut self, name: &str, args: &[&str]) {
        let mut command = cmd(name);
        command.arg(args);
        self.add(command);
    }

    /// Brings back what was barred, if anything was.
    pub fn unbar(&mut self, keys: &PartitionKeys) {
        let keys =
            [&keys.events, &keys.barred, &keys.lanes, &keys.barred_lanes, &keys.parked, &keys.barred_parked];
        let mut unbar = cmd("EVAL");
        unbar.arg(UNBAR.as_str()).arg(keys.len()).arg(&keys);
        self.add(unbar);
    }

    pub fn end(mut self) -> Self {
        self.add(cmd("EXEC"));
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
        let mut transaction = Transaction::begin(10);
        transaction.run("XADD", &[&keys.events, "5-1", "a", "trial"]);
        transaction.run("HSET", &[&keys.lanes, "a", "trial"]);
        transaction.run("HSET", &[&keys.parked, "a", "trial"]);
        // No header is empty: this is not as predicted.
        let of_settle = keys.of_straight();
        let mut settle = cmd("EVAL");
        settle.arg(STRAIGHT.as_str()).arg(of_settle.len()).arg(&of_settle);
        settle.arg(&["", "", "", "", "0", "", "", "0"]);
        transaction.add(settle);
        transaction.run("HSET", &[&keys.lanes, "b", "trial"]);
        transaction.run("HDEL", &[&keys.parked, "a"]);
        transaction.run("XADD", &[&keys.events, "*", "a", "trial"]);
        transaction.unbar(&keys);
        transaction.run("XADD", &[&keys.events, "5-2", "a", "trial"]);
        transaction.run("XLEN", &[&keys.events]);
        transaction.run("HMGET", &[&keys.lanes, "a", "b"]);
        transaction.run("HMGET", &[&keys.parked, "a"]);
        let all =
            [&keys.events, &keys.lanes, &keys.parked, &keys.barred, &keys.barred_lanes, &keys.barred_parked];
        transaction.run("DEL", &all.map(String::as_str));
        transaction.end()
    }

    /// What came while it was barred was not written, what came afterwards was.
    pub fn is_passed(&self, answers: &[Value]) -> bool {
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
        ] = answers
        else {
            return false;
        };
        let trial = || Value::BulkString(b"trial".to_vec());
        matches!(settled, Value::Array(words) if words.first() == Some(&Value::Int(0)))
            && *lanes == Value::Array(vec![trial(), Value::Nil])
            && *parked == Value::Array(vec![trial()])
    }
}
