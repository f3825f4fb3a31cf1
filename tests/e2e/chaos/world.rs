//! All processes of a run: one Redis, some sidecars and workers, and what stands between them.

use std::{env, fs, path::PathBuf, sync::Arc};

use super::{
    durable_redis::DurableRedis,
    ledger::Ledger,
    process::Programs,
    proxy::Proxy,
    sinks::{Job, Worker},
};
use crate::sidecar::{Launch, Sidecar};

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
    socket: PathBuf,
}

pub struct WorkerPlace {
    pub process: Worker,
    pub proxy: Proxy,
}

pub struct World {
    pub plan: Plan,
    pub redis: DurableRedis,
    pub sidecars: Vec<SidecarPlace>,
    pub workers: Vec<WorkerPlace>,
    pub ledger: Arc<Ledger>,
    programs: Programs,
    /// Of the next worker.
    number: u32,
    folder: PathBuf,
}

impl World {
    pub async fn start(name: &str, plan: Plan) -> Self {
        let folder = env::temp_dir().join(format!("seriatim-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let redis = DurableRedis::start(&folder.join("redis")).await;
        let ledger = Arc::new(Ledger::new());
        let (sidecars, workers) = (Vec::new(), Vec::new());
        let programs = Programs::current();
        let mut world = World { plan, redis, sidecars, workers, ledger, programs, number: 0, folder };
        for number in 0..world.plan.sidecars {
            let proxy = Proxy::start(&world.redis.socket()).await;
            let socket = world.folder.join(format!("sidecar-{number}.sock"));
            world.sidecars.push(SidecarPlace { process: None, proxy, socket });
            world.start_sidecar(number).await;
        }
        for _ in 0..world.plan.workers {
            let proxy = Proxy::start(&world.redis.socket()).await;
            let process = world.new_worker(&proxy.url());
            world.workers.push(WorkerPlace { process, proxy });
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
        let (program, config) = (self.programs.sidecar.clone(), self.plan.config);
        let (socket, redis_url) = (place.socket.clone(), place.proxy.url());
        // It is waited for until it says where it listens, and proxies have to go on meanwhile.
        let start = move || {
            let (socket, redis_url) = (socket.as_path(), redis_url.as_str());
            let (program, environment, log) = (program.as_path(), [], "error");
            Sidecar::launch(&Launch { program, redis_url, config, socket, environment: &environment, log })
        };
        place.process = Some(tokio::task::spawn_blocking(start).await.unwrap());
    }

    fn new_worker(&mut self, redis: &str) -> Worker {
        self.number += 1;
        let job = Job {
            program: &self.programs.worker,
            redis,
            topic: super::TOPIC,
            group: GROUP,
            lease_ms: LEASE_MS,
            handler_ms: self.plan.handler_ms,
            nack_percent: self.plan.nack_percent,
        };
        Worker::start(&self.folder, self.number, &job, &self.ledger)
    }

    /// SIGKILL, and another one in its place.
    pub async fn replace_worker(&mut self, at: usize) {
        self.workers[at].process.kill().await;
        let redis = self.workers[at].proxy.url();
        self.workers[at].process = self.new_worker(&redis);
    }

    /// Ends all workers; all that they wrote is in the ledger then.
    pub async fn end_workers(&mut self) {
        for place in &mut self.workers {
            place.process.kill().await;
        }
    }

    /// Replies of Redis that never came, because the connection was closed instead.
    pub fn replies_cut(&self) -> u64 {
        let sidecars = self.sidecars.iter().map(|place| place.proxy.cut());
        sidecars.chain(self.workers.iter().map(|place| place.proxy.cut())).sum()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
