//! The whole, with real processes: the sidecar's binary, a real redis-server, clients
//! over gRPC. Things are killed here.

#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod batch_layout;
mod chaos;
mod client;
mod configurations;
mod consume;
mod frame_gun;
mod frames;
mod full;
mod gaps;
mod half_open;
mod lifecycle_logs;
mod lost_work;
mod many_gaps;
mod pressure;
mod producer;
mod readme;
mod resend;
mod rollout;
mod services;
mod sidecar;
mod speed;
mod streams;
mod trouble;
mod two_groups;
mod two_sidecars;
mod workers;
