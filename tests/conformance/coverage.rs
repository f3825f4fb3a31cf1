//! What a run has seen, so that one whose histories are blind to something fails.

use std::collections::BTreeMap;

use super::{call::Call, reply::Reply};

#[derive(Default)]
pub struct Coverage {
    pub steps: u64,
    seen: BTreeMap<String, u64>,
}

/// Each must be seen at least this often in a run of the usual length.
const SEEN_MIN: u64 = 3;

/// Calls and their replies, all of which must be seen.
const WANTED: [&str; 131] = [
    "admit: broken",
    "admit: nothing",
    "admit: something",
    "admit: something late",
    "announce: begun",
    "announce: not executed",
    "attend: nothing",
    "attend: something",
    "beat: done",
    "commit, ahead: fenced",
    "commit, ahead: no group",
    "commit, from before: done",
    "commit, from before: fenced",
    "commit, from before: no group",
    "commit, of another term: done",
    "commit, of another term: fenced",
    "commit, of another term: no group",
    "commit, of some term: done",
    "commit, of some term: fenced",
    "commit, of some term: no group",
    "commit, once more: done",
    "commit, once more: no group",
    "commit, the next: done",
    "commit, the next: no group",
    "degrade: no",
    "degrade: yes",
    "delete: done",
    "depart: done",
    "elapse: broken",
    "elapse: early",
    "elapse: ran",
    "extend: done",
    "floor: not executed",
    "floor: something",
    "groups: nothing",
    "groups: something",
    "heads: no group",
    "heads: nothing",
    "heads: something",
    "kept: no group",
    "kept: nothing",
    "kept: something",
    "lead: yes",
    "lease, as it is: leased",
    "lease, as it is: no group",
    "lease, as some lease was once: leased",
    "lease, as some lease was once: no group",
    "lease, as some lease was once: refused",
    "lease, with an owner: leased",
    "lease, with an owner: no group",
    "lease, with an owner: refused",
    "lease, with another count: leased",
    "lease, with another count: no group",
    "lease, with another count: refused",
    "lease, with another term: leased",
    "lease, with another term: no group",
    "lease, with another term: refused",
    "leases: all",
    "leases: fewer",
    "leases: nothing",
    "leave: done",
    "measure: done",
    "open, layout batch: done",
    "open, layout entry: done",
    "ping: done",
    "points: no group",
    "points: nothing",
    "points: something",
    "probe: broken",
    "probe: nothing",
    "read events: nothing",
    "read events: several of an entry",
    "read events: something",
    "read late: nothing",
    "read on: nothing",
    "read on: several of an entry",
    "read on: something",
    "record: nothing",
    "record: something",
    "register after an id: no",
    "register after an id: yes",
    "register at the beginning: no",
    "register at the beginning: yes",
    "register at the end: no",
    "register at the end: yes",
    "release, in force: done",
    "release, of nobody: done",
    "release, of some time: done",
    "remove: done",
    "repair: nothing",
    "resume: nothing",
    "resume: something",
    "skip: not executed",
    "skip: nothing",
    "skip: something",
    "sweep points, in force: done",
    "sweep points, of nobody: done",
    "sweep points, of some time: done",
    "sweep: not executed",
    "sweep: nothing",
    "sweep: retired",
    "switch: no",
    "switch: yes",
    "topics: something",
    "trim: broken",
    "trim: not run",
    "trim: nothing",
    "trim: nothing, without a group",
    "trim: removed up to a floor",
    "wait: nothing",
    "wait: several of an entry",
    "wait: something",
    "wish Drop: done",
    "wish Drop: no group",
    "wish Drop: not held",
    "wish Drop: unfit",
    "wish Pause: done",
    "wish Pause: no group",
    "wish Pause: unfit",
    "wish Redrive: done",
    "wish Redrive: no group",
    "wish Redrive: not held",
    "wish Redrive: unfit",
    "wish Resume: done",
    "wish Resume: no group",
    "wish Resume: not held",
    "wish Resume: unfit",
    "wish Skip: done",
    "wish Skip: no group",
    "wish Skip: not held",
    "wish Skip: unfit",
];

/// Likewise, but once will do.
const WANTED_ONCE: [&str; 11] = [
    "announce: full",
    "announce: noted",
    "open, layout batch: mismatch",
    "open, layout entry: mismatch",
    "degrade: not executed",
    "extend: broken",
    "floor: nothing",
    "probe: something",
    "repair: not executed",
    "sweep points, in force: forgot",
    "trim: removed, without a group",
];

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
        let wanted = WANTED.map(|what| (what, SEEN_MIN)).into_iter();
        for (what, least) in wanted.chain(WANTED_ONCE.map(|what| (what, 1))) {
            let count = self.seen.get(what).copied().unwrap_or(0);
            let enough = count >= least || !is_long_enough;
            assert!(enough, "{what} was seen {count} times only, in {} steps", self.steps);
        }
    }
}
