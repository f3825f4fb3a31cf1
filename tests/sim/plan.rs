//! What one seed is about. Each draws which faults exist at all, how large everything is and
//! which limits are tight: a run in which everything goes wrong at once finds less than many
//! runs in which a few things do.

use std::time::Duration;

use seriatim::{
    deliver::{ConsumerOptions, retry::RetryPolicy},
    order::{BreakerPolicy, LatePlace, Ordering, Overflow, Policy, Retention, Retirement, Rollout, Sequence},
    random::Random,
    store::{Layout, Numbering, TopicSpec},
};

use crate::{copies::Losing, coverage::Fault, network::Weather};

pub const TOPIC: &str = "jobs";
pub const GROUP: &str = "storage";

#[derive(Clone, Debug)]
pub struct Plan {
    pub partitions: u32,
    pub layout: Layout,
    pub sidecars: usize,
    pub workers: usize,
    pub entities: u64,
    pub events_max: u64,
    pub policy: Policy,
    pub weather: Weather,
    /// Blows, in the order in which they fall, and how long before each nothing does.
    pub blows: Vec<(Duration, Blow)>,
    /// When producers send, at the latest.
    pub sending: Duration,
    /// How far out of place events are sent, in milliseconds.
    pub spread: u64,
    /// In a hundred: events that are never sent, sent twice, sent with another payload.
    pub never: u64,
    pub twice: u64,
    pub forged: u64,
    /// Events that one message carries, at most.
    pub together_max: u64,
    /// In a hundred: handlers that fail.
    pub failing: u64,
    pub handler_max_ms: u64,
    /// In a thousand: how fast a host's clock goes.
    pub paces: [u32; 3],
    /// Does the store lose what it had answered when it restarts?
    pub losing: Option<Losing>,
    /// Does a gap that times out wait at least so long?
    pub gap_wait_min: u64,
}

/// What the world does to those in it.
#[derive(Clone, Copy, Debug)]
pub enum Blow {
    Fault(Fault, u64),
    Operator(Operation),
}

#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Skip,
    Degrade,
    Restore,
    Redrive,
    SkipHeld,
    DropHeld,
    Pause,
    Resume,
    PauseGroup,
    ResumeGroup,
    DegradeGroup,
    RestoreGroup,
    NewPolicy,
}

const OPERATIONS: [Operation; 13] = [
    Operation::Skip,
    Operation::Degrade,
    Operation::Restore,
    Operation::Redrive,
    Operation::SkipHeld,
    Operation::DropHeld,
    Operation::Pause,
    Operation::Resume,
    Operation::PauseGroup,
    Operation::ResumeGroup,
    Operation::DegradeGroup,
    Operation::RestoreGroup,
    Operation::NewPolicy,
];

/// Those that fall as blows; the others are weather.
const BLOWS: [Fault; 13] = [
    Fault::SidecarKilled,
    Fault::SidecarKilledStarting,
    Fault::SidecarLeaves,
    Fault::SidecarSuspended,
    Fault::WorkerKilled,
    Fault::WorkerKilledStarting,
    Fault::WorkerLeaves,
    Fault::WorkerSuspended,
    Fault::StoreRestarted,
    Fault::StoreSuspended,
    Fault::StoreFull,
    Fault::WallSetForward,
    Fault::WallSetBack,
];

fn one_in(random: &mut Random, n: u64) -> bool {
    random.below(n) == 0
}

