//! Baseline: a small Python program of the kind users write today; it is in `by_hand.py`.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::Deserialize;

use super::{
    awake::Awake,
    meter::{Length, Measured, Meter, Processes},
    rig::OwnRedis,
};

const PROGRAM: &str = include_str!("by_hand.py");

#[derive(Deserialize)]
struct Said {
    events: u64,
    p50_us: u64,
    p99_us: u64,
    p999_us: u64,
}

/// Ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn publish(python: &Path, redis: &OwnRedis, length: Length) -> anyhow::Result<Measured> {
    let _awake = Awake::keep();
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    let child = Command::new(python)
        .args(["-c", PROGRAM, &redis.port().to_string(), &seconds(length.warm_up), &seconds(length.measured)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} cannot be started", python.display()))?;
    let mut running = Running(child);
    let processes =
        Processes { client: Some(running.0.id()), store: Some(redis.pid()), ..Processes::default() };
    let mut lines = BufReader::new(running.0.stdout.take().expect("it is piped")).lines();
    let mut line = || lines.next().context("the Python program ended early; its own message is above");
    anyhow::ensure!(line()?? == "begin", "the Python program says when it is warm");
    // It keeps the time; we only look at the processors when it says so.
    let at_once = Length { warm_up: Duration::ZERO, measured: Duration::ZERO };
    let mut meter = Meter::start(at_once, processes, Instant::now());
    meter.note(0, Instant::now());
    let said: Said = serde_json::from_str(&line()??)?;
    meter.note(said.events, Instant::now());
    let Said { p50_us, p99_us, p999_us, .. } = said;
    let measured = meter.finish()?;
    Ok(Measured { p50_us: Some(p50_us), p99_us: Some(p99_us), p999_us: Some(p999_us), ..measured })
}
