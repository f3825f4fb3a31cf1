//! Both stores side by side, and all that is in them after each step.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use redis::aio::MultiplexedConnection;
use seriatim::{
    order::Place,
    store::{
        GroupId, GroupKeys, GroupStore, MemoryStore, PartitionId, PartitionKeys, RedisStore, Start, Store,
        Straight, StreamId, Waiter, groups_key, members_key, topic_key,
    },
};

use super::{
    call::{Call, Step},
    history::{GROUPS, TOPICS},
    reply::{self, Reply},
    support::{self, clock::RedisClock, manual_clock::ManualClock},
};

pub type Difference = String;

/// A hash of Redis, and all of them by their keys.
type Hash = BTreeMap<Vec<u8>, Vec<u8>>;
type Hashes = BTreeMap<String, Hash>;

pub struct Pair<'a> {
    pub memory: Arc<MemoryStore>,
    redis: RedisStore,
    waiters: (Box<dyn Waiter>, Box<dyn Waiter>),
    clock: &'a RedisClock,
    wall: Arc<ManualClock>,
    direct: MultiplexedConnection,
    /// How far each stream was compared.
    read: BTreeMap<(PartitionId, bool), StreamId>,
}

fn same<T: PartialEq + Debug>(what: &str, memory: &T, redis: &T) -> Result<(), Difference> {
    if memory == redis { Ok(()) } else { Err(format!("{what}:\n  memory {memory:?}\n  redis  {redis:?}")) }
}

/// Bytes for people.
fn shown(hashes: &Hashes) -> BTreeMap<&str, BTreeMap<String, String>> {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let hash = |hash: &Hash| hash.iter().map(|(field, value)| (text(field), text(value))).collect();
    hashes.iter().map(|(key, fields)| (key.as_str(), hash(fields))).collect()
}

pub fn partitions() -> impl Iterator<Item = PartitionId> {
    TOPICS.into_iter().flat_map(|(topic, partitions)| {
        (0..partitions).map(move |index| PartitionId { topic: topic.into(), index })
    })
}

impl<'a> Pair<'a> {
    pub async fn open(url: &str, clock: &'a RedisClock) -> Self {
        let wall = Arc::new(ManualClock::at(clock.now_ms()));
        let memory = Arc::new(MemoryStore::new(wall.clone()));
        let redis = support::store_that_goes(Straight::Always, url);
        let mut direct = support::direct(url).await;
        let _: () = redis::cmd("FLUSHALL").query_async(&mut direct).await.unwrap();
        let waiters = (memory.waiter(), redis.waiter());
        Pair { memory, redis, waiters, clock, wall, direct, read: BTreeMap::new() }
    }

    /// Does the step in both; returns the reply of both, or how they differ.
    pub async fn step(&mut self, step: &Step, compare_all: bool) -> Result<Reply, Difference> {
        self.clock.step(step.clock_ms);
        self.wall.step(step.clock_ms);
        let points_before = self.points(&step.call);
        let memory = reply::make(&*self.memory, &mut *self.waiters.0, &step.call).await;
        let mut redis = reply::make(&self.redis, &mut *self.waiters.1, &step.call).await;
        same("replies", &memory, &redis)?;
        if self.points(&step.call) < points_before {
            redis.kind = "forgot";
        }
        if redis.kind == "yes" && self.begins_behind_nothing(&step.call).await {
            redis.kind = "yes, all entries were trimmed";
        }
        if let Call::Delete { .. } = step.call {
            // Streams that are made anew begin anew.
            self.read.clear();
        }
        self.compare_groups().await?;
        self.compare_partitions(compare_all).await?;
        if compare_all {
            self.compare_keys().await?;
        }
        Ok(redis)
    }

    /// How many points there are, if the call is one to forget some.
    fn points(&self, call: &Call) -> usize {
        match call {
            Call::SweepPoints { at, group, .. } => {
                self.memory.inspect_group(at, group).map_or(0, |part| part.resume.len())
            }
            _ => 0,
        }
    }

