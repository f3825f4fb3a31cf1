//! What an event is in the store: its payload, and the entry that workers read.

use std::{fmt, str::FromStr};

use bytes::Bytes;

use crate::order::{self, Epoch, Order, Sequence};

/// The part of an event that the rules do not look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The event's type.
    pub kind: Box<str>,
    /// Its attributes as compact JSON.
    pub attrs: Box<str>,
    pub data: Bytes,
}

impl order::Payload for Payload {
    fn size(&self) -> u64 {
        (self.kind.len() + self.attrs.len() + self.data.len()) as u64
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    /// The attributes say after which stage it came; nothing if it was the first.
    fn marked_illegal(mut self, stage: Option<&str>) -> Self {
        let mark = format!(r#""illegal":"{}"}}"#, stage.unwrap_or_default());
        let attrs = self.attrs.strip_suffix('}').expect("attributes are a JSON object");
        let comma = if attrs == "{" { "" } else { "," };
        self.attrs = format!("{attrs}{comma}{mark}").into();
        self
    }

    /// Attributes do not count: a producer that retries may well send a new
    /// `traceparent` or `time` with the same event.
    fn same_as(&self, other: &Self) -> bool {
        self.kind == other.kind && self.data == other.data
    }
}

/// The id of a stream entry, `milliseconds-counter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub milliseconds: u64,
    pub counter: u64,
}

impl StreamId {
    /// No entry can come behind it.
    pub const MAX: StreamId = StreamId { milliseconds: u64::MAX, counter: u64::MAX };
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.milliseconds, self.counter)
    }
}

impl FromStr for StreamId {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let parts = text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (milliseconds, counter) = parts.ok_or_else(|| RecordError::Id(beginning(text)))?;
        Ok(StreamId { milliseconds, counter })
    }
}

/// One entry of a stream in `entry` layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: StreamId,
    /// Not an `Entity`: what stands in a stream may have been written by others.
    pub entity: String,
    pub epoch: Epoch,
    pub sequence: Sequence,
    pub kind: String,
    pub order: Order,
    pub attrs: String,
    pub data: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    #[error("{0:?} is not a stream id")]
    Id(String),
    #[error("entry {id} has no field {field:?}")]
    Absent { id: StreamId, field: &'static str },
    #[error("entry {id}: field {field:?} cannot be read: {value:?}")]
    Malformed { id: StreamId, field: &'static str, value: String },
}

impl Entry {
    /// Reads what another program may have written: only entity and sequence must be there.
    /// What does not say that it is in order is taken to have passed. Nothing is copied.
    pub fn from_foreign(
        id: StreamId,
        fields: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<Self, RecordError> {
        let (mut entity, mut sequence) = (None, None);
        let (mut epoch, mut kind, mut attrs) = (Epoch::new(0).expect("0 is an epoch"), String::new(), None);
        let (mut order, mut data) = (Order::Passed, Bytes::new());
        for (field, value) in fields {
            match field.as_slice() {
                b"entity" => entity = Some(text(id, "entity", value)?),
                b"epoch" => {
                    let number = number(id, "epoch", &value)?;
                    epoch = Epoch::new(number).map_err(|_| malformed(id, "epoch", &value))?;
                }
                b"sequence" => {
                    let number = number(id, "sequence", &value)?;
                    sequence = Some(Sequence::new(number).map_err(|_| malformed(id, "sequence", &value))?);
                }
                b"type" => kind = text(id, "type", value)?,
                b"order" => {
                    let known = Order::ALL.into_iter().find(|known| known.name().as_bytes() == value);
                    order = known.ok_or_else(|| malformed(id, "order", &value))?;
                }
                b"attrs" => attrs = Some(text(id, "attrs", value)?),
                b"data" => data = value.into(),
                _ => {}
            }
        }
        Ok(Entry {
            id,
            entity: entity.ok_or(RecordError::Absent { id, field: "entity" })?,
            epoch,
            sequence: sequence.ok_or(RecordError::Absent { id, field: "sequence" })?,
            kind,
            order,
            attrs: attrs.unwrap_or_else(|| "{}".to_owned()),
            data,
        })
    }

    /// Reads an entry from its fields, in whatever order they come.
    pub fn from_fields(id: StreamId, fields: Vec<(Bytes, Bytes)>) -> Result<Self, RecordError> {
        let field = |name: &'static str| {
            let value = fields.iter().find(|(field, _)| field == name.as_bytes());
            value.map(|(_, value)| value).ok_or(RecordError::Absent { id, field: name })
        };
        let malformed = |field, value: &[u8]| malformed(id, field, value);
        let text = |name: &'static str| {
            let value = field(name)?;
            String::from_utf8(value.to_vec()).map_err(|_| malformed(name, value))
        };
        let number = |name: &'static str| {
            let digits = text(name)?;
            digits.parse::<u64>().map_err(|_| malformed(name, digits.as_bytes()))
        };
        let order = text("order")?;
        let known_order = Order::ALL.into_iter().find(|known| known.name() == order);
        let (epoch, sequence) = (number("epoch")?, number("sequence")?);
        Ok(Entry {
            id,
            entity: text("entity")?,
            epoch: Epoch::new(epoch).map_err(|_| malformed("epoch", epoch.to_string().as_bytes()))?,
            sequence: Sequence::new(sequence)
                .map_err(|_| malformed("sequence", sequence.to_string().as_bytes()))?,
            kind: text("type")?,
            order: known_order.ok_or_else(|| malformed("order", order.as_bytes()))?,
            attrs: text("attrs")?,
            data: field("data")?.clone(),
        })
    }
}

