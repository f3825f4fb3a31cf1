//! A disk of its own for Redis, in memory, that can be made full and roomy again. It goes with the
//! test, even if that is killed.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// More than all files of a run; only what is written takes memory.
const ROOMY: &str = "4g";
/// Left free by one that is full, and how often it is tried to make it so.
const MORE_KB: u64 = 128;
const TRIES_MAX: u32 = 20;

pub struct SmallDisk {
    folder: PathBuf,
    /// A shell that unmounts it when its standard input is closed.
    guard: Child,
}

impl SmallDisk {
    /// Mounts it at a folder; an error if that is not allowed.
    pub fn mount(folder: &Path) -> Result<Self, String> {
        let size = format!("size={ROOMY}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder))?;
        // Whoever still has a file open there keeps it until its end.
        let script = r#"trap '' HUP INT TERM QUIT; cat >/dev/null; umount --lazy "$0""#;
        let mut guard = Command::new("sh");
        guard.args(["-c", script]).arg(folder).stdin(Stdio::piped());
        Ok(SmallDisk { folder: folder.to_owned(), guard: guard.spawn().expect("a shell starts") })
    }

    /// Makes it as large as what is on it, and a little more: it grows meanwhile.
    pub fn fill(&self) {
        let mut tried = Err(String::new());
        for _ in 0..TRIES_MAX {
            let said = run(Command::new("df").args(["-k", "--output=used"]).arg(&self.folder)).unwrap();
            let used: Option<u64> = said.lines().nth(1).and_then(|line| line.trim().parse().ok());
            tried = self.resize(&format!("{}k", used.expect("df says a number") + MORE_KB));
            if tried.is_ok() {
                return;
            }
        }
        tried.expect("it can be made smaller");
    }

    pub fn make_roomy(&self) {
        self.resize(ROOMY).expect("it can be made larger");
    }

    fn resize(&self, size: &str) -> Result<String, String> {
        run(Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
