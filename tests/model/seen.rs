//! What occurred in a run: a checker that never gets somewhere proves nothing about it.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use seriatim::order::{Refusal, Verdict};

use super::judge::{Entry, Why};

macro_rules! things {
    ($($thing:ident),*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Thing { $($thing),* }

        const ALL: &[Thing] = &[$(Thing::$thing),*];
    };
}

things!(
    Released,
    Parked,
    Passed,
    Duplicate,
    Retired,
    Late,
    Conflict,
    Stale,
    AheadMax,
    ParkedMax,
    OtherLimit,
    Again,
    GapTimeout,
    GapOverflow,
    GapEpoch,
    GapOperator,
    GapDegraded,
    EpochMarker,
    DegradedByOperator,
    DegradedByBreaker,
    RestoredByOperator,
    RestoredByBreaker,
    FastPath,
    FurtherDrain,
    Sweeping,
    Forgetting,
    Waking,
    FailedOver,
    AckLost,
    StaleView,
    TakenOver,
    FencedCommit,
    AppliedOnce,
    LeaseRaced,
    GivenBack,
    Suspect,
    DeadLetter,
    StrayFenced
);

#[derive(Clone, Debug, Default)]
pub struct Seen(Arc<AtomicU64>);

impl Seen {
    pub fn note(&self, thing: Thing) {
        let bit = 1 << thing as u64;
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }

    pub fn all(&self) -> BTreeSet<Thing> {
        let bits = self.0.load(Ordering::Relaxed);
        ALL.iter().copied().filter(|thing| bits & (1 << *thing as u64) != 0).collect()
    }

    pub fn note_entry(&self, entry: &Entry) {
        self.note(match entry {
            Entry::Strict { .. } => Thing::Released,
            Entry::Passed { .. } => Thing::Passed,
            Entry::Late { .. } => Thing::Late,
            Entry::Gap { why: Why::Timeout, .. } => Thing::GapTimeout,
            Entry::Gap { why: Why::Overflow, .. } => Thing::GapOverflow,
            Entry::Gap { why: Why::Epoch, .. } => Thing::GapEpoch,
            Entry::Gap { why: Why::Operator, .. } => Thing::GapOperator,
            Entry::Gap { why: Why::Degraded, .. } => Thing::GapDegraded,
            Entry::Epoch { .. } => Thing::EpochMarker,
            Entry::Degraded { by_operator: true } => Thing::DegradedByOperator,
            Entry::Degraded { by_operator: false } => Thing::DegradedByBreaker,
            Entry::Restored { by_operator: true } => Thing::RestoredByOperator,
            Entry::Restored { by_operator: false } => Thing::RestoredByBreaker,
        });
    }

    pub fn note_verdict(&self, verdict: Verdict) {
        self.note(match verdict {
            Verdict::Released { .. } => Thing::Released,
            Verdict::Parked { .. } => Thing::Parked,
            Verdict::Passed { .. } => Thing::Passed,
            Verdict::Duplicate { .. } => Thing::Duplicate,
            Verdict::Retired { .. } => Thing::Retired,
            Verdict::Late { .. } => Thing::Late,
            Verdict::Conflict => Thing::Conflict,
            Verdict::Stale { .. } => Thing::Stale,
            Verdict::Refused(Refusal::AheadMax) => Thing::AheadMax,
            Verdict::Refused(Refusal::ParkedMax) => Thing::ParkedMax,
            Verdict::Refused(_) => Thing::OtherLimit,
            Verdict::Again => Thing::Again,
        });
    }
}
