//! What Redis answered, as our own types. Anything unexpected is an error with the
//! reply's shape in it, never a panic: the server may be older, newer or a proxy.

use std::{
    collections::HashMap,
    fmt::{self, Write},
};

use ::redis::Value;
use bytes::Bytes;

use crate::{
    order::{
        Announcement, Entity, Epoch, Finding, LaneState, Note, Position, Probe, Range, Refusal, Sequence,
        SkipReason, Swept, Verdict,
    },
    store::{
        Admitted, Decision, Elapsed, Floor, Layout, Offer, Path, RecordError, Repair, RepairKind,
        SidecarSeen, StoreError, StreamId, TopicRecord, Trimmed,
    },
};

pub fn unexpected(what: &str, value: &impl std::fmt::Debug) -> StoreError {
    let mut shown = Beginning(String::new());
    // It ends early on purpose when there is enough.
    let _ = write!(shown, "{value:?}");
    StoreError::Broken(format!("unexpected reply, wanted {what}, got {}", shown.0))
}

/// The first characters of what is written to it: a reply may have many megabytes, and no
/// message needs them all even for a moment.
struct Beginning(String);

const SHOWN_BYTES: usize = 200;

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() + c.len_utf8() > SHOWN_BYTES {
                return Err(fmt::Error);
            }
            self.0.push(c);
        }
        Ok(())
    }
}

pub fn array(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(unexpected("an array", &other)),
    }
}

pub fn bytes(value: Value) -> Result<Bytes, StoreError> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        Value::SimpleString(text) => Ok(text.into()),
        other => Err(unexpected("a string", &other)),
    }
}

pub fn text(value: Value) -> Result<String, StoreError> {
    String::from_utf8(bytes(value)?.into()).map_err(|error| unexpected("UTF-8", &error))
}

/// A number, as an integer or in digits; nothing at all counts as 0.
pub fn number(value: Value) -> Result<u64, StoreError> {
    match value {
        Value::Nil => Ok(0),
        Value::Int(number) => u64::try_from(number).map_err(|_| unexpected("a count", &number)),
        other => {
            let digits = text(other)?;
            digits.parse().map_err(|_| unexpected("digits", &digits))
        }
    }
}

/// Something that is written as a text of its own.
pub fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: impl AsRef<str>) -> Result<T, StoreError> {
    text.as_ref().parse().map_err(|error: T::Err| StoreError::Broken(error.to_string()))
}

pub fn sequence(value: Value) -> Result<Sequence, StoreError> {
    Sequence::new(number(value)?).map_err(|error| unexpected("a sequence", &error))
}

/// A map, or an array of field, value, field, value.
pub fn pairs(value: Value) -> Result<Vec<(String, String)>, StoreError> {
    match value {
        Value::Map(pairs) => {
            pairs.into_iter().map(|(field, value)| Ok((text(field)?, text(value)?))).collect()
        }
        other => {
            let values = array(other)?.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
            Ok(values.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
        }
    }
}

/// The fields of a topic's record.
pub fn record(value: Value) -> Result<TopicRecord, StoreError> {
    let fields = pairs(value)?;
    TopicRecord::from_fields(&fields).ok_or_else(|| unexpected("a topic's record", &fields))
}

/// A map whose values are not all texts.
pub fn map(value: Value) -> Result<Vec<(String, Value)>, StoreError> {
    let Value::Map(fields) = value else { return Err(unexpected("a map", &value)) };
    fields.into_iter().map(|(field, value)| Ok((text(field)?, value))).collect()
}

/// The reply of `open_partition`: the header as a healthy partition has it, and whether
/// the caller's policy is in force.
pub fn opened(value: Value) -> Result<(String, bool), StoreError> {
    let mut values = array(value)?.into_iter();
    let (Some(header), Some(is_ours)) = (values.next(), values.next()) else {
        return Err(unexpected("a header and a number", &()));
    };
    Ok((healthy(&text(header)?), number(is_ours)? == 1))
}

/// The header without what is unusual at the moment: no batch may take that for healthy.
fn healthy(header: &str) -> String {
    let fixed = header.rfind('|').map_or(header, |at| &header[..at]);
    format!("{fixed}|-")
}

pub fn lane_state(value: Value) -> Result<Option<LaneState>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        other => {
            let state = text(other)?.parse::<LaneState>();
            state.map(Some).map_err(|error| StoreError::Broken(error.to_string()))
        }
    }
}

