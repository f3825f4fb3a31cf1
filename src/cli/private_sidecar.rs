//! A sidecar of one's own: this program as a child process, so that what is measured of it is
//! its own. It ends with its owner.

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

use super::{EXIT_UNREACHABLE, EXIT_USAGE, Failure};
use crate::config::ENV_PREFIX;

pub struct PrivateSidecar {
    child: Child,
    bound: Bound,
}

#[derive(Deserialize)]
struct Bound {
    grpc: SocketAddr,
    web: SocketAddr,
}

impl PrivateSidecar {
    /// Starts one with this configuration, which names a TCP and a web address; `name` is
    /// unique to it.
    pub async fn start(config: &str, name: &str) -> Result<Self, Failure> {
        let folder = env::temp_dir().join(format!("seriatim-{name}"));
        let started = Self::spawn(&folder, config).await;
        // It was read at the start; and it may hold the password of a Redis.
        let _ = fs::remove_dir_all(&folder);
        let (mut child, said) = started.map_err(Failure::Other)?;
        match serde_json::from_str(&said) {
            Ok(bound) => Ok(PrivateSidecar { child, bound }),
            Err(_) => Err(not_started(child.wait().await)),
        }
    }

    /// The child, and the line it said when it was ready.
    async fn spawn(folder: &Path, config: &str) -> anyhow::Result<(Child, String)> {
        fs::create_dir_all(folder)?;
        let file = folder.join("seriatim.toml");
        fs::write(&file, config)?;
        let mut command = Command::new(env::current_exe()?);
        // Settings of the user's own sidecar would lead this one to another store.
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

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
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

    pub async fn stop(mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait().await;
    }
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
