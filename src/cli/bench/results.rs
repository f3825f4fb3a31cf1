//! From runs to figures. Absolute numbers on a shared machine are worth little; a ratio of two
//! systems inside one repetition is worth more, and the median of such ratios most.

use serde::Serialize;

use super::{
    meter::Measured,
    scenario::{EXPECTED, MESSAGE_ID, PYTHON, RAW, REDIS_RS},
};

/// What a baseline reached of raw XADD, in the same repetition, on a quiet machine with two
/// cores. A repetition in which one falls far below that tells of the machine.
const USUAL: [(&str, f64); 4] = [(REDIS_RS, 0.36), (MESSAGE_ID, 0.21), (EXPECTED, 0.10), (PYTHON, 0.0083)];
/// What raw XADD itself reached there, in events a second. Where it is faster others need not be.
const RAW_USUAL: f64 = 335_000.0;
/// Below this share of it a repetition is void.
const VOID_BELOW: f64 = 0.8;

/// One pass over all systems of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Repetition {
    pub runs: Vec<(String, Result<Measured, String>)>,
}

/// Why a repetition is not used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Void {
    pub repetition: usize,
    pub baseline: String,
    pub found: f64,
    pub usual: f64,
}

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    EventsPerSecond,
    /// CPU of the store, per event.
    StoreUs,
    /// CPU of sidecar and store, per event.
    ServerUs,
    P50Us,
    P99Us,
    LaneBytes,
    SidecarIdleMb,
    SidecarOpenMb,
}

impl Quantity {
    pub fn of(self, measured: &Measured) -> Option<f64> {
        match self {
            Quantity::EventsPerSecond => Some(measured.events_per_second),
            Quantity::StoreUs => measured.store_us,
            Quantity::ServerUs => Some(measured.sidecar_us? + measured.store_us?),
            Quantity::P50Us => measured.p50_us.map(|us| us as f64),
            Quantity::P99Us => measured.p99_us.map(|us| us as f64),
            Quantity::LaneBytes => measured.memory.map(|memory| memory.lane_bytes),
            Quantity::SidecarIdleMb => measured.memory.map(|memory| memory.sidecar_idle_mb),
            Quantity::SidecarOpenMb => measured.memory.map(|memory| memory.sidecar_open_mb),
        }
    }
}

impl Repetition {
    pub fn measured(&self, system: &str) -> Option<&Measured> {
        self.runs.iter().find(|(name, _)| name == system).and_then(|(_, run)| run.as_ref().ok())
    }

    pub fn value(&self, system: &str, quantity: Quantity) -> Option<f64> {
        quantity.of(self.measured(system)?)
    }

    pub fn ratio(&self, system: &str, to: &str, quantity: Quantity) -> Option<f64> {
        let (found, base) = (self.value(system, quantity)?, self.value(to, quantity)?);
        (base > 0.0).then(|| found / base)
    }

    /// The first baseline that is far slower than it should be.
    pub fn void(&self, repetition: usize) -> Option<Void> {
        let ahead = (self.value(RAW, Quantity::EventsPerSecond)? / RAW_USUAL).max(1.0);
        USUAL.into_iter().find_map(|(baseline, usual)| {
            let (found, usual) = (self.ratio(baseline, RAW, Quantity::EventsPerSecond)?, usual / ahead);
            let baseline = baseline.to_owned();
            (found < VOID_BELOW * usual).then_some(Void { repetition, baseline, found, usual })
        })
    }
}

/// The one in the middle; of an even number the mean of both.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let is_even = values.len().is_multiple_of(2);
    Some(if is_even { (values[values.len() / 2 - 1] + upper) / 2.0 } else { upper })
}

/// The median over repetitions of whatever is there.
pub fn median_of(repetitions: &[Repetition], value: impl Fn(&Repetition) -> Option<f64>) -> Option<f64> {
    median(repetitions.iter().filter_map(value).collect())
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn run(name: &str, events_per_second: f64) -> (String, Result<Measured, String>) {
        (name.to_owned(), Ok(Measured { events_per_second, ..Measured::default() }))
    }

    pub fn repetition(runs: &[(&str, f64)]) -> Repetition {
        Repetition { runs: runs.iter().map(|(name, rate)| run(name, *rate)).collect() }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![5.0]), Some(5.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 9.0, 2.0]), Some(3.0));
    }

    /// The medians of both systems would give 2.
    #[test]
    fn ratios_are_taken_inside_a_repetition() {
        let repetitions =
            [[100.0, 300.0], [10.0, 10.0], [50.0, 100.0]].map(|[a, b]| repetition(&[("a", a), ("b", b)]));
        let ratio = |r: &Repetition| r.ratio("b", "a", Quantity::EventsPerSecond);
        assert_eq!(median_of(&repetitions, ratio), Some(2.0));
        let late = [[100.0, 100.0], [10.0, 40.0], [1.0, 5.0]].map(|[a, b]| repetition(&[("a", a), ("b", b)]));
        assert_eq!(median_of(&late, ratio), Some(4.0));
    }

    #[test]
    fn what_failed_has_no_ratio_and_does_not_count() {
        let mut broken = repetition(&[("a", 10.0)]);
        broken.runs.push(("b".to_owned(), Err("not in order".to_owned())));
        let ratio = |r: &Repetition| r.ratio("b", "a", Quantity::EventsPerSecond);
        assert_eq!(ratio(&broken), None);
        assert_eq!(median_of(&[broken, repetition(&[("a", 1.0), ("b", 3.0)])], ratio), Some(3.0));
    }

    #[test]
    fn a_repetition_with_a_lame_baseline_is_void() {
        let fine = repetition(&[(RAW, 100_000.0), (REDIS_RS, 36_000.0 * 0.81), (MESSAGE_ID, 21_000.0)]);
        assert_eq!(fine.void(0), None);
        let lame = repetition(&[(RAW, 100_000.0), (REDIS_RS, 40_000.0), (MESSAGE_ID, 21_000.0 * 0.79)]);
        let void = lame.void(2).unwrap();
        assert_eq!((void.repetition, void.baseline.as_str(), void.usual), (2, MESSAGE_ID, 0.21));
        assert_eq!(repetition(&[(RAW, 100_000.0)]).void(0), None, "what was not run tells nothing");
        for (baseline, usual) in USUAL {
            let rate = |raw: f64, share: f64| {
                repetition(&[(RAW, raw), (baseline, raw.min(RAW_USUAL) * usual * share)])
            };
            for raw in [1e5, RAW_USUAL, 1e6] {
                let (below, above) = (rate(raw, 0.79), rate(raw, 0.81));
                assert!(below.void(0).is_some() && above.void(0).is_none(), "{baseline}, raw XADD {raw}");
            }
        }
    }
}
