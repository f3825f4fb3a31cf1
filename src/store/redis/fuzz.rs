//! Replies of Redis as they should be, nearly so, and not at all: an older or newer server, a
//! proxy, or somebody else's script. None may do more than be refused.

use ::redis::Value;

use super::{
    entries, group_reply,
    known::Tokens,
    reply, report,
    resp::{Answers, Incoming},
    straight,
};
use crate::{
    fuzz::{Seen, cases, check_message, damaged, index, number, percent, pick, small_number, text},
    order::{Entity, Epoch, Event, Position, Refusal, Sequence, SkipReason},
    random::Random,
    store::{
        Batch, Layout, Offer, Payload, RepairKind, StoreError, Straight, StreamId,
        fuzz::{event_fields, event_id, fields, head, state},
    },
};

/// Of a tree that has nothing to do with anything.
const DEPTH_MAX: u64 = 4;

fn bulk(text: impl ToString) -> Value {
    Value::BulkString(text.to_string().into_bytes())
}

fn words(words: &[String]) -> Value {
    Value::Array(words.iter().map(bulk).collect())
}

fn count(random: &mut Random) -> Value {
    let number = number(random) >> 1;
    if percent(random, 50) { Value::Int(i64::try_from(number).expect("it is halved")) } else { bulk(number) }
}

fn counts(random: &mut Random, length: usize) -> Vec<Value> {
    (0..length).map(|_| count(random)).collect()
}

fn id(random: &mut Random) -> String {
    StreamId { milliseconds: number(random), counter: number(random) }.to_string()
}

fn event_ids(random: &mut Random) -> String {
    (0..random.below(4)).map(|_| event_id(random).to_string()).collect::<Vec<_>>().join(" ")
}

fn entity(random: &mut Random) -> String {
    format!("job-{}", random.below(9))
}

/// A map as RESP3 has it.
fn map(pairs: Vec<(String, Value)>) -> Value {
    Value::Map(pairs.into_iter().map(|(field, value)| (bulk(field), value)).collect())
}

fn notes(random: &mut Random) -> Value {
    let note = |random: &mut Random| match random.below(5) {
        0 => format!("f{}", number(random)),
        1 => format!("x{}", pick(random, &SkipReason::ALL).name()),
        2 => format!("d{}", number(random)),
        3 => format!("w{}", number(random)),
        _ => pick(random, &["p", "i", "k", "l"]).to_string(),
    };
    bulk((0..random.below(4)).map(|_| note(random)).collect::<Vec<_>>().join(" "))
}

fn verdict(random: &mut Random) -> Value {
    bulk(match random.below(6) {
        0 => format!("{}{} {}", pick(random, &["R", "P", "L"]), id(random), small_number(random)),
        1 => format!("K{}", random.below(99)),
        2 => format!("D{}", small_number(random)),
        3 => format!("{}{}", pick(random, &["T", "S"]), small_number(random)),
        4 => format!("F{}", pick(random, &Refusal::ALL).name()),
        _ => pick(random, &["C", "A"]).to_string(),
    })
}

/// What a batch of so many events is offered as.
const OFFERS: u64 = 3;

fn batch() -> Batch {
    let offer = |number| {
        let payload = Payload { kind: "step".into(), attrs: "{}".into(), data: Default::default() };
        let position = Position::Given(Sequence::new(number).unwrap());
        let event = Event { epoch: Epoch::new(0).unwrap(), position, terminal: false, payload };
        (Offer { entity: Entity::new("e").unwrap(), event }, ())
    };
    Batch::form((0..OFFERS).map(offer).collect()).0
}

fn fast(random: &mut Random) -> Value {
    let ids = (0..OFFERS).map(|_| bulk(id(random)));
    Value::Array([bulk("fast")].into_iter().chain(ids).collect())
}

fn slow(random: &mut Random) -> Value {
    let mut values = vec![bulk("slow"), bulk("4|7|0123|d")];
    values.extend(counts(random, 3));
    values.push(notes(random));
    values.push(Value::Array(vec![bulk("e"), bulk("0:3;k2,40,5-6;g900,6,1,900,0,10900")]));
    values.extend((0..OFFERS).map(|_| verdict(random)));
    Value::Array(values)
}

fn settled(random: &mut Random) -> Value {
    let ids = (0..OFFERS).map(|_| bulk(id(random))).collect();
    around(random, ids)
}

/// Entries' ids, and what the commands around them answer.
fn around(random: &mut Random, ids: Vec<Value>) -> Value {
    let in_front = vec![count(random), judged(random), count(random)];
    Value::Array([in_front, ids, counts(random, 3)].concat())
}

