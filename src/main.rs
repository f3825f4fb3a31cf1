//! The binary: everything is in the library, so that tests can use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    seriatim::cli::main()
}
