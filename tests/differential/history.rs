//! Random histories: what several producers might send, right and wrong.

use std::{collections::HashMap, fmt::Write};

use seriatim::{
    order::{
        Entity, Epoch, Event, LaneState, LatePlace, NUMBER_MAX, Ordering, Policy, Position, Ranges, Sequence,
    },
    store::{Batch, MemoryStore, Numbering, Offer, PartitionId, Payload, Store, TopicSpec},
};

use super::support::Random;

pub struct History {
    pub topic: TopicSpec,
    /// Lanes that begin in a state with skipped ranges.
    pub planted: Vec<(Entity, LaneState)>,
    entities: Vec<Entity>,
    epochs: Vec<u64>,
    ids: u64,
    /// Nearly everything in order, so that the fast path is taken.
    calm: bool,
}

impl History {
    pub fn begin(random: &mut Random) -> Self {
        let numbering = if random.percent(12) { Numbering::Assigned } else { Numbering::Producer };
        let first = boundary(random).min(NUMBER_MAX - 2_000);
        let policy = Policy {
            first: Sequence::new(first).unwrap(),
            ordering: if random.percent(15) { Ordering::Off } else { Ordering::Enforce },
            late: if random.percent(50) { LatePlace::Aside } else { LatePlace::Inline },
            parked_max: random.within(1, 8),
            parked_bytes_max: random.within(10, 120),
            partition_parked_max: random.within(3, 20),
            partition_parked_bytes_max: random.within(40, 400),
            ahead_max: random.within(3, 14),
            append_max: random.within(2, 12),
        };
        let entities = entities(random);
        let epoch = boundary(random).min(NUMBER_MAX - 300);
        let mut history = History {
            topic: TopicSpec { name: "differential".into(), partitions: 1, numbering, policy },
            planted: Vec::new(),
            epochs: vec![epoch; entities.len()],
            entities,
            ids: 0,
            calm: random.percent(35),
        };
        let enforced = history.topic.policy.ordering == Ordering::Enforce;
        if numbering == Numbering::Producer && enforced && !history.calm {
            history.plant(random, first);
        }
        history
    }

    fn plant(&mut self, random: &mut Random, first: u64) {
        for (entity, epoch) in self.entities.iter().zip(&self.epochs) {
            if random.percent(60) {
                continue;
            }
            let mut next = first;
            let mut runs = Vec::new();
            for _ in 0..random.within(1, 16) {
                let from = next + random.within(1, 3);
                let to = from + random.below(3);
                runs.push(if from == to { from.to_string() } else { format!("{from}-{to}") });
                next = to + 1 + random.below(2);
            }
            let closed = if random.percent(10) { "c" } else { "" };
            let state = format!("{epoch}:{}{closed};m{}", next + 1, runs.join(","));
            self.planted.push((entity.clone(), state.parse().expect("planted states are well formed")));
        }
    }

    pub async fn next_batch(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        partition: &PartitionId,
    ) -> Batch {
        let size = if random.percent(3) { 0 } else { random.within(1, 6) };
        let mut arrived = Vec::new();
        let mut following = HashMap::new();
        for _ in 0..size {
            let at = random.below(self.entities.len() as u64) as usize;
            let sequence = match following.get(&at) {
                Some(sequence) if self.calm || random.percent(40) => *sequence,
                _ => {
                    let lane = memory.resume(partition, &self.entities[at]).await.unwrap();
                    self.sequence(random, lane.as_ref())
                }
            };
            following.insert(at, sequence + 1);
            arrived.push((self.offer(random, at, sequence), ()));
        }
        Batch::form(arrived).0
    }

