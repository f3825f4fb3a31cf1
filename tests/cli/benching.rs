//! `seriatim bench`: what it reports, and that what was measured was proven. Never how fast.

use std::fs;

use serde_json::Value;

use crate::program::{Ended, Folder, command, run, start};

/// A short run. Goals may be missed, and on a busy machine a repetition may be void: both end
/// with 1.
fn bench(args: &[&str]) -> Ended {
    let folder = Folder::new();
    let mut command =
        command(&[&["bench", "--seconds", "0.2", "--repeat", "1", "--entities", "500"], args].concat());
    command.env("TMPDIR", &folder.0);
    let ended = start(command).end();
    assert!(matches!(ended.code, Some(0 | 1)), "{:?}\n{}\n{}", ended.code, ended.stdout, ended.stderr);
    let left: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "nothing is left behind: {left:?}");
    ended
}

/// The runs of a system, which must be there.
fn runs<'a>(scenario: &'a Value, system: &str) -> Vec<&'a Value> {
    let systems = scenario["systems"].as_array().unwrap();
    let system = systems.iter().find(|found| found["name"] == system);
    let runs = system.unwrap_or_else(|| panic!("{scenario}"))["repetitions"].as_array().unwrap();
    runs.iter().filter(|run| !run.is_null()).collect()
}

fn positive(run: &Value, keys: &[&str]) {
    for key in keys {
        assert!(run[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {run}");
    }
}

#[test]
fn the_open_loop_reports_every_process_and_is_verified() {
    let json = bench(&["--only", "latency", "--json"]).json();
    let scenario = &json["scenarios"][0];
    assert_eq!(
        (&scenario["name"], &scenario["failed"]),
        (&"latency".into(), &Value::Array(vec![])),
        "{json}"
    );
    for run in runs(scenario, "seriatim") {
        positive(
            run,
            &["events", "events_per_second", "client_us", "sidecar_us", "store_us", "p50_us", "p99_us"],
        );
        // What was published before the clock starts, and while it warms up, is read back, too.
        assert!(run["verified"].as_u64().unwrap() > run["events"].as_u64().unwrap(), "{run}");
    }
    for run in runs(scenario, "redis-rs XADD") {
        positive(run, &["events", "client_us", "store_us", "p50_us", "p999_us"]);
        assert!(run["verified"].is_null() && run["sidecar_us"].is_null(), "{run}");
    }
    let goals = json["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 2, "{json}");
    assert!(goals.iter().all(|goal| goal["scenario"] == "latency" && goal["found"].is_f64()), "{json}");
    let is_good = |goal: &Value| goal["outcome"] == "ok" || goal["outcome"] == "skipped";
    assert_eq!(json["ok"], goals.iter().all(is_good), "{json}");
}

#[test]
fn the_store_alone_is_beside_raw_xadd_and_files_are_written() {
    let folder = Folder::new();
    let out = folder.path_of("out");
    let ended = bench(&["--only", "commit", "--out", &out]);
    let ended = ended.says("raw XADD 64").says("seriatim 256").says("Redis CPU, 64 a call");
    let report = fs::read_to_string(folder.path_of("out/report.txt")).unwrap();
    assert!(report.contains("seriatim 16") && report.contains("events/s"), "{report}");
    let json: Value = serde_json::from_slice(&fs::read(folder.path_of("out/report.json")).unwrap()).unwrap();
    for run in runs(&json["scenarios"][0], "seriatim 64") {
        positive(run, &["events", "client_us", "store_us", "verified"]);
    }
    assert_eq!(ended.code, Some(if json["ok"] == true { 0 } else { 1 }));
    assert!(!folder.0.join("out/bench.svg").exists(), "there is nothing to draw");
}

#[test]
fn what_the_store_sends_is_added_piece_by_piece() {
    let json = bench(&["--only", "pieces", "--json"]).json();
    let scenario = &json["scenarios"][0];
    assert_eq!(scenario["failed"], Value::Array(vec![]), "{json}");
    for layout in ["entry", "batch"] {
        for piece in ["the entries", "in a transaction", "states read", "states written"] {
            for run in runs(scenario, &format!("{layout}: {piece}")) {
                positive(run, &["events", "client_us", "store_us"]);
                assert!(run["verified"].is_null(), "nothing is promised of it: {run}");
            }
        }
    }
}

#[test]
fn a_baseline_that_is_not_there_is_said_and_the_others_are_drawn() {
    let folder = Folder::new();
    let picture = folder.path_of("bench.svg");
    // Only redis-server and what starts it can be found.
    let tools = folder.path_of("bin");
    fs::create_dir(&tools).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["redis-server", "sh", "cat", "rm"] {
        let mut found = std::env::split_paths(&path).map(|folder| folder.join(tool));
        let found = found.find(|program| program.is_file()).unwrap();
        std::os::unix::fs::symlink(found, format!("{tools}/{tool}")).unwrap();
    }
    let mut command = command(&["bench", "--only", "base", "--seconds", "0.2", "--repeat", "1", "--json"]);
    command
        .args(["--svg", &picture, "--entities", "500"])
        .env("PATH", &tools)
        .env("TMPDIR", &folder.0)
        .current_dir(&folder.0);
    let json = start(command).end().json();
    let scenario = &json["scenarios"][0];
    assert_eq!(scenario["failed"], Value::Array(vec![]), "{json}");
    let skipped = scenario["skipped"].as_array().unwrap();
    // Where the peers were installed beside the binary they are found all the same.
    let known = |name: &str| {
        let is_skipped = skipped.iter().any(|skipped| skipped["system"] == name);
        let has_run = scenario["systems"].as_array().unwrap().iter().any(|system| system["name"] == name);
        is_skipped || has_run || !scenario["void"].as_array().unwrap().is_empty()
    };
    for name in ["raw XADD", "redis-rs XADD", "seriatim", "JetStream, message id", "Python, by hand"] {
        assert!(known(name), "{name}: {json}");
    }
    assert!(fs::read_to_string(&picture).unwrap().contains("</svg>"));
}

#[test]
fn what_cannot_be_measured_is_said() {
    run(&["bench", "--list"]).with(0).says("base").says("always (--full)");
    run(&["bench", "--only", "base,nothing"])
        .with(64)
        .complains("there is no such scenario; choose from base");
    run(&["bench", "--seconds", "0"]).with(64).complains("write seconds from 0.05 to 600");
    run(&["bench", "--redis-server", "/nowhere"]).with(64).complains("there is no such file");
    let mut nowhere = command(&["bench", "--only", "base"]);
    nowhere.env("PATH", "");
    start(nowhere).end().with(69).complains("apt install redis-server");
}
