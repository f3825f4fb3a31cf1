//! Trouble by name. Each kind strikes one process of the world and is over when its call returns.

use std::time::Duration;

use super::{
    proxy::{Mode, Proxy},
    world::{LEASE_MS, World},
};
use crate::support::{Random, number_from_env};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    SidecarKilled,
    SidecarStopped,
    /// It leaves in order, and another comes: of the other version, where there are two.
    SidecarReplaced,
    /// Its wall clock is set forward or back.
    SidecarClock,
    WorkerKilled,
    /// Past its lease.
    WorkerStopped,
    WorkerReplaced,
    RedisKilled,
    RedisStopped,
    RedisClock,
    /// Redis cannot write its file, and refuses all other writes.
    DiskFull,
    /// Requests to Redis are executed, their replies never come.
    RepliesCut,
    /// Nothing comes through to Redis or back, and nobody is told.
    BlackHole,
    RepliesDelayed,
}

/// Every kind: what says how many of it a run has, and how many there are in a short one.
pub const KINDS: [(Fault, &str, u64); 14] = [
    (Fault::SidecarKilled, "SERIATIM_SIDECAR_KILLS", 4),
    (Fault::SidecarStopped, "SERIATIM_SIDECAR_STOPS", 1),
    (Fault::SidecarReplaced, "SERIATIM_SIDECAR_SWAPS", 1),
    (Fault::SidecarClock, "SERIATIM_SIDECAR_CLOCKS", 1),
    (Fault::WorkerKilled, "SERIATIM_WORKER_KILLS", 2),
    (Fault::WorkerStopped, "SERIATIM_WORKER_STOPS", 1),
    (Fault::WorkerReplaced, "SERIATIM_WORKER_SWAPS", 1),
    (Fault::RedisKilled, "SERIATIM_REDIS_KILLS", 3),
    (Fault::RedisStopped, "SERIATIM_REDIS_STOPS", 1),
    (Fault::RedisClock, "SERIATIM_REDIS_CLOCKS", 2),
    (Fault::DiskFull, "SERIATIM_FULL_DISKS", 1),
    (Fault::RepliesCut, "SERIATIM_CUT_REPLIES", 2),
    (Fault::BlackHole, "SERIATIM_BLACK_HOLES", 1),
    (Fault::RepliesDelayed, "SERIATIM_DELAYS", 1),
];

/// All faults of a run, shuffled.
pub fn deck(random: &mut Random) -> Vec<Fault> {
    let counted = KINDS.map(|(fault, variable, short)| (fault, number_from_env(variable, short)));
    let mut deck: Vec<Fault> =
        counted.into_iter().flat_map(|(fault, count)| (0..count).map(move |_| fault)).collect();
    random.shuffle(&mut deck);
    deck
}

/// Stops of a sidecar and of Redis, around the second after which a sidecar calls anew.
const STOP_MS: (u64, u64) = (100, 2_000);
/// Of a worker: what comes on top of its lease.
const PAST_LEASE_MS: u64 = 1_500;
const HOLE_MS: (u64, u64) = (200, 2_500);
const CUT_MS: (u64, u64) = (20, 300);
const DELAYED_MS: (u64, u64) = (200, 1_000);
/// By how much each piece comes later then.
const DELAY_MS: (u64, u64) = (5, 100);
/// By how much a clock is set, forward or back.
const STEP_MS: (u64, u64) = (100, 600_000);
/// How long a disk stays full once that was noticed.
const FULL_MS: (u64, u64) = (50, 500);

async fn pass((from, to): (u64, u64), random: &mut Random) {
    tokio::time::sleep(Duration::from_millis(random.within(from, to))).await;
}

fn step(random: &mut Random) -> i64 {
    let by = random.within(STEP_MS.0, STEP_MS.1) as i64;
    if random.percent(50) { by } else { -by }
}

