//! An event as one field of an entry in `batch` layout.
//!
//! Name: `<index>:<epoch>:<sequence>:<order>:<entity>`. The index is the event's place in its
//! entry, from 0: it makes names unique (two markers of a call may be equal in all the rest),
//! and lets a client whose library gives an unordered map restore the order. The entity comes
//! last, because it may contain anything.
//!
//! Value: `<t or ->:<length of type>:<length of attrs>:<type><attrs><data>`, the text in which
//! events are parked. `t`: the event is terminal. Lengths are in bytes.

use bytes::Bytes;

use super::{
    EventId,
    record::{Entry, Payload, RecordError, malformed},
};
use crate::order::{Epoch, Order, Sequence};

/// Parts of a name; those before the entity have no colon in them.
const NAME_PARTS: usize = 5;
/// Parts of a value; behind the third colon its lengths count.
const VALUE_PARTS: usize = 4;

/// Adds a number in digits, at a fraction of what `write!` takes.
pub fn push_number(text: &mut String, number: u64) {
    text.push_str(itoa::Buffer::new().format(number));
}

/// Replaces what is in `name`; `middle` adds sequence and order.
pub fn write_name(
    name: &mut String,
    index: usize,
    epoch: Epoch,
    entity: &str,
    middle: impl FnOnce(&mut String),
) {
    name.clear();
    push_number(name, index as u64);
    name.push(':');
    push_number(name, epoch.get());
    name.push(':');
    middle(name);
    name.push(':');
    name.push_str(entity);
}

/// Replaces what is in `value`.
pub fn write_value(value: &mut Vec<u8>, terminal: bool, payload: &Payload) {
    let Payload { kind, attrs, data } = payload;
    let mut prefix = String::new();
    write_prefix(&mut prefix, terminal, payload);
    value.clear();
    for part in [prefix.as_bytes(), kind.as_bytes(), attrs.as_bytes(), data] {
        value.extend_from_slice(part);
    }
}

/// Replaces what is in `prefix` by what stands before type, attributes and data.
pub fn write_prefix(prefix: &mut String, terminal: bool, Payload { kind, attrs, .. }: &Payload) {
    prefix.clear();
    prefix.push_str(if terminal { "t:" } else { "-:" });
    for length in [kind.len(), attrs.len()] {
        push_number(prefix, length as u64);
        prefix.push(':');
    }
}

/// Is it the name of an event, as far as its shape goes?
pub fn is_name(name: &[u8]) -> bool {
    let mut parts = name.splitn(NAME_PARTS, |byte| *byte == b':');
    let starts_with_number = parts.next().is_some_and(is_number);
    starts_with_number && parts.count() == NAME_PARTS - 1
}

fn is_number(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// The place that a name gives its event.
pub fn index_of(name: &[u8]) -> Option<u32> {
    number(name.splitn(2, |byte| *byte == b':').next()?)?.try_into().ok()
}

/// The event at this place. Its data is not copied.
pub fn read(id: EventId, name: &[u8], value: Bytes) -> Result<Entry, RecordError> {
    let mut parts = name.splitn(NAME_PARTS, |byte| *byte == b':');
    let mut part = || parts.next().ok_or_else(|| malformed(id, "name", name));
    let (_, epoch, sequence, order, entity) = (part()?, part()?, part()?, part()?, part()?);
    let known_order = Order::ALL.into_iter().find(|known| known.name().as_bytes() == order);
    let (kind, attrs, data) = split(&value).ok_or_else(|| malformed(id, "value", &value))?;
    let text = |field, bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|error| malformed(id, field, error.as_bytes()))
    };
    Ok(Entry {
        id,
        entity: text("entity", entity)?,
        epoch: number(epoch)
            .and_then(|number| Epoch::new(number).ok())
            .ok_or_else(|| malformed(id, "epoch", epoch))?,
        sequence: number(sequence)
            .and_then(|number| Sequence::new(number).ok())
            .ok_or_else(|| malformed(id, "sequence", sequence))?,
        kind: text("type", kind)?,
        order: known_order.ok_or_else(|| malformed(id, "order", order))?,
        attrs: text("attrs", attrs)?,
        data: value.slice_ref(data),
    })
}

/// Type, attributes and data.
fn split(value: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut parts = value.splitn(VALUE_PARTS, |byte| *byte == b':');
    parts.next().filter(|tag| matches!(*tag, b"t" | b"-"))?;
    let (kind_len, attrs_len) = (number(parts.next()?)?, number(parts.next()?)?);
    let (kind, rest) = parts.next()?.split_at_checked(kind_len.try_into().ok()?)?;
    let (attrs, data) = rest.split_at_checked(attrs_len.try_into().ok()?)?;
    Some((kind, attrs, data))
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok().filter(|_| is_number(digits))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: EventId = EventId { entry: super::super::StreamId { milliseconds: 5, counter: 1 }, index: 2 };

    fn said(name: &str, value: &'static str) -> String {
        read(ID, name.as_bytes(), value.into()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let payload =
            Payload { kind: "a:b".into(), attrs: "{\"é\":1}".into(), data: Bytes::from_static(b"\0:\xff") };
        let largest = crate::order::NUMBER_MAX;
        let (mut name, mut value) = (String::new(), Vec::new());
        for entity in ["job", "a:b:c", "line\nbreak", "nul\0", "#", "", "0:1:2:strict:x", &"x".repeat(256)] {
            let middle = |name: &mut String| name.push_str(&format!("{largest}:strict"));
            write_name(&mut name, 511, Epoch::new(largest).unwrap(), entity, middle);
            write_value(&mut value, true, &payload);
            assert!(is_name(name.as_bytes()) && index_of(name.as_bytes()) == Some(511), "{name:?}");
            let entry = read(ID, name.as_bytes(), Bytes::from(value.clone())).unwrap();
            assert_eq!((entry.id, entry.entity.as_str(), entry.order), (ID, entity, Order::Strict));
            assert_eq!((entry.epoch.get(), entry.sequence.get()), (largest, largest));
            assert_eq!((&*entry.kind, &*entry.attrs), (&*payload.kind, &*payload.attrs));
            assert_eq!(entry.data, payload.data);
        }
        assert!(value.starts_with(b"t:3:8:a:b{"));
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        assert_eq!(
            said("0:1:2:strict", "-:0:0:"),
            r#"entry 5-1#2: field "name" cannot be read: "0:1:2:strict""#
        );
        assert_eq!(said("0:x:2:strict:e", "-:0:0:"), r#"entry 5-1#2: field "epoch" cannot be read: "x""#);
        assert_eq!(
            said("0:1:+2:strict:e", "-:0:0:"),
            r#"entry 5-1#2: field "sequence" cannot be read: "+2""#
        );
        assert_eq!(said("0:1:2:odd:e", "-:0:0:"), r#"entry 5-1#2: field "order" cannot be read: "odd""#);
        for value in ["", "-", "x:0:0:", "-:1:0:", "-:0:1:", "-:0:0", "-:99999999999999999999:0:", "-:-1:0:a"]
        {
            assert!(said("0:1:2:strict:e", value).contains(r#"field "value""#), "{value:?}");
        }
        for name in ["entity", "0:1:2:strict", "x:1:2:strict:e", ":1:2:strict:e", ""] {
            assert!(!is_name(name.as_bytes()), "{name:?}");
        }
    }
}
