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
    let read = |(id, fields)| Read { id, entry: Entry::from_foreign(id, fields) };
    array(value)?.into_iter().map(|value| fields(value).map(read)).collect()
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

fn fields(value: Value) -> Result<(StreamId, Vec<(Bytes, Bytes)>), StoreError> {
    let mut parts = array(value)?.into_iter();
    let (Some(id), Some(fields)) = (parts.next(), parts.next()) else {
        return Err(unexpected("an id and fields", &()));
    };
    let id: StreamId = parsed(text(id)?)?;
    let mut values = array(fields)?.into_iter();
    let mut fields = Vec::with_capacity(values.len() / 2);
    while let (Some(field), Some(value)) = (values.next(), values.next()) {
        fields.push((bytes(field)?, bytes(value)?));
    }
    Ok((id, fields))
}
