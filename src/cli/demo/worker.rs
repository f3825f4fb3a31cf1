//! Storage workers as users have them: a state machine for each evaluation that
//! takes one step after the other and refuses any other transition.

use std::collections::{HashMap, HashSet};

use super::load::Step;

/// What such workers would have made of events in some order.
pub struct Workers {
    pub events: u64,
    /// Transitions refused: the event was not the next step.
    pub violations: u64,
    pub duplicates: u64,
    /// Evaluations that never reached their last step.
    pub stuck: u64,
    /// Steps that a marker said will not come: the worker goes on without them.
    pub skipped: u64,
}

/// What a worker reads of one evaluation.
pub enum Read {
    Step(u64),
    /// A marker: nothing up to this step is to be expected.
    Gap(u64),
}

impl Workers {
    pub fn replay<'a>(events: impl Iterator<Item = (&'a str, Read)>) -> Self {
        let mut workers = Workers { events: 0, violations: 0, duplicates: 0, stuck: 0, skipped: 0 };
        let mut states: HashMap<&str, u64> = HashMap::new();
        let mut seen = HashSet::new();
        for (entity, read) in events {
            let state = states.entry(entity).or_default();
            let sequence = match read {
                Read::Step(sequence) => sequence,
                Read::Gap(last) => {
                    workers.skipped += (last + 1).saturating_sub(*state);
                    *state = (*state).max(last + 1);
                    continue;
                }
            };
            workers.events += 1;
            if !seen.insert((entity, sequence)) {
                workers.duplicates += 1;
            } else if *state == sequence {
                *state += 1;
            } else {
                workers.violations += 1;
            }
        }
        let last = Step::ALL.len() as u64;
        workers.stuck = states.values().filter(|state| **state < last).count() as u64;
        workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_comes_too_early_is_refused_and_its_evaluation_is_stuck() {
        let events = [("a", 0), ("b", 0), ("a", 2), ("b", 1), ("a", 1), ("b", 1), ("b", 2)];
        let workers = Workers::replay(events.map(|(entity, step)| (entity, Read::Step(step))).into_iter());
        assert_eq!((workers.events, workers.violations, workers.duplicates, workers.stuck), (7, 1, 1, 1));
    }

    #[test]
    fn a_worker_that_is_told_of_a_gap_goes_on() {
        let workers =
            Workers::replay([("a", Read::Step(0)), ("a", Read::Gap(1)), ("a", Read::Step(2))].into_iter());
        assert_eq!((workers.violations, workers.stuck, workers.skipped), (0, 0, 1));
    }
}
