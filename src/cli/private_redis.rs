//! A Redis of one's own: a child process on a socket in a temporary folder.
//!
//! The demo and the tests need a real server without asking anybody to start one. It
//! listens on no port, keeps nothing, and ends when its owner ends, even by SIGKILL:
//! a shell between the two waits for its standard input to close, then tidies up.

use std::{
    env, fs,
    io::{self, BufRead, BufReader},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::random::Random;

pub struct PrivateRedis {
    guard: Child,
    pid: u32,
    folder: PathBuf,
}

/// How often, and how long, a starting server is looked at.
const LOOKS_MAX: u32 = 500;
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl PrivateRedis {
    /// The program to start: `redis-server` or `valkey-server`, if one is installed.
    pub fn find() -> Option<PathBuf> {
        let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH")?).collect();
        let programs = ["redis-server", "valkey-server"];
        programs
            .iter()
            .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
            .find(|p| p.is_file())
    }

    /// Starts it; `extra` are further arguments of the server.
    #[allow(clippy::disallowed_methods, reason = "nothing else runs before the server does")]
    pub fn start(program: &Path, extra: &[&str]) -> io::Result<Self> {
        // Unguessable, ours alone, and an error if it exists: others may write there.
        let folder = env::temp_dir().join(format!("seriatim-{:016x}", Random::from_system().draw()));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let socket = folder.join("redis.sock");
        // $0 is the program. When the owner is gone, so is our standard input.
        // Signals of the terminal reach the shell, too; it must outlive them to tidy up.
        let script = r#"trap '' HUP INT TERM QUIT
            "$0" "$@" >"$SERIATIM_FOLDER/redis.log" 2>&1 </dev/null & server=$!
            echo $server; cat >/dev/null; kill -9 $server; wait $server; rm -rf "$SERIATIM_FOLDER""#;
        let mut guard = Command::new("sh")
            .args(["-c", script])
            .arg(program)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .args(extra)
            .env("SERIATIM_FOLDER", &folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut pid = String::new();
        BufReader::new(guard.stdout.take().expect("it is piped")).read_line(&mut pid)?;
        let pid = pid.trim().parse().map_err(io::Error::other)?;
        for _ in 0..LOOKS_MAX {
            if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                return Ok(PrivateRedis { guard, pid, folder });
            }
            thread::sleep(LOOK_EVERY);
        }
        let log = fs::read_to_string(folder.join("redis.log")).unwrap_or_default();
        drop(guard.stdin.take());
        let _ = guard.wait();
        Err(io::Error::other(format!("{} did not start; it said: {log}", program.display())))
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
