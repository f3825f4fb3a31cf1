//! One event as a line of JSON, in the manner of CloudEvents: `data` is any JSON
//! value, kept byte for byte, or `data_base64` has the bytes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::base64::decode_base64;
use crate::grpc::pb;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventLine<'a> {
    entity: String,
    #[serde(default)]
    epoch: u64,
    sequence: Option<u64>,
    r#type: String,
    #[serde(default)]
    terminal: bool,
    #[serde(default)]
    id: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    datacontenttype: String,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    data_base64: Option<String>,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
}

impl EventLine<'_> {
    /// Reads a line; the error says what is wrong and where.
    pub fn parse(line: &str) -> Result<pb::Event, String> {
        let line: EventLine<'_> = serde_json::from_str(line).map_err(|error| told(&error))?;
        let (data, json) = match (line.data, line.data_base64) {
            (Some(_), Some(_)) => return Err("has both data and data_base64; keep one".to_owned()),
            (Some(json), None) => (json.get().as_bytes().to_vec(), true),
            (None, Some(text)) => (decode_base64(&text).ok_or("data_base64 is not base64")?, false),
            (None, None) => (Vec::new(), false),
        };
        let datacontenttype = match (line.datacontenttype, json) {
            (given, true) if given.is_empty() => "application/json".to_owned(),
            (given, _) => given,
        };
        Ok(pb::Event {
            entity: line.entity,
            epoch: line.epoch,
            sequence: line.sequence,
            r#type: line.r#type,
            terminal: line.terminal,
            id: line.id,
            source: line.source,
            time: line.time,
            datacontenttype,
            data: data.into(),
            attributes: line.attributes,
        })
    }
}

/// What is wrong and where. It may quote the line, which may be long: the place stands at its
/// end, and is not cut off.
fn told(error: &serde_json::Error) -> String {
    const TOLD_CHARS: usize = 300;
    let said = error.to_string();
    if said.chars().count() <= TOLD_CHARS {
        return said;
    }
    let beginning: String = said.chars().take(TOLD_CHARS).collect();
    format!("{beginning}... at column {}", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_kept_byte_for_byte() {
        let event =
            EventLine::parse(r#"{"entity":"e","sequence":0,"type":"t","data":{"b": 1.0,"a":"é"}}"#).unwrap();
        assert_eq!(event.data, r#"{"b": 1.0,"a":"é"}"#.as_bytes());
        assert_eq!(event.datacontenttype, "application/json");
    }

    #[test]
    fn a_bad_line_is_told_apart() {
        let said = |line| EventLine::parse(line).unwrap_err();
        assert!(said("{").contains("EOF"));
        assert!(said(r#"{"entity":"e"}"#).contains("missing field `type`"));
        assert!(said(r#"{"entity":"e","type":"t","sequnce":1}"#).contains("unknown field `sequnce`"));
        assert!(said(r#"{"entity":"e","type":"t","sequence":-1}"#).contains("-1"));
        assert!(said(r#"{"entity":"e","type":"t","data":1,"data_base64":""}"#).contains("both"));
        let long = said(&format!(r#"{{"{}":1}}"#, "x".repeat(100_000)));
        assert!(long.len() < 400 && long.ends_with("... at column 100003"), "{long}");
    }
}
