//! Random histories of the whole port: what sidecars, workers and people might ask for,
//! in any order, of topics and groups that are there, not there yet, or gone.

use seriatim::{
    order::{
        BreakerPolicy, Entity, Epoch, Event, LatePlace, Place, Policy, Position, Retention, Retirement,
        Sequence,
    },
    store::{
        Batch, Beat, GapId, GroupId, Guess, LaneOffers, Layout, Member, MemoryStore, Numbering, Offer,
        PartitionId, Payload, Start, Store, StreamId, Switches, TopicSpec,
    },
};

use super::{
    call::{Call, Step},
    commits::{self, KEPT_MAX, Sights, id, ids},
    support::Random,
};

/// Topics and their partitions; the second one comes and goes.
pub const TOPICS: [(&str, u32); 2] = [("main", 2), ("side", 1)];
pub const GROUPS: [&str; 2] = ["alpha", "beta"];
pub const WORKERS: [&str; 3] = ["one", "two", "three"];
pub const ENTITIES: [&str; 3] = ["job", "{main.0}:events", "1:job\n"];

pub struct History {
    topics: Vec<TopicSpec>,
    sights: Sights,
    /// Events are rare: lanes grow old and are retired.
    is_old: bool,
    /// Nobody has a group, and all is trimmed by age and length alone.
    is_groupless: bool,
}

pub fn entity(name: &str) -> Entity {
    Entity::new(name).expect("entities' names are short")
}

pub fn any(random: &mut Random) -> Entity {
    let name: &&str = random.pick(&ENTITIES);
    entity(name)
}

impl History {
    pub fn begin(random: &mut Random) -> Self {
        let topic = |random: &mut Random, (name, partitions): (&str, u32)| TopicSpec {
            name: name.to_owned(),
            partitions,
            layout: *random.pick(&Layout::ALL),
            numbering: Numbering::Producer,
            policy: policy(random),
        };
        let topics = TOPICS.map(|named| topic(random, named)).to_vec();
        History {
            topics,
            sights: Sights::default(),
            is_old: random.percent(35),
            is_groupless: random.percent(10),
        }
    }

    pub async fn next_step(&mut self, random: &mut Random, memory: &MemoryStore) -> Step {
        let clock_ms = match random.below(100) {
            0..=39 if !self.is_old => 0,
            0..=69 => random.below(130) as i64,
            70..=95 => random.within(100, 600) as i64,
            96..=97 => random.within(10_000, 10_000_000) as i64,
            _ => -(random.within(1, 1_000_000) as i64),
        };
        let there = memory.topics().await.unwrap();
        let is_open = there.iter().any(|topic| topic == TOPICS[0].0);
        let group = GroupId { topic: TOPICS[0].0.to_owned(), group: (*random.pick(&GROUPS)).to_owned() };
        let is_registered = memory.inspect_members(&group).is_some();
        let first = PartitionId { topic: TOPICS[0].0.into(), index: 0 };
        let measure = memory.measure(&first).await.unwrap();
        // A good moment to begin at the end.
        let is_emptied = measure.entries == 0 && measure.trimmed > 0;
        let call = if !is_open && random.percent(15) {
            Call::Open(Box::new(self.topics[0].clone()))
        } else if !is_registered && !self.is_groupless && random.percent(if is_emptied { 30 } else { 7 }) {
            let start = if is_emptied || random.percent(20) { Start::End } else { Start::Beginning };
            Call::Register { group, partitions: TOPICS[0].1, start }
        } else {
            self.next_call(random, memory).await
        };
        Step { clock_ms, call }
    }

    async fn next_call(&mut self, random: &mut Random, memory: &MemoryStore) -> Call {
        let topic = if random.percent(90) { TOPICS[0] } else { TOPICS[1] };
        let at = PartitionId { topic: topic.0.into(), index: random.below(u64::from(topic.1)) as u32 };
        let group = (*random.pick(&GROUPS)).to_owned();
        match random.below(1000) {
            0..=109 if self.is_old => Call::Sweep { at },
            110..=149 if self.is_old => self.sights.sweep_points(random, memory, at, group).await,
            150..=169 if self.is_old => Call::Elapse { at },
            0..=199 => self.publish(random, memory, at).await,
            200..=409 => self.sights.commit(random, memory, at, group).await,
            410..=509 => self.sights.lease(random, memory, at, group).await,
            510..=534 => self.sights.release(random, memory, at, group).await,
            535..=554 => self.sights.sweep_points(random, memory, at, group).await,
            555..=664 => commits::wish(random, at, group),
            665..=824 => self.of_group(random, memory, at, group).await,
            825..=934 => self.of_partition(random, memory, at).await,
            935..=969 => Call::Trim { at, count: random.within(1, 40) as usize },
            _ => self.of_topics(random, memory, topic).await,
        }
    }