impl Fault {
    /// Does it end the process that it strikes?
    fn is_end(self) -> bool {
        use Fault::{SidecarKilled, SidecarReplaced, WorkerKilled, WorkerReplaced};
        matches!(self, SidecarKilled | SidecarReplaced | WorkerKilled | WorkerReplaced)
    }
}

impl World {
    /// Makes this happen to somebody, and waits until it is over.
    pub async fn strike(&mut self, fault: Fault, random: &mut Random) {
        self.supervise().await;
        let first = u64::from(self.plan.spares_the_first && fault.is_end());
        let sidecar = random.within(first, self.sidecars.len() as u64 - 1) as usize;
        let worker = random.within(first, self.workers.len() as u64 - 1) as usize;
        match fault {
            Fault::SidecarKilled => {
                self.sidecars[sidecar].process.as_mut().expect("it runs").kill();
                self.start_sidecar(sidecar).await;
            }
            Fault::SidecarStopped => {
                let process = self.sidecars[sidecar].process.as_ref().expect("it runs");
                process.signal("STOP");
                pass(STOP_MS, random).await;
                process.signal("CONT");
            }
            Fault::SidecarReplaced => {
                let place = &mut self.sidecars[sidecar];
                let process = place.process.as_mut().expect("it runs");
                process.signal("TERM");
                assert_eq!(process.ended().await, Some(0), "a sidecar that is told to stop ends well");
                place.version = (place.version + 1) % self.programs.len();
                self.start_sidecar(sidecar).await;
            }
            Fault::SidecarClock => self.sidecars[sidecar].clock.step(step(random)),
            Fault::WorkerKilled => self.replace_worker(worker).await,
            Fault::WorkerStopped => {
                let process = &self.workers[worker].process;
                process.signal("STOP");
                pass((LEASE_MS, LEASE_MS + PAST_LEASE_MS), random).await;
                process.signal("CONT");
            }
            Fault::WorkerReplaced => {
                let place = &mut self.workers[worker];
                place.process.leave().await;
                place.version = (place.version + 1) % self.programs.len();
                self.replace_worker(worker).await;
            }
            Fault::RedisKilled => self.redis.kill_and_restart().await,
            Fault::RedisStopped => {
                self.redis.signal("STOP");
                pass(STOP_MS, random).await;
                self.redis.signal("CONT");
            }
            Fault::RedisClock => self.redis.clock.step(step(random)),
            Fault::DiskFull => self.fill_disk(random).await,
            Fault::RepliesCut => self.disturb(Mode::CutReply, CUT_MS, random).await,
            Fault::BlackHole => self.disturb(Mode::Hole, HOLE_MS, random).await,
            Fault::RepliesDelayed => {
                let by = Duration::from_millis(random.within(DELAY_MS.0, DELAY_MS.1));
                self.disturb(Mode::Delay(by), DELAYED_MS, random).await;
            }
        }
    }

    /// Without a disk to fill, nothing: the run has said so.
    async fn fill_disk(&self, random: &mut Random) {
        let Some(disk) = &self.disk else { return };
        disk.fill();
        self.redis.wait_for_writes(false).await;
        pass(FULL_MS, random).await;
        disk.make_roomy();
        self.redis.wait_for_writes(true).await;
        self.redis.write_anew().await;
    }

    /// Somebody's way to Redis, and that of whoever writes without a sidecar.
    async fn disturb(&self, mode: Mode, during: (u64, u64), random: &mut Random) {
        let proxies = [self.any_proxy(random), &self.plain_proxy];
        proxies.iter().for_each(|proxy| proxy.set(mode));
        pass(during, random).await;
        proxies.iter().for_each(|proxy| proxy.set(Mode::Pass));
    }

    /// Of sidecars twice as often as of workers.
    fn any_proxy(&self, random: &mut Random) -> &Proxy {
        if random.below(3) < 2 {
            &random.pick(&self.sidecars).proxy
        } else {
            &random.pick(&self.workers).proxy
        }
    }
}
