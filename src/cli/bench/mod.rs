//! `seriatim bench`: what order costs, beside what people would do otherwise.
//!
//! A scenario compares a few systems. Each repetition visits every one of them once, with a
//! store of its own, and ratios are taken inside a repetition: on a shared machine nothing
//! else is worth much. What the sidecar released is read back after every run and must be in
//! order. docs/bench.md says how it measures and what it does not.

mod awake;
mod commit;
mod delivery;
mod direct;
mod goals;
mod load;
mod memory;
mod meter;
mod nats;
mod pace;
mod pieces;
mod publish;
mod python;
mod raw;
mod report;
mod results;
mod rig;
mod run;
mod scenario;
mod svg;

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use self::{
    awake::Awake,
    meter::Length,
    report::{Failed, Found, Skipped, goals_text},
    results::Repetition,
    run::Tools,
    scenario::Scenario,
};
use super::{
    Failure, Outcome,
    config_args::block_on,
    output::{grouped, print_json, print_table},
};

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Measure these scenarios only; see --list.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// Measure every scenario, also those that take long or rarely matter.
    #[arg(long, conflicts_with = "only")]
    full: bool,
    /// Repetitions of each scenario; every one visits each system once.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// How long each run measures, after it has warmed up for a quarter of that.
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    /// Live entities, in scenarios that do not vary them; at least 500, because JetStream can have
    /// one event of an entity in flight.
    #[arg(long, value_name = "N", default_value_t = scenario::LIVE, value_parser = clap::value_parser!(u64).range(500..=10_000_000))]
    entities: u64,
    /// List the scenarios and end.
    #[arg(long)]
    list: bool,
    /// Start this server instead of the redis-server or valkey-server on the PATH.
    #[arg(long, value_name = "PATH")]
    redis_server: Option<PathBuf>,
    /// Draw the throughput of the base scenario into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write report.txt, report.json and bench.svg into this folder.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// One JSON object instead of tables: every run, medians, ratios and goals.
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    seriatim bench                                  everything but what takes long; less than 30 minutes\n  \
    seriatim bench --only base,commit --repeat 5    two scenarios, more carefully\n  \
    seriatim bench --only base --seconds 0.5        a first impression\n  \
    seriatim bench --full --out target/bench        all of it, also written to files\n\n\
    Needs a redis-server or valkey-server, and compares with JetStream and Python where nats-server \
    and redis-py are found. Exit code 1: a goal was missed, a run failed, or too many repetitions were void.";

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=600.0).contains(&seconds) => Ok(seconds),
        _ => Err("write seconds from 0.05 to 600, for example 2".to_owned()),
    }
}

pub fn run(args: BenchArgs) -> Outcome {
    if args.list {
        list(args.json);
        return Ok(());
    }
    let scenarios = selected(&args)?;
    let tools = Tools::find(args.redis_server.as_deref(), args.entities)?;
    block_on(async {
        tokio::select! {
            outcome = bench(&args, scenarios, &tools) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Failure::Other(anyhow::anyhow!("interrupted"))),
        }
    })
}

fn list(as_json: bool) {
    let all = scenario::all(scenario::LIVE);
    if as_json {
        let one = |s: &Scenario| json!({"name": s.name, "about": s.about, "default": s.is_default});
        return print_json(&all.iter().map(one).collect::<Vec<_>>());
    }
    let row = |s: &Scenario| {
        let name = if s.is_default { s.name.to_owned() } else { format!("{} (--full)", s.name) };
        vec![name, s.about.to_owned()]
    };
    print_table(&["scenario", ""], &all.iter().map(row).collect::<Vec<_>>());
}

fn selected(args: &BenchArgs) -> Result<Vec<Scenario>, Failure> {
    let all = scenario::all(args.entities);
    let names: Vec<&str> = all.iter().map(|scenario| scenario.name).collect();
    if let Some(unknown) = args.only.iter().find(|name| !names.contains(&name.as_str())) {
        let error =
            anyhow::anyhow!("--only {unknown}: there is no such scenario; choose from {}", names.join(", "));
        return Err(Failure::Usage(error));
    }
    let is_wanted = |scenario: &Scenario| match args.only.is_empty() {
        true => args.full || scenario.is_default,
        false => args.only.iter().any(|name| name == scenario.name),
    };
    Ok(all.into_iter().filter(is_wanted).collect())
}

