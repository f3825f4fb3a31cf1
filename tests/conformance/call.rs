//! One call of the port, as data: so that it can be shown, counted, and made to any store.

use seriatim::{
    order::{Entity, Place},
    store::{
        Batch, Beat, Commit, GapId, GroupId, LeaseSeen, Member, PartitionId, Start, StreamId, Switches,
        TopicSpec, Wish,
    },
};

/// One step of a history: the wall clock moves, then one call is made.
#[derive(Debug)]
pub struct Step {
    /// By how much the wall clock moves before the call; it may be set back.
    pub clock_ms: i64,
    pub call: Call,
}

#[derive(Debug)]
pub enum Call {
    Open(Box<TopicSpec>),
    Delete {
        topic: String,
    },
    Topics,
    Record {
        topic: String,
    },
    Ping,
    Admit {
        at: PartitionId,
        batch: Batch,
    },
    Elapse {
        at: PartitionId,
    },
    /// Looks at the time, and listens to what is probed meanwhile.
    Probe {
        at: PartitionId,
    },
    Sweep {
        at: PartitionId,
    },
    Announce {
        at: PartitionId,
        entity: Entity,
        within_ms: u64,
    },
    Extend {
        at: PartitionId,
        gap: GapId,
    },
    Skip {
        at: PartitionId,
        gap: GapId,
    },
    Degrade {
        at: PartitionId,
        degraded: bool,
    },
    Trim {
        at: PartitionId,
        count: usize,
    },
    Floor {
        at: PartitionId,
    },
    Read {
        at: PartitionId,
        place: Place,
        after: StreamId,
        count: usize,
    },
    Resume {
        at: PartitionId,
        entity: Entity,
    },
    Measure {
        at: PartitionId,
    },
    /// From the beginning to the end, some at a time.
    Repair {
        at: PartitionId,
        count: usize,
    },
    Beat(Beat),
    Leave {
        sidecar: String,
    },
    Lead {
        sidecar: String,
        for_ms: u64,
    },
    Register {
        group: GroupId,
        partitions: u32,
        start: Start,
    },
    Remove {
        group: GroupId,
        partitions: u32,
    },
    Groups {
        topic: String,
    },
    Switch {
        group: GroupId,
        switches: Switches,
    },
    Attend {
        group: GroupId,
        member: Member,
    },
    Depart {
        group: GroupId,
        member: String,
    },
    Leases {
        group: GroupId,
        partitions: u32,
    },
    Lease {
        at: PartitionId,
        group: String,
        owner: String,
        seen: LeaseSeen,
        sight: &'static str,
    },
    Release {
        at: PartitionId,
        group: String,
        term: u64,
        sight: &'static str,
    },
    Commit {
        at: PartitionId,
        group: String,
        commit: Box<Commit>,
        sight: &'static str,
    },
    Points {
        at: PartitionId,
        group: String,
        entities: Vec<Entity>,
    },
    /// From the beginning to the end, some at a time.
    SweepPoints {
        at: PartitionId,
        group: String,
        term: u64,
        count: usize,
        sight: &'static str,
    },
    Heads {
        at: PartitionId,
        group: String,
    },
    Kept {
        at: PartitionId,
        group: String,
        entity: Entity,
        numbers: std::ops::Range<u64>,
    },
    Wish {
        at: PartitionId,
        group: String,
        entity: Entity,
        wish: Wish,
    },
    ReadOn {
        at: PartitionId,
        after: StreamId,
        count: usize,
    },
    /// Looks, and does not wait.
    Wait {
        after: Vec<(PartitionId, StreamId)>,
        count: usize,
    },
}

impl Call {
    /// The word under which it is counted: what is asked for, and how right it is.
    pub fn name(&self) -> String {
        let word = match self {
            Call::Open(topic) => return format!("open, layout {}", topic.layout.name()),
            Call::Delete { .. } => "delete",
            Call::Topics => "topics",
            Call::Record { .. } => "record",
            Call::Ping => "ping",
            Call::Admit { .. } => "admit",
            Call::Elapse { .. } => "elapse",
            Call::Probe { .. } => "probe",
            Call::Sweep { .. } => "sweep",
            Call::Announce { .. } => "announce",
            Call::Extend { .. } => "extend",
            Call::Skip { .. } => "skip",
            Call::Degrade { .. } => "degrade",
            Call::Trim { .. } => "trim",
            Call::Floor { .. } => "floor",
            Call::Read { place: Place::Events, .. } => "read events",
            Call::Read { place: Place::Late, .. } => "read late",
            Call::Resume { .. } => "resume",
            Call::Measure { .. } => "measure",
            Call::Repair { .. } => "repair",
            Call::Beat(_) => "beat",
            Call::Leave { .. } => "leave",
            Call::Lead { .. } => "lead",
            Call::Register { start, .. } => match start {
                Start::Beginning => "register at the beginning",
                Start::End => "register at the end",
                Start::After(_) => "register after an id",
            },
            Call::Remove { .. } => "remove",
            Call::Groups { .. } => "groups",
            Call::Switch { .. } => "switch",
            Call::Attend { .. } => "attend",
            Call::Depart { .. } => "depart",
            Call::Leases { .. } => "leases",
            Call::Lease { sight, .. } => return format!("lease, {sight}"),
            Call::Release { sight, .. } => return format!("release, {sight}"),
            Call::Commit { sight, .. } => return format!("commit, {sight}"),
            Call::Points { .. } => "points",
            Call::SweepPoints { sight, .. } => return format!("sweep points, {sight}"),
            Call::Heads { .. } => "heads",
            Call::Kept { .. } => "kept",
            Call::Wish { wish, .. } => return format!("wish {wish:?}"),
            Call::ReadOn { .. } => "read on",
            Call::Wait { .. } => "wait",
        };
        word.to_owned()
    }
}
