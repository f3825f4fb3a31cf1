//! A Redis whose answers survive its process: what it has answered was handed to the kernel
//! (`appendonly yes`), so it may be killed and started again with the same files. Its clock is the
//! test's, and its disk may be one that gets full.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::process::Guarded;
use crate::{
    sidecar::BOUND,
    support::{clock::ProcessClock, redis_program},
};

/// How long one look at a starting server may take, and how long until the next one.
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub struct DurableRedis {
    process: Guarded,
    pub clock: ProcessClock,
    folder: PathBuf,
}

/// Beside its disk, which may be full.
fn log_of(folder: &Path) -> PathBuf {
    folder.with_extension("log")
}

impl DurableRedis {
    /// Its files and its socket are in `folder`.
    pub async fn start(folder: &Path) -> Self {
        let clock = ProcessClock::new();
        let process = Self::spawn(folder, &clock);
        let redis = DurableRedis { process, clock, folder: folder.to_owned() };
        redis.wait_until_ready().await;
        redis.clock.assert_owned(redis.pid());
        redis
    }

    fn spawn(folder: &Path, clock: &ProcessClock) -> Guarded {
        // The shell that guards it keeps the real clock.
        let mut command = Command::new("env");
        command.args(clock.environment().map(|(name, value)| format!("{name}={value}"))).arg(redis_program());
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--daemonize", "no"]);
        // A process that is killed leaves to the kernel what it has written, synced or not. With
        // `everysec` Redis may answer before it writes, for as long as a sync is under way.
        command.args(["--appendfsync", "no"]);
        // Its allocator's thread waits by the clock that is set, and would turn in circles.
        command.args(["--jemalloc-bg-thread", "no"]);
        command.arg("--unixsocket").arg(folder.join("redis.sock")).arg("--dir").arg(folder);
        command.arg("--logfile").arg(log_of(folder));
        Guarded::start(&command)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    async fn wait_until_ready(&self) {
        let (began, client) = (Instant::now(), redis::Client::open(self.url()).unwrap());
        let is_ready = || async {
            let mut connection = client.get_multiplexed_async_connection().await.ok()?;
            redis::cmd("PING").query_async::<String>(&mut connection).await.ok()
        };
        while !matches!(tokio::time::timeout(LOOK_MAX, is_ready()).await, Ok(Some(_))) {
            assert!(began.elapsed() < BOUND, "redis-server does not answer; it says:\n{}", self.last_words());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn last_words(&self) -> String {
        const LINES: usize = 30;
        let log = fs::read_to_string(log_of(&self.folder)).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// SIGKILL, and another one with the same files.
    pub async fn kill_and_restart(&mut self) {
        self.process.kill();
        self.process = Self::spawn(&self.folder, &self.clock);
        self.wait_until_ready().await;
    }

    /// Waits until what it wrote last is on its disk, or is not.
    pub async fn wait_for_writes(&self, are_written: bool) {
        let status = if are_written { "aof_last_write_status:ok" } else { "aof_last_write_status:err" };
        self.wait_until_it_says(&[status]).await;
    }

    /// Files anew, from memory: Redis leaves a hole in one that was cut short (finding 33), and could not be started
    /// with it again.
    pub async fn write_anew(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        let begin = || async {
            let mut connection = client.get_multiplexed_async_connection().await.ok()?;
            redis::cmd("BGREWRITEAOF").query_async::<String>(&mut connection).await.ok()
        };
        let began = Instant::now();
        // One that is under way may have begun before the hole, and ends in it.
        while begin().await.is_none_or(|said| !said.contains("started")) {
            assert!(began.elapsed() < BOUND, "redis-server does not begin to write its files anew");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.wait_until_it_says(&["aof_rewrite_in_progress:0", "aof_last_bgrewrite_status:ok"]).await;
    }

    /// Of its persistence.
    async fn wait_until_it_says(&self, words: &[&str]) {
        let (began, client) = (Instant::now(), redis::Client::open(self.url()).unwrap());
        let info = || async {
            let mut connection = client.get_multiplexed_async_connection().await.ok()?;
            redis::cmd("INFO").arg("persistence").query_async::<String>(&mut connection).await.ok()
        };
        while !info().await.is_some_and(|said| words.iter().all(|word| said.contains(word))) {
            assert!(began.elapsed() < BOUND, "redis-server never says {words:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
