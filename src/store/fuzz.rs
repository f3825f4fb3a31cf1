//! The texts that stand in the store, and entries that anybody may have written, as nobody
//! should write them.

use std::fmt::{Debug, Display};

use bytes::Bytes;

use super::{
    Entry, EventId, Head, HoldState, Payload, Point, Running, StreamId, TopicRecord,
    field::{write_name, write_value},
};
use crate::{
    fuzz::{
        Seen, cases, check_message, damaged, damaged_text, index, number, percent, pick, small_number, text,
    },
    order::{
        Age, Epoch, Gap, LaneState, Mode, Order, ParkedSummary, Ranges, Sequence, Shadow, ShadowGap, Wait,
    },
    random::Random,
};

fn sequence(random: &mut Random) -> Sequence {
    Sequence::new(small_number(random)).unwrap()
}

fn stream_id(random: &mut Random) -> StreamId {
    StreamId { milliseconds: number(random), counter: number(random) }
}

pub fn event_id(random: &mut Random) -> EventId {
    let index = if percent(random, 50) { 0 } else { number(random) as u32 };
    EventId { entry: stream_id(random), index }
}

fn ranges(random: &mut Random) -> Ranges {
    let mut numbers: Vec<u64> = (0..1 + random.below(6)).map(|_| small_number(random)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| Sequence::new(number).unwrap()).collect()
}

/// Any state that a lane can have, and some that none has.
pub fn state(random: &mut Random) -> LaneState {
    let mut some = |chance| percent(random, chance);
    let (has_parked, has_wait, has_gap, has_missing) = (some(40), some(40), some(50), some(40));
    let (is_unmarked, has_shadow, has_stage, has_recent) = (some(20), some(20), some(20), some(20));
    let gap = Gap { opened: number(random), attempt: index(random, 20), deadline: number(random) };
    let age = Age { since: number(random), upto: sequence(random) };
    let shadow_gap = ShadowGap { opened: number(random), deadline: number(random) };
    LaneState {
        epoch: Epoch::new(small_number(random)).unwrap(),
        next: Sequence::new_next(small_number(random) + random.below(2)).unwrap(),
        closed: percent(random, 20),
        mode: *pick(random, &[Mode::Enforce, Mode::Shadow, Mode::Pass]),
        parked: has_parked.then(|| ParkedSummary {
            count: number(random),
            bytes: number(random),
            sequences: ranges(random),
        }),
        wait: has_wait.then(|| Wait { age, terminals: number(random), gap: has_gap.then_some(gap) }),
        missing: if has_missing { ranges(random) } else { Ranges::default() },
        unmarked: is_unmarked.then(|| sequence(random)),
        shadow: has_shadow.then(|| Shadow { floor: sequence(random), gap: has_gap.then_some(shadow_gap) }),
        stage: has_stage.then(|| pick(random, &["running", "a-b", "c.d_E"]).to_string().into()),
        recent: (0..if has_recent { random.below(70) } else { 0 }).map(|_| random.draw()).collect(),
    }
}

pub fn head(random: &mut Random) -> Head {
    use HoldState::{Dead, DropAsked, Paused, Retrying, SkipAsked};
    Head {
        state: *pick(random, &[Retrying, Dead, Paused, SkipAsked, DropAsked]),
        attempts: number(random) as u32,
        due_ms: number(random),
        first: number(random),
        next: number(random),
        bytes: number(random),
        reached: percent(random, 50).then(|| state(random)),
        reason: text(random),
    }
}

/// What is written is read back as it was; what is read after it was damaged is written and
/// read as the same again; what is refused is told why.
fn check_text<T>(what: &str, valid: impl Fn(&mut Random) -> T)
where
    T: Debug + PartialEq + Display + std::str::FromStr<Err: Display>,
{
    let parse = |text: &str| text.parse::<T>().map_err(|error| error.to_string());
    let mut seen = Seen::default();
    cases(what, |random| {
        let value = valid(random);
        assert_eq!(parse(&value.to_string()).as_ref(), Ok(&value), "{value}");
        let near = damaged_text(random, value.to_string());
        let read = parse(&near);
        seen.count(read.is_ok());
        match read {
            Ok(read) => assert_eq!(parse(&read.to_string()), Ok(read), "{near}"),
            Err(message) => check_message(&message),
        }
    });
    seen.check(what);
}

#[test]
fn ids_of_entries() {
    check_text("ids of entries", stream_id);
}

#[test]
fn ids_of_events() {
    check_text("ids of events", event_id);
}

#[test]
fn what_runs() {
    check_text("what runs", |random| Running { id: event_id(random), crashes: number(random) as u32 });
}

#[test]
fn states_of_lanes_and_points() {
    check_text::<Point>("states of lanes and points", state);
}