    async fn publish(&mut self, random: &mut Random, memory: &MemoryStore, at: PartitionId) -> Call {
        let mut arrived = Vec::new();
        for _ in 0..if random.percent(5) { 0 } else { random.within(1, 4) } {
            let entity = any(random);
            let lane = memory.resume(&at, &entity).await.ok().flatten();
            let next = lane.as_ref().map_or(0, |lane| lane.next.get());
            let missing = lane.as_ref().and_then(|lane| lane.missing.iter().next());
            let sequence = match (random.below(100), missing) {
                (0..=24, Some(missing)) => missing.first.get(),
                (0..=64, _) => next,
                (65..=84, _) => next + random.within(1, 3),
                _ => next.saturating_sub(random.within(1, 3)),
            };
            let epoch = lane.map_or(0, |lane| lane.epoch.get()) + u64::from(random.percent(5));
            let event = Event {
                epoch: Epoch::new(epoch).unwrap(),
                position: Position::Given(Sequence::new(sequence).unwrap()),
                terminal: random.percent(if self.is_old { 60 } else { 20 }),
                payload: Payload {
                    kind: "step".into(),
                    attrs: "{}".into(),
                    data: vec![random.draw() as u8; sequence as usize % 3].into(),
                },
            };
            arrived.push((Offer { entity, event }, ()));
        }
        let unlikely = random.percent(50).then(|| any(random));
        let is_likely =
            |lane: LaneOffers<'_>| unlikely.as_ref().is_none_or(|entity| lane[0].entity != *entity);
        let guess = |lane: LaneOffers<'_>| if is_likely(lane) { Guess::InTurn } else { Guess::Unclear };
        Call::Admit { at, batch: Batch::form_by(arrived, guess).0 }
    }

    /// What is asked about a group, and what is decided about all of it.
    async fn of_group(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        at: PartitionId,
        group: String,
    ) -> Call {
        let of_topic =
            TOPICS.into_iter().find(|(topic, _)| *topic == &*at.topic).expect("it is one of them").1;
        let whole = GroupId { topic: at.topic.to_string(), group: group.clone() };
        let member = (*random.pick(&WORKERS)).to_owned();
        match random.below(160) {
            0..=29 if !self.is_groupless => {
                let start = match random.below(4) {
                    0 | 1 => Start::Beginning,
                    2 => Start::End,
                    _ => Start::After(id(random, &ids(memory, &at).await)),
                };
                let partitions = if random.percent(10) { 1 } else { of_topic };
                Call::Register { group: whole, partitions, start }
            }
            30..=33 => Call::Remove { group: whole, partitions: of_topic },
            0..=42 => Call::Groups { topic: whole.topic },
            43..=52 => {
                let switches = Switches { paused: random.percent(50), degraded: random.percent(50) };
                Call::Switch { group: whole, switches }
            }
            53..=72 => {
                Call::Attend { group: whole, member: Member { name: member, count: random.below(100) } }
            }
            73..=82 => Call::Depart { group: whole, member },
            83..=92 => Call::Leases { group: whole, partitions: random.within(1, 3) as u32 },
            93..=112 => {
                let some = ENTITIES.into_iter().filter(|_| random.percent(60)).map(entity).collect();
                Call::Points { at, group, entities: some }
            }
            113..=132 => Call::Heads { at, group },
            _ => {
                let (entity, from) = (any(random), random.below(KEPT_MAX));
                Call::Kept { at, group, entity, numbers: from..from + random.below(KEPT_MAX) }
            }
        }
    }

