//! What the world does to those in it, blow by blow, and how it heals.

use std::{sync::Arc, time::Duration};

use seriatim::{
    order::Entity,
    random::Random,
    store::{GapId, GroupId, GroupStore, HoldState, PartitionId, Store, Switches, Wish},
};
use tokio::task::JoinSet;

use crate::{
    copies::Losing,
    coverage::Fault,
    link::Link,
    plan::{self, Blow, GROUP, Operation, TOPIC},
    process::Process,
    server::Condition,
    sidecar, worker,
    world::World,
};

pub fn start_sidecar(world: &Arc<World>, place: usize) -> Process {
    let process = world.process();
    tokio::spawn(sidecar::serve(world.clone(), place, process.clone()));
    process
}

pub fn start_worker(world: &Arc<World>, place: usize) -> Process {
    let process = world.process();
    world.workers.lock().unwrap()[place] = Some(process.clone());
    tokio::spawn(worker::work(world.clone(), process.clone()));
    process
}

fn kill_sidecar(world: &World, place: usize) {
    if let Some(sidecar) = world.sidecars.lock().unwrap()[place].take() {
        sidecar.process.kill();
    }
}

fn kill_worker(world: &World, place: usize) {
    let Some(process) = world.workers.lock().unwrap()[place].take() else { return };
    world.end(&process);
}

/// All blows, one after the other; what they start ends by itself.
pub async fn strike(world: Arc<World>) {
    let mut random = world.random();
    let mut mending = JoinSet::new();
    for (before, blow) in world.plan.blows.clone() {
        tokio::time::sleep(before).await;
        world.place();
        match blow {
            Blow::Fault(fault, ms) => {
                let random = Random::from_seed(random.draw());
                mending.spawn(hit(world.clone(), fault, Duration::from_millis(ms), random));
            }
            Blow::Operator(operation) => {
                let random = Random::from_seed(random.draw());
                mending.spawn(operate(world.clone(), operation, random));
            }
        }
    }
    while mending.join_next().await.is_some() {}
}

async fn hit(world: Arc<World>, fault: Fault, lasts: Duration, mut random: Random) {
    let mut draw = |of: usize| random.below(of as u64) as usize;
    match fault {
        Fault::SidecarKilled | Fault::SidecarKilledStarting => {
            let place = draw(world.plan.sidecars);
            let process =
                world.sidecars.lock().unwrap()[place].as_ref().map(|sidecar| sidecar.process.clone());
            // One that is being started is left to whoever starts it.
            let Some(_) = process else { return };
            kill_sidecar(&world, place);
            world.coverage().fault(Fault::SidecarKilled);
            if fault == Fault::SidecarKilledStarting {
                let starting = start_sidecar(&world, place);
                tokio::time::sleep(lasts / 50).await;
                starting.kill();
                kill_sidecar(&world, place);
                world.coverage().fault(fault);
            }
            tokio::time::sleep(lasts).await;
            start_sidecar(&world, place);
        }
        Fault::SidecarLeaves => {
            let place = draw(world.plan.sidecars);
            let Some(sidecar) = world.sidecars.lock().unwrap()[place].take() else { return };
            world.coverage().fault(fault);
            sidecar.process.ask_to_leave();
            tokio::time::sleep(lasts).await;
            start_sidecar(&world, place);
        }
        Fault::WorkerLeaves if world.plan.workers > 0 => {
            let place = draw(world.plan.workers);
            let Some(process) = world.workers.lock().unwrap()[place].take() else { return };
            world.coverage().fault(fault);
            process.ask_to_leave();
            tokio::time::sleep(lasts).await;
            start_worker(&world, place);
        }
        Fault::SidecarSuspended => {
            let place = draw(world.plan.sidecars);
            let sidecar = world.sidecars.lock().unwrap()[place].clone();
            if let Some(sidecar) = sidecar {
                suspend(&world, &sidecar.process, fault, lasts * 2).await;
            }
        }
        Fault::WorkerKilled | Fault::WorkerKilledStarting if world.plan.workers > 0 => {
            let place = draw(world.plan.workers);
            if world.workers.lock().unwrap()[place].is_none() {
                return;
            }
            kill_worker(&world, place);
            world.coverage().fault(Fault::WorkerKilled);
            if fault == Fault::WorkerKilledStarting {
                start_worker(&world, place);
                tokio::time::sleep(lasts / 10).await;
                kill_worker(&world, place);
                world.coverage().fault(fault);
            }
            tokio::time::sleep(lasts).await;
            start_worker(&world, place);
        }
        Fault::WorkerSuspended if world.plan.workers > 0 => {
            let process = world.workers.lock().unwrap()[draw(world.plan.workers)].clone();
            if let Some(process) = process {
                suspend(&world, &process, fault, lasts * 3).await;
            }
        }
        Fault::StoreRestarted => {
            world.plan.losing.into_iter().for_each(|losing| world.server.lose(losing));
            condition(&world, fault, Condition::Down, lasts / 2).await;
        }
        Fault::StoreSuspended => condition(&world, fault, Condition::Suspended, lasts / 2).await,
        Fault::StoreFull => condition(&world, fault, Condition::Full, lasts / 2).await,
        Fault::WallSetForward | Fault::WallSetBack => {
            let by = lasts.as_millis() as i64 * if draw(4) == 0 { 3_600 } else { 1 };
            world.server.step_wall(if fault == Fault::WallSetBack { -by } else { by });
            world.coverage().fault(fault);
        }
        _ => {}
    }
}