async fn bench(args: &BenchArgs, scenarios: Vec<Scenario>, tools: &Tools) -> Outcome {
    let can_be_awake = Awake::keep().is_some();
    let mut text = heading(args, tools, can_be_awake);
    let show = |part: &str| {
        if !args.json {
            println!("{part}");
        }
    };
    show(&text);
    let bar = progress(&scenarios, tools, args);
    let mut found = Vec::new();
    for scenario in scenarios {
        let measured = measure(scenario, tools, args, &bar).await;
        let part = measured.text();
        bar.suspend(|| show(&part));
        text.push_str(&format!("\n{part}"));
        found.push(measured);
    }
    bar.finish_and_clear();
    let measured: BTreeMap<&str, Vec<Repetition>> =
        found.iter().map(|found| (found.scenario.name, found.repetitions.clone())).collect();
    let is_skipped = |scenario: &str, system: &str| {
        let of = found.iter().filter(|found| found.scenario.name == scenario);
        of.flat_map(|found| &found.skipped).any(|skipped| skipped.system == system)
    };
    let judged = goals::judge(&measured, is_skipped);
    let is_good = judged.iter().all(|judged| judged.outcome.is_good())
        && found
            .iter()
            .all(|found| found.failed.is_empty() && found.repetitions.len() == args.repeat as usize);
    if !judged.is_empty() {
        let part = goals_text(&judged);
        show(&part);
        text.push_str(&format!("\n{part}"));
    }
    let report = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "cores": cores(),
        "awake": can_be_awake,
        "store": tools.redis().display().to_string(),
        "seconds": args.seconds,
        "repeat": args.repeat,
        "entities": args.entities,
        "scenarios": found.iter().map(Found::json).collect::<Vec<_>>(),
        "goals": judged,
        "ok": is_good,
    });
    if args.json {
        print_json(&report);
    }
    write(args, &text, &report, &found).map_err(Failure::Other)?;
    if is_good { Ok(()) } else { Err(Failure::Found) }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn heading(args: &BenchArgs, tools: &Tools, can_be_awake: bool) -> String {
    let cores = cores();
    let asleep = match can_be_awake {
        true => "",
        false => "\nchrt is not there: cores fall asleep under the Python program, which makes it slower",
    };
    format!(
        "store: {}, a new one for each run; {cores} cores for load, sidecar and store together{asleep}\n\
         load:  events of {} bytes of data, entities of {} bytes, {} live, {} repetitions of {} s, medians\n\
         CPU is per event; ratios of events/s and of the store's CPU are to the first line of a table (in commit: to raw XADD\n\
         of the same batch), taken inside a repetition\n",
        tools.redis().display(),
        load::DATA_BYTES,
        load::ENTITY_BYTES,
        grouped(args.entities),
        args.repeat,
        args.seconds
    )
}

/// Repetitions that count, until there are as many as wanted or too many were void.
async fn measure(scenario: Scenario, tools: &Tools, args: &BenchArgs, bar: &ProgressBar) -> Found {
    let wanted = args.repeat as usize;
    let mut found = Found {
        scenario,
        repetitions: Vec::new(),
        void: Vec::new(),
        failed: Vec::new(),
        skipped: Vec::new(),
    };
    let mut systems = found.scenario.systems.clone();
    systems.retain(|named| match tools.lacks(&named.system) {
        Some(why) => {
            found.skipped.push(Skipped { system: named.name.clone(), why });
            false
        }
        None => true,
    });
    for attempt in 0..2 * wanted {
        if found.repetitions.len() == wanted {
            break;
        }
        let mut repetition = Repetition::default();
        for named in &systems {
            bar.set_message(format!("{}: {}", found.scenario.name, named.name));
            let run = tools.run(&named.system, seed(attempt), Length::new(args.seconds)).await;
            let run = run.map_err(said);
            if let Err(why) = &run {
                found.failed.push(Failed { system: named.name.clone(), why: why.clone() });
            }
            repetition.runs.push((named.name.clone(), run));
            bar.inc(milliseconds(named.system.about_seconds(args.seconds)));
        }
        // The other way round next time: whatever drifts meets both ends alike.
        systems.reverse();
        match repetition.void(attempt) {
            Some(void) => found.void.push(void),
            None => found.repetitions.push(repetition),
        }
    }
    found
}

/// The same events in every comparison, others in the next repetition.
fn seed(attempt: usize) -> u64 {
    0x5e71_a71b + attempt as u64
}

fn said(failure: Failure) -> String {
    match failure {
        Failure::Found => "what was found is not good".to_owned(),
        Failure::Usage(error) | Failure::Unreachable(error) | Failure::Other(error) => {
            super::said_once(&error)
        }
    }
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1000.0) as u64
}

/// A bar over the time that all of it should take, with what runs at present.
fn progress(scenarios: &[Scenario], tools: &Tools, args: &BenchArgs) -> ProgressBar {
    let systems = scenarios.iter().flat_map(|scenario| &scenario.systems).map(|named| &named.system);
    let present = systems.filter(|system| tools.lacks(system).is_none());
    let seconds =
        present.map(|system| system.about_seconds(args.seconds)).sum::<f64>() * f64::from(args.repeat);
    if args.json {
        return ProgressBar::hidden();
    }
    let template = "[{bar:30}] {percent:>3} %  {eta} to go  {msg}";
    let style = ProgressStyle::with_template(template).expect("the template is our own");
    ProgressBar::new(milliseconds(seconds)).with_style(style.progress_chars("=> "))
}

/// The files that were asked for.
fn write(args: &BenchArgs, text: &str, report: &serde_json::Value, found: &[Found]) -> anyhow::Result<()> {
    let put = |path: PathBuf, content: String| {
        fs::write(&path, content).with_context(|| format!("{} cannot be written", path.display()))
    };
    let picture = found.iter().find(|found| found.scenario.name == "base").map(svg::draw);
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        put(folder.join("report.txt"), text.to_owned())?;
        put(folder.join("report.json"), format!("{report}\n"))?;
        if let Some(picture) = &picture {
            put(folder.join("bench.svg"), picture.clone())?;
        }
    }
    match (&args.svg, picture) {
        (Some(file), Some(picture)) => put(file.clone(), picture),
        (Some(_), None) => anyhow::bail!("--svg draws the scenario base, which was not measured"),
        (None, _) => Ok(()),
    }
}
