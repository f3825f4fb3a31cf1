//! `seriatim doctor`: what it calls good, doubtful and bad.

use serde_json::Value;

use crate::{
    program::{DEAD_REDIS, run},
    support::redis_server,
};

/// The grade of a check, and what was said.
fn check<'a>(diagnosis: &'a Value, what: &str) -> (&'a str, &'a str) {
    let checks = diagnosis["checks"].as_array().expect("checks are a list");
    let check =
        checks.iter().find(|check| check["what"] == what).unwrap_or_else(|| panic!("{what}: {diagnosis}"));
    (check["grade"].as_str().unwrap(), check["said"].as_str().unwrap())
}

#[test]
fn a_redis_that_keeps_nothing_is_fit_with_a_warning() {
    let redis = redis_server(&[]);
    let diagnosis = run(&["doctor", "--redis", &redis.url(), "--json"]).with(0).json();
    assert_eq!(diagnosis["ok"], true);
    for (what, grade) in [("reachable", "good"), ("version", "good"), ("role", "good"), ("eviction", "good")]
    {
        assert_eq!(check(&diagnosis, what).0, grade, "{what}");
    }
    assert_eq!(check(&diagnosis, "persistence"), ("warning", "none; set appendonly yes"));
    assert!(check(&diagnosis, "losses").1.contains("a restart of Redis loses everything"));
    assert!(diagnosis["server"]["version"].is_string());
    let text = run(&["doctor", "--redis", &redis.url()]).with(0);
    text.says("ok    reachable ").says("warn  persistence  none; set appendonly yes\n");
}

#[test]
fn an_append_only_file_is_good() {
    let redis = redis_server(&["--appendonly", "yes", "--appendfsync", "always"]);
    let diagnosis = run(&["doctor", "--redis", &redis.url(), "--json"]).with(0).json();
    assert_eq!(check(&diagnosis, "persistence"), ("good", "append-only file, appendfsync always"));
    assert!(check(&diagnosis, "losses").1.contains("loses nothing that was acknowledged"));
}

#[test]
fn a_redis_that_may_evict_is_bad() {
    let redis = redis_server(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let text = run(&["doctor", "--redis", &redis.url()]).with(1);
    text.says("BAD   eviction     maxmemory-policy allkeys-lru may evict ordering state")
        .says("set noeviction\n");
    let diagnosis = run(&["doctor", "--redis", &redis.url(), "--json"]).with(1).json();
    assert_eq!((&diagnosis["ok"], check(&diagnosis, "eviction").0), (&false.into(), "bad"));
    assert!(check(&diagnosis, "memory").1.ends_with("of 100 MiB used"));
}

#[test]
fn a_redis_that_is_not_there_is_said() {
    let text = run(&["doctor", "--redis", DEAD_REDIS]).with(69);
    text.says("BAD   reachable    no answer from Redis at 127.0.0.1:1: ")
        .complains("the store cannot be reached");
    let diagnosis = run(&["doctor", "--redis", DEAD_REDIS, "--json"]).with(69).json();
    assert_eq!((&diagnosis["ok"], &diagnosis["server"]), (&false.into(), &Value::Null));
}
