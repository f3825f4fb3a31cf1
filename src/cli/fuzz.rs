//! Lines of `seriatim publish`, as people and programs may write them.

use super::{
    base64::{decode_base64, encode_base64},
    event_json::EventLine,
};
use crate::fuzz::{Seen, cases, check_message, damaged_text, percent, small_number, text};

#[test]
fn lines_of_events() {
    let mut seen = Seen::default();
    cases("lines of events", |random| {
        let (entity, kind, id) = (text(random), text(random), text(random));
        let (epoch, sequence, data) = (small_number(random), small_number(random), text(random));
        let mut line = serde_json::json!({
            "entity": entity, "type": kind, "epoch": epoch, "sequence": sequence, "id": id,
            "attributes": { "a": text(random) },
        });
        if percent(random, 50) {
            line["data"] = serde_json::json!({ "text": data, "deep": [[[data]]] });
        } else {
            line["data_base64"] = encode_base64(data.as_bytes()).into();
        }
        let line = line.to_string();
        let event = EventLine::parse(&line).unwrap();
        assert_eq!((event.entity, event.r#type, event.id), (entity, kind, id));
        assert_eq!((event.epoch, event.sequence), (epoch, Some(sequence)));
        let read = EventLine::parse(&damaged_text(random, line));
        seen.count(read.is_ok());
        if let Err(message) = read {
            check_message(&message);
        }
    });
    seen.check("lines of events");
}

#[test]
fn base64_both_ways() {
    let mut seen = Seen::default();
    cases("base64", |random| {
        let bytes = text(random).into_bytes();
        let encoded = encode_base64(&bytes);
        assert_eq!(decode_base64(&encoded), Some(bytes));
        let read = decode_base64(&damaged_text(random, encoded));
        seen.count(read.is_some());
        if let Some(bytes) = read {
            assert_eq!(decode_base64(&encode_base64(&bytes)), Some(bytes));
        }
    });
    seen.check("base64");
}
