//! The independent checker of what workers got (`tests/checker/check.py`) finds what it
//! is there to find: its own tests, run as part of ours. It is not used here.

use std::process::Command;

#[test]
fn the_checker_finds_what_it_is_there_to_find() {
    let output = Command::new("python3")
        .args(["-B", "-m", "unittest", "discover", "--start-directory", "tests/checker"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("python3 is needed: run `make test`, which installs it");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Ran ") && !said.contains("Ran 0"), "no test was found:\n{said}");
}
