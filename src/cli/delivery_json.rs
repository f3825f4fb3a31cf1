//! One delivery as a line of JSON: `data` is its JSON, or `data_base64` has the bytes.

use serde::Serialize;
use serde_json::value::RawValue;

use super::base64::encode_base64;
use crate::deliver::{Delivered, Delivery, GAP};

#[derive(Serialize)]
struct Line<'a> {
    entity: &'a str,
    epoch: u64,
    sequence: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    r#type: &'a str,
    order: &'a str,
    /// Of a gap: its first sequence, why, and how long it was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    partition: u32,
    term: u64,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    attrs: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

pub fn delivery_line(delivery: &Delivery) -> String {
    let mut line = Line {
        entity: &delivery.entity,
        epoch: delivery.epoch,
        sequence: delivery.sequence,
        r#type: "",
        order: GAP,
        from: None,
        reason: None,
        waited_ms: None,
        id: delivery.id.map(|id| id.to_string()),
        partition: delivery.partition,
        term: delivery.term,
        attempt: delivery.attempt,
        attrs: None,
        data: None,
        data_base64: None,
    };
    match &delivery.content {
        Delivered::Event { order, kind, attrs, data } => {
            (line.order, line.r#type) = (order, kind);
            line.attrs = serde_json::from_str(attrs).ok();
            line.data = serde_json::from_slice(data).ok();
            if line.data.is_none() && !data.is_empty() {
                line.data_base64 = Some(encode_base64(data));
            }
        }
        Delivered::Gap { from, reason, waited_ms } => {
            (line.from, line.reason, line.waited_ms) = (Some(*from), Some(&**reason), *waited_ms);
        }
    }
    serde_json::to_string(&line).expect("our own types are always JSON")
}
