//! `seriatim publish`: from a file and a pipe; what is wrong is named by its line.

use crate::{
    program::{DEAD_PORT, Folder, command, events, run, run_with, sidecar, start, wait_for},
    support::redis_server,
};

#[test]
fn a_file_and_standard_input_are_published() {
    let (redis, folder) = (redis_server(&[]), Folder::new());
    let sidecar = sidecar(&redis.url(), &[]);
    let to = sidecar.address();
    let file = folder.file("events.jsonl", events("a", [2]) + "\n" + &events("a", [1]));
    let ended = run(&["publish", "--to", &to, &file]).with(0);
    let lines: Vec<Vec<&str>> = ended.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines, [vec!["2", "events", "published"], vec!["parked", "2"]]);

    // A last line without an end counts, and so does the dash.
    let input = events("a", [0, 0]);
    let json = run_with(&["publish", "--to", &to, "--json", "-"], input.trim_end()).with(0).json();
    assert_eq!((&json["events"], &json["ok"], &json["unreadable"]), (&2.into(), &true.into(), &0.into()));
    assert_eq!(json["verdicts"], serde_json::json!({ "duplicate": 1, "released": 1 }));
    let nothing = run_with(&["publish", "--to", &to], "").with(0);
    nothing.says("0 events published");
}

#[test]
fn data_arrives_byte_for_byte() {
    let sidecar = sidecar("memory:", &[]);
    let line = r#"{"entity":"a","sequence":0,"type":"running","data":{"b": 1.0}}"#;
    sidecar.publish(line).with(0);
    // The same again is a duplicate, other data would be one too; parked events are compared.
    let parked = r#"{"entity":"a","sequence":2,"type":"running","data":{"b": 1.0}}"#;
    sidecar.publish(parked).with(0).says("\"parked\":1");
    sidecar.publish(&parked.replace("1.0", "1")).with(1).says("CONFLICT").says("do not retry");
}

#[test]
fn bad_lines_are_named_and_hold_up_nobody() {
    let redis = redis_server(&[]);
    let sidecar = sidecar(&redis.url(), &[]);
    let mut input = Vec::new();
    let lines: [&[u8]; 9] = [
        br#"{"entity":"a","sequence":0,"type":"running"}"#,
        br#"{"entity":"a","sequence":1"#,
        br#"{"entity":"a","sequence":1,"type":"running","sequnce":1}"#,
        br#"{"entity":"","sequence":0,"type":"running"}"#,
        br#"{"entity":"a","sequence":9007199254740992,"type":"running"}"#,
        br#"{"entity":"a","type":"running"}"#,
        b"{\"entity\":\"\xff\",\"sequence\":0,\"type\":\"running\"}",
        br#"{"entity":"a","sequence":1,"type":"seriatim.gap"}"#,
        br#"{"entity":"a","sequence":1,"type":"completed"}"#,
    ];
    lines.iter().for_each(|line| input.extend([line, &b"\n"[..]].concat()));
    let args = ["publish", "--to", &sidecar.address(), "--json"];
    let json = run_with(&args, &input).with(1).json();
    assert_eq!((&json["ok"], &json["unreadable"]), (&false.into(), &3.into()));
    assert_eq!(json["verdicts"], serde_json::json!({ "invalid": 4, "released": 2 }));
    let problems: Vec<&str> =
        json["problems"].as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
    for (begins, contains) in [
        ("line 2: ", "EOF while parsing"),
        ("line 3: ", "unknown field `sequnce`"),
        ("line 4: INVALID (entity): ", "at least 1 byte"),
        ("line 5: INVALID (sequence): ", "9007199254740991"),
        ("line 6: INVALID (sequence): ", "every event needs a sequence"),
        ("line 7: ", "is not UTF-8"),
        ("line 8: INVALID (type): ", "reserved for markers"),
    ] {
        let found = problems.iter().find(|problem| problem.starts_with(begins));
        assert!(found.is_some_and(|problem| problem.contains(contains)), "{begins}{contains}: {problems:#?}");
    }
    assert_eq!(problems.len(), 7, "{problems:#?}");
    run(&["verify", "--redis", &redis.url(), "--json"]).with(0).says("\"entries\":2");
    // For people the same, as lines.
    run_with(&args[..3], &input).with(1).says("3 lines are no events\n").says("line 2: ");
}