    /// Mostly the one whose turn it is; else ahead, behind or far out.
    fn sequence(&self, random: &mut Random, lane: Option<&LaneState>) -> u64 {
        let first = self.topic.policy.first.get();
        let next = lane.map_or(first, |lane| lane.next.get());
        let one_of = |random: &mut Random, ranges: &Ranges| {
            let ranges: Vec<_> = ranges.iter().collect();
            if ranges.is_empty() {
                return next;
            }
            let range = random.pick(&ranges);
            random.within(range.first.get(), range.last.get())
        };
        if self.calm && random.percent(99) {
            return next;
        }
        let sequence = match (random.below(100), lane) {
            (0..=24, _) => next,
            (25..=54, _) => next + random.within(1, 4),
            (55..=69, _) => next.saturating_sub(random.within(1, 12)),
            (70..=84, Some(lane)) => one_of(random, &lane.missing),
            (85..=94, Some(LaneState { parked: Some(parked), .. })) => one_of(random, &parked.sequences),
            _ => next + self.topic.policy.ahead_max + random.below(3),
        };
        // Below the first sequence nothing is released; the edge refuses it, the rules cope.
        if random.percent(1) { first.saturating_sub(1) } else { sequence.max(first) }
    }

    fn offer(&mut self, random: &mut Random, at: usize, sequence: u64) -> Offer {
        let epoch = match random.below(100) {
            0 => {
                self.epochs[at] += random.within(1, 2);
                self.epochs[at]
            }
            1 => self.epochs[at].saturating_sub(random.within(1, 2)),
            _ => self.epochs[at],
        };
        // The same event has the same payload, unless somebody uses its number twice.
        let twin = if random.percent(8) { "twin" } else { "" };
        let long = "x".repeat((sequence % 7) as usize * 3);
        let position = match self.topic.numbering {
            Numbering::Producer => Position::Given(Sequence::new(sequence).unwrap()),
            Numbering::Assigned => {
                let id =
                    if random.percent(30) { self.ids.saturating_sub(random.below(70)) } else { self.ids + 1 };
                self.ids = self.ids.max(id);
                Position::Assigned { id }
            }
        };
        Offer {
            entity: self.entities[at].clone(),
            event: Event {
                epoch: Epoch::new(epoch).unwrap(),
                position,
                terminal: sequence % 23 == 22 && !(self.calm && random.percent(97)),
                payload: Payload {
                    kind: format!("k{}", sequence % 3).into(),
                    attrs: format!(r#"{{"n":{}}}"#, random.below(3)).into(),
                    data: format!("{sequence}{twin}{long}").into(),
                },
            },
        }
    }

    pub fn describe(&self) -> String {
        let planted: Vec<_> =
            self.planted.iter().map(|(entity, state)| format!("{entity:?} {state}")).collect();
        format!("policy {:?} numbering {:?}\nplanted {planted:?}", self.topic.policy, self.topic.numbering)
    }
}

pub fn describe(batch: &Batch) -> String {
    let mut line = String::from(" ");
    for offer in batch.offers() {
        let event = &offer.event;
        let data = String::from_utf8_lossy(&event.payload.data);
        let flag = if event.terminal { " terminal" } else { "" };
        write!(line, " [{:.12?} {}/{:?} {data:?}{flag}]", offer.entity, event.epoch, event.position).unwrap();
    }
    line
}

/// 0, a small number, or a power of 2 or 10, give or take one.
fn boundary(random: &mut Random) -> u64 {
    let power = match random.below(4) {
        0 => return random.below(2),
        1 => return random.below(1000),
        2 => 1u64 << random.within(1, 53),
        _ => 10u64.pow(random.within(1, 15) as u32),
    };
    (power + random.below(3)).saturating_sub(1).min(NUMBER_MAX)
}

fn entities(random: &mut Random) -> Vec<Entity> {
    let hostile = [
        "plain".to_owned(),
        "{}".to_owned(),
        "a:b".to_owned(),
        "{differential.0}:events".to_owned(),
        "0:1:plain".to_owned(),
        "line\nbreak\r\n".to_owned(),
        "nul\0nul".to_owned(),
        "é;k1,1,1".to_owned(),
        " ".to_owned(),
        "%s%d%%".to_owned(),
        "x".repeat(256),
        "x".repeat(255),
        "ü".repeat(128),
    ];
    let mut entities: Vec<Entity> = hostile.iter().map(|name| Entity::new(name).unwrap()).collect();
    random.shuffle(&mut entities);
    entities.truncate(random.within(1, 5) as usize);
    entities
}
