//! The commands as a user runs them: the real binary, a real redis-server, and what
//! they say and how they end. Exit codes and messages are part of the contract.

#[path = "../support/mod.rs"]
mod support;

mod benching;
mod demo;
mod doctor;
mod help;
mod operating;
mod program;
mod publishing;
mod refused;
mod serving;
mod topics;
mod trimming;
mod verifying;
mod working;
