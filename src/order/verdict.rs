//! The answer for one event.

use super::identity::{Epoch, Sequence};

/// What was decided about an event. Closed on purpose: whoever maps it to the wire
/// must think of every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Appended in its turn.
    Released { sequence: Sequence },
    /// Held until its turn; `depth` events of the lane are now parked.
    Parked { depth: u64 },
    /// Appended at once, without a promise of order.
    Passed { sequence: Sequence },
    /// Released or parked before. An assigned lane knows the sequence it got then.
    Duplicate { sequence: Sequence },
    /// The entity has ended, and was forgotten but for this.
    Retired { epoch: Epoch },
    /// Its turn was given up before it came; written where the topic wants it.
    Late { sequence: Sequence },
    /// The parked event of this sequence has another payload.
    Conflict,
    /// The lane is in a higher epoch.
    Stale { epoch: Epoch },
    /// A limit. The lane is as it was.
    Refused(Refusal),
    /// The call had no room left for what this event needs; offer it again.
    Again,
}

/// Which limit refused an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    AheadMax,
    ParkedMax,
    ParkedBytesMax,
    PartitionParkedMax,
    PartitionParkedBytesMax,
    EntriesMax,
    LateMax,
}

impl Refusal {
    pub const ALL: [Refusal; 7] = [
        Refusal::AheadMax,
        Refusal::ParkedMax,
        Refusal::ParkedBytesMax,
        Refusal::PartitionParkedMax,
        Refusal::PartitionParkedBytesMax,
        Refusal::EntriesMax,
        Refusal::LateMax,
    ];

    /// The word for it on the wire and in metrics: the name of the limit.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::AheadMax => "ahead_max",
            Refusal::ParkedMax => "parked_max",
            Refusal::ParkedBytesMax => "parked_bytes_max",
            Refusal::PartitionParkedMax => "partition_parked_max",
            Refusal::PartitionParkedBytesMax => "partition_parked_bytes_max",
            Refusal::EntriesMax => "entries_max",
            Refusal::LateMax => "late_max",
        }
    }
}
