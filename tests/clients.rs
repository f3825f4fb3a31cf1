//! Workers in Python and Node (`tests/clients/`) do what the contract asks of a worker,
//! against a sidecar that is made up: their own tests, run as part of ours.

use std::{path::Path, process::Command};

#[test]
fn workers_in_python_and_node_keep_the_contract() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(root.join("target/clients/venv/bin/python"))
        .args(["-B", "-m", "unittest", "discover", "--start-directory", "tests/clients"])
        .current_dir(root)
        .output()
        .expect("clients are needed: run `make test`, which installs them (scripts/install-clients)");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Ran ") && !said.contains("Ran 0"), "no test was found:\n{said}");
}
