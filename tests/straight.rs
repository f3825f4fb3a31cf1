//! The straight way into a stream: it leaves what the script would have left, what is barred leaves nothing, and nobody
//! goes this way who cannot be barred.

mod support;

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
    let barred: Vec<String> = redis::cmd("KEYS").arg("*barred*").query_async(&mut direct).await.unwrap();
    assert!(barred.is_empty(), "nothing is barred outside of a transaction: {barred:?}");
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
    let store = store_that_goes(Straight::WhenCalm, &redis.url());
    store.open(&topic(Layout::Entry)).await.unwrap();
    for sequence in 0..9 {
        admit(&store, sequence).await;
    }
    // The script that decides about it is not there: the others are not disturbed.
    let mut direct = direct(&redis.url()).await;
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut direct).await.unwrap();
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

/// Then the transaction does nothing at all, and the script decides about both.
#[tokio::test]
async fn whoever_is_not_in_turn_against_expectation_bars_the_others_behind_as_well() {
    let redis = redis_server(&[]);
    let store = store_that_goes(Straight::WhenCalm, &redis.url());
    store.open(&topic(Layout::Entry)).await.unwrap();
    for sequence in 0..9 {
        admit(&store, sequence).await;
    }
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

/// A user that may not open transactions, or may not bar a stream.
#[tokio::test]
async fn nobody_goes_straight_who_could_not_be_barred() {
    for rule in ["-multi", "-xsetid", "-rename", "-type", "-set", "-eval", "-exec"] {
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

/// One entity's events come two places late; the others go on. Nothing of it needs the rules.
#[tokio::test]
async fn what_waits_goes_straight_and_leaves_what_the_script_leaves() {
    for layout in Layout::ALL {
        let mut found = Vec::new();
        for straight in [Straight::Never, Straight::WhenCalm] {
            let redis = redis_server(&[]);
            let store = store_that_goes(straight, &redis.url());
            store.open(&topic(layout)).await.unwrap();
            for sequence in 0..18 {
                store.admit(&partition(), &other_batch(sequence)).await.unwrap();
            }
            for (sequence, odd, guess) in [
                (18, 19, Guess::Ahead { next: Sequence::new(18).unwrap() }),
                (19, 20, Guess::Waits),
                (20, 18, Guess::Waits),
                (21, 21, Guess::InTurn),
            ] {
                let batch = guessed_batch(sequence, 4, odd, guess);
                let admitted = store.admit(&partition(), &batch).await.unwrap();
                let expected = match odd {
                    19 => Verdict::Parked { depth: 1 },
                    20 => Verdict::Parked { depth: 2 },
                    _ => Verdict::Released { sequence: Sequence::new(odd).unwrap() },
                };
                let place = if odd == 21 { 4 } else { 9 };
                assert_eq!(verdict_of(&admitted, place), expected, "{layout:?} {straight:?}");
                assert_eq!(admitted.drained, if odd == 18 { 2 } else { 0 });
                if straight == Straight::WhenCalm {
                    assert_eq!(admitted.path, Path::Straight, "{layout:?} {odd}");
                }
            }
            let keys = PartitionKeys::new(&partition());
            let mut direct = direct(&redis.url()).await;
            let parked: u64 = direct.hlen(&keys.parked).await.unwrap();
            let gaps: u64 = direct.zcard(&keys.gaps).await.unwrap();
            assert_eq!((parked, gaps), (1, 1), "sentinels only");
            found.push(left(&redis.url()).await);
        }
        assert_eq!(found[0], found[1]);
    }
}

/// Those, with an event of one entity that comes two places early, on the straight way; so it is known by heart.
async fn one_waits(store: &RedisStore, sequence: u64) {
    let guess = Guess::Ahead { next: Sequence::new(sequence).unwrap() };
    let batch = guessed_batch(sequence, 4, sequence + 1, guess);
    let parked = store.admit(&partition(), &batch).await.unwrap();
    assert_eq!((parked.path, verdict_of(&parked, 9)), (Path::Straight, Verdict::Parked { depth: 1 }));
}

/// A gap that was given up meanwhile, by somebody else's look at the clock: what fills it is late.
#[tokio::test]
async fn a_lane_that_waits_is_looked_at_because_time_moves_it_too() {
    for layout in Layout::ALL {
        let redis = redis_server(&[]);
        let mut topic = topic(layout);
        topic.policy.gap_waits = vec![1];
        let [one, other] = [(); 2].map(|()| store_that_goes(Straight::WhenCalm, &redis.url()));
        one.open(&topic).await.unwrap();
        other.open(&topic).await.unwrap();
        for sequence in 0..20 {
            one.admit(&partition(), &other_batch(sequence)).await.unwrap();
        }
        one_waits(&one, 20).await;
        let keys = PartitionKeys::new(&partition());
        let mut direct = direct(&redis.url()).await;
        for _ in 0..1_000 {
            other.elapse(&partition(), 10).await.unwrap();
            let gaps: u64 = direct.zcard(&keys.gaps).await.unwrap();
            if gaps == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(left(&redis.url()).await.1["other-4"], "3:22;m20", "the gap was given up");
        let batch = guessed_batch(21, 4, 20, Guess::Waits);
        let late = one.admit(&partition(), &batch).await.unwrap();
        assert_eq!(
            verdict_of(&late, 9),
            Verdict::Late { sequence: Sequence::new(20).unwrap() },
            "{layout:?}"
        );
    }
}

/// What is parked may be somebody else's, though the lane's state is the same: it is not told from memory.
#[tokio::test]
async fn what_is_parked_is_known_by_heart_under_a_token_only() {
    let redis = redis_server(&[]);
    let store = store_that_goes(Straight::Always, &redis.url());
    store.open(&topic(Layout::Entry)).await.unwrap();
    for sequence in 0..20 {
        store.admit(&partition(), &other_batch(sequence)).await.unwrap();
    }
    one_waits(&store, 20).await;
    let keys = PartitionKeys::new(&partition());
    let mut direct = direct(&redis.url()).await;
    let parked = "3:21:other-4";
    let value: Vec<u8> = direct.hget(&keys.parked, parked).await.unwrap();
    let theirs = String::from_utf8(value).unwrap().replace("4/21", "x/yz");
    let _: () = direct.hset(&keys.parked, parked, theirs).await.unwrap();
    // As if somebody had been there.
    let header: String = direct.hget(&keys.meta, "header").await.unwrap();
    let without = format!("{}|-", header.rsplit_once('|').unwrap().0);
    let _: () = direct.hset(&keys.meta, "header", without).await.unwrap();
    // Nothing else in the batch asks for a token.
    let missing = vec![(other_offers(20).remove(4), ())];
    let filled = store.admit(&partition(), &Batch::form_by(missing, |_| Guess::Waits).0).await.unwrap();
    assert_eq!(filled.drained, 1);
    let entries = left(&redis.url()).await.0;
    let data: Vec<&str> = entries.iter().map(|fields| fields.last().unwrap().as_str()).collect();
    assert!(data.contains(&"x/yz") && !data.contains(&"4/21"));
}

/// An entity of which nothing is known is taken to be new. One that is not is decided by the rules, and so are those
/// that come next; one that is leaves what the script would have left.
#[tokio::test]
async fn who_seems_to_begin_with_what_comes_too_early_does_or_bars_the_others() {
    for (is_new, path) in [(true, Path::Straight), (false, Path::Barred)] {
        let redis = redis_server(&[]);
        let store = alone(&redis.url(), Layout::Entry, 10).await;
        for sequence in 0..20 {
            store.admit(&partition(), &other_batch(sequence)).await.unwrap();
        }
        let begin = |name: &'static str, sequence: u64| {
            let mut arrived: Vec<_> = other_offers(sequence).into_iter().map(|offer| (offer, ())).collect();
            let mut odd = other_offers(2).remove(0);
            odd.entity = Entity::new(name).unwrap();
            arrived.push((odd, ()));
            let guess = |is_odd| if is_odd { Guess::Begins } else { Guess::InTurn };
            Batch::form_by(arrived, |lane| guess(lane[0].entity.as_str() == name)).0
        };
        if !is_new {
            let other = store_that_goes(Straight::Never, &redis.url());
            other.open(&topic(Layout::Entry)).await.unwrap();
            let mut first = other_offers(0).remove(0);
            first.entity = Entity::new("new-1").unwrap();
            other.admit(&partition(), &Batch::form(vec![(first, ())]).0).await.unwrap();
        }
        let admitted = store.admit(&partition(), &begin("new-1", 20)).await.unwrap();
        assert_eq!((admitted.path, verdict_of(&admitted, 10)), (path, Verdict::Parked { depth: 1 }));
        let (_, lanes) = left(&redis.url()).await;
        let next = if is_new { "3:0;k1," } else { "3:1;k1," };
        assert!(lanes["new-1"].starts_with(next) && lanes["other-0"] == "3:21", "{lanes:?}");
        let keys = PartitionKeys::new(&partition());
        let mut direct = direct(&redis.url()).await;
        let born: Vec<String> = direct.lrange(&keys.born[0], 0, -1).await.unwrap();
        assert_eq!(born.iter().filter(|entity| *entity == "new-1").count(), 1);
    }
}

/// Another sidecar has moved a lane meanwhile: nothing is appended twice or out of turn.
#[tokio::test]
async fn what_is_known_by_heart_does_not_count_once_somebody_else_was_there() {
    for layout in Layout::ALL {
        let redis = redis_server(&[]);
        let one = alone(&redis.url(), layout, 10).await;
        let other = store_that_goes(Straight::WhenCalm, &redis.url());
        other.open(&topic(layout)).await.unwrap();
        // So many go straight before anything rests on what is known; then all of it does.
        for sequence in 0..20 {
            let admitted = one.admit(&partition(), &other_batch(sequence)).await.unwrap();
            assert!(matches!(admitted.path, Path::Straight), "{:?}", admitted.path);
        }
        let theirs = other.admit(&partition(), &other_batch(20)).await.unwrap();
        assert_eq!(verdict_of(&theirs, 0), Verdict::Released { sequence: Sequence::new(20).unwrap() });
        let again = one.admit(&partition(), &other_batch(20)).await.unwrap();
        let known = Verdict::Duplicate { sequence: Sequence::new(20).unwrap() };
        assert!(again.decisions.iter().all(|decision| decision.verdict == known), "{again:?}");
        let ahead = one.admit(&partition(), &other_batch(22)).await.unwrap();
        assert_eq!(verdict_of(&ahead, 0), Verdict::Parked { depth: 1 });
    }
}

/// A server that lost its last writes: what it has is older than what is known.
#[tokio::test]
async fn what_is_known_by_heart_does_not_count_in_a_store_that_went_back() {
    let redis = redis_server(&[]);
    let keys = PartitionKeys::new(&partition());
    let mut direct = direct(&redis.url()).await;
    let store = alone(&redis.url(), Layout::Entry, 10).await;
    for sequence in 0..20 {
        store.admit(&partition(), &other_batch(sequence)).await.unwrap();
    }
    let mut kept = Vec::new();
    for key in keys.all() {
        let value: Vec<u8> = redis::cmd("DUMP").arg(key).query_async(&mut direct).await.unwrap();
        kept.push((key, value));
    }
    for sequence in 20..25 {
        store.admit(&partition(), &other_batch(sequence)).await.unwrap();
    }
    for (key, value) in kept {
        let mut restore = redis::cmd("RESTORE");
        restore.arg(key).arg(0).arg(value).arg("REPLACE");
        let _: () = restore.query_async(&mut direct).await.unwrap();
    }
    // What was forgotten is missed, and not passed over in silence.
    let ahead = store.admit(&partition(), &other_batch(25)).await.unwrap();
    assert!(
        ahead.decisions.iter().all(|decision| decision.verdict == Verdict::Parked { depth: 1 }),
        "{ahead:?}"
    );
    for sequence in 20..25 {
        store.admit(&partition(), &other_batch(sequence)).await.unwrap();
    }
    let (entries, lanes) = left(&redis.url()).await;
    assert_eq!(entries.len(), (10 + 26) * EVENTS as usize);
    assert_eq!(lanes["other-0"], "3:26");
}

/// What was retired while somebody knew it by heart is woken by the rules, its tombstone removed.
#[tokio::test]
async fn what_is_known_by_heart_does_not_count_once_it_was_retired() {
    let redis = redis_server(&[]);
    let store = store_that_goes(Straight::WhenCalm, &redis.url());
    let mut topic = topic(Layout::Entry);
    topic.policy.retirement.stuck_after = 1;
    topic.policy.retirement.idle_retire_after = 1;
    store.open(&topic).await.unwrap();
    for sequence in 0..20 {
        store.admit(&partition(), &other_batch(sequence)).await.unwrap();
    }
    let mut retired = 0;
    for _ in 0..1_000 {
        retired += store.sweep(&partition(), 100, None).await.unwrap().retired;
        if retired == EVENTS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(retired, EVENTS);
    let admitted = store.admit(&partition(), &other_batch(20)).await.unwrap();
    assert_eq!(verdict_of(&admitted, 0), Verdict::Released { sequence: Sequence::new(20).unwrap() });
    let keys = PartitionKeys::new(&partition());
    let mut direct = direct(&redis.url()).await;
    let mut tombs = 0;
    for key in &keys.tombs {
        let with_sentinel: u64 = direct.hlen(key).await.unwrap();
        tombs += with_sentinel - 1;
    }
    assert_eq!(tombs, 0, "whoever is awake has no tombstone");
    assert_eq!(left(&redis.url()).await.1["other-0"], "3:21");
}