fn judged(random: &mut Random) -> Value {
    Value::Array(vec![Value::Int(1), bulk(random.below(1 << 40))])
}

/// As it comes over a connection of RESP2.
fn write(bytes: &mut Vec<u8>, value: &Value) {
    let mut list = |values: &[&Value]| {
        bytes.extend(format!("*{}\r\n", values.len()).bytes());
        values.iter().for_each(|value| write(bytes, value));
    };
    match value {
        Value::Array(values) | Value::Set(values) => list(&values.iter().collect::<Vec<_>>()),
        Value::Map(pairs) => {
            list(&pairs.iter().flat_map(|(field, value)| [field, value]).collect::<Vec<_>>())
        }
        Value::Int(number) => bytes.extend(format!(":{number}\r\n").bytes()),
        Value::BulkString(text) => {
            bytes.extend(format!("${}\r\n", text.len()).bytes());
            bytes.extend(text);
            bytes.extend(b"\r\n");
        }
        Value::SimpleString(text) => {
            bytes.extend(format!("+{}\r\n", text.replace(['\r', '\n'], " ")).bytes())
        }
        Value::Okay => bytes.extend(b"+OK\r\n"),
        Value::ServerError(_) => bytes.extend(b"-ERR something\r\n"),
        _ => bytes.extend(b"$-1\r\n"),
    }
}

/// What became of the batch as a transaction.
fn settle(answers: Value, layout: Layout) -> Result<(), StoreError> {
    let (batch, opened) = (batch(), super::cost::opened(layout));
    let straightened = straight::straighten(Straight::Always, &opened, &batch, &Tokens::new(1), Vec::new);
    let mut bytes = Vec::new();
    write(&mut bytes, &answers);
    assert_eq!(Incoming::new(1).length(&bytes).expect("it is well-formed"), Some(bytes.len()));
    let mut answers = Answers::new(bytes.into());
    answers.enter(0)?;
    straightened.expect("it is in order").1.settled(answers, &opened).map(drop)
}

fn elapsed(random: &mut Random) -> Value {
    let mut values = counts(random, 5);
    values.push(notes(random));
    values.push(count(random));
    Value::Array(values)
}

fn trimmed(random: &mut Random) -> Value {
    let mut values = counts(random, 9);
    values.extend(if percent(random, 50) { [bulk(id(random)), bulk("group")] } else { [bulk(""), bulk("")] });
    Value::Array(values)
}

fn swept(random: &mut Random) -> Value {
    let mut values = counts(random, 4);
    for _ in 0..random.below(3) {
        let kind = *pick(random, &["stuck", "missing"]);
        values.extend(
            [kind.to_owned(), entity(random), number(random).to_string(), state(random).to_string()]
                .map(bulk),
        );
    }
    Value::Array(values)
}

fn repaired(random: &mut Random) -> Value {
    let mut values = counts(random, 1);
    for _ in 0..random.below(3) {
        values.extend(
            [pick(random, &RepairKind::ALL).name().to_owned(), entity(random), text(random)].map(bulk),
        );
    }
    Value::Array(values)
}

fn entries_of(random: &mut Random) -> Value {
    let entry = |random: &mut Random| {
        let fields = if percent(random, 50) { fields(random) } else { event_fields(random) };
        let fields = fields.into_iter().flat_map(|(field, value)| [field, value]);
        let fields = fields.map(|bytes| Value::BulkString(bytes.to_vec())).collect();
        Value::Array(vec![bulk(id(random)), Value::Array(fields)])
    };
    Value::Array((0..random.below(3)).map(|_| entry(random)).collect())
}

fn lease(random: &mut Random) -> Value {
    let running = (0..random.below(3)).map(|_| format!("{}!{}", event_id(random), random.below(9)));
    let running = running.collect::<Vec<_>>().join(" ");
    let (term, asked, now) = (number(random), number(random), number(random));
    words(&[term.to_string(), id(random), running, event_ids(random), asked.to_string(), now.to_string()])
}

fn sidecars(random: &mut Random) -> Value {
    let seen = |random: &mut Random| [text(random), text(random), number(random).to_string()];
    let seen: Vec<String> = (0..random.below(3)).flat_map(|_| seen(random)).collect();
    words(&seen)
}

fn record(random: &mut Random) -> Value {
    let first = small_number(random).to_string();
    let fields = [("partitions", "4"), ("layout", "entry"), ("numbering", "producer"), ("wire_version", "4")];
    let fields = fields.into_iter().chain([("first_sequence", first.as_str())]);
    map(fields.map(|(field, value)| (field.to_owned(), bulk(value))).collect())
}

