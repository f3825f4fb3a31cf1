//! Random histories: what several producers, clocks and operators might do, right and
//! wrong.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use seriatim::{
    order::{
        BreakerPolicy, Entity, Epoch, Event, LaneState, LatePlace, Lifecycle, NUMBER_MAX, Ordering, Overflow,
        Policy, Position, Ranges, Retention, Retirement, Rollout, Sequence,
    },
    store::{
        Batch, GapId, Guess, Layout, MemoryStore, Numbering, Offer, PartitionId, Payload, Store, Straight,
        TopicSpec,
    },
};

use super::{
    step::{Call, Step},
    support::Random,
};

pub struct History {
    pub topic: TopicSpec,
    /// Lanes that begin in a state with skipped ranges.
    pub planted: Vec<(Entity, LaneState)>,
    entities: Vec<Entity>,
    epochs: Vec<u64>,
    ids: u64,
    kind: Kind,
    /// How the store in Redis takes what is in order.
    pub straight: Straight,
}

/// What a history is mostly about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nearly everything in order, so that the fast path is taken.
    Calm,
    /// Most of it in order, so that this goes straight, and the rest ahead of its turn.
    Brisk,
    /// Events of many entities, some of which come a few places late: they are parked and go on soon.
    Late,
    /// Everything that can happen to a gap.
    Troubled,
    /// Lanes grow old, are retired and come back.
    Old,
}

impl History {
    pub fn begin(random: &mut Random) -> Self {
        let numbering = if random.percent(12) { Numbering::Assigned } else { Numbering::Producer };
        let first = boundary(random).min(NUMBER_MAX - 2_000);
        let mut entities = entities(random);
        let policy = policy(random, Sequence::new(first).unwrap(), &entities);
        let epoch = boundary(random).min(NUMBER_MAX - 300);
        let layout = *random.pick(&Layout::ALL);
        let kind = match random.below(100) {
            0..=8 => Kind::Calm,
            9..=29 => Kind::Brisk,
            30..=40 => Kind::Late,
            41..=85 => Kind::Troubled,
            _ => Kind::Old,
        };
        if kind == Kind::Late {
            entities.extend((0..8).map(|n| Entity::new(&format!("late {n}")).unwrap()));
        }
        let mut history = History {
            topic: TopicSpec { name: "differential".into(), partitions: 1, layout, numbering, policy },
            planted: Vec::new(),
            epochs: vec![epoch; entities.len()],
            entities,
            ids: 0,
            kind,
            straight: *random.pick(&[Straight::Never, Straight::Always]),
        };
        if history.is_calm() {
            history.topic.policy.ordering = Ordering::Enforce;
            history.topic.policy.lifecycle = None;
        }
        if history.kind == Kind::Brisk {
            (history.straight, history.topic.layout) = (Straight::Always, Layout::Entry);
            history.topic.policy.breaker.skips = 0;
            history.topic.policy.append_max = random.within(3, 5);
        }
        if history.kind == Kind::Late {
            history.straight = Straight::Always;
            history.topic.policy.breaker.skips = 0;
            let policy = &mut history.topic.policy;
            (policy.parked_max, policy.parked_bytes_max) =
                (policy.parked_max + 4, policy.parked_bytes_max + 300);
            policy.partition_parked_max += 20;
            policy.partition_parked_bytes_max += 2_000;
            policy.append_max += 8;
        }
        let enforced = history.topic.policy.ordering == Ordering::Enforce;
        if numbering == Numbering::Producer && enforced && !history.is_calm() {
            history.plant(random, first);
        }
        history
    }

