//! seriatim puts the events of one entity back in order.
#![forbid(unsafe_code)]

pub mod cli;
pub mod order;
pub mod store;