fn info(random: &mut Random) -> Value {
    let (memory, replicas) = (number(random), random.below(5));
    bulk(format!(
        "# Server\r\nredis_version:7.2.4\r\nrole:master\r\nused_memory:{memory}\r\nconnected_slaves:{replicas}\r\n"
    ))
}

type Made = fn(&mut Random) -> Value;
type Read = fn(Value) -> Result<(), StoreError>;

/// Every reply that is read: how it is when all is well, and who reads it.
#[rustfmt::skip]
const REPLIES: [(&str, Made, Read); 32] = [
    ("opened", |random| Value::Array(vec![bulk("4|7|0123|-"), count(random)]), |v| reply::opened(v).map(drop)),
    ("lane_state", |random| bulk(state(random)), |v| reply::lane_state(v).map(drop)),
    ("scan", |random| Value::Array(vec![count(random), words(&[text(random)])]), |v| reply::scan(v).map(drop)),
    ("stream_info", |random| map(vec![("length".into(), count(random)), ("entries-added".into(), count(random))]),
        |v| reply::stream_info(v).map(drop)),
    ("admitted, fast", fast, |v| reply::admitted(v, batch().offers(), Layout::Entry).map(drop)),
    ("admitted, fast, one entry", |random| words(&["fast".into(), id(random)]),
        |v| reply::admitted(v, batch().offers(), Layout::Batch).map(drop)),
    ("admitted, slow", slow, |v| reply::admitted(v, batch().offers(), Layout::Batch).map(drop)),
    ("settled", settled, |v| settle(v, Layout::Entry)),
    ("settled, one entry",
        |random| { let id = bulk(id(random)); around(random, vec![id]) }, |v| settle(v, Layout::Batch)),
    ("elapsed", elapsed, |v| reply::elapsed(v).map(drop)),
    ("trimmed", trimmed, |v| reply::trimmed(v).map(drop)),
    ("swept", swept, |v| reply::swept(v).map(drop)),
    ("repaired", repaired, |v| reply::repaired(v).map(drop)),
    ("announcement", |random| bulk(pick(random, &["noted", "begun", "full"])), |v| reply::announcement(v).map(drop)),
    ("wall_ms", |random| Value::Array(vec![bulk(random.below(1 << 40)), bulk(random.below(1_000_000))]),
        |v| reply::wall_ms(v).map(drop)),
    ("sidecars", sidecars, |v| reply::sidecars(v).map(drop)),
    ("signs_of_life", |random| map(vec![(text(random), bulk(format!("{}|{}", number(random), text(random))))]),
        |v| reply::signs_of_life(v, 1 << 40).map(drop)),
    ("meta", |random| Value::Array(vec![count(random), bulk("4|7|0123|xf"), count(random)]), |v| reply::meta(v).map(drop)),
    ("sequence", |random| bulk(small_number(random)), |v| reply::sequence(v).map(drop)),
    ("record", record, |v| reply::record(v).map(drop)),
    ("entries", entries_of, |v| entries::entries(v).map(drop)),
    ("reads", entries_of, |v| entries::reads(v).map(drop)),
    ("streams", |random| map(vec![("key".into(), entries_of(random))]), |v| entries::streams(v).map(drop)),
    ("groups", |random| map(vec![(text(random), bulk("px"))]), |v| group_reply::groups(v).map(drop)),
    ("attendance", |random| words(&["px".into(), text(random), number(random).to_string()]),
        |v| group_reply::attendance(v).map(drop)),
    ("lease_seen", |random| Value::Array(vec![bulk(text(random)), count(random), count(random)]),
        |v| group_reply::lease_seen(v).map(drop)),
    ("leased", lease, |v| group_reply::leased(v).map(drop)),
    ("committed", |random| Value::Array(vec![Value::Int(1), count(random), count(random)]), |v| group_reply::committed(v).map(drop)),
    ("points", |random| Value::Array(vec![bulk(""), bulk(state(random)), Value::Nil]), |v| group_reply::points("g", v).map(drop)),
    ("heads", |random| map(vec![(String::new(), bulk("")), (entity(random), bulk(head(random)))]),
        |v| group_reply::heads("g", v).map(drop)),
    ("granted", |random| bulk(pick(random, &["", "-", "r", "d", "p", "s", "x"])), |v| group_reply::granted(v).map(drop)),
    ("plain_groups", |random| Value::Array(vec![map(vec![("name".into(), bulk("g")), ("last-delivered-id".into(), bulk(id(random)))])]),
        |v| group_reply::plain_groups(v).map(drop)),
];

