//! Trimming, against a real redis-server: what a group has not done is never removed,
//! whoever the group is and however the stream is laid out; the rest goes by age and length.
//!
//! `SERIATIM_TRIM_ROUNDS` sets how many random streams, `SERIATIM_TRIM_SEED` the first one's
//! seed. A failure prints the seed.

mod support;

use std::collections::BTreeMap;

use redis::{AsyncCommands, aio::MultiplexedConnection};
use seriatim::{
    order::{Policy, Retention},
    store::{
        Layout, Numbering, PartitionId, PartitionKeys, RedisStore, Store, StreamId, TopicSpec, Trimmed,
        topic_key,
    },
};
use support::{Random, direct, number_from_env, redis_server, redis_store};

const ROUNDS: u64 = 60;
/// Entries are either younger than half of it, or older than twice of it.
const RETAIN_MS: u64 = 1_000_000;
const END: StreamId = StreamId { milliseconds: u64::MAX, counter: u64::MAX };

/// One partition, and the server behind it.
struct Bench {
    store: RedisStore,
    partition: PartitionId,
    keys: PartitionKeys,
    direct: MultiplexedConnection,
}

impl Bench {
    async fn open(url: &str, retention: Retention) -> Self {
        let store = redis_store(url);
        let policy = Policy { retention, ..Policy::default() };
        let topic = TopicSpec {
            name: "jobs".into(),
            partitions: 1,
            layout: Layout::Entry,
            numbering: Numbering::Producer,
            policy,
        };
        let direct = direct(url).await;
        store.open(&topic).await.unwrap();
        let partition = PartitionId { topic: "jobs".into(), index: 0 };
        let keys = PartitionKeys::new(&partition);
        Bench { store, partition, keys, direct }
    }

    async fn now_ms(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut self.direct).await.unwrap();
        seconds * 1000 + micros / 1000
    }

    /// Entries at these ids, in our layout, each with so much data.
    async fn fill(&mut self, key: &str, ids: &[StreamId], bytes: usize) {
        let mut pipe = redis::pipe();
        for (n, id) in ids.iter().enumerate() {
            let add =
                pipe.cmd("XADD").arg(key).arg(id.to_string()).arg("entity").arg("job").arg("epoch").arg(0);
            add.arg("sequence").arg(n).arg("type").arg("step").arg("order").arg("strict");
            add.arg("attrs").arg("{}").arg("data").arg("x".repeat(bytes)).ignore();
        }
        let _: () = pipe.query_async(&mut self.direct).await.unwrap();
    }

    async fn ids(&mut self, key: &str) -> Vec<StreamId> {
        let entries: Vec<(String, Vec<Vec<u8>>)> =
            redis::cmd("XRANGE").arg(key).arg("-").arg("+").query_async(&mut self.direct).await.unwrap();
        entries.into_iter().map(|(id, _)| id.parse().unwrap()).collect()
    }

    async fn command(&mut self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let _: redis::Value = command.query_async(&mut self.direct).await.unwrap();
    }

    async fn register(&mut self, group: &str, floor: &str) {
        let _: () = self.direct.hset(&self.keys.groups, group, floor).await.unwrap();
    }

    /// A call that is never too early.
    async fn trim(&mut self, count: usize) -> Trimmed {
        let _: () = self.direct.hset(&self.keys.meta, "trimmed_at", -1_000_000).await.unwrap();
        let trimmed = self.store.trim(&self.partition, count).await.unwrap();
        assert!(trimmed.ran);
        trimmed
    }

    /// Until there is no more.
    async fn trim_all(&mut self) -> u64 {
        let mut removed = 0;
        for _ in 0..1_000 {
            let trimmed = self.trim(100).await;
            removed += trimmed.events + trimmed.late;
            if !trimmed.more && trimmed.events + trimmed.late == 0 {
                return removed;
            }
        }
        panic!("trimming does not come to an end");
    }
}

fn retention(retain_entries: u64) -> Retention {
    let Policy { retention, .. } = Policy::default();
    Retention { retain_ms: RETAIN_MS, late_retain_ms: RETAIN_MS, retain_entries, ..retention }
}

