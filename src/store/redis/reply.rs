//! What Redis answered, as our own types. Anything unexpected is an error with the
//! reply's shape in it, never a panic: the server may be older, newer or a proxy.

use ::redis::Value;
use bytes::Bytes;

use crate::{
    order::{Epoch, LaneState, Position, Refusal, Sequence, Verdict},
    store::{Admitted, Batch, Decision, Entry, Path, RecordError, StoreError, StreamId},
};

fn unexpected(what: &str, value: &impl std::fmt::Debug) -> StoreError {
    let mut shown = format!("{value:?}");
    shown.truncate(shown.char_indices().nth(200).map_or(shown.len(), |(at, _)| at));
    StoreError::Broken(format!("unexpected reply, wanted {what}, got {shown}"))
}

fn array(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(values) => Ok(values),
        other => Err(unexpected("an array", &other)),
    }
}

fn bytes(value: Value) -> Result<Bytes, StoreError> {
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

/// The first element of `open_partition`'s reply.
pub fn header(value: Value) -> Result<String, StoreError> {
    let first = array(value)?.into_iter().next();
    first.map_or_else(|| Err(unexpected("a header", &())), text)
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

pub fn entries(value: Value) -> Result<Vec<Entry>, StoreError> {
    array(value)?.into_iter().map(entry).collect()
}

fn entry(value: Value) -> Result<Entry, StoreError> {
    let mut parts = array(value)?.into_iter();
    let (Some(id), Some(fields)) = (parts.next(), parts.next()) else {
        return Err(unexpected("an id and fields", &()));
    };
    let broken = |error: RecordError| StoreError::Broken(error.to_string());
    let id: StreamId = text(id)?.parse().map_err(broken)?;
    let mut values = array(fields)?.into_iter();
    let mut fields = Vec::with_capacity(values.len() / 2);
    while let (Some(field), Some(value)) = (values.next(), values.next()) {
        fields.push((bytes(field)?, bytes(value)?));
    }
    Entry::from_fields(id, fields).map_err(broken)
}

/// The reply of `admit`, and the header if the script told it.
pub fn admitted(value: Value, batch: &Batch) -> Result<(Admitted, Option<String>), StoreError> {
    let mut values = array(value)?.into_iter();
    let path = values.next().map(text).transpose()?;
    let (header, more, drained, after_terminal) = match path.as_deref() {
        Some("fast") => (None, 0, 0, 0),
        Some("slow") => {
            let mut next = || values.next().ok_or_else(|| unexpected("more of a slow reply", &()));
            (Some(text(next()?)?), number(next()?)?, number(next()?)?, number(next()?)?)
        }
        other => return Err(unexpected("fast or slow", &other)),
    };
    let offers = batch.offers();
    if values.len() != offers.len() {
        return Err(unexpected("a verdict for each event", &values.len()));
    }
    let mut decisions = Vec::with_capacity(offers.len());
    for (value, offer) in values.zip(offers) {
        let word = text(value)?;
        decisions.push(match (&header, offer.event.position) {
            (None, Position::Given(sequence)) => {
                let id = word.parse().map_err(|error: RecordError| unexpected("an id", &error))?;
                Decision { verdict: Verdict::Released { sequence }, id: Some(id) }
            }
            _ => decision(&word).ok_or_else(|| unexpected("a verdict", &word))?,
        });
    }
    let path = if header.is_some() { Path::Slow } else { Path::Fast };
    // While a lane is draining the header says so; a healthy batch need not expect it.
    let header =
        header.map(|header| header.strip_suffix('d').map(|rest| format!("{rest}-")).unwrap_or(header));
    Ok((Admitted { decisions, path, more: more != 0, drained, after_terminal }, header))
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
    fn a_reply_of_another_shape_is_an_error_not_a_panic() {
        let batch = Batch::default();
        for value in
            [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::SimpleString("slow".into())])]
        {
            assert!(matches!(admitted(value, &batch), Err(StoreError::Broken(_))));
        }
    }
}
