//! `seriatim consume`: a worker on the command line. Each event is printed as a line of JSON,
//! or fed to a command whose exit code is the answer.

use std::{
    io::Write,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clap::{Args, ValueEnum};
use tokio::{
    io::AsyncWriteExt,
    process::Command,
    signal::unix::{SignalKind, signal},
    sync::Notify,
    task::JoinSet,
};

use super::{Failure, Outcome, config_args::block_on, delivery_json::delivery_line, topic_args::TopicArgs};
use crate::{
    clock::SystemClock,
    deliver::{ConsumeError, Consumer, ConsumerOptions, Delivery},
    random::Random,
    store::{Start, Store},
};

#[derive(Args)]
pub struct ConsumeArgs {
    #[command(flatten)]
    topic: TopicArgs,
    /// The group of workers to join; it is made if it is new.
    #[arg(long)]
    group: String,
    /// A name for this worker, for people.
    #[arg(long, default_value = "consume")]
    name: String,
    /// Where the group begins, if it is new.
    #[arg(long, value_enum, default_value_t = From::Beginning)]
    from: From,
    /// Feed each event to this command (by `sh -c`), as a line of JSON on its standard input:
    /// exit code 0 is an ack, any other a nack. Without it, lines go to standard output.
    #[arg(long, value_name = "COMMAND")]
    exec: Option<String>,
    /// Events that are handled at once, each of another entity.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    in_flight: u16,
    /// End after so many events were acknowledged.
    #[arg(long, value_name = "EVENTS")]
    count: Option<u64>,
    /// End when nothing came for so long.
    #[arg(long, value_name = "MILLISECONDS")]
    idle_ms: Option<u64>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum From {
    /// With the oldest entry there is.
    Beginning,
    /// With what is published from now on.
    End,
}

impl From {
    pub fn start(self) -> Start {
        match self {
            From::Beginning => Start::Beginning,
            From::End => Start::End,
        }
    }
}

pub fn run(args: ConsumeArgs) -> Outcome {
    let (config, store) = args.topic.open()?;
    let options = ConsumerOptions {
        name: args.name.clone(),
        start: args.from.start(),
        in_flight_max: usize::from(args.in_flight),
        ..config.delivery.options(&args.topic.name, &args.group)
    };
    block_on(async {
        args.topic.record(&store).await?;
        let store: Arc<dyn Store> = Arc::new(store);
        let clock = Arc::new(SystemClock::default());
        let consumer = Consumer::start(store, clock, Random::from_system(), options).await;
        consume(consumer.map_err(failure)?, &args).await
    })
}

fn failure(error: ConsumeError) -> Failure {
    match error {
        ConsumeError::Store(error) => error.into(),
        error => Failure::Usage(error.into()),
    }
}

async fn consume(mut consumer: Consumer, args: &ConsumeArgs) -> Outcome {
    let mut terminate = signal(SignalKind::terminate()).expect("signals can be listened to");
    let mut interrupt = signal(SignalKind::interrupt()).expect("signals can be listened to");
    let (acked, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let mut running = JoinSet::new();
    let idle = args.idle_ms.map_or(Duration::MAX, Duration::from_millis);
    let mut outcome = Ok(());
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = enough.notified() => break,
            () = tokio::time::sleep(idle.min(FOREVER)), if args.idle_ms.is_some() && running.is_empty() => break,
            Some(_) = running.join_next(), if !running.is_empty() => {}
            delivery = consumer.next() => {
                let Some(delivery) = delivery else { break };
                match &args.exec {
                    None => {
                        if let Err(error) = print(&delivery) {
                            // Nobody reads: it was not handled.
                            delivery.abandon();
                            if error.kind() != std::io::ErrorKind::BrokenPipe {
                                outcome = Err(Failure::Other(error.into()));
                            }
                            break;
                        }
                        let _ = delivery.ack().await;
                        if counted(&acked, args.count) {
                            break;
                        }
                    }
                    Some(command) => {
                        let (command, acked, enough) = (command.clone(), acked.clone(), enough.clone());
                        let count = args.count;
                        running.spawn(async move {
                            match execute(&command, &delivery).await {
                                Ok(()) => {
                                    let _ = delivery.ack().await;
                                    if counted(&acked, count) {
                                        enough.notify_one();
                                    }
                                }
                                Err(reason) => drop(delivery.nack(&reason)),
                            }
                        });
                    }
                }
            }
        }
    }
    let (closed, ()) = tokio::join!(consumer.close(), async { while running.join_next().await.is_some() {} });
    let () = closed;
    outcome
}

/// A timer cannot be set for longer than this.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Counts one; true if that is enough.
fn counted(acked: &AtomicU64, count: Option<u64>) -> bool {
    let acked = acked.fetch_add(1, Ordering::Relaxed) + 1;
    count.is_some_and(|count| acked >= count)
}

fn print(delivery: &Delivery) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", delivery_line(delivery))?;
    out.flush()
}

/// Runs the command; the error says how it ended, with the last line that it complained in.
async fn execute(command: &str, delivery: &Delivery) -> Result<(), String> {
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env("SERIATIM_ENTITY", &delivery.entity)
        .env("SERIATIM_ATTEMPT", delivery.attempt.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::inherit())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("cannot run sh: {error}"))?;
    let mut input = child.stdin.take().expect("it was asked for");
    // A command that does not read is none of our business.
    let _ = input.write_all(format!("{}\n", delivery_line(delivery)).as_bytes()).await;
    drop(input);
    let ended = child.wait_with_output().await.map_err(|error| error.to_string())?;
    if ended.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&ended.stderr);
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("{}: {last}", ended.status).trim_end_matches(": ").to_owned())
}
