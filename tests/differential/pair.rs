//! Both engines side by side, and the comparison after each step.

use std::collections::{BTreeMap, BTreeSet};

use redis::{AsyncCommands, aio::MultiplexedConnection};
use seriatim::{
    order::{Order, Place, Verdict},
    store::{
        Admitted, Batch, Entry, MemoryStore, PartitionId, PartitionKeys, Path, RedisStore, Store, StreamId,
    },
};

use super::{history::History, support};

pub struct Pair {
    pub memory: MemoryStore,
    pub partition: PartitionId,
    redis: RedisStore,
    keys: PartitionKeys,
    direct: MultiplexedConnection,
    /// How far each engine's streams were compared: events and late.
    read: [(StreamId, StreamId); 2],
}

type Difference = String;
type RawEntries = Vec<(String, Vec<Vec<u8>>)>;

struct Looked {
    events: Vec<Entry>,
    late: Vec<Entry>,
    states: Vec<Option<String>>,
    /// Lanes, parked events, parked bytes.
    sizes: (u64, u64, u64),
}

fn read(entries: RawEntries) -> Vec<Entry> {
    let fields = |values: Vec<Vec<u8>>| {
        values.chunks_exact(2).map(|pair| (pair[0].clone().into(), pair[1].clone().into())).collect()
    };
    let entry = |(id, values): (String, _)| Entry::from_fields(id.parse().unwrap(), fields(values)).unwrap();
    entries.into_iter().map(entry).collect()
}

impl Pair {
    pub async fn open(url: &str, history: &History) -> Self {
        let (memory, redis) = (MemoryStore::default(), support::redis_store(url));
        let partition = PartitionId { topic: history.topic.name.as_str().into(), index: 0 };
        let keys = PartitionKeys::new(&partition);
        memory.open(&history.topic).await.unwrap();
        redis.open(&history.topic).await.unwrap();
        let client = redis::Client::open(url).unwrap();
        let mut direct = client.get_multiplexed_async_connection().await.unwrap();
        for (entity, state) in &history.planted {
            memory.restore(&partition, entity.clone(), state.clone());
            let _: () = direct.hset(&keys.lanes, entity.as_str(), state.to_string()).await.unwrap();
        }
        Pair { memory, partition, redis, keys, direct, read: Default::default() }
    }

    pub async fn close(self) {
        self.redis.delete_topic(&self.partition.topic).await.unwrap();
    }