fn among<T: Copy>(random: &mut Random, these: &[T]) -> T {
    these[random.below(these.len() as u64) as usize]
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let mut random = Random::from_seed(seed ^ 0x5e71_a717);
        let r = &mut random;
        let policy = policy(r);
        let weather = Weather {
            lost_requests: if one_in(r, 2) { r.below(60) } else { 0 },
            lost_replies: if one_in(r, 2) { r.below(80) } else { 0 },
            overtaken: if one_in(r, 2) { r.below(60) } else { 0 },
            slow: if one_in(r, 2) { r.below(300) } else { 0 },
            slowest: 1 + r.below(400),
        };
        let kinds: Vec<Fault> = BLOWS.into_iter().filter(|_| one_in(r, 2)).collect();
        let operations: Vec<Operation> = OPERATIONS.into_iter().filter(|_| one_in(r, 3)).collect();
        let mut blows =
            vec![(Duration::from_millis(r.below(600)), Blow::Fault(Fault::SidecarKilled, r.below(400)))];
        for _ in 0..2 + r.below(7) {
            let before = Duration::from_millis(r.below(900));
            let blow = if !operations.is_empty() && one_in(r, 3) {
                Blow::Operator(among(r, &operations))
            } else if kinds.is_empty() {
                continue;
            } else {
                Blow::Fault(among(r, &kinds), r.below(1_500))
            };
            blows.push((before, blow));
        }
        r.shuffle(&mut blows);
        let steps =
            blows.iter().filter(|(_, blow)| matches!(blow, Blow::Fault(Fault::WallSetForward, _))).count();
        let slowest_handler = if one_in(r, 3) { 1_500 } else { 60 };
        let pace = |r: &mut Random| if one_in(r, 3) { 950 + r.below(100) as u32 } else { 1_000 };
        Plan {
            partitions: 1 + r.below(2) as u32,
            sidecars: 1 + r.below(3) as usize,
            workers: r.below(4) as usize,
            entities: 1 + r.below(5),
            events_max: 2 + r.below(7),
            gap_wait_min: gap_wait_min(&policy, steps as u64, has_new_policy(&blows)),
            together_max: if one_in(r, 2) { 1 } else { 4 },
            losing: None,
            policy,
            weather,
            blows,
            sending: Duration::from_millis(200 + r.below(2_500)),
            spread: if one_in(r, 4) { 0 } else { r.below(1_200) },
            never: if one_in(r, 2) { r.below(15) } else { 0 },
            twice: if one_in(r, 2) { r.below(30) } else { 0 },
            forged: if one_in(r, 3) { r.below(15) } else { 0 },
            failing: if one_in(r, 2) { r.below(40) } else { 0 },
            handler_max_ms: 1 + r.below(slowest_handler),
            paces: [pace(r), pace(r), pace(r)],
            layout: among(r, &Layout::ALL),
        }
    }

    /// The same with a store that loses what it had answered.
    pub fn losing(self, losing: Losing) -> Plan {
        let mut blows = self.blows;
        blows.push((Duration::from_millis(700), Blow::Fault(Fault::StoreRestarted, 100)));
        Plan { losing: Some(losing), blows, ..self }
    }

    pub fn spec(&self) -> TopicSpec {
        let (name, numbering) = (TOPIC.to_owned(), Numbering::Producer);
        let (layout, policy) = (self.layout, self.policy.clone());
        TopicSpec { name, partitions: self.partitions, layout, numbering, policy }
    }

    pub fn consumer_options(&self) -> ConsumerOptions {
        ConsumerOptions {
            in_flight_max: 4,
            batch: 8,
            lease: Duration::from_millis(1_800),
            renew: Duration::from_millis(500),
            drain: Duration::from_millis(500),
            window_entries: 16,
            missing_waits: vec![Duration::from_millis(700)],
            parked_max: 4,
            retry: RetryPolicy {
                base_ms: 80,
                cap_ms: 400,
                jitter_percent: 20,
                attempts_max: 3,
                unsafe_retry: true,
            },
            ..ConsumerOptions::new(TOPIC, GROUP)
        }
    }
}

fn has_new_policy(blows: &[(Duration, Blow)]) -> bool {
    blows.iter().any(|(_, blow)| matches!(blow, Blow::Operator(Operation::NewPolicy)))
}

/// The least that a gap waits before it is given up for lack of time. A wall clock that is set
/// forward counts two ticks at most, each time.
fn gap_wait_min(policy: &Policy, wall_steps: u64, has_new_policy: bool) -> u64 {
    if has_new_policy {
        return 0;
    }
    let waits = policy.gap_waits.iter().sum::<u64>().min(policy.terminal_wait).min(policy.parked_age_max);
    (waits * 4 / 5).saturating_sub(wall_steps * seriatim::order::ADVANCE_MAX_MS)
}

/// Short waits, so that a run sees them end, and limits that are sometimes tight.
pub fn policy(r: &mut Random) -> Policy {
    let hour = 3_600_000;
    // As in a configuration: a partition may have twice as many entries as it keeps.
    let fills_up = one_in(r, 6);
    let retain_entries = if fills_up || one_in(r, 4) { 2 + r.below(3) } else { 100_000 };
    Policy {
        first: Sequence::new(if one_in(r, 4) { 1 } else { 0 }).expect("it is small"),
        ordering: if one_in(r, 12) { Ordering::Off } else { Ordering::Enforce },
        rollout: Rollout {
            percent: if one_in(r, 8) { 50 } else { 100 },
            allow: Vec::new(),
            deny: Vec::new(),
        },
        late: if one_in(r, 2) { LatePlace::Aside } else { LatePlace::Inline },
        overflow: if one_in(r, 2) { Overflow::Skip } else { Overflow::Refuse },
        parked_max: if one_in(r, 3) { 1 + r.below(4) } else { 64 },
        partition_parked_max: if one_in(r, 5) { 2 + r.below(4) } else { 1_000 },
        ahead_max: if one_in(r, 5) { 2 + r.below(4) } else { 1_000 },
        append_max: if one_in(r, 3) { 2 + r.below(3) } else { 64 },
        gap_waits: (0..1 + r.below(3)).map(|_| 100 + r.below(700)).collect(),
        gap_wait_live: 500 + r.below(2_000),
        parked_age_max: if one_in(r, 5) { 600 + r.below(1_000) } else { hour },
        terminal_wait: 100 + r.below(600),
        breaker: BreakerPolicy {
            skips: if one_in(r, 4) { 1 + r.below(3) } else { 0 },
            window: 5_000,
            hold: 300 + r.below(1_000),
        },
        retirement: Retirement {
            stuck_after: 500 + r.below(2_000),
            retire_after: if one_in(r, 3) { 200 + r.below(1_500) } else { hour },
            idle_retire_after: if one_in(r, 6) { 400 + r.below(2_000) } else { 0 },
            remember_for: 24 * hour,
        },
        retention: Retention {
            retain_ms: if one_in(r, 3) { 500 + r.below(1_500) } else { hour },
            retain_entries,
            entries_max: if fills_up { 2 * retain_entries + r.below(8) } else { 1_000_000 },
            ..Policy::default().retention
        },
        ..Policy::default()
    }
}
