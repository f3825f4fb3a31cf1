//! Both engines side by side, and the comparison after each step.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::BoxStream};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use seriatim::{
    clock::Clock,
    order::{Entity, Filed, Full, Hand, Note, PartitionMode, Place, Probe, Ring},
    store::{
        Admitted, Elapsed, Entry, EventId, MemoryStore, PartitionId, PartitionKeys, Path, RedisStore, Store,
        StreamId, TopicSpec, probe_channel,
    },
};

use super::{
    history::History,
    step::{Call, Step},
    support::{self, clock::RedisClock},
};

/// The wall clock of the Rust engine: the same as that of the server.
#[derive(Default)]
struct Wall(AtomicU64);

impl Clock for Wall {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        unreachable!("no engine sleeps")
    }
}

pub struct Pair<'a> {
    pub memory: MemoryStore,
    pub partition: PartitionId,
    topic: TopicSpec,
    clock: &'a RedisClock,
    wall: Arc<Wall>,
    /// Two sidecars' stores, and how many calls were made: mostly by the first, now and then by the other.
    redis: [RedisStore; 2],
    calls: u64,
    keys: PartitionKeys,
    direct: MultiplexedConnection,
    /// What each engine asks producers for.
    probes: (BoxStream<'static, Vec<Probe>>, redis::aio::PubSub),
    /// How far each engine's streams were compared: events and late.
    read: [(StreamId, StreamId); 2],
}

type Difference = String;
type RawEntries = Vec<(String, Vec<Vec<u8>>)>;

/// What a step did, for the coverage.
#[derive(Default)]
pub struct Seen {
    /// Another sidecar made this call than the one before.
    pub other: bool,
    pub admitted: Option<Admitted>,
    pub elapsed: Option<Elapsed>,
    pub notes: Vec<Note>,
    pub entries: Vec<Entry>,
    pub findings: usize,
    pub retired: u64,
    pub forgotten: u64,
    pub trimmed: u64,
    pub full: Full,
}

/// Everything that is in a partition besides its streams.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    lanes: BTreeMap<String, String>,
    gaps: Vec<(String, u64)>,
    /// Parked events and bytes.
    parked: (u64, u64),
    clock: String,
    mode: String,
    told: String,
    breaker: String,
    full: Full,
    /// Entries of both streams.
    lengths: (u64, u64),
}

fn read(entries: RawEntries) -> Vec<Entry> {
    let fields = |values: Vec<Vec<u8>>| {
        values.chunks_exact(2).map(|pair| (pair[0].clone().into(), pair[1].clone().into())).collect()
    };
    let events =
        |(id, values): (String, _)| Entry::all_from_fields(id.parse().unwrap(), fields(values)).unwrap();
    entries.into_iter().flat_map(events).collect()
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, rust: &T, lua: &T) -> Result<(), Difference> {
    if rust == lua { Ok(()) } else { Err(format!("{what}:\n  rust {rust:?}\n  lua  {lua:?}")) }
}

impl<'a> Pair<'a> {
    pub async fn open(url: &str, clock: &'a RedisClock, history: &History) -> Self {
        let wall = Arc::new(Wall::default());
        wall.0.store(clock.now_ms(), Ordering::Relaxed);
        let memory = MemoryStore::new(wall.clone());
        let redis = [(); 2].map(|()| support::store_that_goes(history.straight, url));
        let partition = PartitionId { topic: history.topic.name.as_str().into(), index: 0 };
        let keys = PartitionKeys::new(&partition);
        memory.open(&history.topic).await.unwrap();
        for redis in &redis {
            redis.open(&history.topic).await.unwrap();
        }
        let mut direct = crate::support::direct(url).await;
        for (entity, state) in &history.planted {
            memory.restore(&partition, entity.clone(), state.clone());
            let _: () = direct.hset(&keys.lanes, entity.as_str(), state.to_string()).await.unwrap();
        }
        let of_memory = memory.probes(&history.topic.name).await.unwrap();
        let client = redis::Client::open(url).unwrap();
        let mut of_redis = client.get_async_pubsub().await.unwrap();
        of_redis.subscribe(probe_channel(&partition)).await.unwrap();
        Pair {
            memory,
            partition,
            topic: history.topic.clone(),
            clock,
            wall,
            redis,
            calls: 0,
            keys,
            direct,
            probes: (of_memory, of_redis),
            read: Default::default(),
        }
    }

    pub async fn close(self) {
        self.redis[0].delete_topic(&self.partition.topic).await.unwrap();
    }

