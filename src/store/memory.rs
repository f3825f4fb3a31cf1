//! The embedded store: `order/` and a vector per stream, in this process.
//!
//! It serves the demo where there is no Redis, tests, and the other half of the
//! differential test. Nothing in it is durable, nothing is shared with another
//! sidecar, and nothing is ever trimmed: a partition that has
//! [`ENTRIES_MAX`] entries refuses more.

use dashmap::DashMap;
use futures_util::{FutureExt, future::BoxFuture, future::ready};

use super::{
    Admitted, Batch, Decision, Entry, Measure, OpenError, PartitionId, Path, Payload, Store, StoreError,
    StoreKind, StreamId, TopicRecord, TopicSpec,
};
use crate::order::{
    Action, Effects, Entity, Lane, LaneState, MarkerKind, Order, Partition, Place, Policy, Verdict,
};

/// Entries of one partition's streams.
pub const ENTRIES_MAX: usize = 1_000_000;

#[derive(Default)]
pub struct MemoryStore {
    topics: DashMap<String, TopicRecord>,
    partitions: DashMap<PartitionId, MemoryPartition>,
}

#[derive(Default)]
struct MemoryPartition {
    policy: Policy,
    lanes: Partition<Payload>,
    events: Vec<Entry>,
    late: Vec<Entry>,
    last_id: u64,
}

impl MemoryPartition {
    fn admit(&mut self, batch: &Batch) -> Result<Admitted, StoreError> {
        if self.events.len() + self.late.len() >= ENTRIES_MAX {
            let full =
                format!("the embedded store is full ({ENTRIES_MAX} entries in a partition); use Redis");
            return Err(StoreError::NotExecuted(full));
        }
        let mut effects = Effects::new(self.policy.append_max);
        self.lanes.drain(&mut effects);
        let mut decided = Vec::with_capacity(batch.offers().len());
        for offer in batch.offers() {
            let from = effects.actions.len();
            let verdict = self.lanes.admit(&offer.entity, offer.event.clone(), &self.policy, &mut effects);
            decided.push((verdict, own_entry(verdict, &effects.actions, from)));
        }
        let ids: Vec<StreamId> = effects.actions.into_iter().map(|action| self.apply(action)).collect();
        let again = decided.iter().any(|(verdict, _)| *verdict == Verdict::Again);
        let decision =
            |(verdict, at): (Verdict, Option<usize>)| Decision { verdict, id: at.map(|at| ids[at]) };
        Ok(Admitted {
            decisions: decided.into_iter().map(decision).collect(),
            path: Path::Slow,
            more: again || self.lanes.is_draining(),
            drained: effects.drained,
            after_terminal: effects.after_terminal,
        })
    }

