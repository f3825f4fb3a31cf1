//! `seriatim publish`: events from a file or standard input to a sidecar.
//!
//! Lines are sent in their order, many in flight. An event that is refused, or that the
//! store did not decide in time, is published again for a while. A lost connection ends
//! the work: running it again is always safe.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clap::Args;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::Serialize;
use tokio::sync::mpsc;
use tonic::Code;

use super::{
    Failure, Outcome,
    config_args::block_on,
    event_json::EventLine,
    output::{grouped, print_json, progress},
};
use crate::{
    client::{ClientError, Publisher, connect},
    grpc::pb::{self, Verdict},
};

#[derive(Args)]
pub struct PublishArgs {
    /// One JSON object a line: entity, sequence, type, and optionally epoch, terminal, id,
    /// source, time, datacontenttype, data (any JSON) or data_base64, attributes. `-` or
    /// nothing reads standard input.
    file: Option<PathBuf>,
    /// The sidecar: http://host:port or unix:/path/to/socket.
    #[arg(long, value_name = "ADDRESS", default_value = "http://127.0.0.1:7401")]
    to: String,
    /// The topic; the sidecar must be configured to serve it.
    #[arg(long, default_value = "evaluations")]
    topic: String,
    /// Events in flight at once.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,
    /// How long an event that is refused or not answered is published again, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    retry_for: u64,
    /// One JSON object with the verdicts.
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Summary {
    events: u64,
    verdicts: BTreeMap<String, u64>,
    /// Lines that are no events.
    unreadable: u64,
    /// Published again after a refusal or a lost answer.
    retries: u64,
    ok: bool,
    /// The first things that went wrong, by line.
    problems: Vec<String>,
    /// Those that are not listed.
    further_problems: u64,
}

const PROBLEMS_KEPT: usize = 20;

pub fn run(args: PublishArgs) -> Outcome {
    let summary = block_on(publish(&args))?;
    if args.json {
        print_json(&summary);
    } else {
        print(&summary);
    }
    if summary.ok { Ok(()) } else { Err(Failure::Found) }
}

/// What became of one line.
struct Settled {
    line: u64,
    result: Result<pb::Result, ClientError>,
    retries: u64,
}

async fn publish(args: &PublishArgs) -> Result<Summary, Failure> {
    let (input, size) = open(args.file.as_deref())?;
    let mut lines = read_aside(input, usize::from(args.window));
    let client = connect(&args.to).await.map_err(client_failure)?;
    let publisher = Publisher::open(client, &args.topic).await.map_err(client_failure)?;
    let sender = Arc::new(Sender { publisher, retry_for: Duration::from_secs(args.retry_for) });
    let bar = progress(size, "publishing", !args.json);
    let mut summary = Summary::default();
    let mut open = FuturesUnordered::new();
    loop {
        // Answers are taken while the input is silent; no further line while the window is full.
        let read = tokio::select! {
            Some(settled) = open.next() => {
                summary.settle(settled)?;
                continue;
            }
            read = lines.recv(), if open.len() < usize::from(args.window) => read,
        };
        let Some((number, line)) = read else { break };
        let line = line.map_err(|error| Failure::Other(error.into()))?;
        bar.inc(if size.is_some() { line.len() as u64 } else { 1 });
        if line.trim_ascii().is_empty() {
            continue;
        }
        match parse(&line) {
            Ok(event) => open.push(sender.clone().send(number, event)),
            Err(error) => {
                summary.unreadable += 1;
                summary.problem(format!("line {number}: {error}"));
            }
        }
    }
    while let Some(settled) = open.next().await {
        summary.settle(settled)?;
    }
    bar.finish_and_clear();
    summary.ok = summary.problems.is_empty();
    Ok(summary)
}

fn parse(line: &[u8]) -> Result<pb::Event, String> {
    let text = std::str::from_utf8(line).map_err(|error| format!("is not UTF-8: {error}"))?;
    EventLine::parse(text.trim_end())
}

/// A line with its number, counted from 1 and with its end.
type Line = (u64, io::Result<Vec<u8>>);

/// Reads on a thread of its own: a pipe that is silent for a while, or a slow disk,
/// must hold up neither what was read before nor the answers.
fn read_aside(mut input: Box<dyn BufRead + Send>, ahead: usize) -> mpsc::Receiver<Line> {
    let (lines, receiver) = mpsc::channel(ahead);
    thread::spawn(move || {
        for number in 1.. {
            let mut line = Vec::new();
            let read = input.read_until(b'\n', &mut line);
            let (is_end, failed) = (matches!(read, Ok(0)), read.is_err());
            if is_end || lines.blocking_send((number, read.map(|_| line))).is_err() || failed {
                return;
            }
        }
    });
    receiver
}

/// The lines, and the size of the file where it is one.
fn open(file: Option<&Path>) -> Result<(Box<dyn BufRead + Send>, Option<u64>), Failure> {
    match file.filter(|path| *path != Path::new("-")) {
        None => Ok((Box::new(BufReader::new(io::stdin())), None)),
        Some(path) => {
            let failed = |error| Failure::Usage(anyhow::anyhow!("cannot read {}: {error}", path.display()));
            let file = File::open(path).map_err(failed)?;
            let size = file.metadata().map_err(failed)?.len();
            Ok((Box::new(BufReader::new(file)), Some(size)))
        }
    }
}

struct Sender {
    publisher: Publisher,
    retry_for: Duration,
}

impl Sender {
    /// Queues the event now; the future gives what became of it.
    fn send(self: Arc<Self>, line: u64, event: pb::Event) -> impl Future<Output = Settled> {
        let begun = Instant::now();
        let mut answer = self.publisher.submit(vec![event.clone()]);
        async move {
            let mut retries = 0;
            loop {
                let result = answer.await.map(|results| results.into_iter().next().unwrap_or_default());
                match retry_after(&result) {
                    Some(wait) if begun.elapsed() + wait < self.retry_for => tokio::time::sleep(wait).await,
                    _ => return Settled { line, result, retries },
                }
                retries += 1;
                answer = self.publisher.submit(vec![event.clone()]);
            }
        }
    }
}

fn retry_after(result: &Result<pb::Result, ClientError>) -> Option<Duration> {
    match result {
        Ok(result) if result.verdict() == Verdict::Refused => {
            Some(Duration::from_millis(result.retry_after_ms.into()))
        }
        Err(ClientError::Failed { retry_after_ms, .. }) if *retry_after_ms > 0 => {
            Some(Duration::from_millis((*retry_after_ms).into()))
        }
        _ => None,
    }
}

impl Summary {
    fn settle(&mut self, settled: Settled) -> Result<(), Failure> {
        self.retries += settled.retries;
        match settled.result {
            Ok(result) => {
                self.events += 1;
                let verdict = result.verdict();
                *self.verdicts.entry(verdict.as_str_name().to_lowercase()).or_default() += 1;
                if matches!(verdict, Verdict::Invalid | Verdict::Refused | Verdict::Conflict | Verdict::Stale)
                {
                    let pb::Result { field, reason, detail, .. } = &result;
                    let what = [field, reason].into_iter().find(|text| !text.is_empty());
                    let what = what.map(|text| format!(" ({text})")).unwrap_or_default();
                    self.problem(format!("line {}: {}{what}: {detail}", settled.line, verdict.as_str_name()));
                }
                Ok(())
            }
            // No line will fare better if the topic is not there.
            Err(error @ ClientError::Failed { .. }) if code_of(&error) == Code::NotFound => {
                Err(Failure::Usage(error.into()))
            }
            // One request that failed is a finding; a lost connection ends the work.
            Err(error @ ClientError::Failed { .. }) => {
                self.events += 1;
                *self.verdicts.entry("failed".to_owned()).or_default() += 1;
                self.problem(format!("line {}: {:?}: {error}", settled.line, code_of(&error)));
                Ok(())
            }
            Err(error) => Err(client_failure(error)),
        }
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < PROBLEMS_KEPT {
            self.problems.push(problem);
        } else {
            self.further_problems += 1;
        }
    }
}

fn code_of(error: &ClientError) -> Code {
    match error {
        ClientError::Failed { code, .. } => i32::try_from(*code).map_or(Code::Unknown, Code::from_i32),
        ClientError::Status(status) => status.code(),
        ClientError::Full { .. } => Code::ResourceExhausted,
        ClientError::Target { .. }
        | ClientError::Unreachable { .. }
        | ClientError::Lost
        | ClientError::GaveUp { .. }
        | ClientError::Closed => Code::Unavailable,
    }
}

pub fn client_failure(error: ClientError) -> Failure {
    match error {
        ClientError::Target { .. } => Failure::Usage(error.into()),
        ClientError::Unreachable { .. } | ClientError::Lost | ClientError::GaveUp { .. } => {
            Failure::Unreachable(error.into())
        }
        ClientError::Status(_) if code_of(&error) == Code::Unavailable => Failure::Unreachable(error.into()),
        ClientError::Status(_)
        | ClientError::Failed { .. }
        | ClientError::Full { .. }
        | ClientError::Closed => Failure::Other(error.into()),
    }
}

fn print(summary: &Summary) {
    println!("{} events published", grouped(summary.events));
    for (verdict, count) in &summary.verdicts {
        println!("  {verdict:<10} {:>9}", grouped(*count));
    }
    if summary.retries > 0 {
        println!("  {} of them were published again after a refusal", grouped(summary.retries));
    }
    if summary.unreadable > 0 {
        println!("{} lines are no events", grouped(summary.unreadable));
    }
    summary.problems.iter().for_each(|problem| println!("{problem}"));
    if summary.further_problems > 0 {
        println!("and {} further problems", grouped(summary.further_problems));
    }
}
