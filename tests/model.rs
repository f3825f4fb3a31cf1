//! The rules, model checked: every order of events, calls, faults and looks at the clock
//! within small budgets.
//!
//! Nothing of the product is rewritten here. [`admission`] runs `order::Partition`, which a
//! script in Redis follows word for word (`tests/differential` holds the two together), and
//! [`lease`] runs `LeaseBook`, `Feed` and the fenced half of the embedded store. Around them
//! is what the product cannot choose: a network, a replica, crashes, time.
//!
//! - [`runs`] are the configurations that must hold, each with one budget larger than the
//!   others, and what each must have reached;
//! - [`flaws`] break the design on purpose, and must end with a counterexample.
//!
//! `cargo test` runs them small; `make model` runs them at full size.

#[path = "model/admission.rs"]
mod admission;
#[path = "model/flaws.rs"]
mod flaws;
#[path = "model/judge.rs"]
mod judge;
#[path = "model/lease.rs"]
mod lease;
#[path = "model/node.rs"]
mod node;
#[path = "model/runs.rs"]
mod runs;
#[path = "model/seen.rs"]
mod seen;
#[path = "model/worker.rs"]
mod worker;
#[path = "model/world.rs"]
mod world;