pub fn scan(value: Value) -> Result<(u64, Vec<String>), StoreError> {
    let mut parts = array(value)?.into_iter();
    let (Some(cursor), Some(keys)) = (parts.next(), parts.next()) else {
        return Err(unexpected("a cursor and keys", &()));
    };
    Ok((number(cursor)?, array(keys)?.into_iter().map(text).collect::<Result<_, _>>()?))
}

/// Length of a stream and how many entries were ever added to it.
pub fn stream_info(value: Value) -> Result<(u64, u64), StoreError> {
    let Value::Map(fields) = value else { return Err(unexpected("a map", &value)) };
    let (mut length, mut added) = (0, 0);
    for (field, value) in fields {
        match text(field)?.as_str() {
            "length" => length = number(value)?,
            "entries-added" => added = number(value)?,
            _ => {}
        }
    }
    Ok((length, added))
}

/// The reply of `admit`.
pub struct Answered {
    pub admitted: Admitted,
    /// The one that was in force, if the call was slow.
    pub header: Option<String>,
    /// Of lanes that wait, by entity.
    pub states: HashMap<String, LaneState>,
}

pub fn admitted(value: Value, offers: &[Offer], layout: Layout) -> Result<Answered, StoreError> {
    let mut values = array(value)?.into_iter();
    let path = values.next().map(text).transpose()?;
    match path.as_deref() {
        Some("fast") => {
            let admitted = released(values.collect(), offers, layout)?;
            Ok(Answered { admitted, header: None, states: HashMap::new() })
        }
        Some("slow") => {
            let mut next = || values.next().unwrap_or(Value::Okay);
            let header = healthy(&text(next())?);
            let (more, drained, after_terminal) = (number(next())? != 0, number(next())?, number(next())?);
            let notes = notes(next())?;
            // One that cannot be read is not known; what was decided is, all the same.
            let states = pairs(next())?.into_iter();
            let states = states.filter_map(|(entity, state)| Some((entity, state.parse().ok()?))).collect();
            if values.len() != offers.len() {
                return Err(unexpected("a verdict for each event", &values.len()));
            }
            let decided = |word: String| decision(&word).ok_or_else(|| unexpected("a verdict", &word));
            let decisions = values.map(|value| decided(text(value)?)).collect::<Result<_, _>>()?;
            let admitted = Admitted { decisions, path: Path::Slow, more, drained, after_terminal, notes };
            Ok(Answered { admitted, header: Some(header), states })
        }
        other => Err(unexpected("fast or slow", &other)),
    }
}

/// Events that were all in order, from the ids of their entries.
pub fn released(ids: Vec<Value>, offers: &[Offer], layout: Layout) -> Result<Admitted, StoreError> {
    let entries = match layout {
        Layout::Entry => offers.len(),
        Layout::Batch => offers.len().min(1),
    };
    if ids.len() != entries {
        return Err(unexpected("an id for each entry", &ids.len()));
    }
    let ids = ids.into_iter().map(id).collect::<Result<Vec<_>, _>>()?;
    let decision = |(offer, id): (&Offer, &StreamId)| match offer.event.position {
        Position::Given(sequence) => Ok(Decision { verdict: Verdict::Released { sequence }, id: Some(*id) }),
        Position::Assigned { .. } => Err(unexpected("no id of an event without a sequence", id)),
    };
    let decisions = offers.iter().zip(ids.iter().cycle()).map(decision).collect::<Result<_, _>>()?;
    Ok(Admitted {
        decisions,
        path: Path::Fast,
        more: false,
        drained: 0,
        after_terminal: 0,
        notes: Vec::new(),
    })
}

