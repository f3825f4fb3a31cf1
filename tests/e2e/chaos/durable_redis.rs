//! A Redis whose answers survive its process: what it has answered was handed to the kernel
//! (`appendonly yes`), so it may be killed and started again with the same files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use super::process::Guarded;
use crate::{sidecar::BOUND, support::redis_program};

/// How long one look at a starting server may take, and how long until the next one.
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

pub struct DurableRedis {
    process: Guarded,
    folder: PathBuf,
}

impl DurableRedis {
    /// Its files and its socket are in `folder`.
    pub async fn start(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let redis = DurableRedis { process: Self::spawn(folder), folder: folder.to_owned() };
        redis.wait_until_ready().await;
        redis
    }

    fn spawn(folder: &Path) -> Guarded {
        let mut command = Command::new(redis_program());
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--daemonize", "no"]);
        // A process that is killed leaves to the kernel what it has written, synced or not. With
        // `everysec` Redis may answer before it writes, for as long as a sync is under way.
        command.args(["--appendfsync", "no"]);
        command.arg("--unixsocket").arg(folder.join("redis.sock")).arg("--dir").arg(folder);
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
            assert!(began.elapsed() < BOUND, "redis-server does not answer");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// SIGKILL, and another one with the same files.
    pub async fn kill_and_restart(&mut self) {
        self.process.kill();
        self.process = Self::spawn(&self.folder);
        self.wait_until_ready().await;
    }
}
