//! The producer's client against a sidecar that behaves badly: answers in disorder, late
//! or never, refuses, fails, asks for what nobody has, and vanishes.

#[path = "client/adversary.rs"]
mod adversary;
#[path = "client/giving_up.rs"]
mod giving_up;
#[path = "client/losing.rs"]
mod losing;
#[path = "client/publishing.rs"]
mod publishing;
#[path = "client/resending.rs"]
mod resending;
#[path = "client/shown.rs"]
mod shown;