#[test]
fn only_the_first_problems_are_listed_and_the_others_counted() {
    let sidecar = sidecar("memory:", &[]);
    let json = sidecar.publish(&"x\n".repeat(25)).with(1).json();
    assert_eq!(json["problems"].as_array().unwrap().len(), 20);
    assert_eq!((&json["unreadable"], &json["further_problems"]), (&25.into(), &5.into()));
    let ended = run_with(&["publish", "--to", &sidecar.address()], "x\n".repeat(25)).with(1);
    ended.says("and 5 further problems");
}

#[test]
fn a_silent_pipe_holds_up_nothing() {
    let redis = redis_server(&[]);
    let sidecar = sidecar(&redis.url(), &[]);
    let mut publishing = start(command(&["publish", "--json", "--to", &sidecar.address()]));
    publishing.write(events("a", [0]));
    wait_for_entries(&redis.url(), 1);
    publishing.write(events("a", [1]));
    publishing.close_input();
    publishing.end().with(0).says("\"released\":2");
}

#[test]
fn a_window_of_one_publishes_everything_in_order() {
    let sidecar = sidecar("memory:", &[]);
    let args = ["publish", "--json", "--window", "1", "--to", &sidecar.address()];
    run_with(&args, events("a", 0..50)).with(0).says("\"verdicts\":{\"released\":50}");
}

#[test]
fn an_unknown_topic_ends_it_once_with_the_known_ones() {
    let sidecar = sidecar("memory:", &["--set", "topics.jobs.partitions=1"]);
    let args = ["publish", "--to", &sidecar.address(), "--topic", "evalutions"];
    let ended = run_with(&args, events("a", 0..50)).with(64);
    let said = "there is no topic \"evalutions\" here; configured are: evaluations, jobs";
    assert_eq!(ended.stderr.matches(said).count(), 1, "{}", ended.stderr);
    assert_eq!(ended.stdout, "");
}

#[test]
fn events_that_are_refused_are_published_again_for_a_while() {
    let sidecar = sidecar(
        "memory:",
        &["--set", "topics.evaluations.parked_max=1", "--set", "topics.evaluations.overflow=refuse"],
    );
    let args = ["publish", "--json", "--retry-for", "1", "--to", &sidecar.address()];
    let json = run_with(&args, events("a", [1, 2])).with(1).json();
    assert_eq!(json["verdicts"], serde_json::json!({ "parked": 1, "refused": 1 }));
    assert!(json["retries"].as_u64().unwrap() > 0, "{json}");
    let said = json["problems"][0].as_str().unwrap();
    assert!(
        said.starts_with("line 2: REFUSED (parked_max): ") && said.contains("send that one first"),
        "{said}"
    );
    // With the missing event among them all find their turn.
    sidecar.publish(&events("a", [2, 3, 0])).with(0).says("\"ok\":true");
}

#[test]
fn a_sidecar_that_is_not_there_is_said() {
    let ended = run_with(&["publish", "--to", &format!("http://{DEAD_PORT}")], events("a", 0..1)).with(69);
    ended
        .complains("cannot reach http://127.0.0.1:1: Connection refused")
        .complains("is the sidecar running there?");
    run(&["publish", "--to", "unix:/nowhere/at.sock"])
        .with(69)
        .complains("cannot reach unix:/nowhere/at.sock");
    let absent = run(&["publish", "no/such/file"]).with(64);
    absent.complains("cannot read no/such/file: No such file");
}

#[test]
fn a_sidecar_that_goes_away_is_said() {
    let redis = redis_server(&[]);
    let sidecar = sidecar(&redis.url(), &[]);
    let mut publishing = start(command(&["publish", "--json", "--to", &sidecar.address()]));
    publishing.write(events("a", [0]));
    wait_for_entries(&redis.url(), 1);
    sidecar.process.signal("KILL");
    sidecar.process.end();
    publishing.write(events("a", [1]));
    publishing.close_input();
    publishing.end().with(69).complains("publishing again is safe");
}

fn wait_for_entries(url: &str, wanted: u64) {
    wait_for("entries in the streams", || {
        let report = run(&["verify", "--redis", url, "--json"]).with(0).json();
        (report["entries"] == wanted).then_some(())
    });
}
