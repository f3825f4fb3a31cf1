//! The command line: one file per command.

mod base64;
mod bench;
mod config_args;
mod consume;
mod dead;
mod degrade;
mod delivery_json;
mod demo;
mod doctor;
mod event_json;
#[cfg(test)]
mod fuzz;
mod group;
mod guarded;
mod output;
mod private_redis;
mod private_sidecar;
mod publish;
mod reconcile;
mod serve;
mod skip;
mod topic;
mod topic_args;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use self::{event_json::EventLine, private_redis::PrivateRedis};

/// Puts the events of one entity back in order: an event-ordering sidecar over Redis Streams.
#[derive(Parser)]
#[command(name = "seriatim", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 done, and what was found is not good; 64 wrong usage or configuration; \
    69 the store or the sidecar cannot be reached; 70 anything else.";

#[derive(Subcommand)]
enum Command {
    /// Run the sidecar until SIGTERM or SIGINT.
    Serve(serve::ServeArgs),
    /// See it work: 1,000 fast evaluations with shuffled, doubled and delayed events.
    Demo(demo::DemoArgs),
    /// Measure what order costs, beside raw XADD and what people would do otherwise.
    Bench(bench::BenchArgs),
    /// Publish events from a file or standard input, one JSON object a line.
    Publish(publish::PublishArgs),
    /// Work for a group: events in order as lines of JSON, or fed to a command.
    Consume(consume::ConsumeArgs),
    /// Groups of workers: list, register, remove, pause, degrade.
    Group(group::GroupArgs),
    /// Dead letters of a group: list, show, redrive, skip, drop.
    Dead(dead::DeadArgs),
    /// Read a topic's streams and prove: no inversion, no unmarked gap, no duplicate.
    Verify(verify::VerifyArgs),
    /// List, show or delete topics.
    Topic(topic::TopicArgs),
    /// Give one gap up that nobody will fill; the stream says who did it.
    Skip(skip::SkipArgs),
    /// Take a topic's promise of order away: events pass at once, marked.
    Degrade(degrade::DegradeArgs),
    /// Give a degraded topic its promise of order back.
    Restore(degrade::DegradeArgs),
    /// Look for lost work once: what is stuck, never began, or is out of place.
    Reconcile(reconcile::ReconcileArgs),
    /// Check the store: is it reachable, is it fit, what could be lost?
    Doctor(doctor::DoctorArgs),
}

/// How a command ended, if not well.
enum Failure {
    /// It ran; what it found is not good, and was said.
    Found,
    Usage(anyhow::Error),
    Unreachable(anyhow::Error),
    Other(anyhow::Error),
}

type Outcome = Result<(), Failure>;

const EXIT_FOUND: u8 = 1;
const EXIT_USAGE: u8 = 64;
const EXIT_UNREACHABLE: u8 = 69;
const EXIT_OTHER: u8 = 70;

/// Parses the arguments of the process and runs the command.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(help) if !help.use_stderr() => {
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let outcome = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Publish(args) => publish::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Group(args) => group::run(args),
        Command::Dead(args) => dead::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Topic(args) => topic::run(args),
        Command::Skip(args) => skip::run(args),
        Command::Degrade(args) => degrade::run(args, true),
        Command::Restore(args) => degrade::run(args, false),
        Command::Reconcile(args) => reconcile::run(args),
        Command::Doctor(args) => doctor::run(args),
    };
    let (code, error) = match outcome {
        Ok(()) => return ExitCode::SUCCESS,
        Err(Failure::Found) => return ExitCode::from(EXIT_FOUND),
        Err(Failure::Usage(error)) => (EXIT_USAGE, error),
        Err(Failure::Unreachable(error)) => (EXIT_UNREACHABLE, error),
        Err(Failure::Other(error)) => (EXIT_OTHER, error),
    };
    eprintln!("seriatim: {}", said_once(&error));
    ExitCode::from(code)
}

/// The error and its causes. Most of our errors say their cause themselves: what an
/// outer sentence has said already is left out.
fn said_once(error: &anyhow::Error) -> String {
    let mut said = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if said.is_empty() {
            said = cause;
        } else if !said.contains(&cause) {
            said = format!("{said}: {cause}");
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::said_once;

    #[test]
    fn a_cause_is_said_once() {
        let error = Err::<(), _>(anyhow!("refused")).context("cannot connect: refused").context("no store");
        assert_eq!(said_once(&error.unwrap_err()), "no store: cannot connect: refused");
    }
}
