//! Pages of a stream as JSON, so that the embedded store can be read from outside.

use axum::{
    Json,
    extract::{Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};

use super::WebState;
use crate::{
    order::{Epoch, Order, Place, Sequence},
    store::{Entry, PartitionId, StoreKind, StreamId},
};

const COUNT_MAX: usize = 1000;

#[derive(Deserialize)]
pub struct Asked {
    topic: String,
    partition: u32,
    #[serde(default)]
    late: bool,
    after: Option<String>,
}

/// An entry on its way through JSON; data as an array of bytes would be six times
/// its size, so it travels in hexadecimal.
#[derive(Serialize, Deserialize)]
pub struct EntryJson {
    id: String,
    entity: String,
    epoch: u64,
    sequence: u64,
    r#type: String,
    order: String,
    attrs: String,
    data_hex: String,
}

pub async fn page(State(state): State<WebState>, Query(asked): Query<Asked>) -> Response {
    if state.store.kind() != StoreKind::Embedded {
        let message = "only the embedded store is read here; read Redis with XRANGE, or `seriatim verify`\n";
        return (StatusCode::NOT_FOUND, message).into_response();
    }
    let place = if asked.late { Place::Late } else { Place::Events };
    let after = match asked.after.as_deref().map(str::parse::<StreamId>) {
        None => StreamId::default(),
        Some(Ok(after)) => after,
        Some(Err(error)) => return (StatusCode::BAD_REQUEST, format!("after: {error}\n")).into_response(),
    };
    let partition = PartitionId { topic: asked.topic.as_str().into(), index: asked.partition };
    match state.store.read(&partition, place, after, COUNT_MAX).await {
        Ok(entries) => Json(entries.iter().map(EntryJson::from).collect::<Vec<_>>()).into_response(),
        Err(error) => (StatusCode::NOT_FOUND, format!("{error}\n")).into_response(),
    }
}

impl From<&Entry> for EntryJson {
    fn from(entry: &Entry) -> Self {
        EntryJson {
            id: entry.id.to_string(),
            entity: entry.entity.clone(),
            epoch: entry.epoch.get(),
            sequence: entry.sequence.get(),
            r#type: entry.kind.clone(),
            order: entry.order.name().to_owned(),
            attrs: entry.attrs.clone(),
            data_hex: entry.data.iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }
}

impl EntryJson {
    /// Back to an entry; `None` if somebody changed it on the way.
    pub fn into_entry(self) -> Option<Entry> {
        let byte = |at: usize| u8::from_str_radix(self.data_hex.get(at..at + 2)?, 16).ok();
        let data: Option<Vec<u8>> = (0..self.data_hex.len()).step_by(2).map(byte).collect();
        Some(Entry {
            id: self.id.parse().ok()?,
            epoch: Epoch::new(self.epoch).ok()?,
            sequence: Sequence::new(self.sequence).ok()?,
            order: Order::ALL.into_iter().find(|order| order.name() == self.order)?,
            data: data?.into(),
            entity: self.entity,
            kind: self.r#type,
            attrs: self.attrs,
        })
    }
}
