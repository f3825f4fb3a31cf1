//! All that exists in one run.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use seriatim::{
    metrics::Metrics,
    order::Policy,
    random::Random,
    store::{PartitionId, TopicSpec},
};
use seriatim_checker::{Run, Sent};

use crate::{
    coverage::Coverage,
    network::Network,
    plan::{Plan, TOPIC},
    process::Process,
    server::Server,
    sidecar::Sidecar,
};

pub struct World {
    pub plan: Plan,
    pub server: Server,
    pub network: Network,
    pub metrics: Arc<Metrics>,
    coverage: Arc<Mutex<Coverage>>,
    random: Mutex<Random>,
    processes: AtomicU32,
    places: AtomicU64,
    policy: Mutex<Policy>,
    pub sent: Mutex<Vec<Sent>>,
    pub runs: Mutex<Vec<Run>>,
    /// Entities of which a person gave something up.
    pub given_up: Mutex<BTreeSet<Arc<str>>>,
    is_healed: AtomicBool,
    /// Those that serve now.
    pub sidecars: Mutex<Vec<Option<Sidecar>>>,
    pub workers: Mutex<Vec<Option<Process>>>,
}

impl World {
    pub fn new(seed: u64, plan: Plan, metrics: Arc<Metrics>) -> Arc<Self> {
        let mut random = Random::from_seed(seed);
        let coverage = Arc::new(Mutex::new(Coverage::default()));
        let of_network = Random::from_seed(random.draw());
        Arc::new(World {
            server: Server::new(coverage.clone()),
            network: Network::new(plan.weather, of_network, coverage.clone()),
            metrics,
            coverage,
            random: Mutex::new(random),
            processes: AtomicU32::new(0),
            places: AtomicU64::new(0),
            policy: Mutex::new(plan.policy.clone()),
            sent: Mutex::default(),
            runs: Mutex::default(),
            given_up: Mutex::default(),
            is_healed: AtomicBool::new(false),
            sidecars: Mutex::new((0..plan.sidecars).map(|_| None).collect()),
            workers: Mutex::new(vec![None; plan.workers]),
            plan,
        })
    }

    pub fn coverage(&self) -> MutexGuard<'_, Coverage> {
        self.coverage.lock().unwrap()
    }

    pub fn random(&self) -> Random {
        Random::from_seed(self.random.lock().unwrap().draw())
    }

    /// The next place in the order of all that happens.
    pub fn place(&self) -> u64 {
        self.places.fetch_add(1, Ordering::Relaxed)
    }

    pub fn places(&self) -> u64 {
        self.places.load(Ordering::Relaxed)
    }

    /// Nothing goes wrong any more.
    pub fn heal(&self) {
        self.is_healed.store(true, Ordering::Relaxed);
        self.network.heal();
    }

    pub fn is_healed(&self) -> bool {
        self.is_healed.load(Ordering::Relaxed)
    }

    /// A worker's process ends: what it was handling has no end.
    pub fn end(&self, process: &Process) {
        process.kill();
        let killed = self.place();
        for run in self.runs.lock().unwrap().iter_mut() {
            if run.worker == process.id() && run.done.is_none() {
                run.killed = Some(killed);
            }
        }
    }

    pub fn process(&self) -> Process {
        let id = self.processes.fetch_add(1, Ordering::Relaxed);
        Process::start(id, self.plan.paces[id as usize % self.plan.paces.len()])
    }

    pub fn partitions(&self) -> Vec<PartitionId> {
        (0..self.plan.partitions).map(|index| PartitionId { topic: TOPIC.into(), index }).collect()
    }

    /// The topic with the policy that is in force.
    pub fn spec(&self) -> TopicSpec {
        TopicSpec { policy: self.policy.lock().unwrap().clone(), ..self.plan.spec() }
    }

    pub fn set_policy(&self, policy: Policy) {
        *self.policy.lock().unwrap() = policy;
    }

    /// Somebody who serves and runs, drawn from all who do.
    pub fn any_sidecar(&self, random: &mut Random) -> Option<Sidecar> {
        let sidecars = self.sidecars.lock().unwrap();
        let there: Vec<&Sidecar> = sidecars.iter().flatten().collect();
        if there.is_empty() {
            return None;
        }
        Some(there[random.below(there.len() as u64) as usize].clone())
    }
}
