//! Lanes that wait, and events that come too early.

use super::*;

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

/// Another sidecar has begun a new epoch, in which another event has the sequence of one that was parked here.
#[tokio::test]
async fn what_was_parked_in_an_epoch_that_has_ended_is_not_taken_for_what_is_parked_now() {
    let redis = redis_server(&[]);
    let [one, other] = [(); 2].map(|()| store_that_goes(Straight::Always, &redis.url()));
    one.open(&topic(Layout::Entry)).await.unwrap();
    other.open(&topic(Layout::Entry)).await.unwrap();
    // Another entity goes on all the while, so that tokens are left.
    let both = |epoch: u64, sequence: u64, data: &str, guess: Guess, others: u64| {
        let mut offer = other_offers(sequence).remove(0);
        offer.event.epoch = Epoch::new(epoch).unwrap();
        offer.event.payload.data = format!("{data} {sequence}").into();
        let arrived = vec![(offer, ()), (other_offers(others).remove(1), ())];
        let guess = |is_odd| if is_odd { guess } else { Guess::InTurn };
        Batch::form_by(arrived, |lane| guess(lane[0].entity.as_str() == "other-0")).0
    };
    let ahead = Guess::Ahead { next: Sequence::new(3).unwrap() };
    for (others, (sequence, guess)) in
        [(0, Guess::InTurn), (1, Guess::InTurn), (2, Guess::InTurn), (5, ahead)].into_iter().enumerate()
    {
        let batch = both(3, sequence, "old", guess, others as u64);
        assert_eq!(one.admit(&partition(), &batch).await.unwrap().path, Path::Straight);
    }
    other.admit(&partition(), &both(4, 5, "new", Guess::Unclear, 4)).await.unwrap();
    for (others, sequence) in [7, 0, 1, 2, 3, 4, 6].into_iter().enumerate() {
        let batch = both(4, sequence, "new", Guess::Waits, 5 + others as u64);
        one.admit(&partition(), &batch).await.unwrap();
    }
    let (entries, lanes) = left(&redis.url()).await;
    let data = entries.iter().map(|fields| fields.last().unwrap().as_str());
    let data: Vec<&str> = data.filter(|data| data.starts_with("old") || data.starts_with("new")).collect();
    let new: Vec<String> = (0..8).map(|n| format!("new {n}")).collect();
    assert_eq!(data[..4], ["old 0", "old 1", "old 2", "old 5"]);
    assert_eq!(data[4..], new);
    assert_eq!(lanes["other-0"], "4:8");
}

/// The store's user may not rename any more, all of a sudden: what lets a transaction pass fails halfway. The gap that is
/// filled leaves another one, so the script would also write a state.
#[tokio::test]
async fn a_permission_that_is_taken_away_changes_nothing() {
    for layout in Layout::ALL {
        let redis = redis_server(&[]);
        let mut admin = direct(&redis.url()).await;
        let mut set_user = redis::cmd("ACL");
        set_user.arg(&["SETUSER", "limited", "on", ">secret", "~*", "&*", "+@all"]);
        let _: () = set_user.query_async(&mut admin).await.unwrap();
        let store = store_that_goes(Straight::WhenCalm, &(redis.url() + "?user=limited&pass=secret"));
        store.open(&topic(layout)).await.unwrap();
        for sequence in 0..18 {
            store.admit(&partition(), &other_batch(sequence)).await.unwrap();
        }
        one_waits(&store, 18).await;
        let next = guessed_batch(19, 4, 21, Guess::Waits);
        let parked = store.admit(&partition(), &next).await.unwrap();
        assert_eq!((parked.path, verdict_of(&parked, 9)), (Path::Straight, Verdict::Parked { depth: 2 }));
        let mut take_away = redis::cmd("ACL");
        let _: () = take_away.arg(&["SETUSER", "limited", "-rename"]).query_async(&mut admin).await.unwrap();
        let filled = store.admit(&partition(), &guessed_batch(20, 4, 18, Guess::Waits)).await.unwrap();
        let released = Verdict::Released { sequence: Sequence::new(18).unwrap() };
        assert_eq!((filled.path, verdict_of(&filled, 9), filled.drained), (Path::Barred, released, 1));
        let state = &left(&redis.url()).await.1["other-4"];
        assert!(state.starts_with("3:20;k1,") && state.contains(",21;g"), "{state}");
    }
}

/// A person, or a version to come, has put something where transactions write: nobody takes it for lanes.
#[tokio::test]
async fn what_somebody_left_where_it_writes_is_not_put_back() {
    let redis = redis_server(&[]);
    let store = alone(&redis.url(), Layout::Entry, 9).await;
    let writable = PartitionKeys::new(&partition()).writable_lanes;
    let mut direct = direct(&redis.url()).await;
    let _: () = direct.hset(&writable, "job-0", "3:77").await.unwrap();
    // One that is not in its turn, against expectation.
    assert_eq!(admit(&store, 10).await.path, Path::Barred);
    let state = &left(&redis.url()).await.1["job-0"];
    assert!(state.starts_with("3:9;k1,"), "{state}");
}
