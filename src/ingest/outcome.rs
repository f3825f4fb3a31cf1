//! What becomes of one event, seen from the producer.

use crate::{metrics::TopicMetrics, order::Verdict, store::Decision};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The store decided.
    Decided(Decision),
    /// The event can never be admitted as it is.
    Invalid(Invalid),
    /// A limit of this sidecar; `reason` is its name.
    Refused { reason: &'static str, detail: String },
    /// The store did not answer in time. Publishing again is safe.
    Unavailable(String),
    /// The store cannot be used; publishing again will not help.
    Broken(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    pub field: &'static str,
    /// A word that does not change between versions.
    pub reason: &'static str,
    pub detail: String,
}

impl Outcome {
    /// Counts it under the topic it belongs to.
    pub fn count(&self, metrics: &TopicMetrics) {
        match self {
            Outcome::Decided(decision) => match decision.verdict {
                Verdict::Released { .. } => metrics.count("released"),
                Verdict::Parked { .. } => metrics.count("parked"),
                Verdict::Passed { .. } => metrics.count("passed"),
                Verdict::Duplicate { .. } | Verdict::Retired { .. } => metrics.count("duplicate"),
                Verdict::Late { .. } => metrics.count("late"),
                Verdict::Conflict => metrics.count("conflict"),
                Verdict::Stale { .. } => metrics.count("stale"),
                Verdict::Refused(refusal) => metrics.count_refused(refusal.name()),
                Verdict::Again => unreachable!("an undecided event is offered again, not answered"),
            },
            Outcome::Invalid(_) => metrics.count("invalid"),
            Outcome::Refused { reason, .. } => metrics.count_refused(reason),
            Outcome::Unavailable(_) | Outcome::Broken(_) => metrics.count("unavailable"),
        }
    }
}
