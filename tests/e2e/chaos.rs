//! Real processes in trouble while events flow: killed, suspended, replaced, cut off from Redis, with
//! clocks that jump and a disk that is full, beside a plain client that writes to the same Redis by
//! itself. The same judge looks at both.
//!
//! `make chaos` runs it at full length, `make chaos-upgrade` with two versions of the programs;
//! `make test` a short one.

mod disk;
mod durable_redis;
mod faults;
mod follow;
mod ledger;
mod load;
mod plain;
mod process;
mod proxy;
mod rest;
mod sinks;
mod soak;
mod world;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use faults::{Fault, KINDS, deck};
use follow::follow;
use ledger::{Ledger, Tally};
use load::{Load, publish};
use rest::wait_for_rest;
use seriatim_checker::{Rules, Wrong};
use world::{Plan, World};

use crate::{
    sidecar::{BOUND, eventually},
    support::{Random, number_from_env},
};

const TOPIC: &str = "jobs";
const PARTITIONS: u32 = 8;
/// A missing event is waited for longer than any fault lasts. Streams are short, and are followed while they
/// are written.
const CONFIG: &str = "[topics.jobs]\npartitions = 8\nretain_entries = 5000\nterminal_wait_ms = 120000\ngap_waits_ms = [120000]\n";
const PLAN: Plan =
    Plan { sidecars: 2, workers: 3, config: CONFIG, handler_ms: 5, nack_percent: 1, spares_the_first: false };
/// Events a second, and how many may be published and not handled.
const RATE: f64 = 4_000.0;
const BACKLOG_MAX: u64 = 50_000;
/// Some 100,000 events are judged together.
const ROUNDS_OF_WINDOW: u64 = 400;
/// Windows are judged so long after the last of them was handled, or when they have not been for so
/// long that they never will.
const SETTLE: Duration = Duration::from_secs(30);
const STUCK: Duration = Duration::from_secs(180);
/// Between two faults.
const PAUSE_MS: (u64, u64) = (100, 400);

fn rules(has_workers: bool) -> Rules {
    Rules { is_final: true, has_workers, suspended: true, ..Rules::default() }
}

/// Waits for a moment in which events are in flight; whether one came.
async fn in_flight(ledger: &Ledger) -> bool {
    let until = Instant::now() + BOUND;
    while ledger.in_flight() == 0 && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    ledger.in_flight() > 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_killed_stopped_cut_off_or_full_nothing_is_lost_doubled_or_out_of_order() {
    let seed = number_from_env("SERIATIM_SEED", 1);
    let mut random = Random::new(seed);
    let deck = deck(&mut random);
    let mut world = World::start("chaos", PLAN).await;
    println!("seed {seed}: {} faults, {} versions", deck.len(), world.programs.len());
    let (ours, plain) = (world.ledger.clone(), Arc::new(Ledger::new()));
    let load = Arc::new(Load {
        rate: Mutex::new(Some(RATE)),
        stop: AtomicBool::new(false),
        rounds_of_window: ROUNDS_OF_WINDOW,
        backlog_max: BACKLOG_MAX,
    });
    let (stop, stop_following) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let publishing = tokio::spawn(publish(world.sockets(), ours.clone(), load.clone(), random.draw()));
    let url = world.plain_proxy.url();
    let writing = tokio::spawn(plain::write_plainly(url, plain.clone(), stop.clone(), random.draw()));
    let url = world.redis.url();
    let following = tokio::spawn(follow(url, TOPIC, PARTITIONS, ours.clone(), stop_following.clone()));
    eventually("events are handled", || async { ours.tally().handled > 0 }).await;

    let (began, mut faults, mut while_in_flight) = (Instant::now(), BTreeMap::<Fault, u64>::new(), 0);
    for (number, fault) in (1..).zip(&deck) {
        tokio::time::sleep(Duration::from_millis(random.within(PAUSE_MS.0, PAUSE_MS.1))).await;
        while_in_flight += usize::from(in_flight(&ours).await);
        world.strike(*fault, &mut random).await;
        *faults.entry(*fault).or_default() += 1;
        ours.judge_old(&rules(true), SETTLE, STUCK);
        if number % 100 == 0 {
            let tally = ours.tally();
            println!(
                "{number} faults, {:.0?}: {} events, {} judged",
                began.elapsed(),
                tally.sent,
                tally.judged
            );
        }
    }
    let (took, sent) = (began.elapsed(), ours.tally().sent);

    load.stop.store(true, Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    publishing.await.unwrap();
    writing.await.unwrap();
    let leftovers = wait_for_rest(&mut world).await;
    stop_following.store(true, Ordering::Relaxed);
    tokio::time::timeout(BOUND, following).await.expect("the streams can be read").unwrap();
    plain::note_all(&world.redis.url(), &plain).await;
    world.end_workers().await;
    let (cut, supervised) = (world.replies_cut(), world.supervised);
    let (ours, plain) =
        (ours.judge_rest(&rules(true), leftovers), plain.judge_rest(&rules(false), Vec::new()));
    for (fault, _, _) in KINDS {
        println!("{:<18}{:>8}", format!("{fault:?}"), faults.get(&fault).unwrap_or(&0));
    }
    let rate = sent as f64 / took.as_secs_f64();
    println!(
        "{took:.0?}, {rate:.0} events a second, {while_in_flight} faults with events in flight; {cut} replies cut, \
         {supervised} workers ended by themselves"
    );
    show(&ours, &plain);
    assert!(ours.wrongs.is_empty(), "{:#?}", ours.examples);
    assert_eq!((ours.judged, ours.appended, ours.handled), (ours.sent, ours.sent, ours.sent));
    assert!(!plain.wrongs.is_empty(), "without seriatim nothing goes wrong either: the test is blind");
    assert_eq!(while_in_flight, deck.len());
}

fn show(ours: &Tally, plain: &Tally) {
    println!("{:<18}{:>12}{:>12}", "", "seriatim", "plain XADD");
    println!("{:<18}{:>12}{:>12}", "events", ours.sent, plain.sent);
    for (wrong, name) in [
        (Wrong::Lost, "lost"),
        (Wrong::Duplicated, "duplicated"),
        (Wrong::Reordered, "reordered"),
        (Wrong::UnmarkedGap, "unmarked gaps"),
        (Wrong::FalseGap, "false gaps"),
        (Wrong::Stuck, "stuck"),
        (Wrong::Overlap, "two at once"),
        (Wrong::FencedAck, "acked when fenced"),
        (Wrong::Invented, "invented"),
    ] {
        let count = |tally: &Tally| tally.wrongs.get(&wrong).copied().unwrap_or(0);
        println!("{name:<18}{:>12}{:>12}", count(ours), count(plain));
    }
}