#[test]
fn heads_of_what_is_held() {
    check_text("heads of what is held", head);
}

#[test]
fn records_of_topics() {
    let mut seen = Seen::default();
    cases("records of topics", |random| {
        let record = TopicRecord {
            partitions: 1 + number(random) as u32 / 2,
            layout: text(random),
            first_sequence: small_number(random),
            numbering: text(random),
            wire_version: number(random) as u32,
        };
        let mut fields = record.fields().map(|(field, value)| (field.to_owned(), value)).to_vec();
        assert_eq!(TopicRecord::from_fields(&fields), Some(record));
        let at = index(random, fields.len());
        fields[at].1 = damaged_text(random, fields[at].1.clone());
        let read = TopicRecord::from_fields(&fields);
        seen.count(read.is_some());
        if let Some(read) = read {
            assert!(read.partitions > 0, "a topic has partitions");
            assert!(read.mismatch(&read).is_none());
        }
    });
    seen.check("records of topics");
}

/// An entry as scripts write it.
pub fn fields(random: &mut Random) -> Vec<(Bytes, Bytes)> {
    let order = pick(random, &Order::ALL).name().to_owned();
    let (epoch, sequence) = (small_number(random).to_string(), small_number(random).to_string());
    let (entity, kind, attrs, data) = (text(random), text(random), text(random), text(random));
    [
        ("entity", entity),
        ("epoch", epoch),
        ("sequence", sequence),
        ("type", kind),
        ("order", order),
        ("attrs", attrs),
        ("data", data),
    ]
    .map(|(field, value)| (Bytes::from(field), Bytes::from(value)))
    .to_vec()
}

fn foreign(fields: &[(Bytes, Bytes)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    fields.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
}

/// An entry of several events, as scripts write it.
pub fn event_fields(random: &mut Random) -> Vec<(Bytes, Bytes)> {
    let events = 1 + index(random, 4);
    let field = |index| {
        let (mut name, mut value) = (String::new(), Vec::new());
        let middle = format!("{}:{}", small_number(random), pick(random, &Order::ALL).name());
        let epoch = Epoch::new(small_number(random)).unwrap();
        write_name(&mut name, index, epoch, &text(random), |name| name.push_str(&middle));
        let (kind, attrs, data) = (text(random).into(), text(random).into(), text(random).into());
        write_value(&mut value, percent(random, 20), &Payload { kind, attrs, data });
        (Bytes::from(name), Bytes::from(value))
    };
    (0..events).map(field).collect()
}

/// One of the fields is another, gone, or there twice.
fn damage_field(random: &mut Random, fields: &mut Vec<(Bytes, Bytes)>) {
    let at = index(random, fields.len());
    match random.below(4) {
        0 => fields[at].0 = damaged(random, fields[at].0.clone()).into(),
        1 if fields.len() > 1 => drop(fields.remove(at)),
        2 => fields.push(fields[at].clone()),
        _ => fields[at].1 = damaged(random, fields[at].1.clone()).into(),
    }
}

/// What we wrote is read by both readers alike. What was damaged costs an error for each event,
/// or for the whole, and never the places of the others.
fn check_entries(what: &str, valid: fn(&mut Random) -> Vec<(Bytes, Bytes)>) {
    let (mut ours, mut others) = (Seen::default(), Seen::default());
    cases(what, |random| {
        let (id, mut fields) = (stream_id(random), valid(random));
        let read = Entry::all_from_fields(id, fields.clone()).unwrap();
        let reads: Vec<Entry> = Entry::all_from_foreign(id, foreign(&fields))
            .into_iter()
            .map(|read| read.entry.unwrap())
            .collect();
        assert_eq!(reads, read, "both read the same");
        (0..1 + random.below(3)).for_each(|_| damage_field(random, &mut fields));
        let reads = Entry::all_from_foreign(id, foreign(&fields));
        assert!(reads.len() == 1 || reads.len() == fields.len(), "nothing is left out unseen");
        for (index, read) in (0..).zip(reads) {
            assert_eq!(read.id, EventId { entry: id, index });
            others.count(read.entry.is_ok());
            read.entry.map_or_else(
                |error| check_message(&error.to_string()),
                |entry| assert_eq!(entry.id, read.id),
            );
        }
        let read = Entry::all_from_fields(id, fields);
        ours.count(read.is_ok());
        if let Err(error) = read {
            check_message(&error.to_string());
        }
    });
    ours.check(&format!("{what} of ours"));
    others.check(&format!("{what} of others"));
}

#[test]
fn entries_of_ours_and_of_others() {
    check_entries("entries", fields);
}

#[test]
fn entries_of_many_events_of_ours_and_of_others() {
    check_entries("entries of many events", event_fields);
}
