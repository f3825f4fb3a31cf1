//! The command line.

mod private_redis;

pub use private_redis::PrivateRedis;
