//! The connection for transactions: it is whose the URL says, and is replaced when it is lost.

mod support;

use std::time::Duration;

use seriatim::{
    order::{Entity, Epoch, Event, Policy, Position, Sequence, Verdict},
    store::{
        Admitted, Batch, Layout, Numbering, Offer, PartitionId, PartitionKeys, Path, Payload, RedisSettings,
        RedisStore, Store, StoreError, Straight, TopicSpec,
    },
};
use support::{direct, redis_server, signal, store_that_goes};

const EVENTS: u64 = 10;

fn partition() -> PartitionId {
    PartitionId { topic: "jobs".into(), index: 0 }
}

async fn opened(url: &str) -> RedisStore {
    open(store_that_goes(Straight::Always, url)).await
}

async fn open(store: RedisStore) -> RedisStore {
    let topic = TopicSpec {
        name: "jobs".into(),
        partitions: 1,
        layout: Layout::Entry,
        numbering: Numbering::Producer,
        policy: Policy::default(),
    };
    store.open(&topic).await.unwrap();
    store
}

/// An event of each entity, the same sequence of all.
fn batch(sequence: u64) -> Batch {
    let offer = |entity: u64| {
        let payload = Payload { kind: "step".into(), attrs: "{}".into(), data: "{}".into() };
        let position = Position::Given(Sequence::new(sequence).unwrap());
        let event = Event { epoch: Epoch::new(0).unwrap(), position, terminal: false, payload };
        (Offer { entity: Entity::new(&format!("job-{entity}")).unwrap(), event }, ())
    };
    Batch::form((0..EVENTS).map(offer).collect()).0
}

fn went_straight(admitted: &Admitted) -> bool {
    let is_released = |verdict| matches!(verdict, Verdict::Released { .. });
    admitted.path == Path::Straight && admitted.decisions.iter().all(|decision| is_released(decision.verdict))
}

async fn entries(url: &str) -> u64 {
    let mut length = redis::cmd("XLEN");
    length.arg(PartitionKeys::new(&partition()).events);
    length.query_async(&mut direct(url).await).await.unwrap()
}

#[tokio::test]
async fn it_is_in_the_database_and_has_the_password_that_the_url_says() {
    let redis = redis_server(&["--requirepass", "secret"]);
    let (zero, third) = (redis.url() + "?pass=secret", redis.url() + "?pass=secret&db=3");
    let store = opened(&third).await;
    for sequence in 0..3 {
        assert!(went_straight(&store.admit(&partition(), &batch(sequence)).await.unwrap()));
    }
    assert_eq!((entries(&third).await, entries(&zero).await), (3 * EVENTS, 0));
}

#[tokio::test]
async fn one_that_was_lost_is_replaced_before_anybody_needs_it() {
    let redis = redis_server(&[]);
    let store = opened(&redis.url()).await;
    assert!(went_straight(&store.admit(&partition(), &batch(0)).await.unwrap()));
    let mut admin = direct(&redis.url()).await;
    let killed: u64 =
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", "normal"]).query_async(&mut admin).await.unwrap();
    assert!(killed >= 2, "one for transactions, one for all else: {killed}");
    let clients = || async {
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut admin.clone()).await.unwrap();
        list.lines().count()
    };
    while clients().await > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(went_straight(&store.admit(&partition(), &batch(1)).await.unwrap()));
    assert_eq!(entries(&redis.url()).await, 2 * EVENTS);
}

#[tokio::test]
async fn one_that_does_not_answer_is_given_up_and_closed() {
    let redis = redis_server(&[]);
    let wait = Duration::from_millis(300);
    let (url, straight) = (redis.url(), Straight::Always);
    let settings = RedisSettings { url, connect_timeout: wait, response_timeout: wait, straight };
    let store = open(RedisStore::new(settings, 7).unwrap()).await;
    assert!(went_straight(&store.admit(&partition(), &batch(0)).await.unwrap()));
    signal(redis.pid(), "STOP");
    let unanswered = store.admit(&partition(), &batch(1)).await;
    signal(redis.pid(), "CONT");
    assert!(matches!(unanswered, Err(StoreError::Ambiguous(_))), "{unanswered:?}");
    // It runs all the same, or is read by nobody because its connection was closed before.
    let mut admin = direct(&redis.url()).await;
    loop {
        let list: String = redis::cmd("CLIENT").arg("LIST").query_async(&mut admin).await.unwrap();
        if list.lines().count() <= 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    store.admit(&partition(), &batch(1)).await.unwrap();
    assert!(went_straight(&store.admit(&partition(), &batch(2)).await.unwrap()));
    assert_eq!(entries(&redis.url()).await, 3 * EVENTS, "whatever became of it, it is there once");
}

/// The shared connection is for whoever finds no room for another one.
#[tokio::test]
async fn where_there_is_no_room_for_it_events_take_the_other_way() {
    let redis = redis_server(&[]);
    let mut admin = direct(&redis.url()).await;
    let store = opened(&redis.url()).await;
    let _: () = redis::cmd("CONFIG").arg(&["SET", "maxclients", "2"]).query_async(&mut admin).await.unwrap();
    let admitted = store.admit(&partition(), &batch(0)).await.unwrap();
    assert_ne!(admitted.path, Path::Straight);
    let _: () =
        redis::cmd("CONFIG").arg(&["SET", "maxclients", "100"]).query_async(&mut admin).await.unwrap();
    assert!(went_straight(&store.admit(&partition(), &batch(1)).await.unwrap()));
    assert_eq!(entries(&redis.url()).await, 2 * EVENTS);
}
