//! Mistakes on purpose, one at a time: how many runs does it take until one is seen?
//!
//! A process makes one mistake from its beginning to its end. So the test starts itself again
//! for each of them, with `SERIATIM_MUTANT`; that one runs seeds from 1 on until the judge
//! finds something or something panics. `make mutants` prints the table.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use seriatim::mutants::MUTANTS;

use crate::{number, plan::Plan, run::run};

/// Seeds after which a mistake counts as unseen.
const SEEDS: u64 = 60_000;
/// With what a child says which seed saw it.
const SEEN: &str = "seen at seed ";

thread_local! {
    /// A task may panic without anybody hearing of it.
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

/// What is wrong in the run of a seed, in a word or two.
fn wrong_with(seed: u64) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, Plan::draw(seed), Arc::default())));
    if PANICKED.take() {
        return Some("panic".to_owned());
    }
    let violations = outcome.expect("a panic was noted").violations;
    violations.first().map(|violation| format!("{:?}", violation.wrong))
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
    if let Some((seed, wrong)) = seen {
        println!("{SEEN}{seed} {wrong}");
    }
}

/// The seed that saw it, and what was seen.
fn hunt(mutant: &str) -> Option<(u64, String)> {
    let program = std::env::current_exe().expect("this is a program");
    let mut child = Command::new(program);
    child.args(["mutants::one_mutant", "--exact", "--nocapture"]).env("SERIATIM_MUTANT", mutant);
    let output = child.output().expect("it was started just now");
    let said = String::from_utf8_lossy(&output.stdout);
    let (_, seen) = said.split_once(SEEN)?;
    let (seed, wrong) = seen.lines().next()?.split_once(' ')?;
    Some((seed.parse().ok()?, wrong.to_owned()))
}

#[test]
fn every_mutant_is_seen() {
    let only = std::env::var("SERIATIM_MUTANTS").unwrap_or_default();
    let wanted: Vec<_> =
        MUTANTS.iter().filter(|(name, _)| only.is_empty() || only.split(',').any(|o| o == *name)).collect();
    let (next, unseen) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    println!("| mutant | what goes wrong | seen as | seeds |\n|---|---|---|---|");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, what)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match hunt(name) {
                        Some((seed, wrong)) => println!("| `{name}` | {what} | {wrong} | {seed} |"),
                        None => {
                            println!("| `{name}` | {what} | not seen | {SEEDS} |");
                            unseen.lock().unwrap().push(*name);
                        }
                    }
                }
            });
        }
    });
    let unseen = unseen.into_inner().unwrap();
    assert!(unseen.is_empty(), "not seen: {unseen:?}");
}
