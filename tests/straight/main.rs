//! The straight way into a stream: it leaves what the script would have left, what is barred leaves nothing, and nobody
//! goes this way who cannot be barred.

#[path = "../support/mod.rs"]
mod support;

mod by_heart;
mod waiting;

use std::{collections::BTreeMap, time::Duration};

use redis::AsyncCommands;
use seriatim::{
    order::{Entity, Epoch, Event, Policy, Position, Sequence, Verdict},
    store::{
        Admitted, Batch, Guess, Layout, Numbering, Offer, PartitionId, PartitionKeys, Path, Payload,
        RedisStore, Store, Straight, TopicSpec,
    },
};
use support::{direct, redis_server, store_that_goes};

/// As many events as are worth it, and some more.
const EVENTS: u64 = 10;

fn topic(layout: Layout) -> TopicSpec {
    let policy = Policy { terminal_types: ["last".to_owned()].into(), ..Policy::default() };
    TopicSpec { name: "jobs".into(), partitions: 1, layout, numbering: Numbering::Producer, policy }
}

fn partition() -> PartitionId {
    PartitionId { topic: "jobs".into(), index: 0 }
}

/// An event of each entity, the same sequence of all; the last one is terminal.
fn batch(sequence: u64) -> Batch {
    let offer = |entity: u64| {
        let kind = if sequence == 11 { "last" } else { "step" };
        let data = format!("{entity}/{sequence}").into();
        let event = Event {
            epoch: Epoch::new(3).unwrap(),
            position: Position::Given(Sequence::new(sequence).unwrap()),
            terminal: false,
            payload: Payload { kind: kind.into(), attrs: "{}".into(), data },
        };
        (Offer { entity: Entity::new(&format!("job-{entity}")).unwrap(), event }, ())
    };
    Batch::form((0..EVENTS).map(offer).collect()).0
}

async fn admit(store: &RedisStore, sequence: u64) -> Admitted {
    store.admit(&partition(), &batch(sequence)).await.unwrap()
}

/// What stands in the stream, without ids, and the lanes.
async fn left(url: &str) -> (Vec<Vec<String>>, BTreeMap<String, String>) {
    let keys = PartitionKeys::new(&partition());
    let mut direct = direct(url).await;
    let entries: Vec<(String, Vec<String>)> =
        redis::cmd("XRANGE").arg(&keys.events).arg("-").arg("+").query_async(&mut direct).await.unwrap();
    let writable: Vec<String> = redis::cmd("KEYS").arg("*writable*").query_async(&mut direct).await.unwrap();
    assert!(writable.is_empty(), "nothing is writable outside of a transaction: {writable:?}");
    (entries.into_iter().map(|(_, fields)| fields).collect(), direct.hgetall(&keys.lanes).await.unwrap())
}

async fn has_blocked_client(url: &str) -> bool {
    let clients: String =
        redis::cmd("INFO").arg("clients").query_async(&mut direct(url).await).await.unwrap();
    clients.contains("blocked_clients:1")
}

#[tokio::test]
async fn it_leaves_what_the_script_leaves() {
    for layout in Layout::ALL {
        let mut found = Vec::new();
        for (straight, last) in [
            (Straight::Never, Path::Fast),
            (Straight::WhenCalm, Path::Straight),
            (Straight::Always, Path::Straight),
        ] {
            let redis = redis_server(&[]);
            let store = store_that_goes(straight, &redis.url());
            store.open(&topic(layout)).await.unwrap();
            let mut ids = Vec::new();
            let mut path = Path::Slow;
            for sequence in 0..12 {
                let admitted = admit(&store, sequence).await;
                let is_released =
                    |verdict| verdict == Verdict::Released { sequence: Sequence::new(sequence).unwrap() };
                assert!(admitted.decisions.iter().all(|decision| is_released(decision.verdict)));
                ids.extend(admitted.decisions.iter().map(|decision| decision.id.unwrap()));
                path = admitted.path;
            }
            assert_eq!(path, last, "{straight:?}");
            assert!(ids.is_sorted(), "ids are those of the entries, in the order of the events");
            found.push(left(&redis.url()).await);
        }
        let entries = if layout == Layout::Entry { 12 * EVENTS as usize } else { 12 };
        assert_eq!(found[0].0.len(), entries);
        assert_eq!(found[0], found[1]);
        assert_eq!(found[0], found[2]);
    }
}

