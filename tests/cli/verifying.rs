//! `seriatim verify`: clean streams, and streams that somebody wrote into by hand.

use seriatim::{
    order::Entity,
    store::{PartitionId, PartitionKeys, partition_of},
};

use crate::{
    program::{DEAD_REDIS, events, run, sidecar},
    support::redis_server,
};

/// Of the sidecars in these tests.
const PARTITIONS: u32 = 4;

#[test]
fn what_came_through_a_sidecar_is_clean() {
    let redis = redis_server(&[]);
    let sidecar = sidecar(&redis.url(), &[]);
    let lines = events("a", [2, 0, 1]) + &events("b", [0, 1, 1]);
    sidecar.publish(&lines).with(0);
    let json = run(&["verify", "--redis", &redis.url(), "--json"]).with(0).json();
    for (key, value) in
        [("entries", 5), ("entities", 2), ("inversions", 0), ("unmarked_gaps", 0), ("duplicates", 0)]
    {
        assert_eq!(json[key], value, "{key}");
    }
    assert_eq!((&json["ok"], &json["findings"]), (&true.into(), &serde_json::json!([])));
    let text = run(&["verify", "--redis", &redis.url()]).with(0).says("ok: every entity is in order\n");
    let rows: Vec<Vec<&str>> = text.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[..3], [vec!["evaluations"], vec!["entries", "5"], vec!["entities", "2"]]);
}

#[test]
fn an_empty_topic_is_clean() {
    let redis = redis_server(&[]);
    let _sidecar = sidecar(&redis.url(), &[]);
    run(&["verify", "--redis", &redis.url(), "--json"]).with(0).says("\"entries\":0").says("\"ok\":true");
}

#[test]
fn what_is_written_by_hand_is_found() {
    let redis = redis_server(&[]);
    let sidecar = sidecar(&redis.url(), &[]);
    sidecar.publish(&events("a", 0..3)).with(0);
    // 1 again; 5 jumps over 3 and 4; then 3 comes after 5.
    for sequence in [1, 5, 3] {
        append(&redis.url(), "a", &fields("a", &sequence.to_string()));
    }
    let json = run(&["verify", "--redis", &redis.url(), "--json"]).with(1).json();
    let counts =
        ["entries", "inversions", "unmarked_gaps", "duplicates"].map(|key| json[key].as_u64().unwrap());
    assert_eq!((counts, &json["ok"]), ([6, 1, 1, 1], &false.into()));
    let findings = json["findings"].as_array().unwrap();
    let found: Vec<(&str, u64, u64)> = findings
        .iter()
        .map(|f| (f["kind"].as_str().unwrap(), f["sequence"].as_u64().unwrap(), f["next"].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("duplicate", 1, 3), ("unmarked_gap", 5, 3), ("inversion", 3, 6)]);
    assert!(findings.iter().all(|f| f["entity"] == "a" && f["id"].is_string() && f["partition"].is_u64()));

    let text = run(&["verify", "--redis", &redis.url()]).with(1).says("NOT ok\n");
    text.says("unmarked gap at ").says("entity \"a\", epoch 0, sequence 5 where 3 should have come\n");
}

#[test]
fn an_entry_that_cannot_be_read_is_named() {
    let redis = redis_server(&[]);
    let _sidecar = sidecar(&redis.url(), &[]);
    append(&redis.url(), "a", &fields("a", "many"));
    let ended = run(&["verify", "--redis", &redis.url()]).with(70);
    ended.complains("field \"sequence\" cannot be read: \"many\"");
}

#[test]
fn an_unknown_topic_and_a_store_that_is_away_are_said() {
    let redis = redis_server(&[]);
    let ended = run(&["verify", "--redis", &redis.url(), "--topic", "jobs"]).with(64);
    ended.complains("there is no topic \"jobs\" in this store; `seriatim topic list` shows what there is");
    run(&["verify", "--redis", DEAD_REDIS]).with(69).complains("Connection refused");
}

fn fields<'a>(entity: &'a str, sequence: &'a str) -> [(&'a str, &'a str); 7] {
    [
        ("entity", entity),
        ("epoch", "0"),
        ("sequence", sequence),
        ("type", "running"),
        ("order", "strict"),
        ("attrs", "{}"),
        ("data", ""),
    ]
}

/// Appends to the stream of an entity's partition, past all rules.
fn append(url: &str, entity: &str, fields: &[(&str, &str)]) {
    let index = partition_of(&Entity::new(entity).unwrap(), PARTITIONS);
    let keys = PartitionKeys::new(&PartitionId { topic: "evaluations".into(), index });
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let _: String = redis::cmd("XADD").arg(&keys.events).arg("*").arg(fields).query(&mut connection).unwrap();
}