    /// What is asked about a partition, and what is decided about it besides its events.
    async fn of_partition(&mut self, random: &mut Random, memory: &MemoryStore, at: PartitionId) -> Call {
        // Which may well be one that is not there.
        let at = if random.percent(15) { PartitionId { topic: TOPICS[1].0.into(), index: 0 } } else { at };
        let name = any(random);
        let count = random.below(12) as usize;
        match random.below(110) {
            0..=19 => Call::Elapse { at },
            20..=25 => Call::Probe { at },
            26..=30 => Call::Sweep { at },
            31..=38 => Call::Announce { at, entity: name, within_ms: random.within(1, 500) },
            39..=42 => Call::Extend { gap: gap(memory, &at, name).await, at },
            43..=49 => Call::Skip { gap: gap(memory, &at, name).await, at },
            50..=53 => Call::Degrade { at, degraded: random.percent(40) },
            54..=61 => Call::Floor { at },
            62..=71 => {
                let place = if random.percent(70) { Place::Events } else { Place::Late };
                let after = id(random, &ids(memory, &at).await);
                Call::Read { at, place, after, count }
            }
            72..=76 => Call::Resume { at, entity: name },
            77..=81 => Call::Measure { at },
            82..=85 => Call::Repair { at, count: count + 1 },
            86..=97 => Call::ReadOn { after: id(random, &ids(memory, &at).await), at, count },
            _ => {
                let mut after: Vec<(PartitionId, StreamId)> = Vec::new();
                for at in super::pair::partitions().filter(|_| random.percent(60)).collect::<Vec<_>>() {
                    after.push((at.clone(), id(random, &ids(memory, &at).await)));
                }
                Call::Wait { after, count }
            }
        }
    }

    async fn of_topics(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        (topic, _): (&str, u32),
    ) -> Call {
        let topic = if random.percent(50) { TOPICS[1].0 } else { topic };
        let sidecar = "the only one".to_owned();
        match random.below(100) {
            0..=24 => {
                let of_topic = self.topics.iter_mut().find(|known| known.name == topic).expect("it is known");
                match random.below(10) {
                    0..=4 => {}
                    5 | 6 => of_topic.policy = policy(random),
                    _ if memory.record(topic).await.unwrap().is_none() => {}
                    _ => return Call::Open(Box::new(mismatched(random, of_topic.clone()))),
                }
                Call::Open(Box::new(of_topic.clone()))
            }
            25..=49 => Call::Delete { topic: topic.to_owned() },
            50..=59 => Call::Topics,
            60..=74 => Call::Record { topic: topic.to_owned() },
            75..=79 => Call::Ping,
            80..=87 => {
                let about = format!(r#"{{"n":{}}}"#, random.below(10));
                Call::Beat(Beat { sidecar, about, forget_after_ms: random.within(1, 1_000) })
            }
            88..=92 => Call::Leave { sidecar },
            _ => Call::Lead { sidecar, for_ms: random.within(1, 1_000) },
        }
    }
}

/// The same topic, but for something that is fixed.
fn mismatched(random: &mut Random, mut topic: TopicSpec) -> TopicSpec {
    match random.below(4) {
        0 => topic.partitions += 1,
        1 => topic.numbering = Numbering::Assigned,
        2 => {
            topic.layout = match topic.layout {
                Layout::Entry => Layout::Batch,
                Layout::Batch => Layout::Entry,
            }
        }
        _ => topic.policy.first = Sequence::new(7).unwrap(),
    }
    topic
}

async fn gap(memory: &MemoryStore, at: &PartitionId, entity: Entity) -> GapId {
    let lane = memory.resume(at, &entity).await.ok().flatten();
    let (epoch, next) = lane.map_or((0, 0), |lane| (lane.epoch.get(), lane.next.get()));
    GapId { entity, epoch: Epoch::new(epoch).unwrap(), next: Sequence::new(next).unwrap() }
}

/// Everything happens soon.
fn policy(random: &mut Random) -> Policy {
    let entries_max = if random.percent(30) { random.within(5, 40) } else { 1_000 };
    Policy {
        late: if random.percent(70) { LatePlace::Aside } else { LatePlace::Inline },
        gap_waits: vec![random.within(1, 600), random.within(1, 600)],
        terminal_wait: random.within(1, 600),
        breaker: BreakerPolicy { skips: 0, window: 1_000, hold: 100 },
        retirement: Retirement {
            stuck_after: random.within(1, 500),
            retire_after: random.within(1, 150),
            idle_retire_after: if random.percent(50) { random.within(1, 800) } else { 0 },
            remember_for: random.within(1_000, 20_000),
        },
        announced_max: random.below(2),
        retention: Retention {
            retain_ms: if random.percent(50) { random.within(1, 5_000) } else { 1 << 40 },
            retain_entries: random.within(1, entries_max / 2 + 1),
            entries_max,
            late_retain_ms: random.within(1, 100_000),
            late_max: if random.percent(30) { random.within(1, 4) } else { 1_000 },
        },
        ..Policy::default()
    }
}