async fn suspend(world: &World, process: &Process, fault: Fault, lasts: Duration) {
    world.coverage().fault(fault);
    process.suspend(true);
    tokio::time::sleep(lasts).await;
    process.suspend(false);
}

async fn condition(world: &World, fault: Fault, condition: Condition, lasts: Duration) {
    world.coverage().fault(fault);
    world.server.set_condition(condition);
    tokio::time::sleep(lasts).await;
    world.server.set_condition(Condition::Up);
}

/// Disk or replica catch up now and then, until all is well.
pub async fn catch_up(world: Arc<World>, losing: Losing) {
    while !world.is_healed() {
        tokio::time::sleep(Duration::from_millis(450)).await;
        world.server.catch_up(losing);
    }
}

pub fn group() -> GroupId {
    GroupId { topic: TOPIC.to_owned(), group: GROUP.to_owned() }
}

/// A person at a terminal, who tries once.
async fn operate(world: Arc<World>, operation: Operation, mut random: Random) {
    let link = Link { world: world.clone(), process: Process::start(u32::MAX, 1_000) };
    let partitions = world.partitions();
    let partition = &partitions[random.below(partitions.len() as u64) as usize];
    let switch = async |switches: Switches| {
        let _ = link.switch(&group(), switches).await;
    };
    match operation {
        Operation::Skip => {
            let Some(gap) = some_gap(&world, partition) else { return };
            if let Ok(Some(_)) = link.skip(partition, &gap, "").await {
                world.coverage().word("operator skipped");
            }
        }
        Operation::Degrade => {
            if link.set_degraded(partition, true).await == Ok(true) {
                world.coverage().word("operator degraded");
            }
        }
        Operation::Restore => {
            if link.set_degraded(partition, false).await == Ok(true) {
                world.coverage().word("operator restored");
            }
        }
        Operation::Redrive => wish(&world, &link, partition, Wish::Redrive, "wish redrive").await,
        Operation::SkipHeld => wish(&world, &link, partition, Wish::Skip, "wish skip").await,
        Operation::DropHeld => wish(&world, &link, partition, Wish::Drop, "wish drop").await,
        Operation::Resume => wish(&world, &link, partition, Wish::Resume, "wish resume").await,
        Operation::Pause => {
            let entity = Entity::new(&format!("e{}", random.below(world.plan.entities))).expect("a name");
            let index = seriatim::store::partition_of(&entity, world.plan.partitions);
            let partition = PartitionId { topic: TOPIC.into(), index };
            if link.wish(&partition, GROUP, &entity, Wish::Pause).await.is_ok() {
                world.coverage().word("wish pause");
            }
        }
        Operation::PauseGroup => switch(Switches { paused: true, degraded: false }).await,
        Operation::DegradeGroup => switch(Switches { paused: false, degraded: true }).await,
        Operation::ResumeGroup | Operation::RestoreGroup => switch(Switches::default()).await,
        Operation::NewPolicy => {
            let policy = plan::policy(&mut random);
            // What is fixed when a topic is made stays.
            let policy = seriatim::order::Policy { first: world.plan.policy.first, ..policy };
            world.set_policy(policy);
            let _ = link.open(&world.spec()).await;
        }
    }
}

/// A gap, as a person would find it in a list.
fn some_gap(world: &World, partition: &PartitionId) -> Option<GapId> {
    world.server.store.inspect(partition, |lanes| {
        let (entity, _) = lanes.gaps().next()?;
        let state = lanes.resume(entity)?;
        Some(GapId { entity: entity.clone(), epoch: state.epoch, next: state.next })
    })
}

/// For the first entity that is held.
async fn wish(world: &World, link: &Link, partition: &PartitionId, wish: Wish, word: &'static str) {
    let Ok(heads) = link.heads(partition, GROUP).await else { return };
    let Some((entity, _)) = heads.first() else { return };
    if matches!(wish, Wish::Skip | Wish::Drop) {
        // Whether or not it comes to anything: nobody may hear.
        world.given_up.lock().unwrap().insert(entity.as_str().into());
    }
    if let Ok(seriatim::store::Granted::Done) = link.wish(partition, GROUP, entity, wish).await {
        world.coverage().word(word);
    }
}

/// Everything works from now on, and whoever was dead is started again.
pub async fn heal(world: &Arc<World>) {
    world.heal();
    for place in 0..world.plan.sidecars {
        let is_there = world.sidecars.lock().unwrap()[place].is_some();
        if !is_there {
            start_sidecar(world, place);
        }
    }
    for place in 0..world.plan.workers {
        let is_there = world.workers.lock().unwrap()[place].is_some();
        if !is_there {
            start_worker(world, place);
        }
    }
    let link = Link { world: world.clone(), process: Process::start(u32::MAX, 1_000) };
    for partition in world.partitions() {
        let _ = link.set_degraded(&partition, false).await;
    }
    let _ = link.switch(&group(), Switches::default()).await;
}

/// What a person does about what only a person can do something about.
pub async fn attend(world: &Arc<World>) {
    let link = Link { world: world.clone(), process: Process::start(u32::MAX, 1_000) };
    for partition in world.partitions() {
        let Ok(heads) = link.heads(&partition, GROUP).await else { continue };
        for (entity, head) in heads {
            let wish = match head.state {
                HoldState::Dead => Wish::Redrive,
                HoldState::Paused => Wish::Resume,
                HoldState::Retrying | HoldState::SkipAsked | HoldState::DropAsked => continue,
            };
            if head.state == HoldState::Dead {
                world.coverage().word("died");
            }
            let _ = link.wish(&partition, GROUP, &entity, wish).await;
        }
    }
}
