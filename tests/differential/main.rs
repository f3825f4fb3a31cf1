//! The two engines against each other: random histories into the Rust rules and into
//! a real redis-server; verdicts, streams, states and clocks must be equal after every
//! step.
//!
//! A step moves the wall clock, which both engines share, and makes one call: a batch of
//! 0 to 6 events, a look at what is due or old, an operator's command, another policy. A
//! history is some hundred steps on one partition with its own policy, small limits and
//! hostile entity names.
//!
//! `SERIATIM_DIFF_STEPS` sets how many steps, `SERIATIM_DIFF_SEED` the first
//! history's seed. A failure prints the command that replays it.

#[path = "../support/mod.rs"]
mod support;

mod coverage;
mod history;
mod pair;
mod step;

use coverage::Coverage;
use history::History;
use pair::Pair;
use seriatim::{
    order::LaneState,
    store::{PartitionId, Store},
};
use step::{Call, Step};
use support::{Random, clock::RedisClock, number_from_env};

const STEPS: u64 = 100_000;
const HISTORY_STEPS: u64 = 100;
/// Far from the machine's own time, so that no mistake hides behind it.
const BEGIN_MS: u64 = 1_000_000_000_000;

#[tokio::test]
async fn both_engines_decide_alike() {
    // One entry a node, so that Redis trims to the entry, as the other engine does.
    let (clock, redis) = RedisClock::server(&["--stream-node-max-entries", "1"]);
    let (steps, seed) =
        (number_from_env("SERIATIM_DIFF_STEPS", STEPS), number_from_env("SERIATIM_DIFF_SEED", 1));
    let mut coverage = Coverage::default();
    for history in 0.. {
        if coverage.steps >= steps {
            break;
        }
        let (seed, steps) = (seed + history, HISTORY_STEPS.min(steps - coverage.steps));
        run_history(&redis.url(), &clock, seed, steps, &mut coverage).await;
    }
    coverage.report_and_check(steps >= STEPS);
}

async fn run_history(url: &str, clock: &RedisClock, seed: u64, steps: u64, coverage: &mut Coverage) {
    clock.freeze_at(BEGIN_MS);
    let mut random = Random::new(seed);
    let mut history = History::begin(&mut random);
    let begun = history.describe();
    let mut pair = Pair::open(url, clock, &history).await;
    coverage.begin();
    let mut log = Vec::new();
    for number in 1..=steps {
        let step = history.next_step(&mut random, &pair.memory, &pair.partition).await;
        log.push(step.describe());
        let before = lanes_of(&step, &pair.memory, &pair.partition).await;
        match pair.step(&step, number % 25 == 0 || number == steps).await {
            Ok(seen) => coverage.add(&history.topic, &seen, &before),
            Err(difference) => {
                let last = log.len().saturating_sub(15);
                let before: Vec<String> = before.iter().flatten().map(ToString::to_string).collect();
                panic!(
                    "the engines differ at step {number} of seed {seed}: {difference}\n{begun}\nlanes before: {before:?}\nlast steps:\n{}\nreplay: \
                     SERIATIM_DIFF_SEED={seed} SERIATIM_DIFF_STEPS={number} cargo test --test differential",
                    log[last..].join("\n"),
                );
            }
        }
    }
    pair.close().await;
}

/// The lane of each event of a step.
async fn lanes_of(step: &Step, memory: &impl Store, partition: &PartitionId) -> Vec<Option<LaneState>> {
    let Call::Admit(batch) = &step.call else { return Vec::new() };
    let mut lanes = Vec::new();
    for offer in batch.offers() {
        lanes.push(memory.resume(partition, &offer.entity).await.unwrap());
    }
    lanes
}
