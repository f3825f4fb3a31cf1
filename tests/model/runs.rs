//! The configurations that must hold: all states of each are visited.

use std::{collections::BTreeSet, hash::Hash, time::Instant};

use seriatim::order::{BreakerPolicy, LatePlace, Overflow, Policy, Retirement};
use stateright::{Checker, Model};

use super::{
    admission::Admission,
    lease::Leases,
    node::{Body, Offer},
    seen::{Seen, Thing},
};

/// Asks for the full size.
const FULL: &str = "SERIATIM_MODEL_FULL";
const THREADS: &str = "SERIATIM_MODEL_THREADS";
const ONLY: &str = "SERIATIM_MODEL_ONLY";

pub fn is_full() -> bool {
    std::env::var_os(FULL).is_some()
}

fn threads() -> usize {
    std::env::var(THREADS).ok().and_then(|count| count.parse().ok()).unwrap_or(1)
}

pub fn offer(epoch: u8, sequence: u8) -> Offer {
    Offer { epoch, sequence, body: Body { name: 0, terminal: false } }
}

pub fn terminal(epoch: u8, sequence: u8) -> Offer {
    Offer { epoch, sequence, body: Body { name: 0, terminal: true } }
}

/// The same number, another content.
fn other(epoch: u8, sequence: u8) -> Offer {
    Offer { epoch, sequence, body: Body { name: 1, terminal: false } }
}

/// Two waits, a look each.
pub fn policy() -> Policy {
    Policy {
        gap_waits: vec![400, 400],
        gap_wait_live: 1_500,
        terminal_wait: 300,
        breaker: BreakerPolicy { skips: 0, window: 1_000, hold: 1_000 },
        ..Policy::default()
    }
}

/// The last wait is longer than a look: one that comes too early can be seen.
fn patient() -> Policy {
    Policy { gap_waits: vec![400, 700], ..policy() }
}

pub fn admission(offers: &[Offer], policy: Policy) -> Admission {
    Admission {
        offers: offers.to_vec(),
        policy,
        sidecars: 2,
        calls_max: 3,
        batch_max: 1,
        faults: 1,
        resends: 0,
        failovers: 0,
        looks: 0,
        modes: 0,
        sweeps: false,
        time_in_calls: false,
        waits: false,
        flaw: None,
        seen: Seen::default(),
    }
}

/// One run: the model small, the model at full size, what must have occurred.
struct Run {
    name: &'static str,
    small: Admission,
    full: Admission,
    reaches: &'static [Thing],
}

/// Visits every state and prints how many there are.
pub fn visit<M>(name: &str, model: M, seen: &Seen, reaches: &[Thing]) -> usize
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + std::fmt::Debug + 'static,
    M::Action: Clone + PartialEq + Send + Sync + std::fmt::Debug + 'static,
{
    let began = Instant::now();
    let checker = model.checker().threads(threads()).spawn_dfs().join();
    let (unique, all, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth());
    let seconds = began.elapsed().as_secs_f64();
    println!("{name:<44} {unique:>10} states {all:>11} steps  depth {depth:>3} {seconds:>7.1} s");
    checker.assert_properties();
    let missed: BTreeSet<Thing> =
        reaches.iter().copied().filter(|thing| !seen.all().contains(thing)).collect();
    assert!(missed.is_empty(), "{name} did not reach {missed:?}");
    unique
}

fn runs() -> Vec<Run> {
    let (plain, more) = (plain_runs(), adverse_runs());
    plain.into_iter().chain(more).collect()
}