    /// Does the step in both; returns what was seen, or how they differ.
    pub async fn step(&mut self, step: &Step, compare_all: bool) -> Result<Seen, Difference> {
        self.clock.step(step.clock_ms);
        self.wall.0.store(self.clock.now_ms(), Ordering::Relaxed);
        let mut seen = self.call(&step.call).await?;
        let (content, events, late) = self.lua_look().await;
        let by_entity = seen.admitted.as_ref().is_some_and(is_by_entity);
        for (at, place, lua) in [(0, Place::Events, events), (1, Place::Late, late)] {
            seen.entries.extend(self.compare_stream(at, place, lua, by_entity).await?);
        }
        same("content", &self.rust_content().await, &content)?;
        seen.full = content.full;
        if seen.notes.contains(&Note::Probed) {
            let lua = self.lua_probes().await;
            let rust = std::iter::from_fn(|| self.probes.0.next().now_or_never().flatten());
            let mut probes = [rust.flatten().collect::<Vec<_>>(), lua];
            if by_entity {
                probes.iter_mut().for_each(|probes| probes.sort_by(|a, b| a.entity.cmp(&b.entity)));
            }
            same("probes", &probes[0], &probes[1])?;
        }
        if compare_all || matches!(step.call, Call::Sweep) {
            self.compare_parked().await?;
            self.compare_memory().await?;
        }
        Ok(seen)
    }

