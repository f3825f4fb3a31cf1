//! Wrong usage and wrong configuration: exit code 64, and a message that says what to
//! write instead.

use crate::program::{Folder, command, run, start};

#[test]
fn wrong_flags_are_refused() {
    run(&["serve", "--lisen", "x"]).with(64).complains("unexpected argument '--lisen'");
    run(&["publsh"]).with(64).complains("unrecognized subcommand 'publsh'");
    run(&["demo", "--entities", "0"]).with(64).complains("--entities");
    run(&["demo", "--embedded", "--redis", "redis://x"]).with(64).complains("cannot be used with");
    run::<&str>(&[]).with(64).complains("Usage: seriatim <COMMAND>");
}

#[test]
fn a_sound_configuration_passes_the_check() {
    run(&["serve", "--check"]).with(0).says("the configuration is sound");
    let reference = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/seriatim.toml");
    run(&["serve", "--check", "--config", reference]).with(0).says("the configuration is sound");
}

#[test]
fn a_file_that_is_wrong_is_refused_with_the_line() {
    let folder = Folder::new();
    let check = |text: &str| {
        let file = folder.file("seriatim.toml", text);
        run(&["serve", "--check", "--config", &file]).with(64).complains(&format!("seriatim: {file}: "))
    };
    check("threads = 1\n[store]\nulr = \"x\"\n").complains("line 3").complains("unknown field `ulr`");
    check("threads = \"many\"\n").complains("line 1").complains("expected usize");
    check("[store\n").complains("line 1");
    let absent = folder.path_of("absent.toml");
    let said = format!("seriatim: cannot read {absent}: No such file or directory");
    run(&["serve", "--config", &absent]).with(64).complains(&said);
}

#[test]
fn a_flag_that_is_wrong_is_named() {
    let set = |assignment: &str| run(&["serve", "--check", "--set", assignment]).with(64);
    set("store").complains("--set store: write KEY=VALUE, for example store.wait_ms=2000");
    set("store.ulr=x").complains("seriatim: --set store.ulr: unknown field `ulr`, expected one of `url`");
    set("threads=many").complains("seriatim: --set threads: ").complains("expected usize");
    set("threads.x=1").complains("--set threads.x: \"threads\" is a value, not a section");
    set("=1").complains("names no key");
    set("log=a=b=c").complains("log: \"a=b=c\" is not understood");
}

#[test]
fn a_variable_that_is_wrong_is_named_and_flags_stand_above_it() {
    let with = |name: &str, value: &str, flags: &[&str]| {
        let mut command = command(&[&["serve", "--check"], flags].concat());
        command.env(name, value);
        start(command).end()
    };
    with("SERIATIM__STORE__ULR", "x", &[])
        .with(64)
        .complains("seriatim: SERIATIM__STORE__ULR: unknown field");
    with("SERIATIM__LISTEN__GRPC", "nowhere", &[]).with(64).complains("listen.grpc: \"nowhere\"");
    with("SERIATIM__LISTEN__GRPC", "nowhere", &["--listen", "127.0.0.1:0"]).with(0);
}

#[test]
fn impossible_relations_are_refused_with_what_to_write() {
    let set = |assignment: &str| run(&["serve", "--check", "--set", assignment]).with(64);
    set("limits.in_flight_events=10").complains(
        "seriatim: limits.in_flight_events: 10 is less than limits.request_events (1024), or the largest request \
         allowed could never be taken in; write at least 1024",
    );
    set("store.wait_ms=10").complains("store.response_timeout_ms (1000)").complains("write at least 1000");
    set("topics.evaluations.partitions=0").complains("topics.evaluations.partitions: 0 is too small");
    set("topics.Bad.partitions=1").complains("1 to 64 characters a-z, 0-9 and '-'");
}

#[test]
fn bad_addresses_are_refused_with_an_example() {
    let listen = run(&["serve", "--check", "--listen", "localhost:7401"]).with(64);
    listen.complains("listen.grpc: \"localhost:7401\" is not an address").complains("\"127.0.0.1:7401\"");
    run(&["serve", "--check", "--web", "7402"]).with(64).complains("listen.web: ");
    let store = |url: &str| run(&["serve", "--check", "--redis", url]).with(64);
    store("http://host").complains("store.url: the scheme \"http\" is not known");
    store("rediss://host").complains("TLS is not built in");
    store("redis://host:port").complains("the store's URL is not understood");
    run(&["publish", "--to", "http://a b"])
        .with(64)
        .complains("write http://host:port or unix:/path/to/socket");
}

#[test]
fn the_embedded_store_cannot_be_read_from_outside() {
    for command in [&["verify"][..], &["topic", "list"], &["doctor"]] {
        let ended = run(&[command, &["--redis", "memory:"]].concat()).with(64);
        ended.complains("the embedded store lives inside its sidecar");
    }
}
