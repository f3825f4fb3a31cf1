//! The two stores against each other: the same random calls of the whole port to the store
//! in memory and to a real redis-server; every reply, and all that is in them afterwards,
//! must be equal.
//!
//! `differential` does that for the rules of ordering, on one partition. Here it is what
//! stands around them: topics that are made, changed and deleted; groups of workers with
//! leases, terms, commits, held entities and people's wishes; trimming below several
//! groups; reading, waiting and measuring. Names are few on purpose, so that calls meet.
//! Both stores have the same clock, and therefore the same ids.
//!
//! `SERIATIM_CONFORM_STEPS` sets how many steps, `SERIATIM_CONFORM_SEED` the first
//! history's seed. A failure prints the command that replays it.

#[path = "conformance/call.rs"]
mod call;
#[path = "conformance/commits.rs"]
mod commits;
#[path = "conformance/coverage.rs"]
mod coverage;
#[path = "conformance/history.rs"]
mod history;
#[path = "conformance/pair.rs"]
mod pair;
#[path = "conformance/reply.rs"]
mod reply;
mod support;

use coverage::Coverage;
use history::History;
use pair::Pair;
use support::{Random, clock::RedisClock, number_from_env};

const STEPS: u64 = 10_000;
const HISTORY_STEPS: u64 = 200;
/// All that is in the stores is compared every so many steps; what is likely to change, always.
const COMPARE_ALL_EVERY: u64 = 20;
/// Far from the machine's own time, so that no mistake hides behind it.
const BEGIN_MS: u64 = 1_000_000_000_000;

#[tokio::test]
async fn both_stores_keep_the_same_promises() {
    // One entry a node, so that Redis trims to the entry, as the other store does.
    let (clock, redis) = RedisClock::server(&["--stream-node-max-entries", "1"]);
    let (steps, seed) =
        (number_from_env("SERIATIM_CONFORM_STEPS", STEPS), number_from_env("SERIATIM_CONFORM_SEED", 1));
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
    let mut pair = Pair::open(url, clock).await;
    let mut log = Vec::new();
    for number in 1..=steps {
        let step = history.next_step(&mut random, &pair.memory).await;
        log.push(format!("  {number}: {step:?}"));
        match pair.step(&step, number % COMPARE_ALL_EVERY == 0 || number == steps).await {
            Ok(reply) => coverage.add(&step.call, &reply),
            Err(difference) => {
                let last = log.len().saturating_sub(15);
                panic!(
                    "the stores differ at step {number} of seed {seed}, {:?}: {difference}\nlast steps:\n{}\nreplay: \
                     SERIATIM_CONFORM_SEED={seed} SERIATIM_CONFORM_STEPS={number} cargo test --test conformance",
                    step.call,
                    log[last..].join("\n"),
                );
            }
        }
    }
}