/// Those that take anything of the right shape, or nearly so.
#[rustfmt::skip]
const LENIENT: [(&str, Made, Read); 4] = [
    ("kept", |random| Value::Array(vec![bulk(""), bulk(text(random)), Value::Nil]), |v| group_reply::kept("g", vec![1, 2], v).map(drop)),
    ("retired_points", |random| Value::Array([counts(random, 2), vec![bulk(id(random)), bulk(text(random)), bulk("0:1")]].concat()),
        |v| group_reply::retired_points(v).map(drop)),
    ("last_id", |random| map(vec![("last-generated-id".into(), bulk(id(random)))]), |v| group_reply::last_id(v).map(drop)),
    ("info", info, |v| report::of_info(v).map(|report| drop((report.version_numbers(), report.what_could_be_lost())))),
];

#[test]
fn replies_of_redis() {
    for (what, valid, read) in REPLIES.into_iter().chain(LENIENT) {
        let mut seen = Seen::default();
        cases(&format!("reply, {what}"), |random| {
            let value = valid(random);
            assert_eq!(read(value.clone()), Ok(()), "{what}: {value:?}");
            let near = if percent(random, 10) { tree(random, 0) } else { changed(random, value) };
            let outcome = read(near);
            seen.count(outcome.is_ok());
            if let Err(error) = outcome {
                check_message(&error.to_string());
            }
        });
        seen.check(&format!("reply, {what}"));
    }
}

#[test]
fn probes_that_anybody_may_have_published() {
    let mut seen = Seen::default();
    cases("probes", |random| {
        let (epoch, first, more) = (small_number(random), random.below(99), random.below(9));
        let words = [
            entity(random),
            epoch.to_string(),
            first.to_string(),
            (first + more).to_string(),
            "1".to_owned(),
        ];
        let valid = serde_json::to_vec(&words).unwrap();
        assert_eq!(reply::probes(&valid).map(|probes| probes.len()), Some(1));
        let read = reply::probes(&damaged(random, valid));
        seen.count(read.is_some());
        for probe in read.unwrap_or_default() {
            assert!(probe.missing.first <= probe.missing.last, "what is missing is a range");
        }
    });
    seen.check("probes");
}

/// Anything that a server can answer.
fn tree(random: &mut Random, depth: u64) -> Value {
    let is_leaf = depth == DEPTH_MAX;
    let several =
        |random: &mut Random| (0..random.below(5)).map(|_| tree(random, depth + 1)).collect::<Vec<_>>();
    match random.below(if is_leaf { 8 } else { 12 }) {
        0 => Value::Nil,
        1 => Value::Int(random.draw() as i64 >> random.below(64)),
        2 => Value::BulkString(damaged(random, *b"4|7|0123|-")),
        3 => Value::SimpleString(text(random)),
        4 => Value::Okay,
        5 => Value::Double(f64::from_bits(random.draw())),
        6 => Value::Boolean(percent(random, 50)),
        7 => Value::VerbatimString { format: ::redis::VerbatimFormat::Text, text: text(random) },
        8 => Value::Set(several(random)),
        9 => Value::Map(several(random).into_iter().zip(several(random)).collect()),
        _ => Value::Array(several(random)),
    }
}

/// A reply in which one thing is different.
fn changed(random: &mut Random, value: Value) -> Value {
    match value {
        Value::Array(mut values) if !values.is_empty() && percent(random, 90) => {
            let at = index(random, values.len());
            match random.below(10) {
                0 => drop(values.remove(at)),
                1 => values.insert(at, tree(random, DEPTH_MAX)),
                2 => values.push(values[at].clone()),
                3 => values.truncate(at),
                4 => {
                    let other = index(random, values.len());
                    values.swap(at, other);
                }
                _ => values[at] = changed(random, values[at].clone()),
            }
            Value::Array(values)
        }
        Value::Map(mut pairs) if !pairs.is_empty() && percent(random, 90) => {
            let at = index(random, pairs.len());
            let (field, value) = pairs[at].clone();
            match random.below(10) {
                0 => drop(pairs.remove(at)),
                1 => pairs.push((field, value)),
                2 => {
                    return Value::Array(
                        pairs.into_iter().flat_map(|(field, value)| [field, value]).collect(),
                    );
                }
                3 => pairs[at].0 = changed(random, field),
                _ => pairs[at].1 = changed(random, value),
            }
            Value::Map(pairs)
        }
        Value::BulkString(bytes) if percent(random, 90) => Value::BulkString(damaged(random, bytes)),
        Value::Int(_) if percent(random, 70) => {
            Value::Int(*pick(random, &[0, 1, -1, i64::MAX, i64::MIN, 1 << 53, (1 << 53) + 1, 1 << 62]))
        }
        _ => tree(random, 0),
    }
}