pub fn id(value: Value) -> Result<StreamId, StoreError> {
    parsed(text(value)?)
}

/// What `straight.lua` says of a transaction that is as predicted.
pub struct Judged {
    /// The token was there that the caller had left.
    pub found_token: bool,
    /// The partition's clock, if anything depends on it.
    pub time: u64,
}

/// Why a transaction was barred.
pub struct Barred {
    pub reason: String,
    pub found_token: bool,
}

/// The reply of `straight`.
pub fn settled(value: Value) -> Result<Result<Judged, Barred>, StoreError> {
    let mut values = array(value)?.into_iter();
    let mut next = || values.next().unwrap_or(Value::Okay);
    let found_token = match number(next())? {
        0 => return Ok(Err(Barred { reason: text(next())?, found_token: number(next())? == 1 })),
        1 => false,
        2 => true,
        other => return Err(unexpected("0 to 2", &other)),
    };
    let time = text(next())?;
    let time = if time.is_empty() { Ok(0) } else { time.parse().map_err(|_| unexpected("a time", &time)) };
    Ok(Ok(Judged { found_token, time: time? }))
}

/// The reply of `elapse`.
pub fn elapsed(value: Value) -> Result<Elapsed, StoreError> {
    let mut values = array(value)?.into_iter();
    let mut next = || values.next().unwrap_or(Value::Okay);
    Ok(Elapsed {
        ran: number(next())? == 1,
        lanes: number(next())?,
        more: number(next())? == 1,
        drained: number(next())?,
        after_terminal: number(next())?,
        notes: notes(next())?,
        degraded: number(next())? == 1,
    })
}

/// The reply of `trim`.
pub fn trimmed(value: Value) -> Result<Trimmed, StoreError> {
    let mut values = array(value)?.into_iter();
    let mut next = || values.next().unwrap_or(Value::Okay);
    let trimmed = Trimmed {
        ran: number(next())? == 1,
        events: number(next())?,
        late: number(next())?,
        more: number(next())? == 1,
        full: number(next())? == 1,
        late_full: number(next())? == 1,
        entries: number(next())?,
        late_entries: number(next())?,
        entries_max: number(next())?,
        floor: None,
    };
    let (id, group) = (text(next())?, lossy(next())?);
    if id.is_empty() {
        return Ok(trimmed);
    }
    let id = id.parse().map_err(|error: RecordError| unexpected("an id", &error))?;
    Ok(Trimmed { floor: Some(Floor { id, group }), ..trimmed })
}

/// Notes are words: a letter, then what belongs to it.
fn notes(value: Value) -> Result<Vec<Note>, StoreError> {
    let words = text(value)?;
    let read = |word: &str| note(word).ok_or_else(|| unexpected("a note", &word));
    words.split_whitespace().map(read).collect()
}

fn note(word: &str) -> Option<Note> {
    let (letter, rest) = word.split_at_checked(1)?;
    Some(match letter {
        "f" => Note::Filled(rest.parse().ok()?),
        "x" => Note::Skipped(SkipReason::ALL.into_iter().find(|reason| reason.name() == rest)?),
        "p" => Note::Probed,
        "i" => Note::Illegal,
        "d" => Note::Distance(rest.parse().ok()?),
        "w" => Note::WouldWait(rest.parse().ok()?),
        "k" => Note::WouldSkip,
        "l" => Note::WouldBeLate,
        _ => return None,
    })
}

/// What is published about gaps: entity, epoch, first and last missing, is it the last
/// probe, for each. Anything else was published by somebody else.
pub fn probes(payload: &[u8]) -> Option<Vec<Probe>> {
    let words: Vec<String> = serde_json::from_slice(payload).ok()?;
    let number = |digits: &str| digits.parse::<u64>().ok();
    let sequence = |digits: &str| Sequence::new(number(digits)?).ok();
    let probe = |words: &[String]| {
        let [entity, epoch, first, last, is_extensible] = words else { return None };
        let missing = Range { first: sequence(first)?, last: sequence(last)? };
        Some(Probe {
            entity: Entity::new(entity).ok()?,
            epoch: Epoch::new(number(epoch)?).ok()?,
            missing: Some(missing).filter(|missing| missing.first <= missing.last)?,
            is_extensible: is_extensible == "1",
        })
    };
    words.chunks(5).map(probe).collect()
}

