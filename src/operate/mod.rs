//! What operators ask of a topic. Nothing here admits events.

mod reconcile;
mod verify;

pub use reconcile::{MissingEntity, OutOfPlace, Pace, Reconciled, StuckLane, reconcile};
pub use verify::{Finding, FindingKind, Report, Verifier, verify_topic};
