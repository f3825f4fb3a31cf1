//! What went in against what came out, and both against the measures the project is
//! judged by.

use serde::Serialize;
use seriatim_checker::Violation;

use super::{
    super::output::{grouped, print_table},
    load::Published,
    sidecar::Measured,
    worker::Workers,
};
use crate::operate::Report;

/// As many of the judge's findings are printed.
const JUDGED_SHOWN: usize = 5;

pub struct Picture {
    pub seed: u64,
    pub store: String,
    pub embedded: bool,
    pub ordered: bool,
    /// Executors answer when they are asked for a lost message.
    pub resend: bool,
    /// Messages that never arrived.
    pub lost: u64,
    pub went_in: Workers,
    pub came_out: Workers,
    pub proof: Report,
    /// What is wrong with that, in the eyes of the judge.
    pub judged: Vec<Violation>,
    pub entities: u64,
    /// Without those that were sent twice.
    pub events: u64,
    pub published: Published,
    pub measured: Measured,
}

#[derive(Serialize)]
pub struct Summary {
    entities: u64,
    events: u64,
    violations: u64,
    duplicates: u64,
    unmarked_gaps: u64,
    judged_wrong: u64,
    stuck: u64,
    depth_p99: u64,
    added_latency_p99_ms: f64,
    rss_mb: Option<f64>,
    store: String,
    depth_mean: f64,
    added_latency_p50_ms: f64,
    ordered: bool,
    parked: u64,
    lost: u64,
    resent: u64,
    skipped: u64,
    published: u64,
    violations_on_arrival: u64,
    stuck_on_arrival: u64,
    seed: u64,
    ok: bool,
}

impl Picture {
    /// With ordering on nothing may be wrong; with it off nothing is promised.
    pub fn is_as_promised(&self) -> bool {
        let out = &self.came_out;
        let gone = if self.ordered && self.resend { 0 } else { self.lost };
        let all_there = out.events + gone == self.events && self.published.failed == 0 && out.duplicates == 0;
        let all_there = all_there && self.judged.is_empty();
        let marked = out.skipped == gone && out.violations == 0 && out.stuck == 0 && self.proof.ok;
        all_there && (!self.ordered || marked)
    }

    fn latency_ms(&self, quantile: f64) -> f64 {
        self.published.latency_us.value_at_quantile(quantile) as f64 / 1000.0
    }

    pub fn summary(&self) -> Summary {
        Summary {
            entities: self.entities,
            events: self.came_out.events,
            violations: self.came_out.violations,
            duplicates: self.came_out.duplicates,
            unmarked_gaps: self.proof.unmarked_gaps,
            judged_wrong: self.judged.len() as u64,
            stuck: self.came_out.stuck,
            depth_p99: self.measured.depth_p99,
            added_latency_p99_ms: self.latency_ms(0.99),
            rss_mb: self.measured.rss_mb,
            store: self.store.clone(),
            depth_mean: self.measured.depth_mean,
            added_latency_p50_ms: self.latency_ms(0.5),
            ordered: self.ordered,
            parked: self.published.parked,
            lost: self.lost,
            resent: self.published.resent,
            skipped: self.came_out.skipped,
            published: self.went_in.events,
            violations_on_arrival: self.went_in.violations,
            stuck_on_arrival: self.went_in.stuck,
            seed: self.seed,
            ok: self.is_as_promised(),
        }
    }

    pub fn print(&self) {
        let row = |what: &str, went_in: u64, came_out: u64| {
            vec![what.to_owned(), grouped(went_in), grouped(came_out)]
        };
        let (went_in, out) = (&self.went_in, &self.came_out);
        println!();
        print_table(
            &["what a storage worker sees", "as it arrived", "as it came out"],
            &[
                row("events", went_in.events, out.events),
                row("refused transitions", went_in.violations, out.violations),
                row("duplicates", went_in.duplicates, out.duplicates),
                row("lost on the way", self.lost, self.events - out.events),
                row("evaluations stuck for ever", went_in.stuck, out.stuck),
            ],
        );
        println!();
        self.print_measures();
        println!();
        println!("{}", self.verdict());
    }

    fn print_measures(&self) {
        let row = |what: &str, found: String, goal: &str, holds: bool| {
            let mark = if holds { "ok" } else { "MISSED" };
            vec![what.to_owned(), found, goal.to_owned(), mark.to_owned()]
        };
        let violations = self.proof.inversions + self.came_out.violations;
        let p99 = self.latency_ms(0.99);
        let mut rows = vec![
            row("evaluations stuck", self.came_out.stuck.to_string(), "0", self.came_out.stuck == 0),
            row("ordering violations", violations.to_string(), "0", violations == 0),
            row("wrong in the eyes of the judge", self.judged.len().to_string(), "0", self.judged.is_empty()),
            row("unmarked gaps", self.proof.unmarked_gaps.to_string(), "0", self.proof.unmarked_gaps == 0),
            row(
                "depth of a lane, p99",
                self.measured.depth_p99.to_string(),
                "< 10",
                self.measured.depth_p99 < 10,
            ),
            row("event to verdict, p99", format!("{p99:.1} ms"), "< 5 ms", p99 < 5.0),
        ];
        // With the embedded store all that was published is in it: no measure then.
        if let Some(rss) = self.measured.rss_mb.filter(|_| !self.embedded) {
            rows.push(row("sidecar's memory, peak", format!("{rss:.1} MB"), "< 10 MB", rss < 10.0));
        }
        print_table(&["measure", "found", "goal", ""], &rows);
        self.judged.iter().take(JUDGED_SHOWN).for_each(|violation| println!("  {violation}"));
    }

    fn verdict(&self) -> String {
        match (self.is_as_promised(), self.ordered) {
            (true, true) if self.resend => format!(
                "Every evaluation came out in order: {} events had to wait for their turn. {} messages were \
                 lost;\nthe sidecar asked for them, and their executors sent them again.",
                grouped(self.published.parked),
                grouped(self.lost)
            ),
            (true, true) => format!(
                "Every evaluation came out in order: {} events had to wait for their turn. {} messages were \
                 lost;\nnobody sent them again, so their places were given up, each with a marker.",
                grouped(self.published.parked),
                grouped(self.lost)
            ),
            (true, false) => format!(
                "Without ordering {} of {} evaluations are stuck for ever. Run it again without --no-order.",
                grouped(self.came_out.stuck),
                grouped(self.entities)
            ),
            (false, _) => format!("This is not as promised: please report it, with --seed {}.", self.seed),
        }
    }
}
