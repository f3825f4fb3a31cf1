//! The sidecar as a child process, so that what is measured of it is its own.

use std::{
    env,
    ffi::OsString,
    fs, io,
    net::SocketAddr,
    path::Path,
    process::{ExitStatus, Stdio},
};

use anyhow::Context;
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
};

use super::{
    super::{EXIT_UNREACHABLE, EXIT_USAGE, Failure, config_args::ConfigArgs, config_args::open_redis},
    read_back::PARTITIONS,
};
use crate::{
    config::{ENV_PREFIX, MEMORY_URL},
    random::Random,
    store::Store,
};

/// Somebody watches: a Redis that is not there is told soon.
const START_WAIT_MS: u64 = 2000;

pub struct Sidecar {
    child: Child,
    bound: Bound,
}

#[derive(Deserialize)]
struct Bound {
    grpc: SocketAddr,
    web: SocketAddr,
}

/// What the sidecar says of itself at the end.
pub struct Measured {
    pub depth_p99: u64,
    pub depth_mean: f64,
    /// Peak resident memory, where the kernel tells.
    pub rss_mb: Option<f64>,
}

impl Sidecar {
    pub async fn start(url: &str, topic: &str, no_order: bool, layout: &str) -> Result<Self, Failure> {
        let folder = env::temp_dir().join(format!("seriatim-{topic}"));
        let started = Self::spawn(&folder, &config(url, topic, no_order, layout)).await;
        // It was read at the start; and it may hold the password of a Redis.
        let _ = fs::remove_dir_all(&folder);
        let (mut child, said) = started.map_err(Failure::Other)?;
        match serde_json::from_str(&said) {
            Ok(bound) => Ok(Sidecar { child, bound }),
            Err(_) => Err(not_started(child.wait().await)),
        }
    }

    /// The child, and the line it said when it was ready.
    async fn spawn(folder: &Path, config: &str) -> anyhow::Result<(Child, String)> {
        fs::create_dir_all(folder)?;
        let file = folder.join("seriatim.toml");
        fs::write(&file, config)?;
        let mut command = Command::new(env::current_exe()?);
        // Settings of the user's own sidecar would lead the demo to another store.
        let is_setting = |name: &OsString| name.to_string_lossy().starts_with(ENV_PREFIX);
        for name in env::vars_os().map(|(name, _)| name).filter(is_setting) {
            command.env_remove(name);
        }
        let mut child = command
            .args(["serve", "--json", "--exit-with-parent", "--config"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the sidecar cannot be started")?;
        let mut said = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut said).await?;
        Ok((child, said))
    }

    pub fn target(&self) -> String {
        format!("http://{}", self.bound.grpc)
    }

    /// Asks the sidecar's web port.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut connection = TcpStream::connect(self.bound.web).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: sidecar\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        connection.read_to_end(&mut response).await?;
        let response = String::from_utf8(response).context("the answer is text")?;
        let (head, body) = response.split_once("\r\n\r\n").context("the answer is HTTP")?;
        anyhow::ensure!(
            head.starts_with("HTTP/1.1 200"),
            "{path}: {}",
            head.lines().next().unwrap_or_default()
        );
        Ok(body.to_owned())
    }

    pub async fn measure(&self, topic: &str) -> Result<Measured, Failure> {
        let metrics = self.get("/metrics").await.map_err(Failure::Other)?;
        let (depth_p99, depth_mean) = depth(&metrics, topic);
        let rss_mb = self.child.id().and_then(peak_memory_mb);
        Ok(Measured { depth_p99, depth_mean, rss_mb })
    }

    /// Ends the child and removes what the demo made.
    pub async fn stop(mut self, url: &str, topic: &str) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let _ = self.child.wait().await;
        if url == MEMORY_URL {
            return Ok(());
        }
        let args = ConfigArgs { config: None, set: Vec::new(), redis: Some(url.to_owned()) };
        let store = open_redis(&args.load(Vec::new())?, &mut Random::from_system())?;
        Ok(store.delete_topic(topic).await?)
    }
}

fn config(url: &str, topic: &str, no_order: bool, layout: &str) -> String {
    let ordering = if no_order { "off" } else { "enforce" };
    format!(
        "log = \"warn\"\n[listen]\ngrpc = \"127.0.0.1:0\"\nweb = \"127.0.0.1:0\"\n\
         [store]\nurl = {url:?}\nstart_wait_ms = {START_WAIT_MS}\n\
         [topics.{topic}]\npartitions = {PARTITIONS}\nordering = \"{ordering}\"\nlayout = \"{layout}\"\n\
         gap_waits_ms = [200, 800]\nterminal_wait_ms = 1000\n"
    )
}

/// The child's own exit code says whether the URL is wrong or nobody answers there.
fn not_started(status: io::Result<ExitStatus>) -> Failure {
    let error = anyhow::anyhow!("the sidecar did not start; its own message is above");
    match status.ok().and_then(|status| status.code()).and_then(|code| u8::try_from(code).ok()) {
        Some(EXIT_USAGE) => Failure::Usage(error),
        Some(EXIT_UNREACHABLE) => Failure::Unreachable(error),
        _ => Failure::Other(error),
    }
}

/// 99th percentile and mean of the depth histogram in a metrics text.
fn depth(metrics: &str, topic: &str) -> (u64, f64) {
    let value = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    let label = format!("topic=\"{topic}\"");
    let named = |name: &str| {
        let name = format!("seriatim_lane_depth_{name}");
        metrics.lines().filter(move |line| line.starts_with(&name)).filter(|line| line.contains(&label))
    };
    let first = |name: &str| named(name).next().and_then(value).unwrap_or(0.0);
    let (count, sum) = (first("count"), first("sum"));
    let bound = |line: &str| line.split("le=\"").nth(1)?.split('"').next()?.parse::<f64>().ok();
    let p99 =
        named("bucket").find(|line| value(line).is_some_and(|below| below >= 0.99 * count)).and_then(bound);
    (p99.unwrap_or(0.0) as u64, if count > 0.0 { sum / count } else { 0.0 })
}

fn peak_memory_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some((kibibytes / 1024.0 * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn percentile_and_mean_are_read_from_the_buckets() {
        let metrics = "seriatim_lane_depth_sum{topic=\"t\"} 30.0\nseriatim_lane_depth_count{topic=\"t\"} 100\n\
            seriatim_lane_depth_bucket{le=\"0.0\",topic=\"t\"} 80\n\
            seriatim_lane_depth_bucket{le=\"1.0\",topic=\"t\"} 98\n\
            seriatim_lane_depth_bucket{le=\"2.0\",topic=\"t\"} 99\n\
            seriatim_lane_depth_bucket{le=\"+Inf\",topic=\"t\"} 100\n";
        assert_eq!(depth(metrics, "t"), (2, 0.3));
    }
}
