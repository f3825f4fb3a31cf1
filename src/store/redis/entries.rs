//! Entries of streams, as Redis answers them.

use ::redis::Value;
use bytes::Bytes;

use super::reply::{array, bytes, parsed, text, unexpected};
use crate::store::{Entry, Read, StoreError, StreamId};

/// Entries that this program wrote.
pub fn entries(value: Value) -> Result<Vec<Entry>, StoreError> {
    let entry = |(id, fields)| Entry::from_fields(id, fields);
    let broken = |error: crate::store::RecordError| StoreError::Broken(error.to_string());
    array(value)?
        .into_iter()
        .map(|value| fields(value).and_then(|read| entry(read).map_err(broken)))
        .collect()
}

/// Entries that anybody may have written.
pub fn reads(value: Value) -> Result<Vec<Read>, StoreError> {
    array(value)?.into_iter().map(read).collect()
}

/// The answer of XREAD: streams by their keys.
pub fn streams(value: Value) -> Result<Vec<(String, Vec<Read>)>, StoreError> {
    match value {
        Value::Nil => Ok(Vec::new()),
        Value::Map(streams) => {
            streams.into_iter().map(|(key, entries)| Ok((text(key)?, reads(entries)?))).collect()
        }
        other => Err(unexpected("streams", &other)),
    }
}

fn read(value: Value) -> Result<Read, StoreError> {
    let (id, values) = id_and_values(value)?;
    let mut values = values.into_iter();
    let fields = std::iter::from_fn(|| match (values.next(), values.next()) {
        (Some(Value::BulkString(field)), Some(Value::BulkString(value))) => Some((field, value)),
        _ => None,
    });
    Ok(Read { id, entry: Entry::from_foreign(id, fields) })
}

fn id_and_values(value: Value) -> Result<(StreamId, Vec<Value>), StoreError> {
    let mut parts = array(value)?.into_iter();
    let (Some(id), Some(fields)) = (parts.next(), parts.next()) else {
        return Err(unexpected("an id and fields", &()));
    };
    Ok((parsed(text(id)?)?, array(fields)?))
}

fn fields(value: Value) -> Result<(StreamId, Vec<(Bytes, Bytes)>), StoreError> {
    let (id, values) = id_and_values(value)?;
    let mut values = values.into_iter();
    let mut fields = Vec::with_capacity(values.len() / 2);
    while let (Some(field), Some(value)) = (values.next(), values.next()) {
        fields.push((bytes(field)?, bytes(value)?));
    }
    Ok((id, fields))
}