fn one_by_one(count: u64) -> Vec<StreamId> {
    (1..=count).map(|counter| StreamId { milliseconds: 5, counter }).collect()
}

fn before(id: StreamId) -> StreamId {
    match (id.milliseconds, id.counter) {
        (0, 0) => id,
        (milliseconds, 0) => StreamId { milliseconds: milliseconds - 1, counter: u64::MAX },
        (milliseconds, counter) => StreamId { milliseconds, counter: counter - 1 },
    }
}

/// Rising ids, some with counters of 20 digits, old ones first.
fn random_ids(random: &mut Random, now: u64) -> Vec<StreamId> {
    let (old, young) = (random.below(300), random.below(300));
    let mut ids: Vec<StreamId> = Vec::new();
    for n in 0..old + young {
        let first = if n < old { now - 4 * RETAIN_MS } else { now - RETAIN_MS / 2 };
        let last = ids.last().copied().unwrap_or_default();
        let milliseconds = last.milliseconds.max(first) + random.below(3);
        let step = if random.percent(2) { u64::MAX / 100 } else { random.within(1, 3) };
        let after = if milliseconds == last.milliseconds { last.counter } else { 0 };
        match after.checked_add(step) {
            Some(counter) => ids.push(StreamId { milliseconds, counter }),
            None => ids.push(StreamId { milliseconds: milliseconds + 1, counter: 0 }),
        }
    }
    ids
}

/// Registers groups of both kinds at random places; returns what each has done.
async fn random_groups(
    bench: &mut Bench,
    random: &mut Random,
    ids: &[StreamId],
) -> BTreeMap<String, StreamId> {
    let mut floors = BTreeMap::new();
    let place = |random: &mut Random| match random.below(100) {
        0..=4 => StreamId::default(),
        5..=9 => END,
        10..=19 if !ids.is_empty() => before(*random.pick(ids)),
        _ if !ids.is_empty() => *random.pick(ids),
        _ => StreamId::default(),
    };
    for n in 0..random.below(4) {
        let (name, floor) = (format!("ours-{n}"), place(random));
        if random.percent(5) {
            bench.register(&name, "what is this").await;
            floors.insert(name, StreamId::default());
        } else {
            bench.register(&name, &floor.to_string()).await;
            floors.insert(name, floor);
        }
    }
    let events = bench.keys.events.clone();
    for n in 0..random.below(3) {
        let (name, delivered) = (format!("plain-{n}"), place(random));
        bench.command(&["XGROUP", "CREATE", &events, &name, &delivered.to_string()]).await;
        let rest: Vec<StreamId> = ids.iter().copied().filter(|id| *id > delivered).collect();
        let read = random.below(rest.len() as u64 + 1).min(100) as usize;
        if read == 0 {
            floors.insert(name, delivered);
            continue;
        }
        let count = read.to_string();
        bench.command(&["XREADGROUP", "GROUP", &name, "one", "COUNT", &count, "STREAMS", &events, ">"]).await;
        let chance = *random.pick(&[0, 60, 95, 100]);
        let (done, pending): (Vec<StreamId>, Vec<StreamId>) =
            rest[..read].iter().partition(|_| random.percent(chance));
        for id in done {
            bench.command(&["XACK", &events, &name, &id.to_string()]).await;
        }
        floors.insert(name, pending.first().map_or(rest[read - 1], |id| before(*id)));
    }
    floors
}