fn plain_runs() -> Vec<Run> {
    use Thing::*;
    let three = admission(&[offer(0, 0), offer(0, 1), offer(0, 2)], policy());
    let five = [offer(0, 0), offer(0, 1), offer(0, 2), offer(0, 3), terminal(0, 4)];
    let epochs = [offer(0, 0), offer(0, 1), offer(1, 0), offer(1, 1), terminal(2, 0)];
    let gaps = [offer(0, 1), terminal(0, 3), offer(0, 0), offer(1, 2)];
    vec![
        Run {
            name: "calls that fail, events offered again",
            small: Admission { resends: 1, time_in_calls: true, ..three.clone() },
            full: Admission { faults: 3, resends: 2, ..admission(&five, policy()) },
            reaches: &[Released, Parked, Duplicate, Late, GapTimeout, FastPath],
        },
        Run {
            name: "time that passes in any call",
            small: Admission { faults: 1, time_in_calls: true, ..admission(&gaps[..3], patient()) },
            full: Admission { faults: 2, resends: 1, time_in_calls: true, ..admission(&five, patient()) },
            reaches: &[Released, Parked, Late, GapTimeout],
        },
        Run {
            name: "epochs, gaps that are never filled",
            small: Admission { ..admission(&gaps, policy()) },
            full: Admission { faults: 3, resends: 1, time_in_calls: true, ..admission(&epochs, policy()) },
            reaches: &[Released, Parked, Stale, GapEpoch, EpochMarker],
        },
        Run {
            name: "batches, few entries in a call",
            small: Admission { batch_max: 2, ..admission(&five[..4], Policy { append_max: 2, ..policy() }) },
            full: Admission {
                batch_max: 2,
                faults: 2,
                ..admission(&five, Policy { append_max: 2, ..policy() })
            },
            reaches: &[Released, Parked, Again, FurtherDrain],
        },
        Run {
            name: "one number, two contents",
            small: Admission { ..admission(&[offer(0, 0), offer(0, 1), other(0, 1)], policy()) },
            full: Admission {
                faults: 3,
                resends: 2,
                time_in_calls: true,
                ..admission(&[offer(0, 0), offer(0, 1), other(0, 1), offer(0, 2), other(0, 2)], policy())
            },
            reaches: &[Conflict, Duplicate],
        },
        Run {
            name: "limits that skip",
            small: admission(&five[1..4], Policy { parked_max: 1, late: LatePlace::Inline, ..policy() }),
            full: Admission {
                faults: 3,
                resends: 2,
                ..admission(&five, Policy { parked_max: 1, late: LatePlace::Inline, ..policy() })
            },
            reaches: &[GapOverflow],
        },
        Run {
            name: "limits that refuse",
            small: admission(&five[..4], Policy { ahead_max: 2, ..refusing() }),
            full: Admission {
                faults: 3,
                resends: 2,
                ..admission(&five, Policy { ahead_max: 3, ..refusing() })
            },
            reaches: &[ParkedMax, AheadMax],
        },
    ]
}

fn refusing() -> Policy {
    Policy { parked_max: 1, overflow: Overflow::Refuse, ..policy() }
}

fn adverse_runs() -> Vec<Run> {
    use Thing::*;
    let four = [offer(0, 0), offer(0, 1), offer(0, 2), offer(1, 0)];
    let ending = [offer(0, 0), terminal(0, 1), offer(0, 2), offer(1, 0)];
    let breaking = Policy { breaker: BreakerPolicy { skips: 1, window: 1_000, hold: 1_000 }, ..policy() };
    vec![
        Run {
            name: "failovers, acknowledged at once",
            small: Admission { failovers: 1, ..admission(&four[..3], policy()) },
            full: Admission { failovers: 2, faults: 1, resends: 1, ..admission(&four, policy()) },
            reaches: &[FailedOver, AckLost, Duplicate],
        },
        Run {
            name: "failovers, acknowledged by the replica",
            small: Admission { failovers: 1, waits: true, ..admission(&four[..3], policy()) },
            full: Admission {
                failovers: 2,
                waits: true,
                faults: 3,
                resends: 2,
                ..admission(&four, policy())
            },
            reaches: &[FailedOver, Duplicate],
        },
        Run {
            name: "operators, living producers",
            small: Admission { looks: 1, ..admission(&[offer(0, 1), offer(0, 3), offer(0, 0)], patient()) },
            full: Admission {
                looks: 3,
                faults: 1,
                time_in_calls: true,
                ..admission(&[offer(0, 1), offer(0, 3), offer(0, 0), offer(0, 5), offer(1, 1)], patient())
            },
            reaches: &[GapOperator, StaleView, GapTimeout],
        },
        Run {
            name: "degraded by an operator",
            small: Admission { modes: 2, ..admission(&[offer(0, 0), offer(0, 2), offer(0, 1)], policy()) },
            full: Admission {
                modes: 4,
                faults: 2,
                ..admission(&[offer(0, 0), offer(0, 2), offer(0, 1), offer(0, 4), offer(1, 1)], policy())
            },
            reaches: &[Passed, GapDegraded, DegradedByOperator, RestoredByOperator],
        },
        Run {
            name: "degraded by its breaker",
            small: admission(&[offer(0, 1), offer(0, 0), offer(0, 3)], breaking.clone()),
            full: Admission {
                modes: 1,
                faults: 2,
                time_in_calls: true,
                ..admission(&[offer(0, 1), offer(0, 0), offer(0, 3), offer(0, 5), offer(1, 0)], breaking)
            },
            reaches: &[Passed, GapTimeout, DegradedByBreaker, RestoredByBreaker, GapDegraded],
        },
        Run {
            name: "retirement and what comes after it",
            small: Admission { sweeps: true, faults: 0, ..admission(&ending[..3], retiring(FOR_EVER, 0)) },
            full: Admission {
                sweeps: true,
                faults: 3,
                resends: 2,
                ..admission(&ending, retiring(FOR_EVER, 0))
            },
            reaches: &[Sweeping, Retired],
        },
        Run {
            name: "idle lanes that are retired and woken",
            small: Admission { sweeps: true, faults: 0, ..admission(&four[..2], retiring(FOR_EVER, 500)) },
            full: Admission {
                sweeps: true,
                faults: 3,
                resends: 2,
                ..admission(&four, retiring(FOR_EVER, 500))
            },
            reaches: &[Sweeping, Waking],
        },
        Run {
            name: "tombstones that are forgotten",
            small: Admission { sweeps: true, faults: 0, ..admission(&ending[..2], retiring(1_000, 0)) },
            full: Admission { sweeps: true, faults: 3, resends: 2, ..admission(&ending, retiring(1_000, 0)) },
            reaches: &[Sweeping, Forgetting, Retired],
        },
    ]
}

