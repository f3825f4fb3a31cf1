//! Trouble by name. Each kind strikes one process of the world and is over when its call returns.

use std::time::Duration;

use super::{
    proxy::{Mode, Proxy},
    world::{LEASE_MS, World},
};
use crate::support::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    SidecarKilled,
    SidecarStopped,
    WorkerKilled,
    /// Past its lease.
    WorkerStopped,
    RedisKilled,
    RedisStopped,
    /// Requests to Redis are executed, their replies never come.
    RepliesCut,
    /// Nothing comes through to Redis or back, and nobody is told.
    BlackHole,
    RepliesDelayed,
}

impl Fault {
    pub const ALL: [Fault; 9] = [
        Fault::SidecarKilled,
        Fault::SidecarStopped,
        Fault::WorkerKilled,
        Fault::WorkerStopped,
        Fault::RedisKilled,
        Fault::RedisStopped,
        Fault::RepliesCut,
        Fault::BlackHole,
        Fault::RepliesDelayed,
    ];
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

async fn pass((from, to): (u64, u64), random: &mut Random) {
    tokio::time::sleep(Duration::from_millis(random.within(from, to))).await;
}

impl World {
    /// Makes this happen to somebody, and waits until it is over.
    pub async fn strike(&mut self, fault: Fault, random: &mut Random) {
        let first = usize::from(self.plan.spares_the_first && fault.is_end());
        let sidecar = random.within(first as u64, self.sidecars.len() as u64 - 1) as usize;
        let worker = random.within(first as u64, self.workers.len() as u64 - 1) as usize;
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
            Fault::WorkerKilled => self.replace_worker(worker).await,
            Fault::WorkerStopped => {
                let process = &self.workers[worker].process;
                process.signal("STOP");
                pass((LEASE_MS, LEASE_MS + PAST_LEASE_MS), random).await;
                process.signal("CONT");
            }
            Fault::RedisKilled => self.redis.kill_and_restart().await,
            Fault::RedisStopped => {
                self.redis.signal("STOP");
                pass(STOP_MS, random).await;
                self.redis.signal("CONT");
            }
            Fault::RepliesCut => disturb(self.any_proxy(random), Mode::CutReply, CUT_MS, random).await,
            Fault::BlackHole => disturb(self.any_proxy(random), Mode::Hole, HOLE_MS, random).await,
            Fault::RepliesDelayed => {
                let by = Duration::from_millis(random.within(DELAY_MS.0, DELAY_MS.1));
                disturb(self.any_proxy(random), Mode::Delay(by), DELAYED_MS, random).await;
            }
        }
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

impl Fault {
    /// Does it end the process that it strikes?
    fn is_end(self) -> bool {
        matches!(self, Fault::SidecarKilled | Fault::WorkerKilled)
    }
}

async fn disturb(proxy: &Proxy, mode: Mode, during: (u64, u64), random: &mut Random) {
    proxy.set(mode);
    pass(during, random).await;
    proxy.set(Mode::Pass);
}
