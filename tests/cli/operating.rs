//! `seriatim skip`, `degrade`, `restore` and `reconcile`: an operator decides, and the
//! stream says so.

use redis::Commands;
use seriatim::store::{PartitionId, PartitionKeys};

use crate::{
    program::{DEAD_REDIS, Ended, events, run, sidecar},
    support::redis_server,
};

/// Attributes of all markers of the topic, partition after partition.
fn markers(url: &str) -> Vec<serde_json::Value> {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let mut found = Vec::new();
    for index in 0..4 {
        let keys = PartitionKeys::new(&PartitionId { topic: "evaluations".into(), index });
        let entries: Vec<(String, Vec<String>)> =
            redis::cmd("XRANGE").arg(keys.events).arg("-").arg("+").query(&mut connection).unwrap();
        for (_, fields) in entries {
            let field = |name: &str| fields.iter().position(|field| field == name).map(|at| &fields[at + 1]);
            if field("order").unwrap() == "marker" {
                found.push(serde_json::from_str(field("attrs").unwrap()).unwrap());
            }
        }
    }
    found
}

fn command(url: &str, args: &[&str]) -> Ended {
    run(&[args, &["--redis", url]].concat())
}

#[test]
fn one_gap_is_given_up_and_the_marker_says_by_whom_and_why() {
    let redis = redis_server(&[]);
    let (url, sidecar) = (redis.url(), sidecar(&redis.url(), &[]));
    sidecar.publish(&events("a", [0, 3, 4])).with(0);
    command(&url, &["skip", "a", "--dry-run"]).with(0).says("would be given up: 1 to 2 of \"a\" in epoch 0");
    assert_eq!(markers(&url), Vec::<serde_json::Value>::new());
    command(&url, &["skip", "a", "--next", "7"]).with(1).complains("its gap begins with 1, not with 7");
    let json =
        command(&url, &["skip", "a", "--by", "Ann \"ops\"", "--note", "host is gone", "--json"]).with(0);
    let json = json.json();
    assert_eq!((&json["from"], &json["to"], &json["skipped"]), (&1.into(), &2.into(), &true.into()));
    let marker = &markers(&url)[0];
    assert_eq!((&marker["reason"], &marker["from"]), (&"operator".into(), &1.into()));
    assert_eq!((&marker["by"], &marker["note"]), (&"Ann \"ops\"".into(), &"host is gone".into()));
    assert!(marker["waited"].is_u64(), "{marker}");
    // Twice is once too often; and nobody is skipped by mistake.
    command(&url, &["skip", "a"]).with(1).complains("it has no gap");
    command(&url, &["skip", "b"]).with(1).complains("nothing is known of this entity");
    command(&url, &["skip", "a", "--topic", "nope"]).with(64).complains("there is no topic \"nope\"");
    run(&["skip", "a", "--redis", DEAD_REDIS]).with(69);
}

#[test]
fn a_topic_is_degraded_and_restored_and_both_are_marked() {
    let redis = redis_server(&[]);
    let (url, sidecar) = (redis.url(), sidecar(&redis.url(), &[]));
    command(&url, &["degrade"]).with(0).says("4 of 4 partitions are now degraded");
    command(&url, &["degrade", "--partition", "1"])
        .with(0)
        .says("0 of 1 partitions")
        .says("were degraded already");
    sidecar.publish(&events("a", [1])).with(0).says("\"passed\":1");
    command(&url, &["topic", "show", "evaluations"]).with(0).says("degraded\n");
    command(&url, &["skip", "a"]).with(1).complains("its events pass at present");
    let json = command(&url, &["restore", "--json"]).with(0).json();
    assert_eq!((&json["degraded"], json["changed"].as_array().unwrap().len()), (&false.into(), 4));
    sidecar.publish(&events("b", [1])).with(0).says("\"parked\":1");
    assert_eq!(markers(&url).iter().filter(|marker| marker["reason"] == "operator").count(), 8);
    command(&url, &["degrade", "--partition", "4"]).with(64).complains("has partitions 0 to 3, not 4");
}

#[test]
fn what_was_done_before_a_failure_is_told() {
    let redis = redis_server(&[]);
    let (url, _sidecar) = (redis.url(), sidecar(&redis.url(), &[]));
    let mut connection = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    let keys = PartitionKeys::new(&PartitionId { topic: "evaluations".into(), index: 2 });
    let header: String = connection.hget(&keys.meta, "header").unwrap();
    let () = connection.hset(&keys.meta, "header", header.replace('w', "w9")).unwrap();
    command(&url, &["degrade"])
        .with(70)
        .says("2 of 2 partitions are now degraded")
        .complains("partitions [2, 3] may be as they were")
        .complains("written by another version");
    let json = command(&url, &["restore", "--json"]).with(70).json();
    assert_eq!((&json["changed"], &json["left"]), (&[0, 1].as_slice().into(), &[2, 3].as_slice().into()));
}

#[test]
fn what_is_out_of_place_is_told_and_mended() {
    let redis = redis_server(&[]);
    let (url, sidecar) = (redis.url(), sidecar(&redis.url(), &[]));
    sidecar.publish(&(events("a", [0, 2]) + &events("b", [0]))).with(0);
    command(&url, &["reconcile"]).with(0).says("ok: nothing is lost");
    // Somebody deletes by hand what a sidecar looks at.
    let mut connection = redis::Client::open(url.as_str()).unwrap().get_connection().unwrap();
    for index in 0..4 {
        let keys = PartitionKeys::new(&PartitionId { topic: "evaluations".into(), index });
        let _: u64 = connection.zrem(keys.gaps, "a").unwrap();
    }
    let json = command(&url, &["reconcile", "--json"]).with(0).json();
    assert_eq!((&json["mended"], &json["kinds"]["unlisted_gap"]), (&1.into(), &1.into()), "{json}");
    assert_eq!(json["out_of_place"][0]["entity"], "a");
    command(&url, &["reconcile"]).with(0).says("mended        0");
    command(&url, &["reconcile", "--topic", "nope"]).with(64).complains("there is no topic \"nope\"");
}
