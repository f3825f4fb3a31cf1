//! `seriatim topic`: what there is, and that deleting takes more than one word.

use std::process::Command;

use redis::Commands;
use seriatim::store::{PartitionId, PartitionKeys};

use crate::{
    program::{DEAD_REDIS, Ended, events, run, sidecar, start, wait_for},
    support::redis_server,
};

/// A Redis that holds the topic `evaluations` with 3 entries, 1 parked event, 2 entities.
fn redis_with_topic() -> seriatim::cli::PrivateRedis {
    let redis = redis_server(&[]);
    let sidecar = sidecar(&redis.url(), &[]);
    sidecar.publish(&(events("a", [0, 1, 3]) + &events("b", [0]))).with(0);
    sidecar.process.signal("TERM");
    sidecar.process.end().with(0);
    redis
}

fn topic(url: &str, args: &[&str]) -> Ended {
    run(&[&["topic", "--redis", url], args].concat())
}

fn connection(url: &str) -> redis::Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

fn keys_left(url: &str) -> u64 {
    redis::cmd("DBSIZE").query(&mut connection(url)).unwrap()
}

#[test]
fn topics_are_listed() {
    let redis = redis_with_topic();
    let text = topic(&redis.url(), &["list"]).with(0);
    let rows: Vec<Vec<&str>> = text.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let head = vec!["topic", "partitions", "numbering", "entries", "entities", "parked", "late"];
    assert_eq!(rows, [head, vec!["evaluations", "4", "producer", "3", "2", "1", "0"]]);
    // Flags may stand behind as well.
    let json = run(&["topic", "list", "--json", "--redis", &redis.url()]).with(0).json();
    assert_eq!((&json[0]["topic"], &json[0]["partitions"]), (&"evaluations".into(), &4.into()));
    assert_eq!(json[0]["partition_sizes"].as_array().unwrap().len(), 4);
    let empty = redis_server(&[]);
    assert_eq!(topic(&empty.url(), &["list", "--json"]).with(0).json(), serde_json::json!([]));
}

#[test]
fn one_topic_is_shown() {
    let redis = redis_with_topic();
    let text = topic(&redis.url(), &["show", "evaluations"]).with(0);
    let text = text
        .says("partitions      4\n")
        .says("layout          entry\n")
        .says("numbering       producer\n")
        .says("first_sequence  0\n");
    assert_eq!(text.stdout.lines().count(), 5 + 1 + 4, "fields, a head, partitions:\n{}", text.stdout);
    let json = topic(&redis.url(), &["show", "evaluations", "--json"]).with(0).json();
    let sum = |key: &str| {
        json["partition_sizes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|size| size[key].as_u64().unwrap())
            .sum::<u64>()
    };
    assert_eq!((sum("entries"), sum("parked"), sum("lanes")), (3, 1, 2));
    topic(&redis.url(), &["show", "jobs"]).with(64).complains("there is no topic \"jobs\" in this store");
    topic(DEAD_REDIS, &["list"]).with(69).complains("Connection refused");
}

#[test]
fn a_script_must_name_the_topic_twice_to_delete_it() {
    let redis = redis_with_topic();
    let url = redis.url();
    let before = keys_left(&url);
    let delete = |more: &[&str]| topic(&url, &[&["delete", "evaluations"], more].concat());
    delete(&[]).with(64).complains("there is nobody to ask; write --confirm evaluations");
    delete(&["--confirm", "evaluation"]).with(64).complains("nothing was deleted");
    topic(&url, &["delete", "jobs", "--confirm", "jobs"]).with(64).complains("there is no topic \"jobs\"");
    assert_eq!(keys_left(&url), before);
    delete(&["--confirm", "evaluations"]).with(0).says("topic evaluations is deleted, 3 entries with it\n");
    assert_eq!(keys_left(&url), 0);
}

#[test]
fn deletion_is_told_in_json_and_can_be_repeated_after_an_interruption() {
    let redis = redis_with_topic();
    let keys = PartitionKeys::new(&PartitionId { topic: "evaluations".into(), index: 0 });
    let _: u64 = connection(&redis.url()).del(&keys.all()[..]).unwrap();
    let ended = topic(&redis.url(), &["delete", "evaluations", "--confirm", "evaluations", "--json"]).with(0);
    let json = ended.json();
    assert!(json["deleted"] == "evaluations" && json["entries"].is_u64(), "{json}");
    assert_eq!(keys_left(&redis.url()), 0);
}

#[test]
fn a_person_is_asked_twice() {
    let redis = redis_with_topic();
    let url = redis.url();
    let before = keys_left(&url);
    in_terminal(&url, &[("Type its name: ", "no")]).with(64).says("nothing was deleted");
    in_terminal(&url, &[("Type its name: ", "evaluations"), ("Type yes: ", "y")])
        .with(64)
        .says("nothing was deleted");
    assert_eq!(keys_left(&url), before);
    let ended = in_terminal(&url, &[("Type its name: ", "evaluations"), ("Type yes: ", "yes")]).with(0);
    ended
        .says("with 3 entries, for ever?")
        .says("Stop its sidecars first")
        .says("topic evaluations is deleted");
    assert_eq!(keys_left(&url), 0);
}

/// Deletes in a terminal, made by `script`; answers each question when it is asked.
fn in_terminal(url: &str, answers: &[(&str, &str)]) -> Ended {
    let program = env!("CARGO_BIN_EXE_seriatim");
    let mut command = Command::new("script");
    command.args(["-qec", &format!("'{program}' topic delete evaluations --redis '{url}'"), "/dev/null"]);
    let mut running = start(command);
    for (question, answer) in answers {
        wait_for(question, || running.output().contains(question).then_some(()));
        running.write(format!("{answer}\n"));
    }
    running.end()
}
