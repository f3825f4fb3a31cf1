//! What a run has seen, so that one whose histories are blind to something fails.

use std::collections::BTreeMap;

use super::{call::Call, reply::Reply};

#[derive(Default)]
pub struct Coverage {
    pub steps: u64,
    seen: BTreeMap<String, u64>,
}

/// Each must be seen at least this often in a run of the usual length.
const SEEN_MIN: u64 = 10;

/// Calls and their replies, all of which must be seen.
const WANTED: [&str; 0] = [];

impl Coverage {
    pub fn add(&mut self, call: &Call, reply: &Reply) {
        self.steps += 1;
        *self.seen.entry(format!("{}: {}", call.name(), reply.kind)).or_default() += 1;
    }

    /// Prints what was seen, and fails if a run of the usual length missed something.
    pub fn report_and_check(&self, is_long_enough: bool) {
        println!("{} steps; seen, how often", self.steps);
        for (what, count) in &self.seen {
            println!("  {what:<45} {count:>9}");
        }
        for what in WANTED {
            let count = self.seen.get(what).copied().unwrap_or(0);
            let enough = count >= SEEN_MIN || !is_long_enough;
            assert!(enough, "{what} was seen {count} times only, in {} steps", self.steps);
        }
    }
}
