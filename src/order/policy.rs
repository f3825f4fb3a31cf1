//! What a topic decides about its lanes.
//!
//! Rules 5 to 7 and 10 (gaps, terminal wait, overflow, degraded) will find their
//! settings here; what exists is what the rules use today.

use super::identity::Sequence;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The sequence every epoch begins with.
    pub first: Sequence,
    pub ordering: Ordering,
    pub late: LatePlace,
    /// Parked events of one lane.
    pub parked_max: u64,
    /// Parked bytes of one lane.
    pub parked_bytes_max: u64,
    /// Parked events of one partition.
    pub partition_parked_max: u64,
    /// Parked bytes of one partition.
    pub partition_parked_bytes_max: u64,
    /// How far ahead of next an event may be.
    pub ahead_max: u64,
    /// Entries one call may append, in all lanes together. At least 2, which an epoch
    /// needs; at most some 2,000, which is what a script can unpack.
    pub append_max: u64,
}

/// Whether lanes are born with a promise of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordering {
    Enforce,
    /// Everything passes at once, marked (rule 10).
    Off,
}

/// Where a late event goes (rule 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatePlace {
    /// To the partition's late stream.
    Aside,
    /// Into the event stream, marked.
    Inline,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            first: Sequence::new(0).expect("0 is a sequence"),
            ordering: Ordering::Enforce,
            late: LatePlace::Aside,
            parked_max: 64,
            parked_bytes_max: 4 << 20,
            partition_parked_max: 100_000,
            partition_parked_bytes_max: 256 << 20,
            ahead_max: 1_000_000,
            append_max: 512,
        }
    }
}