pub fn announcement(value: Value) -> Result<Announcement, StoreError> {
    match text(value)?.as_str() {
        "noted" => Ok(Announcement::Noted),
        "begun" => Ok(Announcement::Begun),
        "full" => Ok(Announcement::Full),
        other => Err(unexpected("noted, begun or full", &other)),
    }
}

/// The reply of `sweep`.
pub fn swept(value: Value) -> Result<Swept, StoreError> {
    let mut values = array(value)?.into_iter();
    let mut next = || number(values.next().unwrap_or(Value::Okay));
    let (now, retired, forgotten, more) = (next()?, next()?, next()?, next()? == 1);
    let words = values.map(text).collect::<Result<Vec<_>, _>>()?;
    let finding = |words: &[String]| {
        let [kind, entity, time, state] = words else { return None };
        let (entity, time) = (Entity::new(entity).ok()?, time.parse().ok()?);
        match kind.as_str() {
            "stuck" => Some(Finding::Stuck { entity, state: Box::new(state.parse().ok()?), since: time }),
            "missing" => Some(Finding::Missing { entity, due: time }),
            _ => None,
        }
    };
    let findings = words.chunks(4).map(|words| finding(words).ok_or_else(|| unexpected("a finding", &words)));
    Ok(Swept { now, findings: findings.collect::<Result<_, _>>()?, retired, forgotten, more })
}

/// The reply of `repair`: where to go on, and what was found.
pub fn repaired(value: Value) -> Result<(u64, Vec<Repair>), StoreError> {
    let mut values = array(value)?.into_iter();
    let at = number(values.next().unwrap_or(Value::Okay))?;
    let words = values.map(lossy).collect::<Result<Vec<_>, _>>()?;
    let repair = |words: &[String]| {
        let [kind, entity, what] = words else { return None };
        let kind = RepairKind::ALL.into_iter().find(|known| known.name() == kind)?;
        Some(Repair { kind, entity: entity.clone(), what: what.clone() })
    };
    let repairs = words.chunks(3).map(|words| repair(words).ok_or_else(|| unexpected("a repair", &words)));
    Ok((at, repairs.collect::<Result<_, _>>()?))
}

/// What is out of place may be anything.
fn lossy(value: Value) -> Result<String, StoreError> {
    Ok(String::from_utf8_lossy(&bytes(value)?).into_owned())
}

/// The reply of TIME in milliseconds.
pub fn wall_ms(value: Value) -> Result<u64, StoreError> {
    let mut parts = array(value)?.into_iter().map(number);
    let (Some(seconds), Some(micros)) = (parts.next(), parts.next()) else {
        return Err(unexpected("seconds and microseconds", &()));
    };
    let (seconds, micros) = (seconds?, micros?);
    let whole = seconds.checked_mul(1000).and_then(|ms| ms.checked_add(micros / 1000));
    whole.ok_or_else(|| unexpected("a time", &seconds))
}

/// The reply of `beat`.
pub fn sidecars(value: Value) -> Result<Vec<SidecarSeen>, StoreError> {
    let words = array(value)?.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let seen = |words: &[String]| {
        let [sidecar, about, silent] = words else { return None };
        let silent_ms = silent.parse().ok()?;
        Some(SidecarSeen { sidecar: sidecar.clone(), about: about.clone(), silent_ms })
    };
    words.chunks(3).map(|words| seen(words).ok_or_else(|| unexpected("a sidecar", &words))).collect()
}