fn malformed(id: StreamId, field: &'static str, value: &[u8]) -> RecordError {
    let shown = &value[..value.len().min(SHOWN_CHARS)];
    RecordError::Malformed { id, field, value: String::from_utf8_lossy(shown).into_owned() }
}

/// Of what cannot be read so much is told: anybody may have written it, and it may be long.
const SHOWN_CHARS: usize = 80;

pub(super) fn beginning(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

fn text(id: StreamId, field: &'static str, value: Vec<u8>) -> Result<String, RecordError> {
    String::from_utf8(value).map_err(|error| malformed(id, field, error.as_bytes()))
}

fn number(id: StreamId, field: &'static str, value: &[u8]) -> Result<u64, RecordError> {
    let digits = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
    digits.ok_or_else(|| malformed(id, field, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(epoch: &'static str, order: &'static str) -> Vec<(Bytes, Bytes)> {
        [
            ("entity", "e"),
            ("epoch", epoch),
            ("sequence", "7"),
            ("type", "running"),
            ("order", order),
            ("attrs", "{}"),
            ("data", "x"),
        ]
        .map(|(name, value)| (Bytes::from(name), Bytes::from(value)))
        .to_vec()
    }

    #[test]
    fn an_entry_is_read_from_its_fields() {
        let entry = Entry::from_fields(StreamId::default(), fields("1", "strict")).unwrap();
        assert_eq!((entry.epoch.get(), entry.sequence.get(), entry.order), (1, 7, Order::Strict));
    }

    #[test]
    fn an_entry_that_others_wrote_badly_is_named_with_its_field() {
        let id = StreamId { milliseconds: 5, counter: 1 };
        let said = |fields| Entry::from_fields(id, fields).unwrap_err().to_string();
        assert_eq!(said(fields("x", "strict")), r#"entry 5-1: field "epoch" cannot be read: "x""#);
        assert_eq!(said(fields("1", "odd")), r#"entry 5-1: field "order" cannot be read: "odd""#);
        assert_eq!(said(vec![]), r#"entry 5-1 has no field "order""#);
    }

    #[test]
    fn stream_ids_sort_by_number() {
        let id = |text: &str| text.parse::<StreamId>().unwrap();
        assert!(id("9-10") > id("9-9") && id("10-0") > id("9-10"));
        assert!("9".parse::<StreamId>().is_err());
    }
}
