//! A run that fails, made smaller: cut by cut, as long as it fails in the same way.
//!
//! A cut has a name, so that a seed and its cuts are a line of text. What once showed a
//! mistake is kept in `regressions.txt` and run again each time. If what a seed draws changes,
//! a line becomes a run like any other; so a bug has a test of its own besides.

use std::sync::Arc;

use seriatim::{order::Policy, store::Layout};
use seriatim_checker::Wrong;

use crate::{network::Weather, plan::Plan, run::run};

/// One way to make a plan simpler; a plan that stays the same was simple.
type Simplify = fn(&mut Plan);

const SIMPLER: [(&str, Simplify); 23] = [
    ("one event an entry", |plan| plan.layout = Layout::Entry),
    ("one partition", |plan| plan.partitions = 1),
    ("one sidecar", |plan| plan.sidecars = 1),
    ("no workers", |plan| plan.workers = 0),
    ("one worker", |plan| plan.workers = plan.workers.min(1)),
    ("two workers", |plan| plan.workers = plan.workers.min(2)),
    ("one entity", |plan| plan.entities = 1),
    ("two entities", |plan| plan.entities = plan.entities.min(2)),
    ("two events", |plan| plan.events_max = plan.events_max.min(2)),
    ("four events", |plan| plan.events_max = plan.events_max.min(4)),
    ("one event a message", |plan| plan.together_max = 1),
    ("fair weather", |plan| plan.weather = Weather { slowest: plan.weather.slowest, ..Weather::default() }),
    ("no lost requests", |plan| plan.weather.lost_requests = 0),
    ("no lost replies", |plan| plan.weather.lost_replies = 0),
    ("none overtaken", |plan| plan.weather.overtaken = 0),
    ("none slow", |plan| plan.weather.slow = 0),
    ("all are sent", |plan| plan.never = 0),
    ("none twice", |plan| plan.twice = 0),
    ("none forged", |plan| plan.forged = 0),
    ("no handler fails", |plan| plan.failing = 0),
    ("quick handlers", |plan| plan.handler_max_ms = 1),
    ("clocks at one pace", |plan| plan.paces = [1_000; 3]),
    ("roomy", roomy),
];

/// No limit is tight.
fn roomy(plan: &mut Plan) {
    let Policy { parked_max, partition_parked_max, ahead_max, append_max, .. } = Policy::default();
    plan.policy = Policy { parked_max, partition_parked_max, ahead_max, append_max, ..plan.policy.clone() };
}

/// All that can be cut, with what is left.
fn cuts(plan: &Plan) -> Vec<(String, Plan)> {
    let mut cuts = Vec::new();
    for index in (0..plan.blows.len()).rev() {
        let mut left = plan.clone();
        let (before, _) = left.blows.remove(index);
        // The others fall when they would have.
        if let Some(next) = left.blows.get_mut(index) {
            next.0 += before;
        }
        cuts.push((format!("no blow {index}"), left));
    }
    for (name, simplify) in SIMPLER {
        let mut left = plan.clone();
        simplify(&mut left);
        if format!("{left:?}") != format!("{plan:?}") {
            cuts.push((name.to_owned(), left));
        }
    }
    cuts
}

fn fails(seed: u64, plan: &Plan, wrong: Wrong) -> bool {
    run(seed, plan.clone(), Arc::default()).violations.iter().any(|violation| violation.wrong == wrong)
}

/// The cuts after which it still fails in this way, and none more does.
pub fn shrink(seed: u64, mut plan: Plan, wrong: Wrong) -> (Vec<String>, Plan) {
    let mut made = Vec::new();
    while let Some((name, left)) = cuts(&plan).into_iter().find(|(_, left)| fails(seed, left, wrong)) {
        made.push(name);
        plan = left;
    }
    (made, plan)
}

/// As a line of `regressions.txt`.
pub fn line(seed: u64, cuts: &[String], why: &str) -> String {
    format!("{seed} | {} | {why}", cuts.join(", "))
}

/// Makes cuts by their names. One that fits no more, because seeds draw other plans by now, is
/// left out.
pub fn cut(mut plan: Plan, names: &str) -> Plan {
    for name in names.split(", ") {
        if let Some((_, left)) = cuts(&plan).into_iter().find(|(known, _)| known == name) {
            plan = left;
        }
    }
    plan
}

#[test]
fn what_once_showed_a_mistake_shows_none() {
    let lines = include_str!("regressions.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let (seed, cuts) = line.split_once(" | ").expect("a seed, its cuts, and why");
        let (cuts, _) = cuts.split_once(" | ").expect("cuts, and why");
        let seed = seed.parse().expect("a seed is a number");
        // Which layout a seed draws has nothing to do with what it showed.
        for layout in Layout::ALL {
            let plan = Plan { layout, ..cut(Plan::draw(seed), cuts) };
            let violations = run(seed, plan, Arc::default()).violations;
            assert!(violations.is_empty(), "{line}, {layout:?}: {violations:?}");
        }
    }
}

/// A store that loses what it answered fails as wanted.
#[test]
fn a_failing_run_is_cut_to_what_matters() {
    let losing = |seed| Plan::draw(seed).losing(crate::copies::Losing::PowerCut);
    let seed = (1..).find(|seed| fails(*seed, &losing(*seed), Wrong::Lost)).expect("one of them loses");
    let (made, left) = shrink(seed, losing(seed), Wrong::Lost);
    assert!(fails(seed, &left, Wrong::Lost), "{made:?}");
    assert!(left.blows.len() <= 2, "only what loses is left: {left:#?}");
    assert!(cuts(&left).iter().all(|(_, less)| !fails(seed, less, Wrong::Lost)), "{made:?}");
}
