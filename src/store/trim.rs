//! What trimming tells: how much went, how much is left, and whose floor holds the rest.

use super::StreamId;

/// What one call of [`super::Store::trim`] did, and how long the streams are now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// False if another call was too short a time ago.
    pub ran: bool,
    /// Entries removed from `events`.
    pub events: u64,
    /// Entries removed from `late`.
    pub late: u64,
    /// There is likely more to remove: call again.
    pub more: bool,
    /// At the last look at the time the partition was full: it takes nothing new.
    pub full: bool,
    /// Likewise its late stream: nothing more may become late.
    pub late_full: bool,
    /// Entries in `events`.
    pub entries: u64,
    /// Entries in `late`.
    pub late_entries: u64,
    /// At so many entries the partition is full, by the policy in force.
    pub entries_max: u64,
    /// `None` if there is no group, or the call did not run.
    pub floor: Option<Floor>,
}

/// Up to where every group has done everything in a partition's `events`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Floor {
    /// Inclusive.
    pub id: StreamId,
    /// The group that is furthest behind.
    pub group: String,
}
