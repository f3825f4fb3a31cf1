//! Entries on their way through JSON, as somebody may have changed them.

use super::EntryJson;
use crate::{
    fuzz::{Seen, cases, damaged, number, pick, small_number, text},
    order::{Epoch, Order, Sequence},
    store::{Entry, EventId, StreamId},
};

#[test]
fn entries_as_json() {
    let mut seen = Seen::default();
    cases("entries as JSON", |random| {
        let entry = Entry {
            id: EventId {
                entry: StreamId { milliseconds: number(random), counter: number(random) },
                index: random.below(3) as u32,
            },
            entity: text(random),
            epoch: Epoch::new(small_number(random)).unwrap(),
            sequence: Sequence::new(small_number(random)).unwrap(),
            kind: text(random),
            order: *pick(random, &Order::ALL),
            attrs: text(random),
            data: text(random).into(),
        };
        let json = serde_json::to_vec(&EntryJson::from(&entry)).unwrap();
        let read =
            |json: &[u8]| serde_json::from_slice::<EntryJson>(json).ok().and_then(EntryJson::into_entry);
        assert_eq!(read(&json), Some(entry));
        seen.count(read(&damaged(random, json)).is_some());
    });
    seen.check("entries as JSON");
}
