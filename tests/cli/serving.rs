//! `seriatim serve`: how it starts, says that it is ready, and ends.

use std::{fs, net::TcpListener};

use crate::{
    program::{DEAD_REDIS, Folder, command, events, run, run_with, serve_args, sidecar, start, wait_for},
    support::redis_server,
};

#[test]
fn ready_is_one_json_object_with_the_addresses_and_sigterm_ends_it_well() {
    let redis = redis_server(&[]);
    let sidecar = sidecar(&redis.url(), &[]);
    let port = |name: &str| {
        let address: std::net::SocketAddr = sidecar.bound[name].as_str().unwrap().parse().unwrap();
        address.port()
    };
    assert!(port("grpc") > 0 && port("web") > 0);
    assert!(sidecar.bound["socket"].is_null());
    sidecar.process.signal("TERM");
    let ended = sidecar.process.end().with(0);
    assert_eq!(ended.stdout.lines().count(), 1, "only the addresses: {}", ended.stdout);
    ended.complains("ready").complains("draining").complains("stopped");
}

#[test]
fn it_ends_with_its_parent_if_wanted() {
    let mut with_parent = sidecar("memory:", &["--exit-with-parent"]);
    with_parent.process.close_input();
    with_parent.process.end().with(0);

    let mut alone = sidecar("memory:", &[]);
    alone.process.close_input();
    alone.publish(&events("a", 0..1)).with(0);
    alone.process.signal("INT");
    alone.process.end().with(0);
}

#[test]
fn tcp_and_unix_socket_serve_at_once() {
    let (redis, folder) = (redis_server(&[]), Folder::new());
    let socket = folder.path_of("seriatim.sock");
    let sidecar = sidecar(&redis.url(), &["--socket", &socket]);
    assert_eq!(sidecar.bound["socket"], socket.as_str());
    sidecar.publish(&events("a", [1])).with(0).says("\"parked\":1");
    let unix = format!("unix:{socket}");
    run_with(&["publish", "--to", &unix, "--json"], events("a", [0])).with(0).says("\"released\":1");
    run(&["verify", "--redis", &redis.url(), "--json"]).with(0).says("\"entries\":2");
    sidecar.process.signal("TERM");
    sidecar.process.end().with(0);
    assert!(!fs::exists(&socket).unwrap(), "the socket is removed");
}

#[test]
fn an_address_in_use_is_said_clearly() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let free = "127.0.0.1:0";
    for (listen, web) in [(address.as_str(), free), (free, address.as_str())] {
        let ended = run(&["serve", "--redis", "memory:", "--listen", listen, "--web", web]).with(64);
        let ended = ended.complains(&format!("seriatim: cannot listen on {address}: Address already in use"));
        let ended = ended.complains("; stop what listens there, or choose another with --listen");
        assert_eq!(ended.stderr.matches("already in use").count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn a_socket_path_in_use_is_refused_and_one_left_behind_is_replaced() {
    let folder = Folder::new();
    let socket = folder.path_of("seriatim.sock");
    let first = sidecar("memory:", &["--socket", &socket]);
    let second = [&serve_args("memory:")[..], &["--socket", &socket]].concat();
    run(&second).with(64).complains(&format!("cannot listen on {socket}: another process listens there"));
    first.process.signal("KILL");
    first.process.end();
    assert!(fs::exists(&socket).unwrap());
    sidecar("memory:", &["--socket", &socket]);
    let file = folder.file("a file", "precious");
    let third = [&serve_args("memory:")[..], &["--socket", &file]].concat();
    run(&third).with(64).complains("something that is not a socket is there");
    assert_eq!(fs::read_to_string(file).unwrap(), "precious");
}

#[test]
fn what_is_fixed_about_a_topic_cannot_be_changed() {
    let redis = redis_server(&[]);
    let url = redis.url();
    let first = sidecar(&url, &[]);
    first.process.signal("TERM");
    first.process.end().with(0);
    run(&[&serve_args(&url)[..], &["--set", "topics.evaluations.partitions=8"]].concat()).with(64).complains(
        "seriatim: topic evaluations: partitions is fixed at 4 since the topic was created, the configuration \
         says 8; write that into the configuration, or delete the topic with `seriatim topic delete evaluations`\n",
    );
    // As it was, it starts again.
    sidecar(&url, &[]);
}

#[test]
fn a_store_that_never_comes_is_given_up() {
    let args = [&serve_args(DEAD_REDIS)[..], &["--set", "store.start_wait_ms=200"]].concat();
    let ended = run(&args).with(69);
    let ended = ended.complains("waiting for it").complains(
        "seriatim: Redis at 127.0.0.1:1 did not answer within store.start_wait_ms (200); is it running there? ",
    );
    assert_eq!(ended.stdout, "", "it was never ready");
    let last = ended.stderr.lines().last().unwrap();
    assert_eq!(last.matches("Connection refused").count(), 1, "{last}");
}

#[test]
fn a_store_that_comes_late_is_waited_for() {
    let redis = redis_server(&[]);
    let (folder, real) = (Folder::new(), redis.socket());
    let link = folder.path_of("later.sock");
    let url = format!("redis+unix://{link}");
    let mut process = start(command(&serve_args(&url)));
    wait_for("the first attempt", || process.errors().contains("waiting for it").then_some(()));
    std::os::unix::fs::symlink(real, link).unwrap();
    assert!(process.ready()["grpc"].is_string());
}

#[test]
fn the_embedded_store_serves_where_no_redis_is_installed() {
    let mut command = command(&serve_args("memory:"));
    command.env("PATH", "");
    let mut process = start(command);
    let bound = process.ready();
    let to = format!("http://{}", bound["grpc"].as_str().unwrap());
    run_with(&["publish", "--to", &to], events("a", [1, 0])).with(0).says("2 events published");
    process.signal("TERM");
    process.end().with(0).complains("nothing survives the process");
}

#[test]
fn log_lines_can_be_json() {
    let sidecar = sidecar("memory:", &["--set", "log_format=json"]);
    sidecar.process.signal("TERM");
    let ended = sidecar.process.end().with(0);
    for line in ended.stderr.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect("every line is JSON");
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
}
