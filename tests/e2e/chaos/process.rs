//! Processes that end when the test ends, even if that is killed: a run of an hour that somebody
//! breaks off leaves nothing behind.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    iter,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::support::signal;

/// A shell stands between the test and the process, and waits for its standard input to close.
pub struct Guarded {
    guard: Child,
    pid: u32,
}

impl Guarded {
    /// Starts program, arguments and environment of `command`; its other settings do not count.
    pub fn start(command: &Command) -> Self {
        // The shell outlives signals of the terminal; what it starts does not inherit that.
        let script = r#""$0" "$@" >/dev/null </dev/null & process=$!
            trap '' HUP INT TERM QUIT
            exec 2>/dev/null
            echo $process; cat >/dev/null; kill -9 $process; wait $process"#;
        let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let mut guard = Command::new("sh")
            .args(["-c", script].map(OsStr::new))
            .arg(command.get_program())
            .args(command.get_args())
            .envs(set)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell starts");
        let mut said = String::new();
        BufReader::new(guard.stdout.take().unwrap()).read_line(&mut said).unwrap();
        Guarded { guard, pid: said.trim().parse().expect("the shell says whom it guards") }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid, name);
    }

    /// The same for one that may have ended by itself.
    pub fn signal_if_there(&self, name: &str) {
        let _ = Command::new("kill").args([&format!("-{name}"), &self.pid.to_string()]).output();
    }

    /// Has it ended? Its shell keeps what is left of it until it is killed.
    pub fn has_ended(&self) -> bool {
        resident_kb(self.pid).is_none()
    }

    /// SIGKILL, and gone.
    pub fn kill(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a process has in memory, in KB; `None` if it is gone.
pub fn resident_kb(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// One version of what runs in these tests.
#[derive(Clone)]
pub struct Programs {
    pub sidecar: PathBuf,
    pub worker: PathBuf,
}

impl Programs {
    /// This version, and the one in the folder that `SERIATIM_EARLIER` names, if it does.
    pub fn all() -> Vec<Self> {
        let earlier = env::var_os("SERIATIM_EARLIER").map(|folder| Self::in_folder(Path::new(&folder)));
        iter::once(Self::current()).chain(earlier).collect()
    }

    /// This version; or the copies in the folder that `SERIATIM_PROGRAMS` names, so that a long run does not
    /// stand in the way of the next build.
    fn current() -> Self {
        match env::var_os("SERIATIM_PROGRAMS") {
            Some(folder) => Self::in_folder(Path::new(&folder)),
            None => Self::in_folder(Path::new(env!("CARGO_BIN_EXE_seriatim")).parent().unwrap()),
        }
    }

    /// As cargo builds them into a folder.
    fn in_folder(folder: &Path) -> Self {
        let programs =
            Programs { sidecar: folder.join("seriatim"), worker: folder.join("examples/recording_worker") };
        for program in [&programs.sidecar, &programs.worker] {
            let shown = program.display();
            assert!(program.is_file(), "{shown} is not built: cargo build --example recording_worker");
        }
        programs
    }
}
