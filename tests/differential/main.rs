//! The two engines against each other: random histories into the Rust rules and into
//! a real redis-server; verdicts, streams and states must be equal after every step.
//!
//! A step is one call with a batch of 0 to 6 events. A history is some hundred steps
//! on one partition with its own policy, small limits and hostile entity names.
//!
//! `SERIATIM_DIFF_STEPS` sets how many steps, `SERIATIM_DIFF_SEED` the first
//! history's seed. A failure prints the command that replays it.

#[path = "../support/mod.rs"]
mod support;

mod history;
mod pair;

use std::collections::BTreeMap;

use history::History;
use pair::Pair;
use support::{Random, number_from_env, redis_server};

const STEPS: u64 = 100_000;
const HISTORY_STEPS: u64 = 100;

/// In how many steps something was seen.
#[derive(Default)]
struct Coverage {
    steps: u64,
    seen: BTreeMap<&'static str, u64>,
}

/// Each must be seen in at least this share of the steps, in percent.
const WANTED: [(&str, u64); 14] = [
    ("RELEASED", 1),
    ("PARKED", 1),
    ("PASSED", 1),
    ("DUPLICATE", 1),
    ("LATE", 1),
    ("CONFLICT", 1),
    ("STALE", 1),
    ("REFUSED", 1),
    ("again", 1),
    ("more", 1),
    ("marker gap", 1),
    ("marker epoch", 1),
    ("slow path", 20),
    ("fast path", 5),
];

#[tokio::test]
async fn both_engines_decide_alike() {
    let redis = redis_server(&[]);
    let (steps, seed) =
        (number_from_env("SERIATIM_DIFF_STEPS", STEPS), number_from_env("SERIATIM_DIFF_SEED", 1));
    let mut coverage = Coverage::default();
    for history in 0.. {
        if coverage.steps >= steps {
            break;
        }
        let seed = seed + history;
        run_history(&redis.url(), seed, HISTORY_STEPS.min(steps - coverage.steps), &mut coverage).await;
    }
    coverage.report_and_check(steps >= STEPS);
}

async fn run_history(url: &str, seed: u64, steps: u64, coverage: &mut Coverage) {
    let mut random = Random::new(seed);
    let mut history = History::begin(&mut random);
    let mut pair = Pair::open(url, &history).await;
    let mut log = Vec::new();
    for step in 1..=steps {
        let batch = history.next_batch(&mut random, &pair.memory, &pair.partition).await;
        log.push(history::describe(&batch));
        match pair.step(&batch, step % 25 == 0 || step == steps).await {
            Ok(seen) => {
                coverage.steps += 1;
                seen.into_iter().for_each(|what| *coverage.seen.entry(what).or_default() += 1);
            }
            Err(difference) => {
                let last = log.len().saturating_sub(15);
                panic!(
                    "the engines differ at step {step} of seed {seed}: {difference}\n{}\nlast steps:\n{}\nreplay: \
                     SERIATIM_DIFF_SEED={seed} SERIATIM_DIFF_STEPS={step} cargo test --test differential",
                    history.describe(),
                    log[last..].join("\n"),
                );
            }
        }
    }
    pair.close().await;
}

impl Coverage {
    /// Prints what was seen; a long enough run that missed something fails, because
    /// it proved less than it claims.
    fn report_and_check(&self, is_long_enough: bool) {
        println!("{} steps; seen in", self.steps);
        for (what, count) in &self.seen {
            println!("  {what:<14} {count:>8}  {:>5.1} %", *count as f64 * 100.0 / self.steps as f64);
        }
        for (what, percent) in WANTED {
            let count = self.seen.get(what).copied().unwrap_or(0);
            let enough = count * 100 >= percent * self.steps;
            assert!(enough || !is_long_enough, "{what} was seen in {count} of {} steps only", self.steps);
        }
    }
}