    async fn call(&mut self, call: &Call) -> Result<Seen, Difference> {
        // In runs of different lengths.
        self.calls += 1;
        let of = |calls: u64| usize::from(calls.is_multiple_of(23) || calls % 61 > 55);
        let other = of(self.calls) != of(self.calls - 1);
        let (id, mut seen) = (&self.partition, Seen { other, ..Seen::default() });
        let redis = &self.redis[of(self.calls)];
        /// Calls a method of both stores.
        macro_rules! both {
            ($method:ident($($argument:expr),*)) => {{
                let rust = self.memory.$method($($argument),*).await.map_err(|e| format!("rust: {e}"))?;
                let lua = redis.$method($($argument),*).await.map_err(|e| format!("lua: {e}"))?;
                (rust, lua)
            }};
        }
        match call {
            Call::Admit(batch) => {
                let (rust, lua) = both!(admit(id, batch));
                compare_admitted(&rust, &lua)?;
                seen.notes.clone_from(&lua.notes);
                seen.admitted = Some(lua);
            }
            Call::Elapse { lanes_max } => {
                let (rust, lua) = both!(elapse(id, *lanes_max));
                same("elapsed", &rust, &lua)?;
                seen.notes.clone_from(&lua.notes);
                seen.elapsed = Some(lua);
            }
            Call::Extend(gap) => drop(both!(extend(id, gap))),
            Call::Skip(gap) => {
                let (rust, lua) = both!(skip(id, gap, r#""by":"ops""#));
                same("skipped", &rust, &lua)?;
            }
            Call::SetDegraded(degraded) => {
                let (rust, lua) = both!(set_degraded(id, *degraded));
                same("mode changed", &rust, &lua)?;
            }
            Call::Announce { entity, within_ms } => {
                let (rust, lua) = both!(announce(id, entity, *within_ms));
                same("announced", &rust, &lua)?;
            }
            Call::Sweep => {
                // All at once: within a bucket the engines go by different orders.
                let (rust, lua) = both!(sweep(id, 1_000, None));
                same("swept", &rust, &lua)?;
                (seen.findings, seen.retired, seen.forgotten) =
                    (lua.findings.len(), lua.retired, lua.forgotten);
            }
            Call::Trim { count } => {
                let (rust, lua) = both!(trim(id, *count));
                same("trimmed", &rust, &lua)?;
                seen.trimmed = lua.events + lua.late;
            }
            Call::Policy(policy) => {
                self.topic.policy = (**policy).clone();
                both!(open(&self.topic));
                self.redis[1 - of(self.calls)].open(&self.topic).await.map_err(|e| format!("lua: {e}"))?;
            }
        }
        Ok(seen)
    }

    async fn rust_content(&self) -> Content {
        let measure = self.memory.measure(&self.partition).await.unwrap();
        self.memory.inspect(&self.partition, |partition| {
            let (clock, breaker) = (partition.clock(), partition.breaker());
            Content {
                lanes: partition.lanes().map(|(e, lane)| (e.to_string(), lane.state().to_string())).collect(),
                gaps: partition.gaps().map(|(entity, due)| (entity.to_string(), due)).collect(),
                parked: partition.parked(),
                clock: format!("{},{}", clock.now, clock.last),
                mode: match partition.mode() {
                    PartitionMode::Ordered => "ordered,0".to_owned(),
                    PartitionMode::Degraded { by, since } => format!("{},{since}", by.name()),
                },
                told: partition.told().to_string(),
                breaker: format!("{},{}", breaker.level, breaker.at),
                full: partition.full(),
                lengths: (measure.entries, measure.late),
            }
        })
    }

    /// What a step left behind in Redis, in one round trip.
    async fn lua_look(&mut self) -> (Content, Vec<Entry>, Vec<Entry>) {
        let (keys, [(_, events), (_, late)]) = (&self.keys, self.read);
        let mut pipe = redis::pipe();
        pipe.cmd("HGETALL").arg(&keys.lanes);
        pipe.cmd("ZRANGE").arg(&keys.gaps).arg(0).arg(-2).arg("WITHSCORES");
        pipe.cmd("HLEN").arg(&keys.parked);
        pipe.cmd("HMGET").arg(&keys.meta).arg("parked_bytes").arg("clock").arg("mode");
        pipe.cmd("HMGET").arg(&keys.meta).arg("told").arg("breaker").arg("header").arg("late_full");
        pipe.cmd("XLEN").arg(&keys.events).cmd("XLEN").arg(&keys.late);
        pipe.cmd("XRANGE").arg(&keys.events).arg(format!("({events}")).arg("+");
        pipe.cmd("XRANGE").arg(&keys.late).arg(format!("({late}")).arg("+");
        type Meta = (u64, String, String);
        type More = (String, String, String, u64);
        type Replies =
            (BTreeMap<String, String>, Vec<(String, f64)>, u64, Meta, More, u64, u64, RawEntries, RawEntries);
        let (mut lanes, gaps, parked, (bytes, clock, mode), more, of_events, of_late, events, late): Replies =
            pipe.query_async(&mut self.direct).await.unwrap();
        let (told, breaker, header, late_full) = more;
        lanes.remove("");
        let gaps = gaps.into_iter().map(|(entity, due)| (entity, due as u64)).collect();
        let full = Full { events: header.rsplit('|').next().unwrap().contains('f'), late: late_full == 1 };
        let (parked, lengths) = ((parked - 1, bytes), (of_events, of_late));
        let content = Content { lanes, gaps, parked, clock, mode, told, breaker, full, lengths };
        (content, read(events), read(late))
    }

    async fn compare_stream(
        &mut self,
        at: usize,
        place: Place,
        lua: Vec<Entry>,
        by_entity: bool,
    ) -> Result<Vec<Entry>, Difference> {
        let rust = self.memory.read(&self.partition, place, self.read[at].0, 1000).await.unwrap();
        if let (Some(rust), Some(lua)) = (rust.last(), lua.last()) {
            self.read[at] = (rust.id.entry, lua.id.entry);
        }
        // Places in their entries are compared, and with them what stands in one entry.
        let without_entry = |events: &[Entry]| {
            let id = |id: EventId| EventId { entry: StreamId::default(), ..id };
            let mut events: Vec<_> = events.iter().map(|e| Entry { id: id(e.id), ..e.clone() }).collect();
            if by_entity {
                events.sort_by(|a, b| a.entity.cmp(&b.entity));
            }
            events
        };
        same(&format!("{place:?}"), &without_entry(&rust), &without_entry(&lua))?;
        Ok(lua)
    }

    /// Everything that was published up to now.
    async fn lua_probes(&mut self) -> Vec<Probe> {
        let channel = probe_channel(&self.partition);
        let _: () = self.direct.publish(channel, "end").await.unwrap();
        let mut words = Vec::new();
        let mut messages = self.probes.1.on_message();
        loop {
            let payload: String = messages.next().await.unwrap().get_payload().unwrap();
            match payload.as_str() {
                "end" => break,
                payload => words.extend(serde_json::from_str::<Vec<String>>(payload).unwrap()),
            }
        }
        let number = |digits: &str| digits.parse::<u64>().unwrap();
        let probe = |words: &[String]| Probe {
            entity: Entity::new(&words[0]).unwrap(),
            epoch: seriatim::order::Epoch::new(number(&words[1])).unwrap(),
            missing: seriatim::order::Range {
                first: seriatim::order::Sequence::new(number(&words[2])).unwrap(),
                last: seriatim::order::Sequence::new(number(&words[3])).unwrap(),
            },
            is_extensible: words[4] == "1",
        };
        words.chunks(5).map(probe).collect()
    }

    /// Every parked event, byte for byte.
    async fn compare_parked(&mut self) -> Result<(), Difference> {
        let of_rust: BTreeMap<String, String> = self
            .memory
            .parked(&self.partition)
            .into_iter()
            .map(|(entity, epoch, sequence, terminal, payload)| {
                let tag = if terminal { "t" } else { "-" };
                let (kind, attrs) = (payload.kind, payload.attrs);
                let data = String::from_utf8(payload.data.to_vec()).expect("the histories' data is text");
                let value = format!("{tag}:{}:{}:{kind}{attrs}{data}", kind.len(), attrs.len());
                (format!("{epoch}:{sequence}:{entity}"), value)
            })
            .collect();
        let mut of_lua: BTreeMap<String, String> = self.direct.hgetall(&self.keys.parked).await.unwrap();
        of_lua.remove("");
        same("parked", &of_rust, &of_lua)
    }

    /// Lanes by age, tombstones, announcements.
    async fn compare_memory(&mut self) -> Result<(), Difference> {
        let filed = |filed: &Filed| match filed {
            None => String::new(),
            Some((since, text)) => format!("{since}|{text}"),
        };
        let (opened, closed, tombs, announced) = self.memory.inspect(&self.partition, |partition| {
            let memory = partition.memory();
            let announced: BTreeMap<String, i64> = memory
                .announced
                .iter()
                .map(|(entity, announced)| match announced {
                    seriatim::order::Announced::Due(due) => (entity.to_string(), *due as i64),
                    seriatim::order::Announced::Missing(due) => (entity.to_string(), -(*due as i64)),
                })
                .collect();
            let tombs = buckets(&memory.tombs, |state| state.to_string());
            (buckets(&memory.opened, filed), buckets(&memory.closed, filed), tombs, announced)
        });
        let mut of_lua: BTreeMap<String, f64> = BTreeMap::new();
        let scores: Vec<(String, f64)> =
            self.direct.zrange_withscores(&self.keys.announced, 0, -2).await.unwrap();
        of_lua.extend(scores);
        let of_lua = of_lua.into_iter().map(|(entity, due)| (entity, due as i64)).collect();
        same("announced", &announced, &of_lua)?;
        for (name, (rust, hand), keys) in [
            ("opened", opened, self.keys.opened.clone()),
            ("closed", closed, self.keys.closed.clone()),
            ("tombs", tombs, self.keys.tombs.clone()),
        ] {
            let stored: String = self.direct.hget(&self.keys.meta, format!("hand_{name}")).await.unwrap();
            let Hand { current, turned, ended } = hand;
            let [a, b, c, d] = ended;
            same(&format!("hand {name}"), &format!("{current},{turned},{a},{b},{c},{d}"), &stored)?;
            for (bucket, key) in rust.into_iter().zip(keys) {
                let mut of_lua: BTreeMap<String, String> = self.direct.hgetall(&key).await.unwrap();
                of_lua.remove("");
                if let Some(born) = self.keys.opened.iter().position(|opened| *opened == key) {
                    let born: Vec<String> = self.direct.lrange(&self.keys.born[born], 1, -1).await.unwrap();
                    for entity in born {
                        same(&key, &of_lua.insert(entity, String::new()), &None)?;
                    }
                }
                if name == "tombs" {
                    // Redis keeps digests of the names.
                    let mut rust: Vec<&String> = bucket.values().collect();
                    let mut lua: Vec<&String> = of_lua.values().collect();
                    rust.sort();
                    lua.sort();
                    same(&key, &rust, &lua)?;
                } else {
                    same(&key, &bucket, &of_lua)?;
                }
            }
        }
        Ok(())
    }
}

fn buckets<T>(ring: &Ring<T>, show: impl Fn(&T) -> String) -> (Vec<BTreeMap<String, String>>, Hand) {
    let bucket = |bucket: &BTreeMap<Entity, T>| {
        bucket.iter().map(|(entity, value)| (entity.to_string(), show(value))).collect()
    };
    (ring.buckets().iter().map(bucket).collect(), ring.hand())
}

/// Nothing is promised of the order in which a call's entities come; one that goes two ways has another than a batch.
fn is_by_entity(admitted: &Admitted) -> bool {
    admitted.path == Path::Mixed
}

fn compare_admitted(rust: &Admitted, lua: &Admitted) -> Result<(), Difference> {
    let verdicts = |a: &Admitted| a.decisions.iter().map(|d| (d.verdict, d.id.is_some())).collect::<Vec<_>>();
    same("verdicts", &verdicts(rust), &verdicts(lua))?;
    let notes = |a: &Admitted| {
        let mut notes: Vec<String> = a.notes.iter().map(|note| format!("{note:?}")).collect();
        if is_by_entity(lua) {
            notes.sort_unstable();
        }
        notes
    };
    let facts = |a: &Admitted| (a.more, a.drained, a.after_terminal, notes(a));
    same("more, drained, after terminal, notes", &facts(rust), &facts(lua))
}