    pub async fn next_step(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        partition: &PartitionId,
    ) -> Step {
        // A look at the very moment at which a breaker that has just tripped may be restored.
        if self.kind == Kind::Troubled && random.percent(3) {
            let clock_ms = self.topic.policy.breaker.hold as i64;
            return Step { clock_ms, call: Call::Elapse { lanes_max: 5 } };
        }
        let clock_ms = match random.below(100) {
            _ if self.is_calm() => random.below(20) as i64,
            0..=39 => 0,
            40..=59 => random.below(130) as i64,
            60..=94 => random.within(100, 600) as i64,
            95..=97 => random.within(10_000, 10_000_000) as i64,
            _ => -(random.within(1, 10_000_000) as i64),
        };
        let entity = random.pick(&self.entities).clone();
        let call = match (self.kind, random.below(1000)) {
            (Kind::Troubled, 0..=119) => Call::Elapse { lanes_max: random.within(1, 5) as usize },
            (Kind::Troubled, 120..=134) => Call::Extend(self.gap(random, entity, memory, partition).await),
            (Kind::Troubled, 135..=149) => Call::Skip(self.gap(random, entity, memory, partition).await),
            (Kind::Troubled, 150..=164 | 233..=242) => Call::SetDegraded(random.percent(50)),
            (Kind::Troubled, 165..=169) | (Kind::Old, 0..=399) => Call::Sweep,
            (Kind::Troubled, 170..=177) | (Kind::Old, 400..=409) => {
                Call::Policy(Box::new(self.change_policy(random)))
            }
            (Kind::Troubled, 178..=182)
            | (Kind::Old, 410..=439)
            | (Kind::Calm | Kind::Brisk | Kind::Late, 0..=4) => {
                Call::Announce { entity, within_ms: random.within(1, 2_000) }
            }
            (Kind::Troubled, 183..=232)
            | (Kind::Old, 500..=529)
            | (Kind::Calm | Kind::Brisk | Kind::Late, 20..=39) => {
                Call::Trim { count: random.within(1, 60) as usize }
            }
            (Kind::Calm | Kind::Brisk | Kind::Late, 40..=59) => Call::Elapse { lanes_max: 5 },
            (Kind::Old, 440..=499) => Call::Elapse { lanes_max: 5 },
            (Kind::Calm | Kind::Brisk | Kind::Late, 5..=19) => Call::Sweep,
            (Kind::Calm | Kind::Brisk | Kind::Late | Kind::Troubled | Kind::Old, _) => {
                Call::Admit(self.next_batch(random, memory, partition).await)
            }
        };
        Step { clock_ms, call }
    }

    fn is_calm(&self) -> bool {
        matches!(self.kind, Kind::Calm | Kind::Brisk | Kind::Late)
    }

    /// The entity's gap, or nearly.
    async fn gap(
        &self,
        random: &mut Random,
        entity: Entity,
        memory: &MemoryStore,
        partition: &PartitionId,
    ) -> GapId {
        let lane = memory.resume(partition, &entity).await.unwrap();
        let (epoch, next) = lane.map_or((0, 0), |lane| (lane.epoch.get(), lane.next.get()));
        let next = (next + u64::from(random.percent(10))).min(NUMBER_MAX);
        GapId { entity, epoch: Epoch::new(epoch).unwrap(), next: Sequence::new(next).unwrap() }
    }

