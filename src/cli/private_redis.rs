//! A Redis of one's own: a child process on a socket in a temporary folder.
//!
//! The demo, the bench and the tests need a real server without asking anybody to start one.
//! It listens on no port unless it is told to, keeps nothing, and ends when its owner ends.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use super::guarded::{Guarded, own_folder};

pub struct PrivateRedis {
    server: Guarded,
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
        let folder = own_folder()?;
        let socket = folder.join("redis.sock");
        let (at, dir) = (socket.to_string_lossy().into_owned(), folder.to_string_lossy().into_owned());
        let mut arguments = vec!["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no"];
        arguments.extend(["--unixsocket", &at, "--dir", &dir]);
        arguments.extend(extra);
        let server = Guarded::start(program, &arguments, &folder)?;
        for _ in 0..LOOKS_MAX {
            if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
                return Ok(PrivateRedis { server, folder });
            }
            thread::sleep(LOOK_EVERY);
        }
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        Err(io::Error::other(format!("{} did not start; it said: {log}", program.display())))
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.socket().display())
    }

    pub fn pid(&self) -> u32 {
        self.server.pid()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("redis.sock")
    }
}