    fn apply(&mut self, action: Action<Payload>) -> StreamId {
        self.last_id += 1;
        let id = StreamId { milliseconds: self.last_id, counter: 0 };
        match action {
            Action::Append(append) => {
                let stream = match append.place {
                    Place::Events => &mut self.events,
                    Place::Late => &mut self.late,
                };
                stream.push(Entry {
                    id,
                    entity: append.entity.to_string(),
                    epoch: append.epoch,
                    sequence: append.sequence,
                    kind: append.payload.kind.into(),
                    order: append.order,
                    attrs: append.payload.attrs.into(),
                    data: append.payload.data,
                });
            }
            Action::Mark(marker) => {
                let (kind, attrs) = match marker.kind {
                    MarkerKind::Gap { reason, from } => {
                        ("seriatim.gap", format!(r#"{{"reason":"{}","from":{from}}}"#, reason.name()))
                    }
                    MarkerKind::Epoch { previous } => {
                        ("seriatim.epoch", format!(r#"{{"previous":{previous}}}"#))
                    }
                };
                self.events.push(Entry {
                    id,
                    entity: marker.entity.to_string(),
                    epoch: marker.epoch,
                    sequence: marker.sequence,
                    kind: kind.to_owned(),
                    order: Order::Marker,
                    attrs,
                    data: Default::default(),
                });
            }
        }
        id
    }
}

/// Which of the actions since `from` wrote the event itself.
fn own_entry(verdict: Verdict, actions: &[Action<Payload>], from: usize) -> Option<usize> {
    let sequence = match verdict {
        Verdict::Released { sequence } | Verdict::Passed { sequence } | Verdict::Late { sequence } => {
            sequence
        }
        Verdict::Parked { .. }
        | Verdict::Duplicate { .. }
        | Verdict::Conflict
        | Verdict::Stale { .. }
        | Verdict::Refused(_)
        | Verdict::Again => return None,
    };
    // Markers and the old epoch's events may stand before it, its followers after.
    let own = |action: &Action<Payload>| matches!(action, Action::Append(a) if a.sequence == sequence);
    let epoch_marker = |action: &Action<Payload>| matches!(action, Action::Mark(m) if matches!(m.kind, MarkerKind::Epoch { .. }));
    let from = actions.iter().skip(from).position(epoch_marker).map_or(from, |at| from + at);
    actions.iter().skip(from).position(own).map(|at| from + at)
}

impl MemoryStore {
    /// Puts a lane back as its text says, for tests that begin in a rare state.
    pub fn restore(&self, partition: &PartitionId, entity: Entity, state: LaneState) {
        let mut partition = self.partitions.get_mut(partition).expect("the topic is open");
        partition.lanes.restore(entity, state);
    }

    /// What is parked in the partition: entity, epoch, sequence, terminal, payload.
    pub fn parked(&self, partition: &PartitionId) -> Vec<(String, u64, u64, bool, Payload)> {
        let partition = self.partitions.get(partition).expect("the topic is open");
        let of_lane = |(entity, lane): (&Entity, &Lane<Payload>)| {
            let (entity, epoch) = (entity.to_string(), lane.state().epoch.get());
            lane.parked()
                .map(|(sequence, terminal, payload)| {
                    (entity.clone(), epoch, sequence.get(), terminal, payload.clone())
                })
                .collect::<Vec<_>>()
        };
        partition.lanes.lanes().flat_map(of_lane).collect()
    }

    fn with<T>(
        &self,
        partition: &PartitionId,
        act: impl FnOnce(&mut MemoryPartition) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let found = self.partitions.get_mut(partition);
        let mut found =
            found.ok_or_else(|| StoreError::Broken(format!("partition {partition} is not open")))?;
        act(found.value_mut())
    }
}

impl Store for MemoryStore {
    fn describe(&self) -> String {
        "embedded (in memory, nothing survives the process)".to_owned()
    }

    fn kind(&self) -> StoreKind {
        StoreKind::Embedded
    }

    fn open<'a>(&'a self, topic: &'a TopicSpec) -> BoxFuture<'a, Result<(), OpenError>> {
        let record = self.topics.entry(topic.name.clone()).or_insert_with(|| topic.record()).clone();
        if let Some(mismatch) = record.mismatch(&topic.record()) {
            return ready(Err(OpenError::Mismatch { topic: topic.name.clone(), mismatch })).boxed();
        }
        for index in 0..topic.partitions {
            let id = PartitionId { topic: topic.name.as_str().into(), index };
            let mut partition = self.partitions.entry(id).or_default();
            partition.policy = topic.policy.clone();
        }
        ready(Ok(())).boxed()
    }

    fn admit<'a>(
        &'a self,
        partition: &'a PartitionId,
        batch: &'a Batch,
    ) -> BoxFuture<'a, Result<Admitted, StoreError>> {
        ready(self.with(partition, |partition| partition.admit(batch))).boxed()
    }

    fn resume<'a>(
        &'a self,
        partition: &'a PartitionId,
        entity: &'a Entity,
    ) -> BoxFuture<'a, Result<Option<LaneState>, StoreError>> {
        ready(self.with(partition, |partition| Ok(partition.lanes.lane(entity).map(|lane| lane.state()))))
            .boxed()
    }

    fn read<'a>(
        &'a self,
        partition: &'a PartitionId,
        place: Place,
        after: StreamId,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<Entry>, StoreError>> {
        let read = self.with(partition, |partition| {
            let stream = match place {
                Place::Events => &partition.events,
                Place::Late => &partition.late,
            };
            let from = stream.partition_point(|entry| entry.id <= after);
            Ok(stream[from..].iter().take(count).cloned().collect())
        });
        ready(read).boxed()
    }

    fn topics(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
        let mut names: Vec<String> = self.topics.iter().map(|topic| topic.key().clone()).collect();
        names.sort();
        ready(Ok(names)).boxed()
    }

    fn record<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<Option<TopicRecord>, StoreError>> {
        ready(Ok(self.topics.get(topic).map(|record| record.clone()))).boxed()
    }

    fn measure<'a>(&'a self, partition: &'a PartitionId) -> BoxFuture<'a, Result<Measure, StoreError>> {
        let measure = self.with(partition, |partition| {
            let (parked, parked_bytes) = partition.lanes.parked();
            Ok(Measure {
                entries: partition.events.len() as u64,
                late: partition.late.len() as u64,
                lanes: partition.lanes.lanes().count() as u64,
                parked,
                parked_bytes,
                trimmed: 0,
            })
        });
        ready(measure).boxed()
    }

    fn delete_topic<'a>(&'a self, topic: &'a str) -> BoxFuture<'a, Result<(), StoreError>> {
        self.topics.remove(topic);
        self.partitions.retain(|partition, _| &*partition.topic != topic);
        ready(Ok(())).boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        ready(Ok(())).boxed()
    }
}
