//! `seriatim doctor`: is the store reachable and fit, and what could be lost?

use clap::Args;
use serde::Serialize;

use super::{
    Failure, Outcome,
    config_args::{ConfigArgs, block_on, open_redis},
    output::print_json,
};
use crate::{
    config::Fleet,
    random::Random,
    store::{ServerReport, SidecarSeen, Store},
};

#[derive(Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// One JSON object: checks, ok, and what the server says of itself.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Grade {
    Good,
    Warning,
    Bad,
}

#[derive(Serialize)]
struct Check {
    what: &'static str,
    grade: Grade,
    said: String,
}

#[derive(Serialize)]
struct Diagnosis {
    ok: bool,
    checks: Vec<Check>,
    server: Option<ServerReport>,
}

/// The oldest server the scripts are tested with.
const OLDEST: (u32, u32) = (7, 0);

pub fn run(args: DoctorArgs) -> Outcome {
    let config = args.config.load(Vec::new())?;
    let store = open_redis(&config, &mut Random::from_system())?;
    // One runtime for both: a connection belongs to the one it was made in.
    let (report, seen) = block_on(async { (store.report().await, store.sidecars().await) });
    let diagnosis = match report {
        Ok(report) => {
            let mut checks = examine(&report);
            checks.extend(seen.ok().map(|seen| sidecars(&seen, &config.fleet)));
            Diagnosis { ok: checks.iter().all(|c| c.grade != Grade::Bad), checks, server: Some(report) }
        }
        Err(error) => {
            let said = format!("no answer from {}: {error}", store.describe());
            let checks = vec![Check { what: "reachable", grade: Grade::Bad, said }];
            Diagnosis { ok: false, checks, server: None }
        }
    };
    if args.json {
        print_json(&diagnosis);
    } else {
        for Check { what, grade, said } in &diagnosis.checks {
            let mark = match grade {
                Grade::Good => "ok  ",
                Grade::Warning => "warn",
                Grade::Bad => "BAD ",
            };
            println!("{mark}  {what:<12} {said}");
        }
    }
    match (diagnosis.ok, &diagnosis.server) {
        (true, _) => Ok(()),
        (false, Some(_)) => Err(Failure::Found),
        (false, None) => Err(Failure::Unreachable(anyhow::anyhow!("the store cannot be reached"))),
    }
}

fn sidecars(seen: &[SidecarSeen], fleet: &Fleet) -> Check {
    let (alive, silent): (Vec<_>, Vec<_>) =
        seen.iter().partition(|sidecar| sidecar.silent_ms < fleet.orphan_threshold_ms);
    let alive = alive.len();
    let said = match (alive, silent.len()) {
        (0, 0) => "none has been seen".to_owned(),
        (alive, 0) => format!("{alive} alive"),
        (alive, silent) => format!("{alive} alive, {silent} silent for fleet.orphan_threshold_ms or longer"),
    };
    let grade = if alive == 0 { Grade::Warning } else { Grade::Good };
    Check { what: "sidecars", grade, said }
}

fn examine(report: &ServerReport) -> Vec<Check> {
    let check = |what, grade, said: String| Check { what, grade, said };
    let version = format!("{} {}", report.server, report.version);
    let is_known = report.version_numbers().is_some_and(|version| version >= OLDEST);
    let persistence = match (report.aof_enabled, report.rdb_save.as_deref()) {
        (true, _) => {
            let fsync = report.appendfsync.as_deref().unwrap_or("unknown: CONFIG is not allowed");
            check("persistence", Grade::Good, format!("append-only file, appendfsync {fsync}"))
        }
        (false, Some("")) => check("persistence", Grade::Warning, "none; set appendonly yes".to_owned()),
        (false, _) => check("persistence", Grade::Warning, "snapshots only; set appendonly yes".to_owned()),
    };
    let eviction = if report.evicts() {
        let said = format!(
            "maxmemory-policy {} may evict ordering state, which breaks every promise; set noeviction",
            report.maxmemory_policy
        );
        check("eviction", Grade::Bad, said)
    } else {
        check("eviction", Grade::Good, format!("maxmemory-policy {}", report.maxmemory_policy))
    };
    let memory = match report.maxmemory_bytes {
        0 => format!("{} MiB used, no limit set", report.used_memory_bytes >> 20),
        most => format!("{} of {} MiB used", report.used_memory_bytes >> 20, most >> 20),
    };
    let role = match report.role.as_str() {
        "master" => check("role", Grade::Good, "primary".to_owned()),
        role => check("role", Grade::Bad, format!("{role}; connect to the primary")),
    };
    vec![
        check("reachable", Grade::Good, report.address.clone()),
        if is_known {
            check("version", Grade::Good, version)
        } else {
            check("version", Grade::Bad, format!("{version}; at least 7.0 is needed"))
        },
        role,
        persistence,
        eviction,
        check("memory", Grade::Good, memory),
        check(
            "losses",
            if report.aof_enabled { Grade::Good } else { Grade::Warning },
            report.what_could_be_lost(),
        ),
    ]
}
