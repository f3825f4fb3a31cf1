//! The worker's side against both stores: order, retries, dead letters, crashes, groups.
//!
//! Workers are consumers of this process; one that "crashes" is dropped, or its task is
//! ended, while handlers run. Real processes are killed in `tests/workers`.

#[path = "../support/mod.rs"]
mod support;

mod asking;
mod batches;
mod bench;
mod delivering;
mod forgetting;
mod holding;
mod reordering;
mod watched;
mod world;
