//! Commands that run as one step, and come to nothing where a script has not let them pass.

use ::redis::Value;

use super::{
    resp::{Answers, Commands},
    script::{STRAIGHT, STRAIGHT_WAITING},
};
use crate::store::keys::PartitionKeys;

/// MULTI, which is the first of its commands.
const OPENING: usize = 1;

pub struct Transaction {
    pub commands: Commands,
}

/// Which keys a transaction writes to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    Events,
    /// And what is parked.
    Parked,
}

impl Transaction {
    /// In this room, with about as many bytes as will be in it.
    pub fn begin(room: Vec<u8>, bytes: usize) -> Self {
        let mut commands = Commands::within(room, bytes);
        commands.begin("MULTI", 1);
        Transaction { commands }
    }

    /// Commands in it so far.
    pub fn length(&self) -> usize {
        self.commands.count() - OPENING
    }

    /// Where hashes are taken to lie, they must: what was written elsewhere would take their place. (It is the field
    /// that each of them has, so this does nothing, unless somebody has deleted them.) The script that judges follows.
    pub fn secure(&mut self, keys: &PartitionKeys, writes: Writes) {
        for (hash, _) in hashes(keys, writes) {
            self.commands.begin("HSETNX", 4).arg(hash).args(["", ""]);
        }
    }

    /// Puts back what was written to; if it was not let pass, nothing is there to be put back.
    pub fn put_back(&mut self, keys: &PartitionKeys, writes: Writes) {
        self.commands.begin("RENAMENX", 3).arg(&keys.writable_events).arg(&keys.events);
        for (hash, writable) in hashes(keys, writes) {
            self.commands.begin("RENAMENX", 3).arg(writable).arg(hash);
        }
    }

    /// Removes what was written by commands that were not let pass.
    pub fn end(mut self, keys: &PartitionKeys, writes: Writes) -> Self {
        let left = hashes(keys, writes);
        let clear = self.commands.begin("DEL", 2 + left.clone().count()).arg(&keys.writable);
        clear.args(left.map(|(_, writable)| writable));
        self.commands.begin("EXEC", 1);
        self
    }
}

/// The hashes that are written to, and under which name.
fn hashes(keys: &PartitionKeys, writes: Writes) -> impl Iterator<Item = (&String, &String)> + Clone {
    let parked = (writes == Writes::Parked).then_some((&keys.parked, &keys.writable_parked));
    std::iter::once((&keys.lanes, &keys.writable_lanes)).chain(parked)
}

/// Whether a transaction can be let pass, and comes to nothing if it is not, at all. A user may lack a permission, and a
/// proxy may not know transactions; so each connection tries it out once, on a partition that is nobody's. By that the
/// server knows the scripts, too.
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
            meta: of_trial(&self.keys.meta),
            writable: of_trial(&self.keys.writable),
            writable_events: of_trial(&self.keys.writable_events),
            writable_lanes: of_trial(&self.keys.writable_lanes),
            writable_parked: of_trial(&self.keys.writable_parked),
            ..self.keys.clone()
        };
        const BYTES: usize = 8192;
        let mut transaction = Transaction::begin(Vec::new(), BYTES);
        transaction.secure(&keys, Writes::Parked);
        let commands = &mut transaction.commands;
        commands.begin("XADD", 5).args([&keys.events, "5-1", "a", "trial"]);
        commands.begin("HSET", 4).args([&keys.lanes, "a", "trial"]);
        commands.begin("HSET", 4).args([&keys.parked, "a", "trial"]);
        commands.begin("HSET", 6).args([&keys.meta, "header", "trial|-", "rings", "0:0000"]);
        // This is not the header.
        judge(commands, STRAIGHT_WAITING.source(), &keys, "other|-");
        write(commands, &keys, "b");
        transaction.put_back(&keys, Writes::Parked);
        transaction.commands.begin("DEL", 3).args([&keys.writable_lanes, &keys.writable_parked]);
        judge(&mut transaction.commands, STRAIGHT.source(), &keys, "trial|-");
        write(&mut transaction.commands, &keys, "c");
        transaction.put_back(&keys, Writes::Parked);
        let commands = &mut transaction.commands;
        commands.begin("XLEN", 2).arg(&keys.events);
        commands.begin("HMGET", 5).args([&keys.lanes, "a", "b", "c"]);
        commands.begin("HMGET", 3).args([&keys.parked, "a"]);
        commands.begin("DEL", 5).args([&keys.events, &keys.lanes, &keys.parked, &keys.meta]);
        transaction.end(&keys, Writes::Parked)
    }

    /// What came while it was not let pass was not written, what came afterwards was.
    pub fn is_passed(&self, mut answers: Answers) -> bool {
        let answers: Vec<Value> = std::iter::from_fn(|| answers.value().ok()).collect();
        let judged = |answer: &Value, as_what| matches!(answer, Value::Array(words) if words.first() == Some(&Value::Int(as_what)));
        let [
            Value::Int(_),
            Value::Int(_),
            Value::BulkString(_),
            _,
            _,
            _,
            refused,
            _,
            _,
            Value::Nil,
            Value::ServerError(_),
            Value::Int(0),
            _,
            Value::Int(_),
            passed,
            _,
            _,
            Value::BulkString(_),
            Value::Int(1),
            Value::Int(1),
            _,
            Value::Int(2),
            lanes,
            parked,
            Value::Int(4),
            _,
        ] = &answers[..]
        else {
            return false;
        };
        let trial = || Value::BulkString(b"trial".to_vec());
        judged(refused, 0)
            && judged(passed, 1)
            && *lanes == Value::Array(vec![trial(), Value::Nil, trial()])
            && *parked == Value::Array(vec![trial()])
    }
}

/// By its source, on a partition of which nothing but the header is said.
fn judge(commands: &mut Commands, script: &str, keys: &PartitionKeys, header: &str) {
    let of_judge = keys.of_straight();
    let judge = commands.begin("EVAL", 11 + of_judge.len());
    judge.arg(script).number(of_judge.len() as u64).args(of_judge);
    judge.args([header, "", "7", "", "0", "", "", "rest"]);
}

fn write(commands: &mut Commands, keys: &PartitionKeys, field: &str) {
    commands.begin("HSET", 4).args([&keys.writable_lanes, field, "trial"]);
    commands.begin("HDEL", 3).args([&keys.writable_parked, "a"]);
    commands.begin("XADD", 6).args([&keys.writable_events, "NOMKSTREAM", "5-2", "a", "trial"]);
}
