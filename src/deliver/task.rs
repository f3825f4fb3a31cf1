//! One thing to deliver: an event, or a gap. Also as text, in which the events of held
//! entities wait in the store.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    order::{self, Epoch, Order, Sequence},
    store::{EventId, StoreError},
};

/// An event's content on its way through the reorder buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub id: EventId,
    pub kind: Arc<str>,
    pub attrs: Arc<str>,
    pub data: Bytes,
}

impl order::Payload for Content {
    fn size(&self) -> u64 {
        (self.kind.len() + self.attrs.len() + self.data.len()) as u64
    }

    fn same_as(&self, other: &Self) -> bool {
        self.kind == other.kind && self.data == other.data
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    /// The sidecar has marked it where it had to.
    fn marked_illegal(self, _: Option<&str>) -> Self {
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The event in the stream that it ends, if any: gaps that were found here have none.
    pub id: Option<EventId>,
    pub epoch: Epoch,
    /// Of a gap: the last one it covers.
    pub sequence: Sequence,
    pub what: What,
    /// Acknowledging it moves its entity's point. What is late or passed does not: it is out
    /// of order, and is delivered at least once.
    pub moves: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Event { order: Order, kind: Arc<str>, attrs: Arc<str>, data: Bytes },
    Gap { from: Sequence, reason: Arc<str>, waited_ms: Option<u64> },
}

/// What a gap is called where events say their order.
pub const GAP: &str = "gap";

impl Task {
    /// May it be below what its entity has reached: anything but an event in its turn?
    pub fn is_out_of_turn(&self) -> bool {
        !matches!(&self.what, What::Event { order: Order::Strict, .. })
    }

    pub fn bytes(&self) -> u64 {
        match &self.what {
            What::Event { kind, attrs, data, .. } => (kind.len() + attrs.len() + data.len()) as u64,
            What::Gap { reason, .. } => reason.len() as u64,
        }
    }

    /// `id:epoch:sequence:order:moves:length of type:length of attrs:type attrs data`; of a gap
    /// the type is the reason, and the attrs are its first sequence and how long it was
    /// waited for.
    pub fn to_text(&self) -> Vec<u8> {
        let id = self.id.map_or("-".to_owned(), |id| id.to_string());
        let (order, kind, attrs, data) = match &self.what {
            What::Event { order, kind, attrs, data } => (order.name(), kind, attrs.clone(), data.clone()),
            What::Gap { from, reason, waited_ms } => {
                let waited = waited_ms.map(|ms| ms.to_string()).unwrap_or_default();
                (GAP, reason, format!("{from},{waited}").into(), Bytes::new())
            }
        };
        let Task { epoch, sequence, moves, .. } = self;
        let (moves, kind_len, attrs_len) = (u8::from(*moves), kind.len(), attrs.len());
        let head = format!("{id}:{epoch}:{sequence}:{order}:{moves}:{kind_len}:{attrs_len}:");
        [head.as_bytes(), kind.as_bytes(), attrs.as_bytes(), &data].concat()
    }

    pub fn from_text(text: &[u8]) -> Result<Task, StoreError> {
        parse(text).ok_or_else(|| {
            let shown = String::from_utf8_lossy(&text[..text.len().min(80)]);
            StoreError::Broken(format!("{shown:?}... is no event that is held"))
        })
    }
}

fn parse(text: &[u8]) -> Option<Task> {
    let mut words = text.splitn(8, |byte| *byte == b':');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (id, epoch, sequence, order, moves) = (word()?, word()?, word()?, word()?, word()?);
    let (kind_len, attrs_len): (usize, usize) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let rest = words.next()?;
    let (kind, rest) = rest.split_at_checked(kind_len)?;
    let (attrs, data) = rest.split_at_checked(attrs_len)?;
    let (kind, attrs) = (std::str::from_utf8(kind).ok()?, std::str::from_utf8(attrs).ok()?);
    let number = |digits: &str| digits.parse::<u64>().ok();
    let what = if order == GAP {
        let (from, waited) = attrs.split_once(',')?;
        let waited_ms = if waited.is_empty() { None } else { Some(number(waited)?) };
        What::Gap { from: Sequence::new(number(from)?).ok()?, reason: kind.into(), waited_ms }
    } else {
        let data = Bytes::copy_from_slice(data);
        let order = Order::ALL.into_iter().find(|known| known.name() == order)?;
        What::Event { order, kind: kind.into(), attrs: attrs.into(), data }
    };
    Some(Task {
        id: if id == "-" { None } else { Some(id.parse().ok()?) },
        epoch: Epoch::new(number(epoch)?).ok()?,
        sequence: Sequence::new(number(sequence)?).ok()?,
        what,
        moves: moves == "1",
    })
}

/// An event that is held, for people.
#[derive(Clone, Debug, serde::Serialize)]
pub struct KeptEvent {
    /// `gap` if it is one.
    pub order: String,
    pub epoch: u64,
    pub sequence: u64,
    pub r#type: String,
    pub attrs: String,
    pub data: String,
}

impl KeptEvent {
    pub fn parse(text: &[u8]) -> Result<Self, StoreError> {
        let task = Task::from_text(text)?;
        let (order, r#type, attrs, data) = match task.what {
            What::Event { order, kind, attrs, data } => {
                let data = String::from_utf8_lossy(&data).into_owned();
                (order.name().to_owned(), kind.to_string(), attrs.to_string(), data)
            }
            What::Gap { from, reason, .. } => {
                (GAP.to_owned(), reason.to_string(), format!("from {from}"), String::new())
            }
        };
        Ok(KeptEvent { order, epoch: task.epoch.get(), sequence: task.sequence.get(), r#type, attrs, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_task_say_the_same() {
        let event = What::Event {
            order: Order::Strict,
            kind: "a:b".into(),
            attrs: r#"{"id":"é"}"#.into(),
            data: Bytes::from_static(b"\0:\xff"),
        };
        let sequence = Sequence::new(7).unwrap();
        for what in [
            event,
            What::Gap { from: sequence, reason: "timeout".into(), waited_ms: Some(5) },
            What::Gap { from: sequence, reason: "".into(), waited_ms: None },
        ] {
            let id = matches!(what, What::Event { .. }).then(|| "17-3#5".parse().unwrap());
            let task = Task { id, epoch: Epoch::new(1).unwrap(), sequence, what, moves: true };
            assert_eq!(Task::from_text(&task.to_text()), Ok(task));
        }
        let huge = format!("-:0:0:strict:1:1:{}:a", usize::MAX);
        for text in ["", "17-3:0:0:strict:1:5:0:abc", "x:0:0:strict:1:0:0:", "-:0:0:odd:1:0:0:", &huge] {
            assert!(Task::from_text(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
