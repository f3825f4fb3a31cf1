//! A stream of the embedded store: entries, each with its events.

use crate::store::{Entry, EventId, StreamId};

#[derive(Clone, Default)]
pub struct Stream {
    entries: Vec<Vec<Entry>>,
    /// Also if that entry was trimmed.
    last_id: StreamId,
}

impl Stream {
    /// Entries, however many events each of them has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Of the last entry, also if it was trimmed.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }

    /// Appends an entry, which has no events yet.
    pub fn begin_entry(&mut self, wall: u64) -> StreamId {
        self.last_id = next_id(self.last_id, wall);
        self.entries.push(Vec::with_capacity(1));
        self.last_id
    }

    /// Adds an event to the last entry.
    pub fn add(&mut self, event: impl FnOnce(EventId) -> Entry) {
        let last = self.entries.last_mut().expect("somebody has begun an entry");
        let index = u32::try_from(last.len()).expect("a call appends only so many");
        last.push(event(EventId { entry: self.last_id, index }));
    }

    /// The events of at most `count` entries after an id.
    pub fn after(&self, id: StreamId, count: usize) -> impl Iterator<Item = &Entry> {
        self.entries[self.count_up_to(id)..].iter().take(count).flatten()
    }

    /// How many entries there are up to an id, and with it.
    pub fn count_up_to(&self, id: StreamId) -> usize {
        self.entries.partition_point(|entry| entry[0].id.entry <= id)
    }

    /// Removes what was written before `aged`, and what is beyond the newest so many.
    pub fn remove(&mut self, aged: u64, newest: usize, count: usize) -> u64 {
        let aged = self.entries.partition_point(|entry| entry[0].id.entry.milliseconds < aged);
        let removed = aged.max(self.len().saturating_sub(newest)).min(count);
        self.entries.drain(..removed);
        removed as u64
    }
}

/// The time, or what follows the last one if the clock did not move on.
fn next_id(last: StreamId, wall: u64) -> StreamId {
    if wall > last.milliseconds {
        return StreamId { milliseconds: wall, counter: 0 };
    }
    StreamId { counter: last.counter + 1, ..last }
}
