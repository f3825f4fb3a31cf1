//! What an event is in the store: its payload, and the entry that workers read.

use std::borrow::Cow;

use bytes::Bytes;

use super::{EventId, Read, StreamId, field};
use crate::order::{self, Epoch, Order, Sequence};

/// The part of an event that the rules do not look into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The event's type.
    pub kind: Box<str>,
    /// Its attributes as compact JSON.
    pub attrs: Cow<'static, str>,
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

/// One event, or marker, as it stands in a stream: an entry by itself in `entry` layout, one of
/// an entry's fields in `batch` layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub id: EventId,
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
    Absent { id: EventId, field: &'static str },
    #[error("entry {id}: field {field:?} cannot be read: {value:?}")]
    Malformed { id: EventId, field: &'static str, value: String },
}

impl Entry {
    /// How many entries of a stream these events are of.
    pub fn entries(events: &[Entry]) -> usize {
        events.iter().filter(|event| event.id.index == 0).count()
    }

    /// The events of an entry of ours, in whichever layout it is.
    pub fn all_from_fields(id: StreamId, fields: Vec<(Bytes, Bytes)>) -> Result<Vec<Self>, RecordError> {
        if !is_batch(fields.iter().map(|(name, _)| &name[..])) {
            return Ok(vec![Entry::from_fields(id.into(), fields)?]);
        }
        let event = |(index, (name, value)): (u32, (Bytes, Bytes))| {
            let id = EventId { entry: id, index };
            match field::index_of(&name) {
                Some(named) if named == index => field::read(id, &name, value),
                _ => Err(malformed(id, "name", &name)),
            }
        };
        (0..).zip(fields).map(event).collect()
    }

    /// The events of an entry that another program may have written, in whichever layout; at
    /// least one. In `batch` layout each is read, or not, by itself, and its place among the
    /// fields counts, whatever its name says.
    pub fn all_from_foreign(id: StreamId, fields: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<Read> {
        if !is_batch(fields.iter().map(|(name, _)| &name[..])) {
            let id = id.into();
            return vec![Read { id, entry: Entry::from_foreign(id, fields.into_iter()) }];
        }
        let event = |(index, (name, value)): (u32, (Vec<u8>, Vec<u8>))| {
            let id = EventId { entry: id, index };
            Read { id, entry: field::read(id, &name, value.into()) }
        };
        (0..).zip(fields).map(event).collect()
    }

    /// Reads what another program may have written: only entity and sequence must be there.
    /// What does not say that it is in order is taken to have passed. Nothing is copied.
    fn from_foreign(
        id: EventId,
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
    fn from_fields(id: EventId, fields: Vec<(Bytes, Bytes)>) -> Result<Self, RecordError> {
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

/// Is each of an entry's fields an event? One that has the two fields without which nothing in
/// `entry` layout can be read is in that layout, whatever else it has.
fn is_batch<'a>(names: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
    let has = |name: &[u8]| names.clone().any(|known| known == name);
    if has(b"entity") && has(b"sequence") {
        return false;
    }
    names.clone().any(field::is_name)
}

pub(super) fn malformed(id: EventId, field: &'static str, value: &[u8]) -> RecordError {
    let shown = &value[..value.len().min(SHOWN_CHARS)];
    RecordError::Malformed { id, field, value: String::from_utf8_lossy(shown).into_owned() }
}

/// Of what cannot be read so much is told: anybody may have written it, and it may be long.
const SHOWN_CHARS: usize = 80;

pub(super) fn beginning(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}

fn text(id: EventId, field: &'static str, value: Vec<u8>) -> Result<String, RecordError> {
    String::from_utf8(value).map_err(|error| malformed(id, field, error.as_bytes()))
}

fn number(id: EventId, field: &'static str, value: &[u8]) -> Result<u64, RecordError> {
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
        let entry = Entry::from_fields(EventId::default(), fields("1", "strict")).unwrap();
        assert_eq!((entry.epoch.get(), entry.sequence.get(), entry.order), (1, 7, Order::Strict));
    }

    #[test]
    fn an_entry_that_others_wrote_badly_is_named_with_its_field() {
        let id = EventId::from(StreamId { milliseconds: 5, counter: 1 });
        let said = |fields| Entry::from_fields(id, fields).unwrap_err().to_string();
        assert_eq!(said(fields("x", "strict")), r#"entry 5-1: field "epoch" cannot be read: "x""#);
        assert_eq!(said(fields("1", "odd")), r#"entry 5-1: field "order" cannot be read: "odd""#);
        assert_eq!(said(vec![]), r#"entry 5-1 has no field "order""#);
    }

    fn named(fields: &[(&str, &str)]) -> Vec<(Vec<u8>, Vec<u8>)> {
        fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
    }

    fn bytes(fields: &[(&str, &str)]) -> Vec<(Bytes, Bytes)> {
        named(fields).into_iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn an_entry_of_events_is_read_field_by_field() {
        let fields = [("0:1:7:strict:a", "-:4:2:step{}x"), ("1:0:0:marker:", "-:1:2:m{}")];
        let id = StreamId { milliseconds: 5, counter: 1 };
        let entries = Entry::all_from_fields(id, bytes(&fields)).unwrap();
        let shown: Vec<_> = entries.iter().map(|e| (e.id.to_string(), &*e.entity, &*e.data)).collect();
        assert_eq!(shown, [("5-1".to_owned(), "a", &b"x"[..]), ("5-1#1".to_owned(), "", &b""[..])]);
        let reads: Vec<_> = entries.into_iter().map(|e| Read { id: e.id, entry: Ok(e) }).collect();
        assert_eq!(Entry::all_from_foreign(id, named(&fields)), reads, "both read the same");
    }

    #[test]
    fn what_others_wrote_badly_into_an_entry_of_events_costs_that_event_only() {
        let id = StreamId { milliseconds: 5, counter: 1 };
        let fields = [("7:0:0:strict:a", "-:0:0:"), ("what", "ever"), ("0:0:1:strict:a", "-:9:0:")];
        let fields = [&fields[..], &[("0:0:1:strict:a", "-:0:0:")]].concat();
        assert!(Entry::all_from_fields(id, bytes(&fields)).is_err(), "ours name their places");
        let reads = Entry::all_from_foreign(id, named(&fields));
        assert_eq!(
            reads.iter().map(|read| read.entry.is_ok()).collect::<Vec<_>>(),
            [true, false, false, true]
        );
        assert_eq!(reads.iter().map(|read| read.id.index).collect::<Vec<_>>(), [0, 1, 2, 3]);
        // In the other layout, with a field of somebody's own.
        let fields = [("0:0:0:strict:b", "-:0:0:"), ("sequence", "3"), ("entity", "a")];
        let reads = Entry::all_from_foreign(id, named(&fields));
        assert_eq!((reads.len(), &*reads[0].entry.as_ref().unwrap().entity), (1, "a"));
        assert_eq!(Entry::all_from_foreign(id, named(&[("what", "ever")])).len(), 1);
    }
}