async fn check_random_streams(node_entries: &str, is_exact: bool) {
    let redis = redis_server(&["--stream-node-max-entries", node_entries]);
    let seed = number_from_env("SERIATIM_TRIM_SEED", 1);
    let (mut removed_in_all, mut held) = (0, 0);
    for seed in seed..seed + number_from_env("SERIATIM_TRIM_ROUNDS", ROUNDS) {
        let mut random = Random::new(seed);
        let random = &mut random;
        let retain_entries = random.within(1, 600);
        let mut bench = Bench::open(&redis.url(), retention(retain_entries)).await;
        let now = bench.now_ms().await;
        let ids = random_ids(random, now);
        let events = bench.keys.events.clone();
        bench.fill(&events, &ids, random.below(100) as usize).await;
        let floors = random_groups(&mut bench, random, &ids).await;
        let floor = floors.values().min().copied();

        let is_wanted = |at: usize, id: StreamId| {
            let is_old = id.milliseconds < now - RETAIN_MS;
            let is_beyond = ((ids.len() - at) as u64) > retain_entries;
            floor.is_none_or(|floor| id <= floor) && (is_old || is_beyond)
        };
        let wanted = ids.iter().enumerate().take_while(|(at, id)| is_wanted(*at, **id)).count();
        let mut gone = 0;
        for _ in 0..1_000 {
            let count = random.within(1, 250) as usize;
            let trimmed = bench.trim(count).await;
            let left = bench.ids(&events).await;
            let say = format!("seed {seed}, {node_entries} entries a node, floors {floors:?}: {trimmed:?}");
            gone += trimmed.events as usize;
            assert!(trimmed.events as usize <= count, "no more than it may: {say}");
            assert_eq!(left, ids[gone..], "the oldest, and no others: {say}");
            assert!(gone <= wanted, "{gone} gone, only {wanted} may: {say}");
            assert_eq!(trimmed.entries, left.len() as u64, "{say}");
            assert_eq!(trimmed.floor.as_ref().map(|floor| floor.id), floor, "{say}");
            if let Some(least) = &trimmed.floor {
                assert_eq!(floors[&least.group], least.id, "{say}");
            }
            // One that removed nothing with room for a whole node is the last.
            if trimmed.events == 0 && count >= 100 {
                break;
            }
        }
        let slack = wanted - gone;
        assert!(slack < if is_exact { 1 } else { 100 }, "seed {seed}: {slack} of {wanted} were left");
        removed_in_all += gone;
        held += usize::from(floor.is_some_and(|floor| ids.last().is_some_and(|last| floor < *last)));
        bench.store.delete_topic("jobs").await.unwrap();
        let left: Vec<String> = bench.direct.keys("*").await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
    println!("{removed_in_all} entries removed; in {held} rounds a group held some back");
}

#[tokio::test]
async fn nothing_above_a_floor_is_trimmed_and_all_else_by_age_and_length() {
    check_random_streams("1", true).await;
}

#[tokio::test]
async fn whole_nodes_leave_a_little_more_and_never_less() {
    check_random_streams("100", false).await;
}

#[tokio::test]
async fn the_group_that_is_furthest_behind_is_named() {
    let redis = redis_server(&["--stream-node-max-entries", "1"]);
    let mut bench = Bench::open(&redis.url(), retention(1)).await;
    let (ids, events) = (one_by_one(10), bench.keys.events.clone());
    bench.fill(&events, &ids, 1).await;
    let floor = |trimmed: &Trimmed| trimmed.floor.clone().map(|floor| (floor.group, floor.id.to_string()));
    let named = |group: &str, id: &str| Some((group.to_owned(), id.to_owned()));

    bench.register("ours", "5-9").await;
    bench.command(&["XGROUP", "CREATE", &events, "plain", "0"]).await;
    let trimmed = bench.trim(100).await;
    assert_eq!((floor(&trimmed), trimmed.events), (named("plain", "0-0"), 0), "it has read nothing yet");

    // Delivered and not acknowledged: just below the first of those.
    bench.command(&["XREADGROUP", "GROUP", "plain", "one", "COUNT", "6", "STREAMS", &events, ">"]).await;
    for id in ["5-1", "5-2", "5-4"] {
        bench.command(&["XACK", &events, "plain", id]).await;
    }
    let trimmed = bench.trim(100).await;
    assert_eq!((floor(&trimmed), trimmed.events, trimmed.entries), (named("plain", "5-2"), 2, 8));

    for id in ["5-3", "5-5", "5-6"] {
        bench.command(&["XACK", &events, "plain", id]).await;
    }
    let trimmed = bench.trim(100).await;
    assert_eq!((floor(&trimmed), trimmed.events), (named("plain", "5-6"), 4), "what was delivered last");

    bench.command(&["XGROUP", "SETID", &events, "plain", "$"]).await;
    let trimmed = bench.trim(100).await;
    assert_eq!((floor(&trimmed), trimmed.events, trimmed.entries), (named("ours", "5-9"), 3, 1));
    let asked = bench.store.floor(&bench.partition).await.unwrap().unwrap();
    assert_eq!((asked.group.as_str(), asked.id.to_string().as_str()), ("ours", "5-9"));

    bench.command(&["XGROUP", "DESTROY", &events, "plain"]).await;
    let _: () = bench.direct.hdel(&bench.keys.groups, "ours").await.unwrap();
    assert_eq!(bench.store.floor(&bench.partition).await.unwrap(), None);
}

/// Late events have a limit that trims nothing; only their age does.
#[tokio::test]
async fn late_events_go_by_age_alone_and_not_before_their_readers_have_them() {
    let redis = redis_server(&["--stream-node-max-entries", "1"]);
    let mut bench = Bench::open(&redis.url(), Retention { late_max: 3, ..retention(1) }).await;
    let (late, now) = (bench.keys.late.clone(), bench.now_ms().await);
    let young = |counter| StreamId { milliseconds: now, counter };
    bench.fill(&late, &[&one_by_one(8)[..], &[1, 2, 3, 4].map(young)].concat(), 1).await;
    bench.command(&["XGROUP", "CREATE", &late, "reader", "5-5"]).await;
    assert_eq!(bench.trim(100).await.late, 5, "a group that reads them has done these");
    bench.command(&["XGROUP", "DESTROY", &late, "reader"]).await;
    let trimmed = bench.trim(100).await;
    assert_eq!((trimmed.late, trimmed.late_entries), (3, 4), "the young stay, however many");
}

#[tokio::test]
async fn a_call_too_soon_after_another_does_nothing_and_much_is_gone_on_with() {
    let redis = redis_server(&[]);
    let mut bench = Bench::open(&redis.url(), retention(100)).await;
    let (ids, events) = (one_by_one(5_000), bench.keys.events.clone());
    bench.fill(&events, &ids, 100).await;
    let mut calls = 0;
    loop {
        let trimmed = bench.trim(1_000).await;
        assert!(trimmed.events <= 1_000, "{trimmed:?}");
        calls += 1;
        if !trimmed.more {
            break;
        }
        // The next one may follow at once.
        let next = bench.store.trim(&bench.partition, 1).await.unwrap();
        assert!(next.ran, "{next:?}");
    }
    assert!(calls > 4, "{calls} calls");
    let early = bench.store.trim(&bench.partition, 1_000).await.unwrap();
    assert!(!early.ran && early.entries < 200, "{early:?}");
    assert_eq!((early.events, early.more, early.floor), (0, false, None));
    // Sizes tell what was trimmed.
    let measure = bench.store.measure(&bench.partition).await.unwrap();
    assert_eq!(measure.entries + measure.trimmed, 5_000);
    assert_eq!(bench.trim_all().await, 0);
    // A partition that is gone is none to be trimmed.
    let keys: Vec<String> = bench.keys.all().into_iter().map(str::to_owned).collect();
    let _: () = bench.direct.del(&keys).await.unwrap();
    let _: () = bench.direct.del(topic_key("jobs")).await.unwrap();
    assert_eq!(bench.store.trim(&bench.partition, 10).await.unwrap(), Trimmed::default());
}

/// Just then it is needed: removing must not ask for memory first.
#[tokio::test]
async fn a_redis_that_is_out_of_memory_is_trimmed() {
    let redis = redis_server(&["--stream-node-max-entries", "1"]);
    let mut bench = Bench::open(&redis.url(), retention(10)).await;
    let (ids, events) = (one_by_one(100), bench.keys.events.clone());
    bench.fill(&events, &ids, 100).await;
    bench.trim(1).await;
    bench.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    // One that comes too early may fail, because it only writes down the time.
    let mut left = 99;
    for _ in 0..100 {
        if let Ok(trimmed) = bench.store.trim(&bench.partition, 1_000).await {
            left = trimmed.entries;
        }
        // All of them are old.
        if left == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{left} entries are left");
}
