//! The binary: everything is in the library, so that tests can use it.

use std::process::ExitCode;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// One thread does the work, so one arena; it keeps no large piece for later, and what was freed is
/// given back within a second. Read by the allocator before `main`; the end of the string is its zero.
#[cfg(feature = "jemalloc")]
#[unsafe(export_name = "_rjem_malloc_conf")]
static ALLOCATOR_SETTINGS: &[u8; 63] = b"narenas:1,tcache_max:4096,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

fn main() -> ExitCode {
    seriatim::cli::main()
}
