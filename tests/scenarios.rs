//! Every row of the tables in ARCHITECTURE.md, "The rules", as a scenario that both
//! engines must pass through the same port.
//!
//! The scenarios are text files in `tests/scenarios/`, whose README describes them. This
//! program finds them, runs them, and holds the page and the files together: neither
//! may have a row that the other lacks. It also checks the partitions that the page
//! publishes, because clients in other languages rely on them, and the jitter and places,
//! on which the engines must agree.

#[path = "scenarios/engine.rs"]
mod engine;
#[path = "scenarios/format.rs"]
mod format;
#[path = "scenarios/page.rs"]
mod page;
#[path = "scenarios/run.rs"]
mod run;
#[path = "scenarios/settings.rs"]
mod settings;
#[path = "scenarios/show.rs"]
mod show;
#[path = "scenarios/spread.rs"]
mod spread;
mod support;

use std::{collections::BTreeSet, fs, path::PathBuf};

use engine::Engine;
use format::Scenario;
use seriatim::{
    order::{Entity, jittered, rollout_place},
    store::{Layout, id_digest, partition_of},
};
use support::clock::RedisClock;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

/// The names of all scenarios, sorted.
fn names() -> BTreeSet<String> {
    let files = fs::read_dir(folder()).expect("the folder of scenarios is there");
    let names = files.map(|file| file.expect("the folder can be read").file_name().into_string());
    let names = names.map(|name| name.expect("names of scenarios are plain text"));
    names.filter_map(|name| name.strip_suffix(".txt").map(str::to_owned)).collect()
}

#[tokio::test]
async fn both_engines_pass_every_scenario_in_both_layouts() {
    // One entry a node, so that Redis trims to the entry, as the other engine does.
    let (clock, redis) = RedisClock::server(&["--stream-node-max-entries", "1"]);
    let mut failures = Vec::new();
    for name in names() {
        let text = fs::read_to_string(folder().join(format!("{name}.txt"))).expect("a scenario can be read");
        let report = |line, what| format!("tests/scenarios/{name}.txt:{line}: {what}");
        for layout in Layout::ALL {
            let topic = format!("{name}-{}", layout.name());
            let scenario = match Scenario::parse(&topic, layout, &text) {
                Ok(scenario) => scenario,
                Err((line, what)) => {
                    failures.push(report(line, what));
                    break;
                }
            };
            let by_redis = Engine::redis(&topic, &redis.url(), &clock).await;
            for mut engine in [Engine::memory(&topic).await, by_redis] {
                if let Err((line, what)) = run::run(&scenario, &mut engine).await {
                    failures.push(report(line, format!("{}, {}: {what}", engine.name(), layout.name())));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn every_row_has_a_file_and_every_file_a_row() {
    let rows = page::rows();
    let unique: BTreeSet<String> = rows.iter().cloned().collect();
    assert_eq!(unique.len(), rows.len(), "a row's id stands twice in ARCHITECTURE.md: {rows:?}");
    let files = names();
    let without_file: Vec<_> = unique.difference(&files).collect();
    let without_row: Vec<_> = files.difference(&unique).collect();
    assert!(
        without_file.is_empty() && without_row.is_empty(),
        "rows of ARCHITECTURE.md without a scenario: {without_file:?}; scenarios without a row: {without_row:?}"
    );
    assert!(!files.is_empty(), "no scenario was found");
}

#[test]
fn the_published_partitions_are_those_we_compute() {
    let vectors = page::vectors();
    assert!(!vectors.is_empty(), "the table of ARCHITECTURE.md was not found");
    for page::Vector { entity, hash, of_16, of_7 } in vectors {
        let found = Entity::new(&entity).expect("the page names entities");
        // An id's digest is the same hash, and the only way to see it whole.
        assert_eq!(format!("{:016x}", id_digest(&entity)), hash, "hash of {entity:?}");
        assert_eq!((partition_of(&found, 16), partition_of(&found, 7)), (of_16, of_7), "{entity:?}");
    }
}

#[test]
fn the_published_jitter_and_places_are_those_we_compute() {
    let spreads = page::spreads();
    assert!(!spreads.is_empty(), "the table of ARCHITECTURE.md was not found");
    for page::Spread { entity, waits, place } in spreads {
        let found = Entity::new(&entity).expect("the page names entities");
        assert_eq!([0, 1].map(|attempt| jittered(10_000, &found, attempt)), waits, "waits of {entity:?}");
        assert_eq!(rollout_place(&found), place, "place of {entity:?}");
    }
}

#[tokio::test]
async fn both_engines_wait_and_roll_out_as_published() {
    let (clock, redis) = RedisClock::server(&[]);
    let by_redis = Engine::redis("spread", &redis.url(), &clock).await;
    for engine in [Engine::memory("spread").await, by_redis] {
        spread::check(&engine, &page::spreads()).await;
    }
}
