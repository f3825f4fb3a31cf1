//! Mistakes on purpose, one at a time: how many runs does it take until one is seen?
//!
//! A process makes one mistake from its beginning to its end. So the test starts itself again
//! for each of them, with `SERIATIM_MUTANT`; that one runs seeds from 1 on until the judge
//! finds something or something panics. Those that the simulation is not to see are for the
//! two tests that compare: `SERIATIM_DIFFERENTIAL` and `SERIATIM_CONFORMANCE` say where their
//! programs are, as `SERIATIM_UNIT_TESTS` does for those that must see nothing. `make mutants`
//! prints the table.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use seriatim::mutants::{MUTANTS, Machine};
use seriatim_checker::Wrong;

use crate::{
    number,
    plan::Plan,
    run::run,
    shrink::{line, shrink},
};

/// Seeds after which a mistake counts as unseen.
const SEEDS: u64 = 60_000;
/// With what a child says which seed saw it.
const SEEN: &str = "seen at seed ";
/// With what it says how small that run can be made: a line for `regressions.txt`.
const SMALLER: &str = "smaller: ";
/// Steps after which the tests that compare give up, and how they say what they found.
const STEPS: &str = "1000000";
const DIFFER: &str = " differ at step ";
const OF_SEED: &str = " of seed ";

thread_local! {
    /// A task may panic without anybody hearing of it.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// What is wrong in the run of a seed: nothing, a panic (`Some(None)`), or what the judge says.
fn wrong_with(seed: u64) -> Option<Option<Wrong>> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, Plan::draw(seed), Arc::default())));
    if PANICKED.take() {
        return Some(None);
    }
    let violations = outcome.expect("a panic was noted").violations;
    violations.first().map(|violation| Some(violation.wrong))
}

/// The child: makes the mistake that it was told to make.
#[test]
fn one_mutant() {
    if std::env::var("SERIATIM_MUTANT").is_err() {
        return;
    }
    std::panic::set_hook(Box::new(|_| PANICKED.set(true)));
    let seen = (1..=number("SERIATIM_SIM_SEEDS").unwrap_or(SEEDS))
        .find_map(|seed| wrong_with(seed).map(|wrong| (seed, wrong)));
    let Some((seed, wrong)) = seen else { return };
    println!("{SEEN}{seed} {}", wrong.map_or("panic".to_owned(), |wrong| format!("{wrong:?}")));
    if let Some(wrong) = wrong {
        let (cuts, _) = shrink(seed, Plan::draw(seed), wrong);
        println!("{SMALLER}{}", line(seed, &cuts, &std::env::var("SERIATIM_MUTANT").unwrap_or_default()));
    }
}

/// The seed that saw it, and what was seen.
fn hunt(mutant: &str, machine: Machine) -> Option<(u64, String)> {
    match machine {
        Machine::Simulation => simulate(mutant),
        Machine::Differential => compare(mutant, "SERIATIM_DIFFERENTIAL", "SERIATIM_DIFF_STEPS"),
        Machine::Conformance => compare(mutant, "SERIATIM_CONFORMANCE", "SERIATIM_CONFORM_STEPS"),
    }
}

/// One of the tests that compare, made to go on until it finds a difference.
fn compare(mutant: &str, program: &str, steps: &str) -> Option<(u64, String)> {
    let program = std::env::var(program).expect("scripts/mutants says where it is");
    let mut child = Command::new(program);
    child.env("SERIATIM_MUTANT", mutant).env(steps, STEPS).env("RUST_BACKTRACE", "0");
    let output = child.output().expect("it was built just now");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if !output.status.success() && !said.contains(DIFFER) {
        println!("{mutant}: it failed otherwise:\n{said}");
    }
    let (_, seed) = said.split_once(DIFFER)?.1.split_once(OF_SEED)?;
    let digits = seed.split(|other: char| !other.is_ascii_digit()).next()?;
    Some((digits.parse().ok()?, "Difference".to_owned()))
}

/// One that a unit test sees is no proof of anything else.
fn unit_tests_pass(mutant: &str) -> bool {
    let program = std::env::var("SERIATIM_UNIT_TESTS").expect("scripts/mutants says where they are");
    let mut child = Command::new(program);
    let output = child.args(["--skip", "fuzz", "--skip", "::cost::"]).env("SERIATIM_MUTANT", mutant).output();
    output.expect("it was built just now").status.success()
}

fn simulate(mutant: &str) -> Option<(u64, String)> {
    let program = std::env::current_exe().expect("this is a program");
    let mut child = Command::new(program);
    child.args(["mutants::one_mutant", "--exact", "--nocapture"]).env("SERIATIM_MUTANT", mutant);
    let output = child.output().expect("it was started just now");
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, seen) = said.split_once(SEEN)?;
    let (seed, wrong) = seen.lines().next()?.split_once(' ')?;
    if let Some((_, line)) = seen.split_once(SMALLER) {
        println!("{SMALLER}{}", line.lines().next()?);
    }
    Some((seed.parse().ok()?, wrong.to_owned()))
}

#[test]
fn every_mutant_is_seen() {
    let only = std::env::var("SERIATIM_MUTANTS").unwrap_or_default();
    let wanted: Vec<_> =
        MUTANTS.iter().filter(|(name, ..)| only.is_empty() || only.split(',').any(|o| o == *name)).collect();
    let (next, unseen) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    println!("| mutant | what goes wrong | seen by | as | seeds |\n|---|---|---|---|---|");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, machine, what)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !unit_tests_pass(name) {
                        println!("| `{name}` | {what} | a unit test | | |");
                        unseen.lock().unwrap().push(*name);
                        continue;
                    }
                    match hunt(name, *machine) {
                        Some((seed, wrong)) => println!("| `{name}` | {what} | {machine:?} | {wrong} | {seed} |"),
                        None => {
                            println!("| `{name}` | {what} | {machine:?} | nothing | |");
                            unseen.lock().unwrap().push(*name);
                        }
                    }
                }
            });
        }
    });
    let unseen = unseen.into_inner().unwrap();
    assert!(unseen.is_empty(), "not seen, or seen by a unit test: {unseen:?}");
}
