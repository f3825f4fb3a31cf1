//! One partition of the embedded store: the rules, and what they wrote.

use super::appended::Stream;
use crate::{
    order::{
        Action, Edge, Effects, Entity, Epoch, Lengths, Marker, MarkerKind, Order, Partition, Place, Policy,
        Sequence, SkipReason, Verdict,
    },
    store::{
        Admitted, Batch, Decision, Elapsed, Entry, EventId, Layout, Path, Payload, StoreError, StreamId,
    },
};

/// Entries of one partition's streams.
pub const ENTRIES_MAX: usize = 1_000_000;

#[derive(Clone, Default)]
pub struct MemoryPartition {
    layout: Layout,
    pub policy: Policy,
    pub lanes: Partition<Payload>,
    pub events: Stream,
    pub late: Stream,
    /// When trimming was last done, on the partition clock.
    pub trimmed_at: u64,
    /// Entries trimmed from `events` so far.
    pub trimmed: u64,
}

impl MemoryPartition {
    /// Its clock starts now.
    pub fn new(layout: Layout, wall: u64) -> Self {
        MemoryPartition { layout, lanes: Partition::new(wall), ..MemoryPartition::default() }
    }

    pub fn admit(
        &mut self,
        batch: &Batch,
        wall: u64,
        effects: &mut Effects<Payload>,
    ) -> Result<Admitted, StoreError> {
        if self.events.len() + self.late.len() >= ENTRIES_MAX {
            let full =
                format!("the embedded store is full ({ENTRIES_MAX} entries in a partition); use Redis");
            return Err(StoreError::NotExecuted(full));
        }
        let mut decided = Vec::with_capacity(batch.offers().len());
        let mut from = 0;
        let events = batch.offers().iter().map(|offer| (&offer.entity, offer.event.clone()));
        self.lanes.admit(events, wall, &self.policy, effects, |verdict, effects| {
            let entity = &batch.offers()[decided.len()].entity;
            decided.push((verdict, own_entry(entity, verdict, &effects.actions, from)));
            from = effects.actions.len();
        });
        let ids = self.apply(effects, "", wall);
        let again = decided.iter().any(|(verdict, _)| *verdict == Verdict::Again);
        let decision =
            |(verdict, at): (Verdict, Option<usize>)| Decision { verdict, id: at.map(|at| ids[at]) };
        Ok(Admitted {
            decisions: decided.into_iter().map(decision).collect(),
            path: Path::Slow,
            more: again || self.lanes.is_draining(),
            drained: effects.drained,
            after_terminal: effects.after_terminal,
            notes: std::mem::take(&mut effects.notes),
        })
    }

    pub fn elapse(&mut self, lanes_max: usize, wall: u64, effects: &mut Effects<Payload>) -> Elapsed {
        let lengths = Lengths { events: self.events.len() as u64, late: self.late.len() as u64 };
        let elapsed = self.lanes.elapse(wall, &self.policy, lanes_max, lengths, effects);
        self.apply(effects, "", wall);
        Elapsed {
            ran: elapsed.ran,
            lanes: elapsed.lanes,
            more: elapsed.more,
            drained: effects.drained,
            after_terminal: effects.after_terminal,
            notes: std::mem::take(&mut effects.notes),
            degraded: self.lanes.is_degraded(),
        }
    }

    /// Writes all of it; returns for each action the entry that it stands in.
    pub fn apply(&mut self, effects: &mut Effects<Payload>, audit: &str, wall: u64) -> Vec<StreamId> {
        let actions = std::mem::take(&mut effects.actions);
        // The entries that this call has begun, of `events` and of `late`.
        let mut begun = [None; 2];
        let mut write = |action: Action<Payload>| {
            let place = match &action {
                Action::Append(append) => append.place,
                Action::Mark(_) | Action::Edge(_) => Place::Events,
            };
            let (stream, begun) = match place {
                Place::Events => (&mut self.events, &mut begun[0]),
                Place::Late => (&mut self.late, &mut begun[1]),
            };
            let id = match (self.layout, *begun) {
                (Layout::Batch, Some(id)) => id,
                (Layout::Batch, None) | (Layout::Entry, _) => stream.begin_entry(wall),
            };
            *begun = Some(id);
            stream.add(|id| entry_of(id, action, audit));
            id
        };
        actions.into_iter().map(&mut write).collect()
    }
}

fn entry_of(id: EventId, action: Action<Payload>, audit: &str) -> Entry {
    match action {
        Action::Append(append) => Entry {
            id,
            entity: append.entity.to_string(),
            epoch: append.epoch,
            sequence: append.sequence,
            kind: append.payload.kind.into(),
            order: append.order,
            attrs: append.payload.attrs.into(),
            data: append.payload.data,
        },
        Action::Mark(marker) => marker_entry(id, marker, audit),
        Action::Edge(edge) => edge_entry(id, edge),
    }
}

fn marker_entry(id: EventId, marker: Marker, audit: &str) -> Entry {
    let (kind, attrs) = match marker.kind {
        MarkerKind::Gap { reason, from, waited } => {
            let mut attrs = format!(r#"{{"reason":"{}","from":{from}"#, reason.name());
            if let Some(waited) = waited {
                attrs += &format!(r#","waited":{waited}"#);
            }
            if reason == SkipReason::Operator && !audit.is_empty() {
                attrs = attrs + "," + audit;
            }
            ("seriatim.gap", attrs + "}")
        }
        MarkerKind::Epoch { previous } => ("seriatim.epoch", format!(r#"{{"previous":{previous}}}"#)),
    };
    let Marker { entity, epoch, sequence, .. } = marker;
    entry(id, &entity.to_string(), epoch, sequence, kind, attrs)
}

/// Concerns the whole partition: its entity is empty.
fn edge_entry(id: EventId, edge: Edge) -> Entry {
    let (kind, by) = match edge {
        Edge::Degraded(by) => ("seriatim.degraded", by),
        Edge::Restored(by) => ("seriatim.restored", by),
    };
    let (epoch, sequence) = (Epoch::new(0).expect("it is small"), Sequence::new(0).expect("it is small"));
    entry(id, "", epoch, sequence, kind, format!(r#"{{"reason":"{}"}}"#, by.name()))
}

fn entry(id: EventId, entity: &str, epoch: Epoch, sequence: Sequence, kind: &str, attrs: String) -> Entry {
    let (entity, kind, order, data) = (entity.to_owned(), kind.to_owned(), Order::Marker, Default::default());
    Entry { id, entity, epoch, sequence, kind, order, attrs, data }
}

/// Which of the actions since `from` wrote the event itself.
fn own_entry(entity: &Entity, verdict: Verdict, actions: &[Action<Payload>], from: usize) -> Option<usize> {
    let sequence = match verdict {
        Verdict::Released { sequence } | Verdict::Passed { sequence } | Verdict::Late { sequence } => {
            sequence
        }
        Verdict::Parked { .. }
        | Verdict::Duplicate { .. }
        | Verdict::Retired { .. }
        | Verdict::Conflict
        | Verdict::Stale { .. }
        | Verdict::Refused(_)
        | Verdict::Again => return None,
    };
    // Markers and the old epoch's events may stand before it, its followers after.
    let own = |action: &Action<Payload>| matches!(action, Action::Append(a) if a.sequence == sequence && a.entity == *entity);
    let epoch_marker = |action: &Action<Payload>| matches!(action, Action::Mark(m) if matches!(m.kind, MarkerKind::Epoch { .. }));
    let from = actions.iter().skip(from).position(epoch_marker).map_or(from, |at| from + at);
    actions.iter().skip(from).position(own).map(|at| from + at)
}