    /// Offers the batch to both; returns what was seen, or how they differ.
    pub async fn step(
        &mut self,
        batch: &Batch,
        compare_all: bool,
    ) -> Result<BTreeSet<&'static str>, Difference> {
        let by_rust = self.memory.admit(&self.partition, batch).await.map_err(|e| format!("rust: {e}"))?;
        let by_lua = self.redis.admit(&self.partition, batch).await.map_err(|e| format!("lua: {e}"))?;
        compare_admitted(&by_rust, &by_lua)?;
        let mut seen = seen_in(&by_lua);
        let lua = self.look(batch).await;
        for (at, place, of_lua) in [(0, Place::Events, lua.events), (1, Place::Late, lua.late)] {
            for entry in self.compare_stream(at, place, of_lua).await? {
                if entry.order == Order::Marker {
                    seen.insert(if entry.kind == "seriatim.gap" { "marker gap" } else { "marker epoch" });
                }
            }
        }
        for (lane, of_lua) in batch.lanes().zip(lua.states) {
            let entity = &lane[0].entity;
            let of_rust = self.memory.resume(&self.partition, entity).await.unwrap();
            if of_rust.as_ref().map(ToString::to_string) != of_lua {
                return Err(format!("state of {entity:?}: rust {of_rust:?}, lua {of_lua:?}"));
            }
        }
        let rust = self.memory.measure(&self.partition).await.unwrap();
        let sizes = (rust.lanes, rust.parked, rust.parked_bytes);
        if sizes != lua.sizes {
            return Err(format!("lanes, parked, parked bytes: rust {sizes:?}, lua {:?}", lua.sizes));
        }
        if compare_all {
            self.compare_parked().await?;
        }
        Ok(seen)
    }

    /// What a step left behind in Redis, in one round trip.
    async fn look(&mut self, batch: &Batch) -> Looked {
        let [(_, events), (_, late)] = self.read;
        let entities: Vec<&str> = batch.lanes().map(|lane| lane[0].entity.as_str()).collect();
        let mut pipe = redis::pipe();
        pipe.cmd("XRANGE").arg(&self.keys.events).arg(format!("({events}")).arg("+");
        pipe.cmd("XRANGE").arg(&self.keys.late).arg(format!("({late}")).arg("+");
        // The sentinel makes an empty batch a valid HMGET.
        pipe.cmd("HMGET").arg(&self.keys.lanes).arg(&entities).arg("");
        pipe.cmd("HLEN").arg(&self.keys.lanes).cmd("HLEN").arg(&self.keys.parked);
        pipe.cmd("HGET").arg(&self.keys.meta).arg("parked_bytes");
        let (events, late, states, lanes, parked, bytes): (RawEntries, RawEntries, _, u64, u64, u64) =
            pipe.query_async(&mut self.direct).await.unwrap();
        Looked { events: read(events), late: read(late), states, sizes: (lanes - 1, parked - 1, bytes) }
    }

    async fn compare_stream(
        &mut self,
        at: usize,
        place: Place,
        of_lua: Vec<Entry>,
    ) -> Result<Vec<Entry>, Difference> {
        let of_rust = self.memory.read(&self.partition, place, self.read[at].0, 1000).await.unwrap();
        let without_ids = of_rust.iter().zip(&of_lua).map(|(rust, lua)| Entry { id: lua.id, ..rust.clone() });
        if of_rust.len() != of_lua.len() || !without_ids.eq(of_lua.iter().cloned()) {
            return Err(format!("{place:?}: rust appended {of_rust:#?}, lua {of_lua:#?}"));
        }
        if let (Some(rust), Some(lua)) = (of_rust.last(), of_lua.last()) {
            self.read[at] = (rust.id, lua.id);
        }
        Ok(of_lua)
    }

    /// Every parked event, byte for byte, and every lane's state.
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
        if of_rust != of_lua {
            return Err(format!("parked: rust {of_rust:?}, lua {of_lua:?}"));
        }
        Ok(())
    }
}

fn compare_admitted(rust: &Admitted, lua: &Admitted) -> Result<(), Difference> {
    let facts = |a: &Admitted| (a.more, a.drained, a.after_terminal);
    let verdicts = |a: &Admitted| a.decisions.iter().map(|d| (d.verdict, d.id.is_some())).collect::<Vec<_>>();
    if facts(rust) != facts(lua) || verdicts(rust) != verdicts(lua) {
        return Err(format!("rust decided {rust:?}\nlua decided {lua:?}"));
    }
    Ok(())
}

fn seen_in(admitted: &Admitted) -> BTreeSet<&'static str> {
    let of_verdict = |verdict| match verdict {
        Verdict::Released { .. } => "RELEASED",
        Verdict::Parked { .. } => "PARKED",
        Verdict::Passed { .. } => "PASSED",
        Verdict::Duplicate { .. } => "DUPLICATE",
        Verdict::Late { .. } => "LATE",
        Verdict::Conflict => "CONFLICT",
        Verdict::Stale { .. } => "STALE",
        Verdict::Refused(_) => "REFUSED",
        Verdict::Again => "again",
    };
    let mut seen: BTreeSet<_> =
        admitted.decisions.iter().map(|decision| of_verdict(decision.verdict)).collect();
    seen.insert(if admitted.path == Path::Fast { "fast path" } else { "slow path" });
    if admitted.more {
        seen.insert("more");
    }
    if admitted.after_terminal > 0 {
        seen.insert("after terminal");
    }
    seen
}
