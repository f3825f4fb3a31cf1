//! The clock that other tests rely on: a real redis-server must believe it to the
//! microsecond, keep working while it stands still, and go on when it does.

mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use redis::{Connection, FromRedisValue, Value};
use seriatim::cli::PrivateRedis;
use support::clock::RedisClock;

/// Some moment of the past, with milliseconds.
const MOMENT: u64 = 1_234_567_890_123;
const HOUR: u64 = 3_600_000;

/// Long enough for a busy machine; whoever waits that long has found a bug.
const PATIENCE: Duration = Duration::from_secs(60);

fn connect(redis: &PrivateRedis) -> Connection {
    let connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection
}

fn ask<T: FromRedisValue>(connection: &mut Connection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut asked = redis::cmd(words.next().unwrap());
    asked.arg(words.collect::<Vec<_>>()).query(connection).unwrap()
}

/// What the server's clock says, in microseconds.
fn time_us(connection: &mut Connection) -> u64 {
    let (seconds, micros): (u64, u64) = ask(connection, "TIME");
    seconds * 1_000_000 + micros
}

/// The same as a script sees it.
fn script_time_us(connection: &mut Connection) -> u64 {
    let time = "return redis.call('TIME')";
    let (seconds, micros): (u64, u64) = redis::cmd("EVAL").arg(time).arg(0).query(connection).unwrap();
    seconds * 1_000_000 + micros
}

/// The server's clock runs, and it is the one that we believe it to be.
fn assert_runs(clock: &RedisClock, connection: &mut Connection) -> u64 {
    let before = clock.now_ms();
    let said = time_us(connection) / 1_000;
    let after = clock.now_ms();
    assert!((before..=after).contains(&said), "{said} is not within {before} and {after}");
    said
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "this never happened: {what}");
    }
}

fn blocked(connection: &mut Connection) -> bool {
    ask::<String>(connection, "INFO clients").contains("blocked_clients:1\r\n")
}

#[test]
fn the_server_says_the_frozen_moment_exactly_and_sees_every_step() {
    let (clock, redis) = RedisClock::server(&[]);
    let mut connection = connect(&redis);
    let own_pid = format!("process_id:{}\r\n", redis.pid());
    assert!(ask::<String>(&mut connection, "INFO server").contains(&own_pid), "it can be signalled");

    clock.freeze_at(MOMENT);
    let mut says = |ms: u64| {
        assert_eq!(clock.now_ms(), ms);
        assert_eq!(time_us(&mut connection), ms * 1_000);
        assert_eq!(script_time_us(&mut connection), ms * 1_000);
    };
    says(MOMENT);
    clock.step(HOUR as i64);
    says(MOMENT + HOUR);
    clock.step(-2 * HOUR as i64);
    says(MOMENT - HOUR);
    clock.step(1);
    says(MOMENT - HOUR + 1);
    clock.freeze_at(1);
    says(1);
}

#[test]
fn a_clock_that_runs_is_the_real_one_plus_its_steps() {
    let (clock, redis) = RedisClock::server(&[]);
    let mut connection = connect(&redis);
    let real = assert_runs(&clock, &mut connection);
    clock.step(HOUR as i64);
    let ahead = assert_runs(&clock, &mut connection);
    assert!(ahead >= real + HOUR, "{ahead} is not an hour after {real}");
    clock.step(-2 * HOUR as i64);
    let behind = assert_runs(&clock, &mut connection);
    assert!(behind < real, "{behind} is not before {real}");

    clock.freeze_at(MOMENT);
    clock.step(HOUR as i64);
    clock.run_free();
    let again = assert_runs(&clock, &mut connection);
    assert!((behind..real).contains(&again), "the steps of before are kept, and only those: {again}");
    until("the clock moves", || assert_runs(&clock, &mut connection) > again);
}

#[test]
fn ids_of_entries_are_of_this_clock() {
    let (clock, redis) = RedisClock::server(&[]);
    let mut connection = connect(&redis);
    let mut add = || ask::<String>(&mut connection, "XADD stream * field value");
    clock.freeze_at(MOMENT);
    assert_eq!([add(), add()], [format!("{MOMENT}-0"), format!("{MOMENT}-1")]);
    clock.step(HOUR as i64);
    assert_eq!(add(), format!("{}-0", MOMENT + HOUR));
    clock.step(-(HOUR as i64));
    assert_eq!(add(), format!("{}-1", MOMENT + HOUR), "an id is never below the last");
}

/// What ends by the wall clock does not end while it stands still, however long that
/// really is; everything else goes on.
#[test]
fn the_server_works_while_its_clock_stands_still_and_when_it_goes_on() {
    let (clock, redis) = RedisClock::server(&[]);
    let mut connection = connect(&redis);
    let read = |timeout_ms: u64| {
        let mut connection = connect(&redis);
        let command = format!("XREAD BLOCK {timeout_ms} STREAMS stream $");
        thread::spawn(move || ask::<Value>(&mut connection, &command))
    };
    clock.freeze_at(MOMENT);
    let _: () = ask(&mut connection, "SET brief value PX 100");
    let reader = read(100);
    until("the reader is blocked", || blocked(&mut connection));

    let begun = Instant::now();
    let mut rounds = 0_u64;
    while begun.elapsed() < Duration::from_secs(2) {
        rounds += 1;
        assert_eq!(ask::<u64>(&mut connection, "INCR rounds"), rounds);
        assert_eq!(time_us(&mut connection), MOMENT * 1_000);
    }
    // A fork reads the clock, too.
    let _: () = ask(&mut connection, "BGSAVE");
    until("the snapshot is written", || {
        let said: String = ask(&mut connection, "INFO persistence");
        assert!(said.contains("rdb_last_bgsave_status:ok"), "{said}");
        said.contains("rdb_bgsave_in_progress:0") && said.contains("rdb_saves:1\r\n")
    });
    assert!(blocked(&mut connection), "the timeout of 100 ms has not ended");
    assert_eq!(ask::<u64>(&mut connection, "PTTL brief"), 100);

    // Nobody asks the server anything now: its own timers, which are real, must see it.
    clock.step(101);
    assert_eq!(reader.join().unwrap(), Value::Nil);
    assert!(!ask::<bool>(&mut connection, "EXISTS brief"));

    // A reader is woken by an entry, without the clock.
    let reader = read(100);
    until("the reader is blocked", || blocked(&mut connection));
    let _: String = ask(&mut connection, "XADD stream * field value");
    assert_ne!(reader.join().unwrap(), Value::Nil);

    clock.run_free();
    assert_runs(&clock, &mut connection);
    assert_eq!(read(20).join().unwrap(), Value::Nil, "timeouts end again");
}