/// All sidecars that were heard of, each with when and what it said about itself; `now` is
/// the store's wall clock. What is something else is left out.
pub fn signs_of_life(value: Value, now: u64) -> Result<Vec<SidecarSeen>, StoreError> {
    let seen = |(sidecar, value): (String, String)| {
        let (beat, about) = value.split_once('|')?;
        let silent_ms = now.saturating_sub(beat.parse().ok()?);
        Some(SidecarSeen { sidecar, about: about.to_owned(), silent_ms })
    };
    Ok(pairs(value)?.into_iter().filter_map(seen).collect())
}

/// What `meta` says of a partition in a few words; nothing at all counts as 0 and no.
pub struct Meta {
    pub parked_bytes: u64,
    pub degraded: bool,
    pub full: bool,
    pub late_full: bool,
}

/// The fields `parked_bytes`, `header` and `late_full` of `meta`.
pub fn meta(value: Value) -> Result<Meta, StoreError> {
    let mut values = array(value)?.into_iter();
    let parked_bytes = number(values.next().unwrap_or(Value::Nil))?;
    let header = match values.next() {
        None | Some(Value::Nil) => String::new(),
        Some(header) => text(header)?,
    };
    let flags = header.rsplit('|').next().unwrap_or_default();
    let late_full = number(values.next().unwrap_or(Value::Nil))? == 1;
    Ok(Meta { parked_bytes, degraded: flags.contains('x'), full: flags.contains('f'), late_full })
}

/// One verdict of the slow path: a letter, then what belongs to it.
fn decision(word: &str) -> Option<Decision> {
    let (letter, rest) = word.split_at_checked(1)?;
    let sequence = |digits: &str| Sequence::new(digits.parse().ok()?).ok();
    let (mut id, mut at) = (None, None);
    if matches!(letter, "R" | "P" | "L") {
        let (entry, digits) = rest.split_once(' ')?;
        (id, at) = (Some(entry.parse().ok()?), Some(sequence(digits)?));
    }
    let verdict = match letter {
        "R" => Verdict::Released { sequence: at? },
        "P" => Verdict::Passed { sequence: at? },
        "L" => Verdict::Late { sequence: at? },
        "K" => Verdict::Parked { depth: rest.parse().ok()? },
        "D" => Verdict::Duplicate { sequence: sequence(rest)? },
        "C" => Verdict::Conflict,
        "T" => Verdict::Retired { epoch: Epoch::new(rest.parse().ok()?).ok()? },
        "S" => Verdict::Stale { epoch: Epoch::new(rest.parse().ok()?).ok()? },
        "F" => Verdict::Refused(Refusal::ALL.into_iter().find(|refusal| refusal.name() == rest)?),
        "A" => Verdict::Again,
        _ => return None,
    };
    Some(Decision { verdict, id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StreamId;

    #[test]
    fn verdicts_are_read_and_anything_else_is_refused() {
        let released = decision("R5-1 7").unwrap();
        assert_eq!(released.id, Some(StreamId { milliseconds: 5, counter: 1 }));
        assert_eq!(released.verdict, Verdict::Released { sequence: Sequence::new(7).unwrap() });
        assert_eq!(decision("Fparked_max").unwrap().verdict, Verdict::Refused(Refusal::ParkedMax));
        for word in ["", "R", "R5-1", "R5 7", "Kx", "Fodd", "Z", "é"] {
            assert_eq!(decision(word), None, "{word:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_time_or_a_range_is_refused() {
        let time = |seconds| wall_ms(Value::Array(vec![Value::Int(seconds), Value::Int(5_000)]));
        assert_eq!(time(7), Ok(7_005));
        assert!(matches!(time(i64::MAX), Err(StoreError::Broken(_))));
        assert!(probes(br#"["e","0","4","5","1"]"#).is_some_and(|probes| probes.len() == 1));
        assert_eq!(probes(br#"["e","0","5","4","1"]"#), None);
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error_not_a_panic() {
        for value in
            [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::SimpleString("slow".into())])]
        {
            for layout in Layout::ALL {
                assert!(matches!(admitted(value.clone(), &[], layout), Err(StoreError::Broken(_))));
            }
        }
    }
}