#[tokio::test]
async fn what_is_not_in_order_is_barred_and_decided_by_the_rules() {
    for layout in Layout::ALL {
        let redis = redis_server(&[]);
        let store = store_that_goes(Straight::WhenCalm, &redis.url());
        store.open(&topic(layout)).await.unwrap();
        for sequence in 0..9 {
            admit(&store, sequence).await;
        }
        let before = left(&redis.url()).await;
        // Somebody waits for whatever comes next.
        let keys = PartitionKeys::new(&partition());
        let mut waiting = direct(&redis.url()).await;
        let events = keys.events.clone();
        let waiting = tokio::spawn(async move {
            let mut read = redis::cmd("XREAD");
            read.arg("BLOCK").arg(20_000).arg("STREAMS").arg(events).arg("$");
            read.query_async::<redis::Value>(&mut waiting).await.unwrap()
        });
        while !has_blocked_client(&redis.url()).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }

        let parked = admit(&store, 10).await;
        assert_eq!(parked.path, Path::Barred);
        assert!(parked.decisions.iter().all(|decision| decision.verdict == Verdict::Parked { depth: 1 }));
        assert_eq!(left(&redis.url()).await.0, before.0, "nothing came of it");
        assert!(!waiting.is_finished(), "and nobody has seen it");
        assert_eq!(admit(&store, 10).await.path, Path::Slow, "it is not tried again at once");
        let drained = admit(&store, 9).await;
        assert_eq!((drained.path, drained.drained), (Path::Slow, EVENTS));
        let shown = format!("{:?}", waiting.await.unwrap());
        assert!(shown.contains("job-0") && shown.contains("0/9"), "what is in order is seen: {shown}");
    }
}

/// The same of other entities, none of which ends.
fn other_batch(sequence: u64) -> Batch {
    Batch::form(other_offers(sequence).into_iter().map(|offer| (offer, ())).collect()).0
}

fn other_offers(sequence: u64) -> Vec<Offer> {
    let renamed = |mut offer: Offer| {
        offer.entity = Entity::new(&offer.entity.as_str().replace("job", "other")).unwrap();
        offer.event.payload.kind = "step".into();
        offer
    };
    batch(sequence).into_offers().into_iter().map(renamed).collect()
}

/// Those, of which one entity's is another; and what is guessed of it.
fn guessed_batch(sequence: u64, odd: u64, odd_sequence: u64, guess: Guess) -> Batch {
    let mut offers = other_offers(sequence);
    offers[odd as usize] = other_offers(odd_sequence).remove(odd as usize);
    let name = format!("other-{odd}");
    let arrived = offers.into_iter().map(|offer| (offer, ())).collect();
    Batch::form_by(arrived, |lane| if lane[0].entity.as_str() == name { guess } else { Guess::InTurn }).0
}

/// Events of all but one entity, which seem to be in their turn, and one that does not.
fn mixed_batch(sequence: u64, odd: u64, odd_sequence: u64) -> Batch {
    let mut arrived: Vec<(Offer, ())> =
        batch(sequence).into_offers().into_iter().map(|offer| (offer, ())).collect();
    let odd_batch = batch(odd_sequence).into_offers();
    arrived[odd as usize] = (odd_batch[odd as usize].clone(), ());
    let name = format!("job-{odd}");
    let guess = |is_odd: bool| if is_odd { Guess::Unclear } else { Guess::InTurn };
    Batch::form_by(arrived, |lane| guess(lane[0].entity.as_str() == name)).0
}

