//! A child process in a folder of its own that ends with its owner, even by SIGKILL: a shell
//! between the two waits for its standard input to close, then tidies up.

use std::{
    env, fs,
    io::{self, BufRead, BufReader},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::random::Random;

pub struct Guarded {
    guard: Child,
    pid: u32,
}

/// Makes a folder that is unguessable, ours alone, and did not exist: others may write where it
/// lies.
pub fn own_folder() -> io::Result<PathBuf> {
    let folder = env::temp_dir().join(format!("seriatim-{:016x}", Random::from_system().draw()));
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

impl Guarded {
    /// Starts a program that writes into the folder, which goes with it; what it says is in
    /// the file `log` there.
    pub fn start(program: &Path, arguments: &[&str], folder: &Path) -> io::Result<Self> {
        // $0 is the program. When the owner is gone, so is our standard input.
        // Signals of the terminal reach the shell, too; it must outlive them to tidy up.
        let script = r#"trap '' HUP INT TERM QUIT
            "$0" "$@" >"$SERIATIM_FOLDER/log" 2>&1 </dev/null & server=$!
            echo $server; cat >/dev/null; kill -9 $server; wait $server; rm -rf "$SERIATIM_FOLDER""#;
        let mut guard = Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .args(arguments)
            .env("SERIATIM_FOLDER", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut pid = String::new();
        BufReader::new(guard.stdout.take().expect("it is piped")).read_line(&mut pid)?;
        let pid = pid.trim().parse().map_err(io::Error::other)?;
        Ok(Guarded { guard, pid })
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
