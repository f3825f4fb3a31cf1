//! Promises of the Redis store that no scenario of the rules can show: what several
//! processes do to one partition, and what a user of Redis may not do.

mod support;

use seriatim::{
    order::{Entity, Epoch, Event, Policy, Position, Sequence},
    store::{
        Admitted, Batch, Layout, Numbering, Offer, OpenError, PartitionId, Path, Payload, RedisStore, Store,
        TopicSpec,
    },
};
use support::{direct, redis_server, redis_store};

fn topic(append_max: u64) -> TopicSpec {
    let policy = Policy { append_max, ..Policy::default() };
    TopicSpec {
        name: "jobs".into(),
        partitions: 1,
        layout: Layout::Entry,
        numbering: Numbering::Producer,
        policy,
    }
}

fn partition() -> PartitionId {
    PartitionId { topic: "jobs".into(), index: 0 }
}

async fn offer(store: &RedisStore, entity: &str, sequences: &[u64]) -> Admitted {
    let offer = |sequence: &u64| {
        let event = Event {
            epoch: Epoch::new(0).unwrap(),
            position: Position::Given(Sequence::new(*sequence).unwrap()),
            terminal: false,
            payload: Payload { kind: "step".into(), attrs: "{}".into(), data: Default::default() },
        };
        (Offer { entity: Entity::new(entity).unwrap(), event }, ())
    };
    let (batch, _) = Batch::form(sequences.iter().map(offer).collect());
    store.admit(&partition(), &batch).await.unwrap()
}

/// A process that opened the topic while a lane was half drained must not take its own
/// healthy batches past it.
#[tokio::test]
async fn a_healthy_batch_goes_on_with_a_lane_that_another_process_left_half_drained() {
    let redis = redis_server(&[]);
    let (one, other) = (redis_store(&redis.url()), redis_store(&redis.url()));
    one.open(&topic(4)).await.unwrap();
    offer(&one, "slow", &[1, 2, 3, 4]).await;
    offer(&one, "slow", &[5, 6, 7, 8]).await;
    assert!(offer(&one, "slow", &[0]).await.more);

    other.open(&topic(4)).await.unwrap();
    let mut calls = 0;
    while other.measure(&partition()).await.unwrap().parked > 0 {
        offer(&other, &format!("healthy-{calls}"), &[0]).await;
        calls += 1;
        assert!(calls < 10, "nobody goes on with the lane");
    }
    let healthy = offer(&other, "healthy", &[0]).await;
    assert_eq!(healthy.path, Path::Fast, "and then all is fast again");
}

/// Sixteen partitions that miss it together do not send it sixteen times.
#[tokio::test]
async fn a_server_that_forgot_the_scripts_is_taught_by_one_call() {
    let redis = redis_server(&[]);
    let store = redis_store(&redis.url());
    store.open(&topic(64)).await.unwrap();
    let mut admin = direct(&redis.url()).await;
    for _ in 0..2 {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut admin).await.unwrap();
        let _: () = redis::cmd("CONFIG").arg("RESETSTAT").query_async(&mut admin).await.unwrap();
        let names: Vec<_> = (0..16).map(|index| format!("entity-{index}")).collect();
        let offers = names.iter().map(|name| offer(&store, name, &[0]));
        futures_util::future::join_all(offers).await;
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut admin).await.unwrap();
        let sources =
            stats.lines().find(|line| line.starts_with("cmdstat_eval:")).expect("somebody taught it");
        assert!(sources.starts_with("cmdstat_eval:calls=1,"), "{sources}");
    }
}

/// Found at start-up, not halfway through somebody's events.
#[tokio::test]
async fn a_user_that_may_not_run_what_the_scripts_need_is_refused_at_the_start() {
    let redis = redis_server(&[]);
    let mut admin = direct(&redis.url()).await;
    for command in [
        "hdel",
        "zrem",
        "hincrby",
        "zadd",
        "hset",
        "hmget",
        "unlink",
        "hrandfield",
        "rpush",
        "lpush",
        "lpop",
        "lpos",
        "llen",
        "publish",
        "xlen",
        "xtrim",
        "xinfo",
        "xpending",
        "hgetall",
    ] {
        let rule = format!("-{command}");
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER")
            .arg("limited")
            .arg("on")
            .arg(">secret")
            .arg("~*")
            .arg("&*")
            .arg("+@all")
            .arg(&rule);
        let _: () = set.query_async(&mut admin).await.unwrap();
        let limited = redis.url() + "?user=limited&pass=secret";
        let refused = redis_store(&limited).open(&topic(512)).await.unwrap_err();
        let OpenError::Store { source, .. } = &refused else { panic!("{refused}") };
        assert!(!source.is_passing(), "{command}: {refused}");
        assert!(refused.to_string().contains("can't run this command"), "{command}: {refused}");
        let _: () = redis::cmd("FLUSHALL").query_async(&mut admin).await.unwrap();
        let _: () = redis::cmd("ACL").arg("DELUSER").arg("limited").query_async(&mut admin).await.unwrap();
    }
}

/// Names and values as any reader finds them, by the fast path, by the slow one, and of what was
/// parked: a type that is terminal by the policy closes its entity as well as an event that says so.
#[tokio::test]
async fn in_batch_layout_an_entry_is_a_call_and_values_say_what_is_terminal() {
    let redis = redis_server(&[]);
    let store = redis_store(&redis.url());
    let mut spec = TopicSpec { layout: Layout::Batch, ..topic(512) };
    spec.policy.terminal_types = ["last".to_owned()].into();
    store.open(&spec).await.unwrap();
    let event = |entity: &str, sequence: u64, kind: &str, terminal: bool| {
        let event = Event {
            epoch: Epoch::new(0).unwrap(),
            position: Position::Given(Sequence::new(sequence).unwrap()),
            terminal,
            payload: Payload { kind: kind.into(), attrs: "{}".into(), data: "d".into() },
        };
        (Offer { entity: Entity::new(entity).unwrap(), event }, ())
    };
    let calls = [
        (
            Path::Fast,
            vec![event("a", 0, "step", false), event("b", 0, "last", false), event("c", 0, "step", true)],
        ),
        (Path::Slow, vec![event("a", 2, "step", true), event("a", 3, "last", false)]),
        (Path::Slow, vec![event("a", 1, "step", false), event("d", 0, "last", false)]),
    ];
    for (path, events) in calls {
        let admitted = store.admit(&partition(), &Batch::form(events).0).await.unwrap();
        assert_eq!(admitted.path, path);
    }
    let mut read = redis::cmd("XRANGE");
    read.arg(seriatim::store::PartitionKeys::new(&partition()).events).arg("-").arg("+");
    let entries: Vec<(String, Vec<String>)> =
        read.query_async(&mut direct(&redis.url()).await).await.unwrap();
    let fields: Vec<String> = entries.iter().map(|(_, fields)| fields.join(" ")).collect();
    assert_eq!(
        fields,
        [
            "0:0:0:strict:a -:4:2:step{}d 1:0:0:strict:b t:4:2:last{}d 2:0:0:strict:c t:4:2:step{}d",
            "0:0:1:strict:a -:4:2:step{}d 1:0:2:strict:a t:4:2:step{}d 2:0:3:strict:a t:4:2:last{}d \
             3:0:0:strict:d t:4:2:last{}d",
        ]
    );
}