    /// Did a group begin at the end of a stream that has lost all its entries?
    async fn begins_behind_nothing(&self, call: &Call) -> bool {
        let Call::Register { group, start: Start::End, .. } = call else { return false };
        for at in partitions().filter(|at| *at.topic == *group.topic) {
            let floor = self.memory.inspect_group(&at, &group.group).map(|part| part.floor);
            let is_empty = self.memory.measure(&at).await.unwrap().entries == 0;
            if is_empty && floor.is_some_and(|floor| floor != StreamId::default()) {
                return true;
            }
        }
        false
    }

    /// All that groups keep, byte for byte.
    async fn compare_groups(&mut self) -> Result<(), Difference> {
        let memory = self.hashes_of_memory().await;
        let mut pipe = redis::pipe();
        let mut keys = Vec::new();
        for id in partitions() {
            keys.push(PartitionKeys::new(&id).groups);
            for group in GROUPS {
                let GroupKeys { lease, resume, held, kept, .. } = GroupKeys::new(&id, group);
                keys.extend([lease, resume, held, kept]);
            }
        }
        for (topic, _) in TOPICS {
            keys.push(groups_key(topic));
            keys.extend(GROUPS.map(|group| members_key(topic, group)));
        }
        keys.iter().for_each(|key| {
            pipe.cmd("HGETALL").arg(key);
        });
        let hashes: Vec<Hash> = pipe.query_async(&mut self.direct).await.unwrap();
        let mut redis: Hashes = keys.into_iter().zip(hashes).filter(|(_, hash)| !hash.is_empty()).collect();
        // A partition keeps its sentinel without any group.
        for id in partitions() {
            let key = PartitionKeys::new(&id).groups;
            if let Some(hash) = redis.get_mut(&key) {
                same("the sentinel", &Some(Vec::new()), &hash.remove(&b""[..]))?;
                if hash.is_empty() {
                    redis.remove(&key);
                }
            }
        }
        if memory == redis {
            return Ok(());
        }
        let (mut memory, mut redis) = (shown(&memory), shown(&redis));
        memory.retain(
            |key, hash| if redis.get(key) == Some(hash) { redis.remove(key).is_none() } else { true },
        );
        same("what groups keep", &memory, &redis)
    }

    /// What Redis would hold if it were what the store in memory is.
    async fn hashes_of_memory(&self) -> Hashes {
        fn hash<A: ToString, B: ToString>(fields: impl IntoIterator<Item = (A, B)>) -> Hash {
            let bytes = |(field, value): (A, B)| (field.to_string().into(), value.to_string().into());
            fields.into_iter().map(bytes).collect()
        }
        fn joined<T: ToString>(items: &[T]) -> String {
            items.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        }
        let mut hashes = Hashes::new();
        for (id, group) in partitions().flat_map(|id| GROUPS.map(|group| (id.clone(), group))) {
            let Some(part) = self.memory.inspect_group(&id, group) else { continue };
            let keys = GroupKeys::new(&id, group);
            hashes.entry(keys.groups).or_default().extend(hash([(group, part.floor)]));
            let lease = [
                ("owner", part.owner.unwrap_or_default()),
                ("term", part.term.to_string()),
                ("count", part.count.to_string()),
                ("running", joined(&part.running)),
                ("loose", joined(&part.loose)),
                ("asked", part.asked.to_string()),
            ];
            let sentinel = || (Vec::new(), Vec::new());
            let kept = |((entity, number), text): ((_, u64), _)| {
                (GroupKeys::kept_field(&entity, number).into_bytes(), text)
            };
            hashes.insert(keys.lease, hash(lease));
            hashes.insert(keys.resume, hash(part.resume).into_iter().chain([sentinel()]).collect());
            hashes.insert(keys.held, hash(part.held).into_iter().chain([sentinel()]).collect());
            hashes.insert(keys.kept, part.kept.into_iter().map(kept).chain([sentinel()]).collect());
        }
        for (topic, _) in TOPICS {
            for (group, switches) in GroupStore::groups(&*self.memory, topic).await.unwrap() {
                let letter = |on: bool, letter: &'static str| if on { letter } else { "" };
                let text = letter(switches.paused, "p").to_owned() + letter(switches.degraded, "x");
                hashes.entry(groups_key(topic)).or_default().extend(hash([(&group, text)]));
                let id = GroupId { topic: topic.to_owned(), group };
                let members = self.memory.inspect_members(&id).expect("it is listed");
                if !members.is_empty() {
                    hashes.insert(members_key(topic, &id.group), hash(members));
                }
            }
        }
        hashes
    }

