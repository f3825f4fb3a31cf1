//! What operators ask of a store.

mod verify;

pub use verify::{Finding, FindingKind, Report, Verifier, verify_topic};
