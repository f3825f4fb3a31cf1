//! What is shown and written: a table for each scenario, the goals, and all of it as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    super::output::{grouped, table},
    goals::{Judged, figure},
    meter::Measured,
    results::{Quantity, Repetition, Void, median_of},
    scenario::{Named, Scenario},
};

/// A scenario and what was found.
pub struct Found {
    pub scenario: Scenario,
    /// Those that count.
    pub repetitions: Vec<Repetition>,
    pub void: Vec<Void>,
    /// Runs that went wrong.
    pub failed: Vec<Failed>,
    pub skipped: Vec<Skipped>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Failed {
    pub system: String,
    pub why: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Skipped {
    pub system: String,
    pub why: String,
}

impl Found {
    pub fn is_memory(&self) -> bool {
        self.repetitions
            .iter()
            .flat_map(|r| &r.runs)
            .any(|(_, run)| matches!(run, Ok(Measured { memory: Some(_), .. })))
    }

    /// Systems that were measured.
    fn systems(&self) -> impl Iterator<Item = &Named> {
        let has_run = |named: &&Named| self.repetitions.iter().any(|r| r.measured(&named.name).is_some());
        self.scenario.systems.iter().filter(has_run)
    }

    fn median(&self, system: &str, value: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        median_of(&self.repetitions, |repetition| value(repetition.measured(system)?))
    }

    /// A figure beside that of the system it is compared with, in the same repetition.
    pub fn ratio(&self, named: &Named, quantity: Quantity) -> Option<f64> {
        let reference = self.scenario.reference(named);
        median_of(&self.repetitions, |r| r.ratio(&named.name, reference, quantity))
    }

    pub fn text(&self) -> String {
        let mut text = format!("{}: {}\n", self.scenario.name, self.scenario.about);
        text.push_str(&if self.is_memory() { self.memory_table() } else { self.speed_table() });
        for Skipped { system, why } in &self.skipped {
            text.push_str(&format!("skipped: {system}: {why}\n"));
        }
        for Void { repetition, baseline, found, usual } in &self.void {
            text.push_str(&format!(
                "void: repetition {}: {baseline} reached {found:.4} of raw XADD, {usual:.4} is usual; it is not used\n",
                repetition + 1
            ));
        }
        for Failed { system, why } in &self.failed {
            text.push_str(&format!("FAILED: {system}: {why}\n"));
        }
        text
    }

    fn speed_table(&self) -> String {
        let rates = ["", "events/s", "ratio"];
        let costs = ["client us", "sidecar us", "store us", "ratio"];
        let times = ["p50 us", "p99 us", "p99.9 us"];
        let head = [&rates[..], &costs, &times].concat();
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), figure);
        let whole = |value: Option<f64>| value.map_or("-".to_owned(), |value| grouped(value as u64));
        let row = |named: &Named| {
            let name = named.name.as_str();
            vec![
                name.to_owned(),
                whole(self.median(name, |m| Some(m.events_per_second))),
                cell(self.ratio(named, Quantity::EventsPerSecond)),
                cell(self.median(name, |m| m.client_us)),
                cell(self.median(name, |m| m.sidecar_us)),
                cell(self.median(name, |m| m.store_us)),
                cell(self.ratio(named, Quantity::StoreUs)),
                whole(self.median(name, |m| m.p50_us.map(|us| us as f64))),
                whole(self.median(name, |m| m.p99_us.map(|us| us as f64))),
                whole(self.median(name, |m| m.p999_us.map(|us| us as f64))),
            ]
        };
        table(&head, &self.systems().map(row).collect::<Vec<_>>())
    }

    fn memory_table(&self) -> String {
        let head = ["", "Redis B/lane", "sidecar idle MB", "sidecar MB, open lanes"];
        let row = |named: &Named| {
            let name = named.name.as_str();
            let value =
                |quantity: Quantity| self.median(name, |m| quantity.of(m)).map_or("-".to_owned(), figure);
            let quantities = [Quantity::LaneBytes, Quantity::SidecarIdleMb, Quantity::SidecarOpenMb];
            [name.to_owned()].into_iter().chain(quantities.map(value)).collect()
        };
        table(&head, &self.systems().map(row).collect::<Vec<_>>())
    }

    pub fn json(&self) -> Value {
        let system = |named: &Named| {
            let name = named.name.as_str();
            let runs: Vec<Option<&Measured>> = self.repetitions.iter().map(|r| r.measured(name)).collect();
            json!({
                "name": name,
                "events_per_second": self.median(name, |m| Some(m.events_per_second)),
                "beside": self.scenario.reference(named),
                "ratio": self.ratio(named, Quantity::EventsPerSecond),
                "store_ratio": self.ratio(named, Quantity::StoreUs),
                "client_us": self.median(name, |m| m.client_us),
                "sidecar_us": self.median(name, |m| m.sidecar_us),
                "store_us": self.median(name, |m| m.store_us),
                "p50_us": self.median(name, |m| m.p50_us.map(|us| us as f64)),
                "p99_us": self.median(name, |m| m.p99_us.map(|us| us as f64)),
                "p999_us": self.median(name, |m| m.p999_us.map(|us| us as f64)),
                "repetitions": runs,
            })
        };
        json!({
            "name": self.scenario.name,
            "about": self.scenario.about,
            "systems": self.systems().map(system).collect::<Vec<_>>(),
            "skipped": self.skipped,
            "void": self.void,
            "failed": self.failed,
        })
    }
}

/// The goals as a table.
pub fn goals_text(judged: &[Judged]) -> String {
    let row = |judged: &Judged| {
        vec![
            format!("{}: {}", judged.scenario, judged.what),
            judged.found.map_or("-".to_owned(), figure),
            judged.goal.clone(),
            judged.outcome.word().to_owned(),
        ]
    };
    table(&["goal", "found", "goal", ""], &judged.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            results::tests::repetition,
            scenario::{self, ENTRY, RAW, REDIS_RS},
        },
        *,
    };

    fn found() -> Found {
        let scenario =
            scenario::all(scenario::LIVE).into_iter().find(|scenario| scenario.name == "base").unwrap();
        let repetitions = [[100.0, 40.0], [200.0, 100.0], [50.0, 30.0]];
        let repetitions = repetitions.map(|[raw, ours]| repetition(&[(RAW, raw), (ENTRY, ours)])).to_vec();
        let why = "it is not installed".to_owned();
        let skipped = vec![Skipped { system: REDIS_RS.to_owned(), why }];
        let void = vec![Void { repetition: 3, baseline: REDIS_RS.to_owned(), found: 0.1, usual: 0.36 }];
        Found { scenario, repetitions, void, failed: Vec::new(), skipped }
    }

    #[test]
    fn people_read_medians_and_what_was_left_out() {
        let text = found().text();
        let row = text.lines().find(|line| line.starts_with("seriatim ")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[1..3], ["40", "0.50"], "{text}");
        assert!(text.contains("skipped: redis-rs XADD: it is not installed"), "{text}");
        assert!(text.contains("void: repetition 4: redis-rs XADD reached 0.1000"), "{text}");
    }

    #[test]
    fn programs_read_every_repetition() {
        let json = found().json();
        assert_eq!(json["systems"][1]["name"], ENTRY);
        assert_eq!(json["systems"][1]["repetitions"].as_array().unwrap().len(), 3);
        assert_eq!(json["systems"][1]["ratio"], 0.5);
        assert_eq!(json["void"][0]["baseline"], REDIS_RS);
    }
}
