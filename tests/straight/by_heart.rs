//! What a store knows by heart, and when that does not count.

use super::*;

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