    /// Clocks, sizes, and what is new in the streams; all of them if so wished.
    async fn compare_partitions(&mut self, all: bool) -> Result<(), Difference> {
        for id in partitions() {
            let keys = PartitionKeys::new(&id);
            let mut pipe = redis::pipe();
            pipe.cmd("HGET").arg(&keys.meta).arg("clock");
            for stream in [&keys.events, &keys.late] {
                pipe.cmd("XLEN").arg(stream);
            }
            let redis: (Option<String>, u64, u64) = pipe.query_async(&mut self.direct).await.unwrap();
            let measure = self.memory.measure(&id).await.unwrap();
            let clock = match self.is_there(&id).await {
                true => Some(self.memory.inspect(&id, |partition| partition.clock())),
                false => None,
            };
            let clock = clock.map(|clock| format!("{},{}", clock.now, clock.last));
            let memory = (clock, measure.entries, measure.late);
            same(&format!("clock and lengths of {id}"), &memory, &redis)?;
            for place in [Place::Events, Place::Late] {
                self.compare_stream(&id, place, all).await?;
            }
            if all {
                same("measure", &measure, &self.redis.measure(&id).await.unwrap())?;
            }
        }
        Ok(())
    }

    /// A topic that was deleted comes back one partition at a time.
    async fn is_there(&self, id: &PartitionId) -> bool {
        self.memory.floor(id).await.is_ok()
    }

    async fn compare_stream(&mut self, id: &PartitionId, place: Place, all: bool) -> Result<(), Difference> {
        let upto = self.read.entry((id.clone(), place == Place::Late)).or_default();
        let after = if all { StreamId::default() } else { *upto };
        let memory = self.memory.read(id, place, after, usize::MAX).await.unwrap();
        if memory.is_empty() && !all {
            // Its length was the same.
            return Ok(());
        }
        let redis = self.redis.read(id, place, after, 1_000_000).await.unwrap();
        *upto = memory.last().map_or(*upto, |entry| entry.id.entry);
        same(&format!("{place:?} of {id}"), &memory, &redis)
    }

    /// Nothing is left behind, and nothing is absent.
    async fn compare_keys(&mut self) -> Result<(), Difference> {
        let topics = self.memory.topics().await.unwrap();
        let mut wanted: Vec<String> = self.hashes_of_memory().await.into_keys().collect();
        wanted.extend(topics.iter().map(|topic| topic_key(topic)));
        for id in partitions() {
            if self.is_there(&id).await {
                wanted.extend(PartitionKeys::new(&id).all().into_iter().map(str::to_owned));
            }
        }
        let mut found: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut self.direct).await.unwrap();
        // Signs of life concern no topic. A group of a topic that is not there leaves the
        // partition's list of groups behind, without an entry.
        let left: Vec<String> = partitions().map(|id| PartitionKeys::new(&id).groups).collect();
        found.retain(|key| !key.contains("{sidecars}") && (wanted.contains(key) || !left.contains(key)));
        wanted.sort();
        wanted.dedup();
        found.sort();
        same("keys", &wanted, &found)
    }
}
