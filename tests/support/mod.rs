//! What several test programs need: a real redis-server of their own and seeded
//! randomness. A test that cannot have its server fails; it does not skip.
#![allow(dead_code, reason = "each test program uses its own part")]

pub mod clock;
pub mod manual_clock;

use std::{
    env,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use seriatim::{
    cli::PrivateRedis,
    store::{RedisSettings, RedisStore, Straight},
};

pub fn redis_program() -> PathBuf {
    PrivateRedis::find().expect("redis-server is needed: run `make test`, which installs it")
}

pub fn redis_server(extra: &[&str]) -> PrivateRedis {
    PrivateRedis::start(&redis_program(), extra).expect("redis-server starts")
}

pub fn redis_store(url: &str) -> RedisStore {
    store_that_goes(Straight::default(), url)
}

pub fn store_that_goes(straight: Straight, url: &str) -> RedisStore {
    let wait = std::time::Duration::from_secs(10);
    let settings =
        RedisSettings { url: url.to_owned(), connect_timeout: wait, response_timeout: wait, straight };
    // As processes do, each store has a number of its own.
    static STORES: AtomicU64 = AtomicU64::new(1);
    RedisStore::new(settings, STORES.fetch_add(1, Ordering::Relaxed)).expect("the URL is well formed")
}

/// A connection past the store. More patient than a client is by default: the machine may be
/// busy, and whoever is slow is not wrong.
pub async fn direct(url: &str) -> redis::aio::MultiplexedConnection {
    let wait = Some(std::time::Duration::from_secs(30));
    let config = redis::AsyncConnectionConfig::new().set_connection_timeout(wait).set_response_timeout(wait);
    let client = redis::Client::open(url).expect("the URL is well formed");
    client.get_multiplexed_async_connection_with_config(&config).await.expect("the server answers")
}

/// The project's generator, with what histories need.
#[derive(Clone)]
pub struct Random(seriatim::random::Random);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seriatim::random::Random::from_seed(seed))
    }

    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        self.0.shuffle(items);
    }

    /// A number in `from..=to`.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// A number from the environment, to run more or to repeat a failure.
pub fn number_from_env(name: &str, default: u64) -> u64 {
    env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}

/// Says that a test did not run, so that `make test` can count it: a skip that nobody
/// sees is worth less than no test.
pub fn skipped(what: &str, why: &str) {
    use std::io::Write;
    println!("SKIPPED {what}: {why}");
    if let Some(file) = env::var_os("SERIATIM_SKIPS") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
        writeln!(file, "{what}: {why}").unwrap();
    }
}

/// Sends a signal by its name, for example STOP.
pub fn signal(pid: u32, name: &str) {
    let status = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(status.unwrap().success(), "process {pid} is there to be signalled");
}
