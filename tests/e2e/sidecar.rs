//! A sidecar as a child process that never outlives its test.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use seriatim::{client, grpc::pb::ingest_client::IngestClient};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tonic::transport::Channel;

use super::support::signal;

pub struct Sidecar {
    child: Child,
    /// The process ends when this is dropped.
    _stdin: ChildStdin,
    pub grpc: SocketAddr,
    pub web: SocketAddr,
    pub socket: PathBuf,
    folder: PathBuf,
}

/// How a sidecar is started by those who do not want the usual.
pub struct Launch<'a> {
    pub program: &'a Path,
    pub redis_url: &'a str,
    pub config: &'a str,
    pub socket: &'a Path,
    pub environment: &'a [(String, String)],
    /// What it logs.
    pub log: &'a str,
}

/// How long anything in these tests may take before it counts as hanging.
pub const BOUND: Duration = Duration::from_secs(60);

impl Sidecar {
    /// Starts one; `config` is TOML, for example `[topics.jobs]`, without `[listen]`.
    pub fn start(redis_url: &str, config: &str) -> Self {
        Self::start_at(redis_url, config, None)
    }

    /// Starts one at the Unix socket of another that was killed.
    pub fn start_in_place_of(killed: &Sidecar, redis_url: &str, config: &str) -> Self {
        let program = Path::new(env!("CARGO_BIN_EXE_seriatim"));
        let socket = &killed.socket;
        Self::launch(&Launch { program, redis_url, config, socket, environment: &[], log: "warn" })
    }

    /// Starts one of any version, at a Unix socket that may be another's which was killed, with further
    /// variables in its environment.
    pub fn launch(launch: &Launch<'_>) -> Self {
        Self::start_at(launch.redis_url, launch.config, Some(launch))
    }

    fn start_at(redis_url: &str, config: &str, launch: Option<&Launch<'_>>) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("seriatim-e2e-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("seriatim.toml");
        let socket = launch.map_or_else(|| folder.join("grpc.sock"), |launch| launch.socket.to_owned());
        let program = launch.map_or(Path::new(env!("CARGO_BIN_EXE_seriatim")), |launch| launch.program);
        fs::write(&file, config).unwrap();
        let mut child = Command::new(program)
            .args([
                "serve",
                "--json",
                "--exit-with-parent",
                "--listen",
                "127.0.0.1:0",
                "--web",
                "127.0.0.1:0",
            ])
            .arg("--socket")
            .arg(&socket)
            .args(["--redis", redis_url, "--set"])
            .arg(format!("log={}", launch.map_or("warn", |launch| launch.log)))
            .arg("--config")
            .arg(&file)
            .envs(launch.into_iter().flat_map(|launch| launch.environment.iter().cloned()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let stdin = child.stdin.take().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let bound: serde_json::Value =
            serde_json::from_str(&said).expect("the sidecar says where it listens");
        let address = |key: &str| bound[key].as_str().unwrap().parse().unwrap();
        Sidecar { child, _stdin: stdin, grpc: address("grpc"), web: address("web"), socket, folder }
    }

    pub async fn client(&self) -> IngestClient<Channel> {
        client::connect(&format!("http://{}", self.grpc)).await.expect("the sidecar accepts connections")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL, and gone.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    /// Replaces its configuration, as a rollout does: the new file in one step.
    pub fn rewrite(&self, config: &str) {
        let new = self.folder.join("new.toml");
        fs::write(&new, config).unwrap();
        fs::rename(&new, self.folder.join("seriatim.toml")).unwrap();
    }

    /// Waits until it has read its configuration so often, well or not.
    pub async fn reloaded(&self, outcome: &str, times: u32) {
        let line = format!("seriatim_reloads_total{{outcome=\"{outcome}\"}}");
        let enough = || async { self.metric(&line).await >= f64::from(times) };
        eventually(&format!("the configuration is {outcome}"), enough).await;
    }

    /// Waits for its end; `None` if it does not come.
    pub async fn ended(&mut self) -> Option<i32> {
        let begun = Instant::now();
        while begun.elapsed() < BOUND {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        None
    }

    /// Status and body of a GET on the web port.
    pub async fn get(&self, path: &str) -> (u16, String) {
        let mut connection = TcpStream::connect(self.web).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: sidecar\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        connection.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// One value of the metrics, by the beginning of its line.
    pub async fn metric(&self, line: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let found = text.lines().find(|candidate| candidate.starts_with(line));
        found.map_or(0.0, |found| found.rsplit(' ').next().unwrap().parse().unwrap())
    }

    /// CPU time used so far, user and system together.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        // The name in parentheses may contain anything; the fields follow it.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits until something holds, and fails with its description if it never does.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < BOUND, "this never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
