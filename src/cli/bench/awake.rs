//! Cores that do not fall asleep while a program is measured that waits for each answer.
//!
//! It lets its core sleep in between, and on a virtual machine waking it up takes longer than the answer: what is measured
//! then is the host. So on each core something runs that gives way to everything else. It is for two processes that work
//! by turns, no more: a core on which it runs is never idle, so the kernel does not move there what waits for the
//! other core, and whoever is woken while both are busy waits for a tick of up to four milliseconds.

use std::process::{Child, Command, Stdio};

use super::cores;

/// Ends by itself once its owner is gone.
const SPIN: &str = "while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done";

pub struct Awake(Vec<Child>);

impl Awake {
    /// Nothing where it cannot be had.
    pub fn keep() -> Option<Self> {
        let spin = |_| {
            let mut command = Command::new("chrt");
            command.args(["--idle", "0", "sh", "-c", SPIN]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
        };
        let spinning = (0..cores()).map(spin).collect::<Result<_, _>>();
        spinning.ok().map(Awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