#[tokio::test]
async fn one_that_is_not_in_its_turn_does_not_keep_the_others_from_going_straight() {
    let redis = redis_server(&[]);
    let store = alone(&redis.url(), Layout::Entry, 9).await;
    let parked = store.admit(&partition(), &mixed_batch(9, 4, 10)).await.unwrap();
    let (verdicts, ids): (Vec<_>, Vec<_>) =
        parked.decisions.iter().map(|decision| (decision.verdict, decision.id)).unzip();
    let nine = Verdict::Released { sequence: Sequence::new(9).unwrap() };
    assert_eq!(verdicts[..9], [nine; 9], "the odd one is decided last");
    assert_eq!((verdicts[9], ids[9]), (Verdict::Parked { depth: 1 }, None));
    assert!(ids[..9].is_sorted() && ids[..9].iter().all(Option::is_some));
    assert_eq!(parked.path, Path::Mixed);

    // It fills its gap while the others go on, and what was parked follows it.
    let filled = store.admit(&partition(), &mixed_batch(10, 4, 9)).await.unwrap();
    assert_eq!((filled.path, filled.drained), (Path::Mixed, 1));
    assert_eq!(filled.decisions[9].verdict, nine);
    let (entries, lanes) = left(&redis.url()).await;
    assert_eq!(entries.len(), 11 * EVENTS as usize);
    assert!(lanes.iter().all(|(entity, state)| entity.is_empty() || state == "3:11"), "{lanes:?}");
}

/// The script that decides about the odd one is not there: the others are not disturbed, and it is offered once more.
#[tokio::test]
async fn what_nobody_decided_about_behind_the_others_is_decided_afterwards() {
    let redis = redis_server(&[]);
    let store = store_that_goes(Straight::Always, &redis.url());
    store.open(&topic(Layout::Entry)).await.unwrap();
    let parked = store.admit(&partition(), &mixed_batch(0, 4, 1)).await.unwrap();
    assert_eq!((parked.path, parked.decisions[9].verdict), (Path::Mixed, Verdict::Parked { depth: 1 }));
    let (entries, lanes) = left(&redis.url()).await;
    assert_eq!((entries.len(), lanes["job-3"].as_str()), (9, "3:1"));
}

/// By the digest alone: what judges a transaction is not there, so it comes to nothing.
#[tokio::test]
async fn a_transaction_that_nobody_judges_comes_to_nothing() {
    for layout in Layout::ALL {
        let redis = redis_server(&[]);
        let store = alone(&redis.url(), layout, 9).await;
        let mut direct = direct(&redis.url()).await;
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut direct).await.unwrap();
        let admitted = admit(&store, 9).await;
        assert_eq!(admitted.path, Path::Barred);
        let nine = Verdict::Released { sequence: Sequence::new(9).unwrap() };
        assert!(admitted.decisions.iter().all(|decision| decision.verdict == nine));
        let (entries, lanes) = left(&redis.url()).await;
        let calls = if layout == Layout::Entry { 10 * EVENTS as usize } else { 10 };
        assert_eq!((entries.len(), lanes["job-3"].as_str()), (calls, "3:10"), "each is there once");
        // It is brought again before the next one.
        let mut paths = Vec::new();
        for sequence in 0..10 {
            paths.push(store.admit(&partition(), &other_batch(sequence)).await.unwrap().path);
        }
        assert!(paths.contains(&Path::Straight) && !paths.contains(&Path::Barred), "{paths:?}");
    }
}

/// Who blocks on a stream while it has another name is neither woken for nothing nor told that it is gone.
#[tokio::test]
async fn a_group_that_waits_is_served() {
    for layout in Layout::ALL {
        let redis = redis_server(&[]);
        let store = alone(&redis.url(), layout, 9).await;
        let keys = PartitionKeys::new(&partition());
        let mut admin = direct(&redis.url()).await;
        let mut register = redis::cmd("XGROUP");
        register.arg(&["CREATE", &keys.events, "plain", "$"]);
        let _: () = register.query_async(&mut admin).await.unwrap();
        let mut waiting = direct(&redis.url()).await;
        let events = keys.events.clone();
        let waiting = tokio::spawn(async move {
            let mut read = redis::cmd("XREADGROUP");
            read.arg(&["GROUP", "plain", "me", "BLOCK", "20000", "STREAMS", &events, ">"]);
            read.query_async::<redis::Value>(&mut waiting).await
        });
        while !has_blocked_client(&redis.url()).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(admit(&store, 9).await.path, Path::Straight);
        let shown = format!("{:?}", waiting.await.unwrap().expect("the stream is there"));
        assert!(shown.contains("job-0") && shown.contains("0/9"), "{shown}");
    }
}

