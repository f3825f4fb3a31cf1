//! What a run measures: events, time, latency, and what each process used of the processors.
//!
//! A run warms up first; then the clock and the processors' counters are read, and once more
//! at the end. Events that are answered in between count, and no others.

use std::{
    fs,
    time::{Duration, Instant},
};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longer waits count as this long.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Who takes part, by process id.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processes {
    pub client: Option<u32>,
    pub sidecar: Option<u32>,
    pub store: Option<u32>,
}

/// Time on a processor, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    client: Option<u64>,
    sidecar: Option<u64>,
    store: Option<u64>,
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    pub warm_up: Duration,
    pub measured: Duration,
}

impl Length {
    pub fn new(seconds: f64) -> Self {
        let measured = Duration::from_secs_f64(seconds);
        Length { warm_up: (measured / 4).min(Duration::from_millis(500)), measured }
    }

    /// Whoever takes longer hangs.
    pub fn longest(&self) -> Duration {
        self.warm_up + self.measured + Duration::from_secs(60)
    }
}

pub struct Meter {
    processes: Processes,
    warm_until: Instant,
    stop_at: Instant,
    began: Option<(Instant, Used)>,
    ended: Option<(Instant, Used)>,
    events: u64,
    latency_us: Histogram<u64>,
}

/// What was measured in one run. CPU is in microseconds per event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    pub events: u64,
    pub seconds: f64,
    pub events_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sidecar_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p999_us: Option<u64>,
    /// Entries that were read back and found in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<u64>,
    /// Of the store alone: the share of calls that took the fast path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fast_share: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// What is held in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// Redis, for each open lane: everything but the streams.
    pub lane_bytes: f64,
    pub sidecar_idle_mb: f64,
    pub sidecar_open_mb: f64,
    pub open_lanes: u64,
}

impl Meter {
    pub fn start(length: Length, processes: Processes, now: Instant) -> Self {
        let warm_until = now + length.warm_up;
        Meter {
            processes,
            warm_until,
            stop_at: warm_until + length.measured,
            began: None,
            ended: None,
            events: 0,
            latency_us: Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are possible"),
        }
    }

    /// So many events were answered; false once it is time to end.
    pub fn note(&mut self, events: u64, now: Instant) -> bool {
        if self.ended.is_some() {
            return false;
        }
        if self.began.is_none() {
            if now >= self.warm_until {
                self.began = Some((now, Used::read(self.processes)));
            }
            return true;
        }
        self.events += events;
        if now >= self.stop_at {
            self.ended = Some((now, Used::read(self.processes)));
        }
        self.ended.is_none()
    }

    /// How long so many events took.
    pub fn took(&mut self, took: Duration, events: u64) {
        if self.began.is_some() && self.ended.is_none() {
            let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).clamp(1, LATENCY_US_MAX);
            self.latency_us.saturating_record_n(us, events);
        }
    }

    pub fn finish(self) -> anyhow::Result<Measured> {
        let (Some((began, before)), Some((ended, after))) = (self.began, self.ended) else {
            anyhow::bail!("the run ended before its time");
        };
        anyhow::ensure!(self.events > 0, "nothing was answered within {:?}", ended - began);
        let seconds = (ended - began).as_secs_f64();
        let each = |before: Option<u64>, after: Option<u64>| {
            Some((after?.saturating_sub(before?)) as f64 / 1e3 / self.events as f64)
        };
        let quantile = |q| (!self.latency_us.is_empty()).then(|| self.latency_us.value_at_quantile(q));
        Ok(Measured {
            events: self.events,
            seconds,
            events_per_second: self.events as f64 / seconds,
            client_us: each(before.client, after.client),
            sidecar_us: each(before.sidecar, after.sidecar),
            store_us: each(before.store, after.store),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            ..Measured::default()
        })
    }
}

impl Used {
    fn read(processes: Processes) -> Self {
        Used {
            client: processes.client.and_then(processor_ns),
            sidecar: processes.sidecar.and_then(processor_ns),
            store: processes.store.and_then(processor_ns),
        }
    }
}

/// What a process has used of the processors so far, in nanoseconds; where the kernel does not
/// count that finely, in steps of 10 ms.
fn processor_ns(pid: u32) -> Option<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_task = |text: String| text.split_whitespace().next()?.parse::<u64>().ok();
    let mut sum = 0;
    for task in tasks.filter_map(Result::ok) {
        match fs::read_to_string(task.path().join("schedstat")).ok().and_then(of_task) {
            Some(ns) => sum += ns,
            None => return ticks_ns(pid),
        }
    }
    Some(sum)
}

fn ticks_ns(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, which may hold anything.
    let words: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks: Option<u64> = words.get(11..13)?.iter().map(|ticks| ticks.parse::<u64>().ok()).sum();
    Some(ticks? * 10_000_000)
}

/// Resident memory of a process at this moment, in megabytes of 1,000,000 bytes.
pub fn resident_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_answered_after_the_warm_up_and_before_the_end_counts() {
        let length = Length { warm_up: Duration::from_secs(1), measured: Duration::from_secs(2) };
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let own = Processes { client: Some(std::process::id()), ..Processes::default() };
        let mut meter = Meter::start(length, own, start);
        meter.took(Duration::from_secs(9), 5);
        assert!(meter.note(5, at(500)) && meter.note(7, at(1_000)));
        meter.took(Duration::from_micros(100), 9);
        assert!(meter.note(10, at(2_000)));
        assert!(!meter.note(20, at(3_000)) && !meter.note(40, at(3_100)));
        meter.took(Duration::from_secs(9), 5);
        let measured = meter.finish().unwrap();
        assert_eq!((measured.events, measured.seconds, measured.events_per_second), (30, 2.0, 15.0));
        assert_eq!((measured.p50_us, measured.p999_us), (Some(100), Some(100)));
        assert!(measured.client_us.is_some() && measured.sidecar_us.is_none());
    }

    #[test]
    fn a_run_without_an_answer_is_no_measurement() {
        let length = Length { warm_up: Duration::ZERO, measured: Duration::from_secs(2) };
        let start = Instant::now();
        let mut meter = Meter::start(length, Processes::default(), start);
        meter.note(0, start);
        meter.note(0, start + Duration::from_secs(3));
        assert!(meter.finish().is_err());
    }

    #[test]
    fn our_own_use_of_the_processor_is_counted() {
        let before = processor_ns(std::process::id()).unwrap();
        let mut number = 1u64;
        while processor_ns(std::process::id()).unwrap() <= before {
            number = std::hint::black_box(number.wrapping_mul(3));
        }
        assert!(resident_mb(std::process::id()).unwrap() > 0.1);
        assert!(ticks_ns(std::process::id()).is_some());
    }
}
