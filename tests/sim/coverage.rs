//! What happened in the runs. A generator that never brings something about proves nothing
//! about it: many runs in which one of these words is missing have failed.

use std::collections::BTreeMap;

use seriatim::{
    order::{Note, Swept, Verdict},
    store::{Admitted, Committed, Entry, LeaseSeen, Leased},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    LostRequest,
    LostReply,
    Overtaken,
    Slow,
    SidecarKilled,
    SidecarKilledStarting,
    SidecarLeaves,
    SidecarSuspended,
    WorkerKilled,
    WorkerKilledStarting,
    WorkerLeaves,
    WorkerSuspended,
    StoreRestarted,
    StoreSuspended,
    StoreFull,
    WallSetForward,
    WallSetBack,
}

impl Fault {
    pub const ALL: [Fault; 17] = [
        Fault::LostRequest,
        Fault::LostReply,
        Fault::Overtaken,
        Fault::Slow,
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

    fn is_crash(self) -> bool {
        use Fault::{
            SidecarKilled, SidecarKilledStarting, StoreRestarted, WorkerKilled, WorkerKilledStarting,
        };
        matches!(
            self,
            SidecarKilled | SidecarKilledStarting | WorkerKilled | WorkerKilledStarting | StoreRestarted
        )
    }
}

/// What else must happen now and then, by its word.
const WORDS: [&str; 48] = [
    "again",
    "conflict",
    "duplicate",
    "late",
    "parked",
    "passed",
    "refused ahead_max",
    "refused entries_max",
    "refused parked_max",
    "refused partition_parked_max",
    "released",
    "retired",
    "stale",
    "gap filled",
    "gap probed",
    "skip degraded",
    "skip epoch",
    "skip overflow",
    "skip timeout",
    "lane retired",
    "commit done",
    "commit fenced",
    "lease lost race",
    "lease of a silent worker",
    "lease of nobody",
    "lease with suspects",
    "handled",
    "handled late",
    "handled passed",
    "handled gap",
    "nacked",
    "died",
    "retried",
    "answer fenced",
    "layout batch",
    "layout entry",
    "entry of many events",
    "entry of many events late",
    "suspect within an entry",
    "operator degraded",
    "operator restored",
    "operator skipped",
    "resend",
    "wish drop",
    "wish pause",
    "wish redrive",
    "wish resume",
    "wish skip",
];

#[derive(Clone, Debug, Default)]
pub struct Coverage {
    faults: BTreeMap<Fault, u64>,
    words: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub fn word(&mut self, word: &'static str) {
        *self.words.entry(word).or_default() += 1;
    }

    pub fn faults(&self) -> u64 {
        self.faults.values().sum()
    }

    pub fn crashes(&self) -> u64 {
        self.faults.iter().filter(|(fault, _)| fault.is_crash()).map(|(_, count)| count).sum()
    }

    pub fn add(&mut self, other: &Coverage) {
        other.faults.iter().for_each(|(fault, count)| *self.faults.entry(*fault).or_default() += count);
        other.words.iter().for_each(|(word, count)| *self.words.entry(word).or_default() += count);
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().filter(|fault| !self.faults.contains_key(fault));
        let words = WORDS.iter().filter(|word| !self.words.contains_key(*word));
        faults.map(|fault| format!("{fault:?}")).chain(words.map(ToString::to_string)).collect()
    }

    pub fn shown(&self) -> String {
        let faults = self.faults.iter().map(|(fault, count)| format!("  {count:>12} {fault:?}\n"));
        let words = self.words.iter().map(|(word, count)| format!("  {count:>12} {word}\n"));
        faults.chain(words).collect()
    }

    pub fn admitted(&mut self, admitted: &Admitted) {
        for decision in &admitted.decisions {
            self.word(match decision.verdict {
                Verdict::Released { .. } => "released",
                Verdict::Parked { .. } => "parked",
                Verdict::Passed { .. } => "passed",
                Verdict::Duplicate { .. } => "duplicate",
                Verdict::Retired { .. } => "retired",
                Verdict::Late { .. } => "late",
                Verdict::Conflict => "conflict",
                Verdict::Stale { .. } => "stale",
                Verdict::Again => "again",
                Verdict::Refused(refusal) => match refusal.name() {
                    "ahead_max" => "refused ahead_max",
                    "entries_max" => "refused entries_max",
                    "parked_max" => "refused parked_max",
                    "partition_parked_max" => "refused partition_parked_max",
                    _ => "refused otherwise",
                },
            });
        }
        self.notes(&admitted.notes);
    }

    /// What one call has appended to a stream.
    pub fn appended(&mut self, events: &[Entry], is_late: bool) {
        if events.iter().any(|event| event.id.index > 0) {
            self.word(if is_late { "entry of many events late" } else { "entry of many events" });
        }
    }

    pub fn notes(&mut self, notes: &[Note]) {
        for note in notes {
            match note {
                Note::Filled(_) => self.word("gap filled"),
                Note::Probed => self.word("gap probed"),
                Note::Skipped(reason) => self.word(match reason.name() {
                    "timeout" => "skip timeout",
                    "overflow" => "skip overflow",
                    "epoch" => "skip epoch",
                    "operator" => "skip operator",
                    "degraded" => "skip degraded",
                    _ => "skip otherwise",
                }),
                _ => {}
            }
        }
    }

    pub fn swept(&mut self, swept: &Swept) {
        if swept.retired > 0 {
            self.word("lane retired");
        }
    }

    pub fn leased(&mut self, leased: Option<&Leased>, seen: &LeaseSeen) {
        self.word(match leased {
            None => "lease lost race",
            Some(_) if seen.owner.is_none() => "lease of nobody",
            Some(_) => "lease of a silent worker",
        });
        let Some(leased) = leased else { return };
        if !leased.running.is_empty() {
            self.word("lease with suspects");
        }
        // What is behind the first event of an entry has its place from the entry alone.
        if leased.running.iter().any(|running| running.id.index > 0) {
            self.word("suspect within an entry");
        }
    }

    pub fn committed(&mut self, committed: &Committed) {
        self.word(match committed {
            Committed::Done { .. } => "commit done",
            Committed::Fenced { .. } => "commit fenced",
        });
    }
}
