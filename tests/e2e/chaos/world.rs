//! All processes of a run: one Redis, some sidecars and workers, and what stands between them.

use std::{env, fs, path::PathBuf, sync::Arc};

use super::{
    TOPIC,
    disk::SmallDisk,
    durable_redis::DurableRedis,
    ledger::Ledger,
    process::Programs,
    proxy::Proxy,
    sinks::{Job, Worker},
};
use crate::{
    sidecar::{Launch, Sidecar},
    support::{clock::ProcessClock, skipped},
};

pub const GROUP: &str = "storage";
/// Short, so that a worker can be suspended for longer.
pub const LEASE_MS: u64 = 2_000;

/// How large it is, and what its processes are told.
#[derive(Clone)]
pub struct Plan {
    pub sidecars: usize,
    pub workers: usize,
    /// Handed to every sidecar.
    pub config: &'static str,
    pub handler_ms: u64,
    pub nack_percent: u64,
    /// The first sidecar and the first worker are never killed.
    pub spares_the_first: bool,
}

/// A sidecar that is started again after its end, at the same socket.
pub struct SidecarPlace {
    pub process: Option<Sidecar>,
    pub proxy: Proxy,
    pub clock: ProcessClock,
    /// Which of the programs it runs.
    pub version: usize,
    socket: PathBuf,
}

pub struct WorkerPlace {
    pub process: Worker,
    pub proxy: Proxy,
    pub version: usize,
}

pub struct World {
    pub plan: Plan,
    pub redis: DurableRedis,
    pub sidecars: Vec<SidecarPlace>,
    pub workers: Vec<WorkerPlace>,
    /// In front of the same Redis, for whoever writes to it without a sidecar.
    pub plain_proxy: Proxy,
    pub ledger: Arc<Ledger>,
    /// Under the files of Redis; none if it cannot be mounted.
    pub disk: Option<SmallDisk>,
    /// This version, and perhaps an earlier one.
    pub programs: Vec<Programs>,
    /// Workers that ended by themselves.
    pub supervised: u64,
    /// Of the next worker.
    number: u32,
    folder: PathBuf,
}

impl World {
    pub async fn start(name: &str, plan: Plan) -> Self {
        let folder = env::temp_dir().join(format!("seriatim-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("redis")).unwrap();
        let disk = SmallDisk::mount(&folder.join("redis"));
        let disk = disk.map_err(|why| skipped(&format!("{name}, the full disk"), &why)).ok();
        let redis = DurableRedis::start(&folder.join("redis")).await;
        let plain_proxy = Proxy::start(&redis.socket()).await;
        let ledger = Arc::new(Ledger::new());
        let (sidecars, workers, programs) = (Vec::new(), Vec::new(), Programs::all());
        let mut world = World {
            plan,
            redis,
            sidecars,
            workers,
            plain_proxy,
            ledger,
            disk,
            programs,
            supervised: 0,
            number: 0,
            folder,
        };
        for number in 0..world.plan.sidecars {
            let (proxy, clock) = (Proxy::start(&world.redis.socket()).await, ProcessClock::new());
            let socket = world.folder.join(format!("sidecar-{number}.sock"));
            let version = number % world.programs.len();
            world.sidecars.push(SidecarPlace { process: None, proxy, clock, version, socket });
            world.start_sidecar(number).await;
        }
        for number in 0..world.plan.workers {
            let proxy = Proxy::start(&world.redis.socket()).await;
            let version = number % world.programs.len();
            let process = world.new_worker(&proxy.url(), version);
            world.workers.push(WorkerPlace { process, proxy, version });
        }
        world
    }

    pub fn sockets(&self) -> Vec<PathBuf> {
        self.sidecars.iter().map(|place| place.socket.clone()).collect()
    }

    /// Starts the sidecar of a place anew; the one that was there is gone.
    pub async fn start_sidecar(&mut self, at: usize) {
        let place = &mut self.sidecars[at];
        place.process = None;
        let (program, config) = (self.programs[place.version].sidecar.clone(), self.plan.config);
        let (socket, redis_url, environment) =
            (place.socket.clone(), place.proxy.url(), place.clock.environment());
        // It is waited for until it says where it listens, and proxies have to go on meanwhile.
        let start = move || {
            let (socket, redis_url) = (socket.as_path(), redis_url.as_str());
            let (program, log) = (program.as_path(), "error");
            Sidecar::launch(&Launch { program, redis_url, config, socket, environment: &environment, log })
        };
        let process = tokio::task::spawn_blocking(start).await.unwrap();
        place.clock.assert_owned(process.pid());
        place.process = Some(process);
    }

    fn new_worker(&mut self, redis: &str, version: usize) -> Worker {
        self.number += 1;
        let job = Job {
            program: &self.programs[version].worker,
            redis,
            topic: TOPIC,
            group: GROUP,
            lease_ms: LEASE_MS,
            handler_ms: self.plan.handler_ms,
            nack_percent: self.plan.nack_percent,
        };
        Worker::start(&self.folder, self.number, &job, &self.ledger)
    }

    /// SIGKILL, if it is still there, and another one in its place.
    pub async fn replace_worker(&mut self, at: usize) {
        self.workers[at].process.kill().await;
        let (redis, version) = (self.workers[at].proxy.url(), self.workers[at].version);
        self.workers[at].process = self.new_worker(&redis, version);
    }

    /// Does what every supervisor does: a worker that ended by itself is started again.
    pub async fn supervise(&mut self) {
        for at in 0..self.workers.len() {
            if self.workers[at].process.has_ended() {
                self.replace_worker(at).await;
                self.supervised += 1;
            }
        }
    }

    /// Ends all workers; all that they wrote is in the ledger then.
    pub async fn end_workers(&mut self) {
        for place in &mut self.workers {
            place.process.kill().await;
        }
    }

    /// The processes of the first sidecar and the first worker.
    pub fn spared(&self) -> (Option<u32>, u32) {
        (self.sidecars[0].process.as_ref().map(Sidecar::pid), self.workers[0].process.pid())
    }

    /// Replies of Redis that never came, because the connection was closed instead.
    pub fn replies_cut(&self) -> u64 {
        let sidecars = self.sidecars.iter().map(|place| place.proxy.cut());
        sidecars.chain(self.workers.iter().map(|place| place.proxy.cut())).sum()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.disk = None;
        let _ = fs::remove_dir_all(&self.folder);
    }
}