    fn change_policy(&mut self, random: &mut Random) -> Policy {
        self.topic.policy = policy(random, self.topic.policy.first, &self.entities);
        self.topic.policy.clone()
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

    async fn next_batch(
        &mut self,
        random: &mut Random,
        memory: &MemoryStore,
        partition: &PartitionId,
    ) -> Batch {
        let size = match self.kind {
            Kind::Brisk => random.within(3, 8),
            Kind::Late => random.within(2, 5),
            _ if random.percent(3) => 0,
            Kind::Calm | Kind::Troubled | Kind::Old => random.within(1, 6),
        };
        let mut arrived = Vec::new();
        let (mut following, mut guesses) = (HashMap::new(), HashMap::new());
        for _ in 0..size {
            let at = random.below(self.entities.len() as u64) as usize;
            if self.kind == Kind::Late && following.contains_key(&at) && random.percent(95) {
                continue;
            }
            let sequence = match following.get(&at) {
                Some(sequence) if self.is_calm() || random.percent(40) => *sequence,
                _ => {
                    let lane = memory.resume(partition, &self.entities[at]).await.unwrap();
                    let sequence = self.sequence(random, lane.as_ref());
                    guesses.insert(self.entities[at].clone(), self.guess(random, sequence, lane));
                    sequence
                }
            };
            following.insert(at, sequence + 1);
            arrived.push((self.offer(random, at, sequence), ()));
        }
        Batch::form_by(arrived, |lane| guesses[&lane[0].entity]).0
    }

    /// What is taken to become of an event, mostly rightly.
    fn guess(&self, random: &mut Random, sequence: u64, lane: Option<LaneState>) -> Guess {
        if random.percent(if self.kind == Kind::Late { 1 } else { 3 }) {
            let next = Sequence::new(sequence.saturating_sub(1)).unwrap();
            let any = [Guess::InTurn, Guess::Ahead { next }, Guess::Begins, Guess::Waits, Guess::Unclear];
            return *random.pick(&any);
        }
        let first = self.topic.policy.first;
        let next = lane.as_ref().map_or(first, |lane| lane.next).get();
        let waits = lane.as_ref().is_some_and(|lane| lane.parked.is_some());
        if self.kind == Kind::Brisk && (sequence != next || waits) && random.percent(70) {
            return Guess::Unclear;
        }
        let is_new = lane.is_none();
        if lane.is_some_and(|lane| lane != LaneState::healthy(lane.epoch, lane.next)) {
            return if waits { Guess::Waits } else { Guess::Unclear };
        }
        match sequence.cmp(&next) {
            std::cmp::Ordering::Greater if is_new => Guess::Begins,
            std::cmp::Ordering::Less => Guess::Unclear,
            std::cmp::Ordering::Equal => Guess::InTurn,
            std::cmp::Ordering::Greater => Guess::Ahead { next: Sequence::new(next).unwrap() },
        }
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
        let in_turn = match self.kind {
            Kind::Calm => 99,
            Kind::Brisk => 75,
            Kind::Late if lane.is_some_and(|lane| lane.parked.is_some()) => 55,
            Kind::Late => 70,
            Kind::Troubled | Kind::Old => 0,
        };
        if random.percent(in_turn) {
            return next;
        }
        if self.kind == Kind::Late && random.percent(90) {
            let parked = lane.and_then(|lane| lane.parked.as_ref());
            let last = parked
                .and_then(|parked| parked.sequences.iter().last())
                .map_or(next, |range| range.last.get());
            return last + random.within(1, 5).saturating_sub(3).max(1);
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
        let epoch = match random.below(if self.kind == Kind::Late { 1_000 } else { 100 }) {
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
                terminal: sequence % 11 == 10 && !(self.is_calm() && random.percent(97)),
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
        let TopicSpec { layout, numbering, policy, .. } = &self.topic;
        format!("policy {policy:?} numbering {numbering:?} layout {layout:?}\nplanted {planted:?}")
    }
}

fn policy(random: &mut Random, first: Sequence, entities: &[Entity]) -> Policy {
    let waits = (0..random.within(1, 3)).map(|_| random.within(1, 1_500)).collect();
    let some = |random: &mut Random, chance: u64| {
        let names = entities.iter().map(ToString::to_string).collect::<Vec<_>>();
        names.into_iter().filter(|_| random.percent(chance)).collect::<Vec<_>>()
    };
    let (mut allow, deny) =
        if random.percent(10) { (some(random, 30), some(random, 30)) } else { Default::default() };
    if random.percent(3) {
        allow.push("x*".to_owned());
    }
    Policy {
        first,
        ordering: match random.below(100) {
            0..=11 => Ordering::Off,
            12..=25 => Ordering::Shadow,
            _ => Ordering::Enforce,
        },
        rollout: Rollout { percent: if random.percent(15) { random.below(101) } else { 100 }, allow, deny },
        late: if random.percent(50) { LatePlace::Aside } else { LatePlace::Inline },
        overflow: if random.percent(50) { Overflow::Skip } else { Overflow::Refuse },
        parked_max: random.within(1, 8),
        parked_bytes_max: random.within(10, 120),
        partition_parked_max: random.within(3, 20),
        partition_parked_bytes_max: random.within(40, 400),
        ahead_max: random.within(3, 14),
        append_max: random.within(2, 12),
        gap_waits: waits,
        gap_wait_live: random.within(1, 6_000),
        parked_age_max: random.within(200, 6_000),
        terminal_wait: random.within(1, 1_000),
        breaker: BreakerPolicy {
            skips: if random.percent(60) { random.within(1, 3) } else { 0 },
            window: random.within(1, 2_000),
            hold: random.within(0, 500),
        },
        terminal_types: if random.percent(10) { BTreeSet::from(["k2".to_owned()]) } else { BTreeSet::new() },
        lifecycle: random.percent(15).then(|| lifecycle(random)),
        retirement: Retirement {
            stuck_after: random.within(1, 500),
            retire_after: random.within(1, 500),
            idle_retire_after: if random.percent(50) { random.within(1, 800) } else { 0 },
            remember_for: random.within(1, 1_500),
        },
        announced_max: random.within(1, 4),
        retention: retention(random),
    }
}

/// Mostly enough room; in some histories streams are soon full.
fn retention(random: &mut Random) -> Retention {
    let (entries_max, late_max) = match random.below(100) {
        0..=24 => (random.within(3, 60), random.within(1, 4)),
        25..=59 => (1_000, random.within(1, 4)),
        _ => (1_000, 1_000),
    };
    Retention {
        retain_ms: if random.percent(50) { random.within(1, 20_000) } else { 1 << 40 },
        retain_entries: random.within(1, entries_max / 2 + 1),
        entries_max,
        late_retain_ms: random.within(1, 3_000),
        late_max,
    }
}

fn lifecycle(random: &mut Random) -> Lifecycle {
    let types = ["k0", "k1", "k2"];
    let some = |random: &mut Random| {
        types.into_iter().filter(|_| random.percent(40)).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let transitions: BTreeMap<String, BTreeSet<String>> = types
        .into_iter()
        .map(|kind| (kind.to_owned(), some(random)))
        .filter(|(_, next)| !next.is_empty())
        .collect();
    Lifecycle { initial: some(random), transitions }
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
