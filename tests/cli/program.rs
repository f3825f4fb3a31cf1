//! Runs the binary. Every wait has a bound, and no process outlives its test.

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use serde_json::Value;
use seriatim::config::ENV_PREFIX;

/// Long enough for a busy machine; whoever waits that long has found a bug.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Nobody listens on it: the service it was reserved for is forgotten.
pub const DEAD_PORT: &str = "127.0.0.1:1";
pub const DEAD_REDIS: &str = "redis://127.0.0.1:1";

/// Looks until there is something.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "no runtime runs in these tests")]
fn pause() {
    thread::sleep(LOOK_EVERY);
}

/// How a process ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The exit code must be this one.
    #[track_caller]
    pub fn with(self, code: i32) -> Self {
        let Ended { code: found, stdout, stderr } = &self;
        assert_eq!(*found, Some(code), "standard output:\n{stdout}\nstandard error:\n{stderr}");
        self
    }

    /// All that was printed, which must be one JSON object or array on one line.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{}", self.stdout);
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }

    /// Standard output must contain this.
    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "{text:?} is not in:\n{}", self.stdout);
        self
    }

    /// Standard error must contain this.
    #[track_caller]
    pub fn complains(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.stderr);
        self
    }
}

/// A process that is killed when it goes out of scope.
pub struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: Collected,
    errors: Collected,
}

/// What a pipe gave so far.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Collected {
    fn new(mut pipe: impl Read + Send + 'static) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = bytes.clone();
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut chunk) {
                shared.lock().expect("nobody panics holding it").extend_from_slice(&chunk[..read]);
            }
        });
        Collected { bytes, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("nobody panics holding it")).into_owned()
    }

    /// Everything, once the writer is gone.
    fn all(&mut self) -> String {
        self.reader.take().map(JoinHandle::join);
        self.text()
    }
}

/// The binary with these arguments, free of settings from around the test.
pub fn command<S: AsRef<OsStr>>(args: &[S]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seriatim"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(ENV_PREFIX)) {
        command.env_remove(name);
    }
    command.args(args);
    command
}

/// Runs it to its end, with nothing to read.
pub fn run<S: AsRef<OsStr>>(args: &[S]) -> Ended {
    run_with(args, "")
}

/// Runs it to its end, with this on standard input.
pub fn run_with<S: AsRef<OsStr>>(args: &[S], input: impl AsRef<[u8]>) -> Ended {
    let mut running = start(command(args));
    running.write(input);
    running.close_input();
    running.end()
}

pub fn start(mut command: Command) -> Running {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program can be started");
    Running {
        input: child.stdin.take(),
        output: Collected::new(child.stdout.take().expect("it is piped")),
        errors: Collected::new(child.stderr.take().expect("it is piped")),
        child,
    }
}

impl Running {
    /// A process that ended early does not read; how it ended says why.
    pub fn write(&mut self, text: impl AsRef<[u8]>) {
        let _ = self.input.as_mut().expect("it is open").write_all(text.as_ref());
    }

    pub fn close_input(&mut self) {
        drop(self.input.take());
    }

    pub fn output(&self) -> String {
        self.output.text()
    }

    pub fn errors(&self) -> String {
        self.errors.text()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill is installed");
        assert!(sent.success(), "SIG{name} reaches process {pid}");
    }

    /// The first line, as JSON, as soon as it is there.
    pub fn ready(&mut self) -> Value {
        let line = wait_for("the first line", || {
            let has_ended = self.child.try_wait().expect("it is our child").is_some();
            assert!(!has_ended, "it ended before it was ready: {}", self.errors.text());
            self.output().split_once('\n').map(|(line, _)| line.to_owned())
        });
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    pub fn end(mut self) -> Ended {
        let status = wait_for("the end of the process", || self.child.try_wait().expect("it is our child"));
        Ended { code: status.code(), stdout: self.output.all(), stderr: self.errors.all() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A sidecar that is ready.
pub struct Sidecar {
    pub process: Running,
    pub bound: Value,
}

/// Serves the topic `evaluations` with few partitions, on free ports.
pub fn sidecar(redis: &str, more: &[&str]) -> Sidecar {
    let mut process = start(command(&[&serve_args(redis)[..], more].concat()));
    let bound = process.ready();
    Sidecar { process, bound }
}

pub fn serve_args(redis: &str) -> Vec<&str> {
    let free = "127.0.0.1:0";
    let partitions = "topics.evaluations.partitions=4";
    vec!["serve", "--json", "--redis", redis, "--listen", free, "--web", free, "--set", partitions]
}

impl Sidecar {
    /// Where `publish --to` finds it.
    pub fn address(&self) -> String {
        format!("http://{}", self.bound["grpc"].as_str().expect("it listens on TCP"))
    }

    pub fn publish(&self, lines: &str) -> Ended {
        run_with(&["publish", "--json", "--to", &self.address()], lines)
    }
}

/// Events of one entity, one JSON object a line.
pub fn events(entity: &str, sequences: impl IntoIterator<Item = u64>) -> String {
    let line =
        |sequence| format!("{{\"entity\":\"{entity}\",\"sequence\":{sequence},\"type\":\"running\"}}\n");
    sequences.into_iter().map(line).collect()
}

/// An empty folder that goes with its owner.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        // Short: the path of a socket in it has 107 bytes at most.
        let path = std::env::temp_dir().join(format!("cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder can be made");
        Folder(path)
    }

    /// Writes a file and gives its path.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("the path is UTF-8").to_owned()
    }

    pub fn path_of(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("the path is UTF-8").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
