//! `seriatim demo`: with every kind of store; and nothing is left behind.

use std::{fs, path::Path};

use serde_json::Value;

use crate::{
    program::{DEAD_REDIS, Ended, Folder, Running, command, start, wait_for},
    support::redis_server,
};

/// Starts a demo whose temporary files go into this folder, by which its processes are known.
fn demo(folder: &Folder, args: &[&str]) -> Running {
    let mut command = command(&[&["demo"], args].concat());
    command.env("TMPDIR", &folder.0);
    start(command)
}

/// Runs one to its end and checks that nothing is left.
fn run_demo(args: &[&str]) -> Ended {
    let folder = Folder::new();
    let ended = demo(&folder, args).end();
    wait_for("the processes of the demo to end", || processes_of(&folder).is_empty().then_some(()));
    assert_eq!(files_in(&folder), Vec::<String>::new());
    ended
}

fn files_in(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(&folder.0).expect("the folder is there");
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Names of the processes that have the folder in their environment, or live in it: a
/// redis-server writes its title over its environment.
fn processes_of(folder: &Folder) -> Vec<String> {
    let wanted = folder.0.to_str().expect("the path is UTF-8");
    let belongs = |process: &Path| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let variable = format!("TMPDIR={wanted}");
        let has_variable = environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes());
        has_variable || fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd.starts_with(wanted))
    };
    let processes = fs::read_dir("/proc").expect("this system has /proc").filter_map(Result::ok);
    let ours = processes.map(|entry| entry.path()).filter(|process| belongs(process));
    let names = ours.filter_map(|process| fs::read_to_string(process.join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

/// Has all the keys it should, of the right kind.
fn checked(ended: &Ended) -> Value {
    let json = ended.json();
    for key in ["entities", "events", "violations", "duplicates", "unmarked_gaps", "stuck", "depth_p99"] {
        assert!(json[key].is_u64(), "{key}: {json}");
    }
    assert!(json["added_latency_p99_ms"].as_f64().is_some_and(|ms| ms > 0.0), "{json}");
    assert!(json["rss_mb"].as_f64().is_some_and(|mb| mb > 0.0), "{json}");
    assert!(json["store"].is_string(), "{json}");
    json
}

fn assert_in_order(json: &Value) {
    let numbers = ["entities", "events", "violations", "duplicates", "unmarked_gaps", "stuck"];
    assert_eq!(numbers.map(|key| json[key].as_u64().unwrap()), [1000, 3000, 0, 0, 0, 0], "{json}");
    assert!(
        json["violations_on_arrival"].as_u64().unwrap() > 0,
        "there was something to put in order: {json}"
    );
    assert_eq!(json["ok"], true);
}

#[test]
fn with_a_redis_of_its_own() {
    let json = checked(&run_demo(&["--json"]).with(0));
    assert_in_order(&json);
    assert!(json["store"].as_str().unwrap().contains("as a child process"), "{json}");
}

#[test]
fn with_the_embedded_store() {
    let json = checked(&run_demo(&["--json", "--embedded"]).with(0));
    assert_in_order(&json);
    assert!(json["store"].as_str().unwrap().starts_with("embedded"), "{json}");
}

#[test]
fn with_many_events_to_an_entry() {
    for args in [&["--json", "--layout", "batch"][..], &["--json", "--layout", "batch", "--embedded"]] {
        assert_in_order(&checked(&run_demo(args).with(0)));
    }
    run_demo(&["--layout", "columns"]).with(64).complains("[possible values: entry, batch]");
}

#[test]
fn where_no_redis_is_installed() {
    let folder = Folder::new();
    let mut command = command(&["demo", "--json", "--entities", "50"]);
    command.env("TMPDIR", &folder.0).env("PATH", "");
    let json = checked(&start(command).end().with(0));
    assert!(json["store"].as_str().unwrap().starts_with("embedded"), "{json}");
}

#[test]
fn without_ordering_things_go_wrong_as_foretold() {
    let json = checked(&run_demo(&["--json", "--embedded", "--no-order"]).with(0));
    assert!(json["violations"].as_u64().unwrap() > 0 && json["stuck"].as_u64().unwrap() > 0, "{json}");
    assert_eq!(
        (&json["events"], &json["duplicates"], &json["ordered"]),
        (&2990.into(), &0.into(), &false.into()),
        "all but what was lost on the way"
    );
}

/// The sidecar asks for what was lost; with executors that do not answer it gives it up.
#[test]
fn a_lost_message_is_sent_again_or_its_place_is_marked() {
    for args in [&["--json"][..], &["--json", "--embedded"]] {
        let json = checked(&run_demo(args).with(0));
        assert_eq!((&json["lost"], &json["skipped"]), (&10.into(), &0.into()), "{json}");
        assert!(json["resent"].as_u64().unwrap() >= 10, "{json}");
    }
    let json = checked(&run_demo(&["--json", "--no-resend"]).with(0));
    let numbers = ["events", "lost", "resent", "skipped", "violations", "stuck", "unmarked_gaps"];
    assert_eq!(numbers.map(|key| json[key].as_u64().unwrap()), [2990, 10, 0, 10, 0, 0, 0], "{json}");
    run_demo(&["--no-resend", "--no-order"]).with(64).complains("cannot be used with");
}

#[test]
fn a_redis_that_was_given_is_left_as_it_was() {
    let redis = redis_server(&[]);
    let json = checked(&run_demo(&["--json", "--redis", &redis.url()]).with(0));
    assert_in_order(&json);
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let keys: u64 = redis::cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, 0);
}

#[test]
fn the_same_seed_shuffles_alike() {
    let arrived = |seed: &str| {
        let ended = run_demo(&["--json", "--embedded", "--entities", "100", "--seed", seed]);
        let json = ended.with(0).json();
        ["published", "violations_on_arrival", "stuck_on_arrival"].map(|key| json[key].as_u64().unwrap())
    };
    assert_eq!(arrived("7"), arrived("7"));
    assert_ne!(arrived("7"), arrived("8"));
}

#[test]
fn people_get_tables() {
    let ended = run_demo(&["--embedded", "--entities", "100"]).with(0);
    let ended = ended.says("store: embedded").says("what a storage worker sees").says("as it came out");
    ended.says("evaluations stuck for ever").says("Every evaluation came out in order");
}

/// The variables configure a user's own sidecar; the demo's must not follow them.
#[test]
fn settings_of_another_sidecar_do_not_lead_it_astray() {
    let (redis, folder) = (redis_server(&[]), Folder::new());
    let mut command = command(&["demo", "--json", "--embedded", "--entities", "10"]);
    command.env("SERIATIM__STORE__URL", redis.url()).env("TMPDIR", &folder.0);
    checked(&start(command).end().with(0));
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let keys: u64 = redis::cmd("DBSIZE").query(&mut connection).unwrap();
    assert_eq!(keys, 0, "the embedded store was wanted");
}

#[test]
fn a_redis_that_cannot_be_used_is_said() {
    run_demo(&["--redis", DEAD_REDIS])
        .with(69)
        .complains("did not answer")
        .complains("its own message is above");
    run_demo(&["--redis", "http://x"]).with(64).complains("the scheme \"http\" is not known");
}

#[test]
fn even_if_it_is_killed_nothing_stays() {
    let folder = Folder::new();
    let demo = demo(&folder, &["--json", "--entities", "100000"]);
    // The sidecar's configuration is gone when it is ready; the folder of the Redis stays.
    wait_for("redis-server and the sidecar", || {
        let found = processes_of(&folder);
        let sidecar_and_demo = found.iter().filter(|name| *name == "seriatim").count() == 2;
        let redis = found.iter().any(|name| name.ends_with("-server"));
        (sidecar_and_demo && redis && files_in(&folder).len() == 1).then_some(())
    });
    demo.signal("KILL");
    demo.end();
    wait_for("its children to end", || processes_of(&folder).is_empty().then_some(()));
    wait_for("its files to go", || files_in(&folder).is_empty().then_some(()));
}
