//! `seriatim consume`, `group` and `dead`: a worker on the command line, and what a person
//! decides about workers.

use crate::{
    program::{DEAD_REDIS, Ended, events, run, sidecar},
    support::redis_server,
};

fn command(url: &str, args: &[&str]) -> Ended {
    run(&[args, &["--redis", url]].concat())
}

fn lines(ended: &Ended) -> Vec<serde_json::Value> {
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn events_are_printed_in_order_once_and_the_next_worker_goes_on() {
    let redis = redis_server(&[]);
    let (url, sidecar) = (redis.url(), sidecar(&redis.url(), &[]));
    sidecar.publish(&events("a", [2, 0, 1])).with(0);
    let first = command(&url, &["consume", "--group", "g", "--count", "2"]).with(0);
    let read: Vec<_> = lines(&first).iter().map(|line| line["sequence"].as_u64().unwrap()).collect();
    assert_eq!(read, [0, 1]);
    let second = command(&url, &["consume", "--group", "g", "--idle-ms", "700"]).with(0);
    let second = &lines(&second)[0];
    assert_eq!(
        (&second["sequence"], &second["order"], &second["attempt"]),
        (&2.into(), &"strict".into(), &1.into())
    );
    // Another group, and one that begins at the end.
    assert_eq!(lines(&command(&url, &["consume", "--group", "h", "--idle-ms", "700"]).with(0)).len(), 3);
    let late = command(&url, &["consume", "--group", "i", "--from", "end", "--idle-ms", "500"]).with(0);
    assert_eq!(late.stdout, "");
}

#[test]
fn a_command_answers_by_its_exit_code_and_what_fails_is_a_dead_letter_until_somebody_decides() {
    let redis = redis_server(&[]);
    let (url, sidecar) = (redis.url(), sidecar(&redis.url(), &[]));
    sidecar.publish(&(events("bad", [0, 1, 2]) + &events("good", [0, 1]))).with(0);
    let fails = "grep -qv bad || { echo cannot store it >&2; exit 3; }";
    let worker = |exec: &str| {
        let words = ["consume", "--group", "g", "--idle-ms", "900", "--in-flight", "4", "--exec", exec];
        command(&url, &[&words[..], &["--set", "delivery.attempts_max=1"]].concat())
    };
    worker(fails).with(0);
    let dead = ["--group", "g"];
    let list = |more: &[&str]| command(&url, &[&["dead", "list"], &dead[..], more].concat());
    list(&[]).with(0).says("bad      dead       3         1  exit status: 3: cannot store it");
    let json = list(&["--json"]).with(0).json();
    assert_eq!(
        (&json[0]["entity"], &json[0]["events"], json.as_array().unwrap().len()),
        (&"bad".into(), &3.into(), 1)
    );
    let shown = command(&url, &["dead", "show", "bad", "--group", "g", "--json"]).with(0).json();
    let held: Vec<_> =
        shown["events"].as_array().unwrap().iter().map(|event| event["sequence"].as_u64()).collect();
    assert_eq!(held, [Some(0), Some(1), Some(2)]);
    command(&url, &["group", "list"]).with(0).says("g         ok        0          0     1     1");

    // One is given up, the rest is handled in order.
    command(&url, &["dead", "skip", "bad", "--group", "g"]).with(0).says("behind a gap for its first event");
    let handled = worker("cat").with(0);
    let handled: Vec<_> = lines(&handled)
        .iter()
        .map(|line| format!("{} {}", line["order"].as_str().unwrap(), line["sequence"]))
        .collect();
    assert_eq!(handled, ["gap 0", "strict 1", "strict 2"]);
    assert_eq!(list(&["--json"]).with(0).json(), serde_json::json!([]));

    command(&url, &["dead", "redrive", "bad", "--group", "g"])
        .with(1)
        .complains("nothing of \"bad\" is held");
    command(&url, &["dead", "show", "bad", "--group", "g"]).with(1).complains("nothing of \"bad\" is held");
    command(&url, &["dead", "list"]).with(64).complains("say which group");
    command(&url, &["dead", "list", "--group", "nope"]).with(64).complains("there is no group \"nope\"");
}

#[test]
fn a_group_can_begin_behind_an_entry() {
    let redis = redis_server(&[]);
    let (url, sidecar) = (redis.url(), sidecar(&redis.url(), &[]));
    sidecar.publish(&events("a", [0, 1, 2])).with(0);
    let all = lines(&command(&url, &["consume", "--group", "all", "--count", "3"]).with(0));
    let first = all[0]["id"].as_str().unwrap();
    command(&url, &["group", "register", "g", "--after", first]).with(0).says("g: registered");
    let read = lines(&command(&url, &["consume", "--group", "g", "--idle-ms", "700"]).with(0));
    // It begins there, without a gap for what was before.
    let ids = |lines: &[serde_json::Value]| lines.iter().map(|line| line["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&read), ids(&all[1..]));
    let bad = command(&url, &["group", "register", "h", "--after", "yesterday"]).with(64);
    bad.complains("\"yesterday\" is not a stream id, which reads like 1763000000000-0");
    command(&url, &["group", "register", "h", "--after", first, "--from", "end"]).with(64);
    let json = command(&url, &["group", "list", "--json"]).with(0).json();
    assert_eq!(json.as_array().unwrap().len(), 2, "h was not registered: {json}");
}

#[test]
fn groups_are_registered_paused_and_removed() {
    let redis = redis_server(&[]);
    let (url, sidecar) = (redis.url(), sidecar(&redis.url(), &[]));
    command(&url, &["group", "register", "storage"]).with(0).says("storage: registered");
    command(&url, &["group", "register", "storage"]).with(0).says("was registered already");
    command(&url, &["group", "register", "Not A Name"]).with(64).complains("is not made of");
    sidecar.publish(&events("a", [0])).with(0);
    let json = command(&url, &["group", "list", "--json"]).with(0).json();
    assert_eq!((&json[0]["group"], &json[0]["registered"]), (&"storage".into(), &true.into()));
    assert!(json[0]["behind_ms"].as_u64().unwrap() > 0, "{json}");

    command(&url, &["group", "pause", "storage"]).with(0).says("storage: is paused");
    let consume = ["consume", "--group", "storage", "--idle-ms", "900"];
    assert_eq!(command(&url, &consume).with(0).stdout, "");
    command(&url, &["group", "resume", "storage"]).with(0).says("storage: goes on");
    command(&url, &["group", "pause", "storage", "--entity", "a"]).with(0).says("\"a\" is paused");
    assert_eq!(command(&url, &consume).with(0).stdout, "");
    command(&url, &["group", "resume", "storage", "--entity", "a"]).with(0).says("\"a\" goes on");
    assert_eq!(lines(&command(&url, &consume).with(0)).len(), 1);
    command(&url, &["group", "resume", "storage", "--entity", "a"]).with(1).says("is not held");
    command(&url, &["group", "pause", "nope"]).with(64).complains("there is no group \"nope\"");

    command(&url, &["group", "remove", "storage", "--confirm", "other"])
        .with(64)
        .complains("nothing was removed");
    command(&url, &["group", "remove", "storage", "--confirm", "storage"]).with(0).says("removed");
    assert_eq!(command(&url, &["group", "list", "--json"]).with(0).json(), serde_json::json!([]));
    command(&url, &["consume", "--group", "g", "--topic", "nope"])
        .with(64)
        .complains("there is no topic \"nope\"");
    command(&url, &["consume", "--group", "A"]).with(64).complains("the group \"A\"");
    command(&url, &["consume", "--group", "g", "--set", "delivery.retry_base_ms=1"])
        .with(64)
        .complains("unsafe_retry");
    run(&["consume", "--group", "g", "--redis", DEAD_REDIS]).with(69);
}
