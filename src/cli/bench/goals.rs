//! What is aimed at, as one table. Nearly all goals are ratios inside one repetition.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    results::{Quantity, Repetition, median_of},
    scenario::{BATCH, ENTRY, EXPECTED, MESSAGE_ID, PLAIN_LOOP, PYTHON, RAW, REDIS_RS, WINDOW},
};

use Bound::{AtLeast, AtMost};
use Compared::{By, Itself, Times};
use Quantity::{EventsPerSecond, LaneBytes, P50Us, P99Us, ServerUs, SidecarIdleMb, SidecarOpenMb, StoreUs};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// How a system's figure is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compared {
    /// Divided by another system's.
    Times(&'static str),
    /// Less another system's.
    By(&'static str),
    Itself,
}

struct Goal {
    scenario: &'static str,
    what: &'static str,
    system: &'static str,
    quantity: Quantity,
    compared: Compared,
    bound: Bound,
}

const fn goal(
    scenario: &'static str,
    what: &'static str,
    system: &'static str,
    quantity: Quantity,
    compared: Compared,
    bound: Bound,
) -> Goal {
    Goal { scenario, what, system, quantity, compared, bound }
}

/// A sidecar's memory while it does nothing.
const IDLE_MB: f64 = 10.0;
/// An event in flight, with its frame and its answer.
const IN_FLIGHT_BYTES: f64 = 1024.0;
const OPEN_MB: f64 = IDLE_MB + WINDOW as f64 * IN_FLIGHT_BYTES / 1e6;

const RATE: Quantity = EventsPerSecond;

const GOALS: [Goal; 28] = [
    goal("commit", "Redis CPU, 64 a call", "seriatim 64", StoreUs, Times("raw XADD 64"), AtMost(2.0)),
    goal(
        "commit",
        "Redis CPU, 64 a call",
        "seriatim, layout batch 64",
        StoreUs,
        Times("raw XADD 64"),
        AtMost(1.2),
    ),
    goal(
        "commit",
        "Redis CPU, 256 a call",
        "seriatim, layout batch 256",
        StoreUs,
        Times("raw XADD 256"),
        AtMost(1.0),
    ),
    goal("base", "events/s", ENTRY, RATE, Times(REDIS_RS), AtLeast(1.25)),
    goal("base", "events/s", ENTRY, RATE, Times(RAW), AtLeast(0.45)),
    goal("base", "events/s", BATCH, RATE, Times(RAW), AtLeast(0.8)),
    goal("base", "events/s", ENTRY, RATE, Times(MESSAGE_ID), AtLeast(1.7)),
    goal("base", "events/s", ENTRY, RATE, Times(EXPECTED), AtLeast(3.2)),
    goal("base", "events/s", ENTRY, RATE, Times(PYTHON), AtLeast(40.0)),
    goal("base", "events/s", BATCH, RATE, Times(MESSAGE_ID), AtLeast(2.5)),
    goal("base", "events/s", BATCH, RATE, Times(EXPECTED), AtLeast(5.0)),
    goal("base", "events/s", BATCH, RATE, Times(PYTHON), AtLeast(70.0)),
    goal("latency", "added p50, us", ENTRY, P50Us, By(REDIS_RS), AtMost(250.0)),
    goal("latency", "p99", ENTRY, P99Us, Times(REDIS_RS), AtMost(2.0)),
    goal(
        "entities",
        "CPU of sidecar and Redis",
        "1,000,000 live entities",
        ServerUs,
        Times("10,000 live entities"),
        AtMost(1.3),
    ),
    goal("late", "events/s", "10 % late", RATE, Times("in order"), AtLeast(0.7)),
    goal("late", "CPU of sidecar and Redis", "10 % late", ServerUs, Times("in order"), AtMost(1.4)),
    goal("late", "events/s", "50 % late", RATE, Times("in order"), AtLeast(0.55)),
    goal("memory", "Redis, bytes an open lane", ENTRY, LaneBytes, Itself, AtMost(200.0)),
    goal("memory", "Redis, bytes an open lane", BATCH, LaneBytes, Itself, AtMost(200.0)),
    goal("memory", "sidecar idle, MB", ENTRY, SidecarIdleMb, Itself, AtMost(IDLE_MB)),
    goal("memory", "sidecar, 100,000 open, MB", ENTRY, SidecarOpenMb, Itself, AtMost(OPEN_MB)),
    goal("memory", "sidecar idle, MB", BATCH, SidecarIdleMb, Itself, AtMost(IDLE_MB)),
    goal("memory", "sidecar, 100,000 open, MB", BATCH, SidecarOpenMb, Itself, AtMost(OPEN_MB)),
    goal("everysec", "events/s", ENTRY, RATE, Times(RAW), AtLeast(0.6)),
    goal("everysec", "events/s", BATCH, RATE, Times(RAW), AtLeast(0.9)),
    goal("delivery", "deliveries/s", BATCH, RATE, Times(PLAIN_LOOP), AtLeast(1.0)),
    goal("delivery", "deliveries/s", ENTRY, RATE, Times(PLAIN_LOOP), AtLeast(0.7)),
];

/// What became of a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    pub scenario: &'static str,
    /// The figure, and of which system.
    pub what: String,
    pub goal: String,
    /// Nothing if there is no repetition that tells.
    pub found: Option<f64>,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Ok,
    Missed,
    /// A system that it compares was not there.
    Skipped,
    /// It should have been measured, and was not: runs failed, or repetitions were void.
    Unknown,
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Missed => "MISSED",
            Outcome::Skipped => "skipped",
            Outcome::Unknown => "UNKNOWN",
        }
    }

    pub fn is_good(self) -> bool {
        matches!(self, Outcome::Ok | Outcome::Skipped)
    }
}

