//! Workers as processes, and what they write down.
//!
//! Journals are pipes, not files: a run of an hour would fill a disk. What a worker has written
//! stays in its pipe when it is killed, and is read to the end.

use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    path::Path,
    process::Command,
    sync::Arc,
    time::SystemTime,
};

use futures_util::FutureExt;
use serde::Deserialize;
use seriatim_checker::{Name, Order, Run};
use tokio::{io::AsyncReadExt, net::unix::pipe, sync::oneshot, task::JoinHandle};

use super::{ledger::Ledger, process::Guarded};
use crate::sidecar::eventually;

/// One line of a journal; `examples/recording_worker.rs` writes it.
#[derive(Deserialize)]
pub struct Line {
    pub kind: String,
    pub at: u64,
    pub partition: u32,
    pub term: u64,
    pub entity: String,
    pub epoch: u64,
    pub sequence: u64,
    pub order: String,
    pub id: Option<String>,
    pub from: Option<u64>,
}

impl Line {
    pub fn order(&self) -> Order {
        match self.order.as_str() {
            "strict" => Order::Strict,
            "passed" => Order::Passed,
            "late" => Order::Late,
            "replay" => Order::Replay,
            "gap" => Order::Gap,
            other => panic!("no journal has the order {other:?}"),
        }
    }

    /// The run that begins with this line.
    pub fn run(&self, worker: u32, name: Name) -> Run {
        let entry = self.id.as_deref().map(|id| {
            let (ms, number) = id.split_once('-').expect("an id has two numbers");
            (ms.parse().unwrap(), number.parse().unwrap())
        });
        Run {
            worker,
            partition: self.partition,
            term: self.term,
            payload: name.2,
            name,
            from: self.from.unwrap_or(self.sequence),
            order: self.order(),
            entry,
            started: self.at,
            done: None,
            is_nacked: false,
            answer: None,
            killed: None,
        }
    }
}

/// What a worker is told when it is started.
pub struct Job<'a> {
    pub program: &'a Path,
    pub redis: &'a str,
    pub topic: &'a str,
    pub group: &'a str,
    pub lease_ms: u64,
    pub handler_ms: u64,
    pub nack_percent: u64,
}

pub struct Worker {
    process: Guarded,
    reading: JoinHandle<()>,
    /// Tells the reader that nothing more is written.
    gone: Option<oneshot::Sender<()>>,
}

impl Worker {
    /// `number` is one that no other worker had.
    pub fn start(folder: &Path, number: u32, job: &Job<'_>, ledger: &Arc<Ledger>) -> Self {
        let journal = folder.join(format!("w{number}.pipe"));
        let made = Command::new("mkfifo").arg(&journal).status();
        assert!(made.unwrap().success(), "{} is made", journal.display());
        // Open for writing as well, so that it does not end with its writer.
        let pipe = pipe::OpenOptions::new().read_write(true).open_receiver(&journal).unwrap();
        let mut command = Command::new(job.program);
        command.args(["--redis", job.redis, "--topic", job.topic, "--group", job.group]);
        command.args(["--name", &format!("w{number}"), "--in-flight", "64"]);
        for (flag, value) in [
            ("--lease-ms", job.lease_ms),
            ("--handler-ms", job.handler_ms),
            ("--nack-percent", job.nack_percent),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        command.arg("--journal").arg(&journal);
        let process = Guarded::start(&command);
        let (gone, is_gone) = oneshot::channel();
        let reading = tokio::spawn(read(pipe, is_gone, number, ledger.clone()));
        Worker { process, reading, gone: Some(gone) }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// One that cannot begin because of its store ends by itself.
    pub fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    pub fn signal(&self, name: &str) {
        self.process.signal_if_there(name);
    }

    /// SIGTERM; returns when it has left in order.
    pub async fn leave(&self) {
        self.signal("TERM");
        let has_left = || async { self.has_ended() };
        eventually("a worker that is told to leave does so", has_left).await;
    }

    /// SIGKILL; returns when all that it wrote is in the ledger.
    pub async fn kill(&mut self) {
        self.process.kill();
        if let Some(gone) = self.gone.take() {
            let _ = gone.send(());
            (&mut self.reading).await.expect("journals can be read");
        }
    }
}

async fn read(
    mut pipe: pipe::Receiver,
    mut is_gone: oneshot::Receiver<()>,
    number: u32,
    ledger: Arc<Ledger>,
) {
    let mut journal = Journal { number, ledger, rest: Vec::new() };
    let mut piece = vec![0; 1 << 16];
    loop {
        tokio::select! {
            biased;
            size = pipe.read(&mut piece) => journal.take(&piece[..size.expect("a pipe can be read")]),
            _ = &mut is_gone => break,
        }
    }
    journal.take(&left_in(pipe));
    #[expect(clippy::disallowed_methods, reason = "journals of several processes are put in order by it")]
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    journal.ledger.ended(number, at.as_nanos() as u64);
}

/// What is in a pipe now. The runtime would go by what it was last told of it, which may be old: lines that a worker
/// wrote just before its end would be missing.
fn left_in(pipe: pipe::Receiver) -> Vec<u8> {
    let mut pipe = File::from(pipe.into_nonblocking_fd().expect("it is a pipe"));
    let mut left = Vec::new();
    let ended = pipe.read_to_end(&mut left).expect_err("it is open for writing as well");
    assert_eq!(ended.kind(), ErrorKind::WouldBlock);
    left
}

#[tokio::test]
async fn what_a_worker_writes_just_before_its_end_is_read() {
    let path = std::env::temp_dir().join(format!("seriatim-pipe-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut pipe = pipe::OpenOptions::new().read_write(true).open_receiver(&path).unwrap();
    let mut piece = [0; 16];
    assert!(pipe.read(&mut piece).now_or_never().is_none(), "nothing is there yet");
    File::options().write(true).open(&path).unwrap().write_all(b"the end").unwrap();
    assert_eq!(left_in(pipe), b"the end");
    std::fs::remove_file(path).unwrap();
}

struct Journal {
    number: u32,
    ledger: Arc<Ledger>,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
}

impl Journal {
    fn take(&mut self, piece: &[u8]) {
        self.rest.extend_from_slice(piece);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else { return };
        let lines: Vec<u8> = self.rest.drain(..=end).collect();
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line = serde_json::from_slice(line).expect("a line of a journal is whole");
            self.ledger.heard(self.number, line);
        }
    }
}
