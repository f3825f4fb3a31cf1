//! Entries of streams, as Redis answers them.

use ::redis::Value;
use bytes::Bytes;

use super::reply::{array, bytes, parsed, text, unexpected};
use crate::store::{Entry, Read, StoreError, StreamId};

/// The events of entries that this program wrote.
pub fn entries(value: Value) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    for value in array(value)? {
        let (id, fields) = fields(value)?;
        let events = Entry::all_from_fields(id, fields);
        entries.extend(events.map_err(|error| StoreError::Broken(error.to_string()))?);
    }
    Ok(entries)
}

/// The events of entries that anybody may have written.
pub fn reads(value: Value) -> Result<Vec<Read>, StoreError> {
    let mut reads = Vec::new();
    for value in array(value)? {
        let (id, values) = id_and_values(value)?;
        let mut values = values.into_iter();
        let fields = std::iter::from_fn(|| match (values.next(), values.next()) {
            (Some(Value::BulkString(field)), Some(Value::BulkString(value))) => Some((field, value)),
            _ => None,
        });
        reads.extend(Entry::all_from_foreign(id, fields.collect()));
    }
    Ok(reads)
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