/// The goals of the scenarios that were measured. `skipped` says which systems were not there.
pub fn judge(
    measured: &BTreeMap<&'static str, Vec<Repetition>>,
    skipped: impl Fn(&str, &str) -> bool,
) -> Vec<Judged> {
    let of_scenario = |goal: &'static Goal| Some((goal, measured.get(goal.scenario)?));
    GOALS
        .iter()
        .filter_map(of_scenario)
        .map(|(goal, repetitions)| goal.judge(repetitions, &skipped))
        .collect()
}

impl Goal {
    fn judge(&self, repetitions: &[Repetition], skipped: &impl Fn(&str, &str) -> bool) -> Judged {
        let found = median_of(repetitions, |repetition| self.found(repetition));
        let other = match self.compared {
            Times(other) | By(other) => Some(other),
            Itself => None,
        };
        let is_skipped = [Some(self.system), other].into_iter().flatten().any(|s| skipped(self.scenario, s));
        let outcome = match (found, self.bound) {
            (None, _) if is_skipped => Outcome::Skipped,
            (None, _) => Outcome::Unknown,
            (Some(found), AtLeast(least)) if found >= least => Outcome::Ok,
            (Some(found), AtMost(most)) if found <= most => Outcome::Ok,
            (Some(_), _) => Outcome::Missed,
        };
        let what = match self.compared {
            Times(other) => format!("{}: {} / {other}", self.what, self.system),
            By(other) => format!("{}: {} - {other}", self.what, self.system),
            Itself => format!("{}: {}", self.what, self.system),
        };
        let goal = match self.bound {
            AtLeast(least) => format!(">= {}", figure(least)),
            AtMost(most) => format!("<= {}", figure(most)),
        };
        Judged { scenario: self.scenario, what, goal, found, outcome }
    }

    fn found(&self, repetition: &Repetition) -> Option<f64> {
        let found = repetition.value(self.system, self.quantity)?;
        match self.compared {
            Times(other) => repetition.ratio(self.system, other, self.quantity),
            By(other) => Some(found - repetition.value(other, self.quantity)?),
            Itself => Some(found),
        }
    }
}

/// Three digits that say something.
pub fn figure(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{results::tests::repetition, scenario},
        *,
    };

    #[test]
    fn every_goal_is_about_systems_of_its_scenario() {
        let all = scenario::all(scenario::LIVE);
        for goal in &GOALS {
            let scenario = all.iter().find(|scenario| scenario.name == goal.scenario).unwrap();
            let has = |name: &str| scenario.systems.iter().any(|named| named.name == name);
            let other = match goal.compared {
                Times(other) | By(other) => has(other),
                Itself => true,
            };
            assert!(has(goal.system) && other, "{} {}", goal.scenario, goal.system);
        }
    }

    fn judged(runs: &[(&str, f64)], skipped: &str) -> Vec<(String, Outcome)> {
        let measured = BTreeMap::from([("base", vec![repetition(runs)])]);
        let judged = judge(&measured, |_, system| system == skipped);
        judged.into_iter().map(|judged| (judged.what, judged.outcome)).collect()
    }

    #[test]
    fn a_goal_is_met_missed_skipped_or_unknown() {
        let found = judged(&[(RAW, 100.0), (ENTRY, 45.0), (BATCH, 79.0), (REDIS_RS, 36.0)], PYTHON);
        let outcome = |of: &str| found.iter().find(|(what, _)| what.ends_with(of)).unwrap().1;
        assert_eq!(outcome("seriatim / raw XADD"), Outcome::Ok);
        assert_eq!(outcome("seriatim / redis-rs XADD"), Outcome::Ok);
        assert_eq!(outcome("layout batch / raw XADD"), Outcome::Missed);
        assert_eq!(outcome("seriatim / Python, by hand"), Outcome::Skipped);
        assert_eq!(outcome("seriatim / JetStream, message id"), Outcome::Unknown);
        assert_eq!(found.len(), 9, "no goals of scenarios that were not measured");
    }

    #[test]
    fn most_and_least_are_told_apart() {
        let late =
            |rate| BTreeMap::from([("late", vec![repetition(&[("in order", 10.0), ("50 % late", rate)])])]);
        let outcome = |rate| judge(&late(rate), |_, _| true)[2].outcome;
        assert_eq!((outcome(5.5), outcome(5.4)), (Outcome::Ok, Outcome::Missed));
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.456, 12.34, 250.0, -3.0].map(figure), ["0.46", "12.3", "250", "-3.00"]);
    }
}