/// Longer than any run.
const FOR_EVER: u64 = 1 << 40;

fn retiring(remember_for: u64, idle_retire_after: u64) -> Policy {
    let times = Retirement { stuck_after: 500, retire_after: 500, idle_retire_after, remember_for };
    Policy { retirement: times, ..policy() }
}

#[test]
fn the_rules_hold() {
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut states = 0;
    let chosen = runs().into_iter().filter(|run| run.name.contains(&only));
    for Run { name, small, full, reaches } in chosen {
        let model = if is_full() { full } else { small };
        let seen = model.seen.clone();
        states += visit(name, model, &seen, reaches);
    }
    println!("{states} states of admission, no violation");
}

/// Two entities, one of them with two events.
pub fn leases() -> Leases {
    Leases {
        stream: vec![("a", 0), ("b", 0), ("a", 1)],
        takes: 2,
        faults: 0,
        crashes: 0,
        renewals: 0,
        in_flight_max: 2,
        crashes_max: 3,
        has_suspect: false,
        is_unfenced: false,
        seen: Seen::default(),
    }
}

#[test]
fn the_leases_hold() {
    use Thing::*;
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut states = 0;
    let short = Leases { stream: vec![("a", 0)], ..leases() };
    let two = Leases { stream: vec![("a", 0), ("a", 1)], ..leases() };
    // Some are too large for a short run.
    let runs: [(&str, Option<Leases>, Leases, &[Thing]); 5] = [
        (
            "a partition changes hands",
            Some(short.clone()),
            Leases { renewals: 1, ..leases() },
            &[TakenOver, FencedCommit, GivenBack],
        ),
        (
            "a partition changes hands twice",
            None,
            Leases { takes: 3, ..two.clone() },
            &[TakenOver, FencedCommit, GivenBack, Suspect],
        ),
        (
            "answers that are lost",
            Some(Leases { faults: 1, ..short.clone() }),
            Leases { faults: 2, ..two.clone() },
            &[TakenOver, FencedCommit, AppliedOnce],
        ),
        (
            "workers that crash",
            None,
            Leases { crashes: 1, ..two.clone() },
            &[TakenOver, Suspect, StrayFenced],
        ),
        (
            "an event that ends its workers",
            Some(Leases { has_suspect: true, crashes: 1, crashes_max: 1, ..short }),
            Leases { has_suspect: true, crashes: 1, crashes_max: 1, ..two },
            &[TakenOver, Suspect, DeadLetter, StrayFenced],
        ),
    ];
    for (name, small, full, reaches) in runs.into_iter().filter(|run| run.0.contains(&only)) {
        let Some(model) = (if is_full() { Some(full) } else { small }) else { continue };
        let seen = model.seen.clone();
        states += visit(name, model, &seen, reaches);
    }
    println!("{states} states of leases, no violation");
}