/// Then the transaction does nothing at all, and the script decides about both.
#[tokio::test]
async fn whoever_is_not_in_turn_against_expectation_bars_the_others_behind_as_well() {
    let redis = redis_server(&[]);
    let store = alone(&redis.url(), Layout::Entry, 9).await;
    // Everybody but the odd one is ahead of its turn; the odd one is in its turn.
    let barred = store.admit(&partition(), &mixed_batch(10, 4, 9)).await.unwrap();
    assert_eq!(barred.path, Path::Barred);
    let (entries, _) = left(&redis.url()).await;
    assert_eq!(entries.len(), 9 * EVENTS as usize + 1, "the odd one is there once");
    assert_eq!(barred.decisions[9].verdict, Verdict::Released { sequence: Sequence::new(9).unwrap() });
    let parked = |verdict| verdict == Verdict::Parked { depth: 1 };
    assert!(barred.decisions[..9].iter().all(|decision| parked(decision.verdict)));
}

/// An entity that was retired begins again, as far as its events show. Its tombstone knows better.
#[tokio::test]
async fn what_was_retired_is_not_taken_for_new() {
    for straight in [Straight::Never, Straight::Always] {
        let redis = redis_server(&[]);
        let store = store_that_goes(straight, &redis.url());
        store.open(&topic(Layout::Entry)).await.unwrap();
        let keys = PartitionKeys::new(&partition());
        let mut direct = direct(&redis.url()).await;
        // 16 digits of SHA-1("job-7"), in the third bucket.
        let _: () = direct.hset(&keys.tombs[2], "ab647ec451c9110d", "3:12c").await.unwrap();
        let _: () = direct.hset(&keys.meta, "rings", "0:0010").await.unwrap();
        let admitted = admit(&store, 0).await;
        let verdicts: Vec<_> = admitted.decisions.iter().map(|decision| decision.verdict).collect();
        assert_eq!(verdicts[7], Verdict::Retired { epoch: Epoch::new(3).unwrap() }, "{straight:?}");
        assert_eq!(left(&redis.url()).await.0.len(), EVENTS as usize - 1, "{straight:?}");
    }
}

/// A user that may not open transactions, or may not do what lets one pass.
#[tokio::test]
async fn nobody_goes_straight_who_could_not_be_barred() {
    for rule in ["-multi", "-rename", "-renamenx", "-type", "-set", "-del", "-eval", "-exec"] {
        let redis = redis_server(&[]);
        let mut admin = direct(&redis.url()).await;
        let mut set = redis::cmd("ACL");
        set.arg("SETUSER").arg("limited").arg(&["on", ">secret", "~*", "&*", "+@all", rule]);
        let _: () = set.query_async(&mut admin).await.unwrap();
        // Scripts are known already where EVAL is not allowed.
        let opened = store_that_goes(Straight::Never, &redis.url());
        opened.open(&topic(Layout::Entry)).await.unwrap();
        opened.admit(&partition(), &Batch::default()).await.unwrap();
        let store = store_that_goes(Straight::Always, &(redis.url() + "?user=limited&pass=secret"));
        store.open(&topic(Layout::Entry)).await.unwrap();
        for sequence in [0, 1, 3, 2] {
            let admitted = admit(&store, sequence).await;
            assert_ne!(admitted.path, Path::Straight, "{rule}");
        }
        let (entries, lanes) = left(&redis.url()).await;
        assert_eq!(entries.len(), 4 * EVENTS as usize, "{rule}");
        assert_eq!(lanes["job-0"], "3:4", "{rule}");
        let keys: Vec<String> = redis::cmd("KEYS").arg("*trial*").query_async(&mut admin).await.unwrap();
        assert!(keys.is_empty(), "{rule}: {keys:?}");
    }
}

/// A store that goes straight, and has been alone for long enough to rely on what it knows.
async fn alone(url: &str, layout: Layout, sequences: u64) -> RedisStore {
    let store = store_that_goes(Straight::WhenCalm, url);
    store.open(&topic(layout)).await.unwrap();
    for sequence in 0..sequences {
        store.admit(&partition(), &batch(sequence)).await.unwrap();
    }
    store
}

fn verdict_of(admitted: &Admitted, entity: usize) -> Verdict {
    admitted.decisions[entity].verdict
}
