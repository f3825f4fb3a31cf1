//! Trimming in the embedded store: by age and length, to the entry, and nothing that a group has not done.

use super::partition::MemoryPartition;
use crate::{
    order::TICK_MS,
    store::{Floor, Trimmed},
};

/// A call within this time after the last one that was done does nothing.
const TRIM_MIN_MS: u64 = 2 * TICK_MS;

impl MemoryPartition {
    /// At most `count` entries of each stream.
    pub fn trim(&mut self, count: usize, wall: u64, floor: Option<Floor>) -> Trimmed {
        let (now, full) = (self.lanes.advance(wall), self.lanes.full());
        let retention = self.policy.retention;
        let mut trimmed = Trimmed {
            full: full.events,
            late_full: full.late,
            entries_max: retention.entries_max,
            ..Trimmed::default()
        };
        if full.events || now - self.trimmed_at >= TRIM_MIN_MS {
            let newest = usize::try_from(retention.retain_entries).unwrap_or(usize::MAX);
            let aged = wall.saturating_sub(retention.retain_ms);
            trimmed.ran = true;
            let done = floor.as_ref().map_or(self.events.len(), |floor| self.events.count_up_to(floor.id));
            trimmed.events = self.events.remove(aged, newest, count.min(done));
            let aged = wall.saturating_sub(retention.late_retain_ms);
            trimmed.late = self.late.remove(aged, usize::MAX, count);
            trimmed.more = trimmed.events.max(trimmed.late) * 2 >= count as u64;
            if !trimmed.more {
                self.trimmed_at = now;
            }
            self.trimmed += trimmed.events;
            trimmed.floor = floor;
        }
        (trimmed.entries, trimmed.late_entries) = (self.events.len() as u64, self.late.len() as u64);
        trimmed
    }
}
