//! A partition that is full, as its operators see it: in the log, and in `topic show`.

use redis::Commands;
use seriatim::store::{PartitionId, PartitionKeys};

use crate::{
    program::{run, sidecar, wait_for},
    support::redis_server,
};

#[test]
fn a_full_partition_is_told_once_with_the_group_that_is_behind() {
    let redis = redis_server(&[]);
    let limits = ["topics.evaluations.entries_max=1000", "topics.evaluations.retain_entries=100"];
    let sidecar = sidecar(&redis.url(), &["--set", limits[0], "--set", limits[1]]);
    let keys = PartitionKeys::new(&PartitionId { topic: "evaluations".into(), index: 2 });
    let mut direct = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let _: () = direct.hset(&keys.groups, "billing", "0-0").unwrap();
    let mut pipe = redis::pipe();
    for sequence in 0..1_000 {
        let add = pipe.cmd("XADD").arg(&keys.events).arg("*").arg("entity").arg("e").arg("epoch").arg(0);
        add.arg("sequence").arg(sequence).arg("type").arg("running").arg("order").arg("strict");
        add.arg("attrs").arg("{}").arg("data").arg("").ignore();
    }
    let _: () = pipe.query(&mut direct).unwrap();
    let told = || sidecar.process.errors().matches("this partition is full").count();
    wait_for("the log to tell", || (told() > 0).then_some(()));
    let log = sidecar.process.errors();
    let line = log.lines().find(|line| line.contains("this partition is full")).unwrap();
    for part in ["evaluations.2", "billing", "0-0", "`seriatim group list`", "WARN"] {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    let show =
        |more: &[&str]| run(&[&["topic", "--redis", &redis.url(), "show", "evaluations"], more].concat());
    let shown = show(&[]).with(0);
    // Fields, a head, partitions.
    let row = shown.stdout.lines().nth(5 + 1 + 2).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!((words[0], words[1]), ("2", "1,000"), "{}", shown.stdout);
    assert_eq!(words[words.len() - 3..], ["0-0", "billing", "ordered,full"], "{}", shown.stdout);
    let json = show(&["--json"]).with(0).json();
    let (full, other) = (&json["partition_sizes"][2], &json["partition_sizes"][1]);
    assert_eq!((&full["full"], &full["floor_group"]), (&true.into(), &"billing".into()), "{json}");
    assert!(other["full"] == false && other["floor"].is_null(), "{json}");

    let newest: Vec<(String, Vec<String>)> = redis::cmd("XREVRANGE")
        .arg(&keys.events)
        .arg("+")
        .arg("-")
        .arg("COUNT")
        .arg(1)
        .query(&mut direct)
        .unwrap();
    let _: () = direct.hset(&keys.groups, "billing", &newest[0].0).unwrap();
    let is_over = || sidecar.process.errors().contains("this partition is no longer full");
    wait_for("the log to tell that it is over", || is_over().then_some(()));
    assert_eq!(told(), 1, "{}", sidecar.process.errors());
}
