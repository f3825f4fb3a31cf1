//! Runs a scenario against one engine and stops at the first line that does not hold.

use seriatim::{
    order::{Entity, Order, Place, Position, Verdict},
    store::{Admitted, Batch, Decision, Entry, PartitionId, StreamId},
};

use super::{
    engine::Engine,
    format::{Act, Expected, Failure, Scenario, Step},
};

/// More than any scenario writes.
const ENTRIES_MAX: usize = 1000;

pub async fn run(scenario: &Scenario, engine: &Engine) -> Result<(), Failure> {
    let partition = PartitionId { topic: scenario.topic.name.as_str().into(), index: 0 };
    engine.store().open(&scenario.topic).await.map_err(|error| (1, error.to_string()))?;
    let mut bench = Bench { engine, partition, last: None };
    for step in &scenario.steps {
        bench.step(step).await?;
    }
    let looks_at_late = |step: &Step| matches!(step.act, Act::Stream { place: Place::Late, .. });
    if !scenario.steps.iter().any(looks_at_late) {
        let end = scenario.steps.last().map_or(1, |step| step.line);
        let late: Vec<String> = bench.read(Place::Late).await.iter().map(show).collect();
        same(end, "`late`, of which no line speaks", &[], &late)?;
    }
    Ok(())
}

struct Bench<'a> {
    engine: &'a Engine,
    partition: PartitionId,
    last: Option<Admitted>,
}

impl Bench<'_> {
    async fn step(&mut self, Step { line, act }: &Step) -> Result<(), Failure> {
        match act {
            Act::Plant { entity, state } => {
                let state = state.parse().map_err(|error| (*line, format!("{error}")))?;
                self.engine.plant(&self.partition, entity, &state).await;
                Ok(())
            }
            Act::Call { offers, more } => self.call(*line, offers, *more).await,
            Act::Counted { drained, after_terminal } => {
                let counted = self.last.as_ref().map(|last| (last.drained, last.after_terminal));
                equal(*line, &Some((*drained, *after_terminal)), &counted)
            }
            Act::State { entity, text } => {
                let lane = self.engine.store().resume(&self.partition, entity).await;
                let lane = lane.map_err(|error| (*line, error.to_string()))?;
                let found = lane.map_or("unknown".to_owned(), |state| state.to_string());
                same(*line, "state", std::slice::from_ref(text), &[found])
            }
            Act::Stream { place, entity, entries } => {
                let found = self.read(*place).await;
                let of_entity = found.iter().filter(|entry| entry.entity == entity.as_str());
                same(*line, "entries", entries, &of_entity.map(show).collect::<Vec<_>>())
            }
        }
    }

    async fn call(&mut self, line: usize, offers: &[Expected], more: bool) -> Result<(), Failure> {
        let arrived = offers.iter().map(|expected| (expected.offer.clone(), expected)).collect();
        let (batch, mut expected) = Batch::form(arrived);
        let admitted = self.engine.store().admit(&self.partition, &batch).await;
        let admitted = admitted.map_err(|error| (line, error.to_string()))?;
        let entries = [self.read(Place::Events).await, self.read(Place::Late).await].concat();
        let mut found: Vec<_> = expected.drain(..).zip(&admitted.decisions).collect();
        // Reported in the order in which they are written, not decided.
        found.sort_by_key(|(expected, _)| expected.line);
        for (Expected { line, offer, verdict }, decision) in found {
            same(*line, "verdict", std::slice::from_ref(verdict), &[word(decision.verdict)])?;
            check_id(*line, &offer.entity, offer.event.position, decision, &entries)?;
        }
        let word = |more| if more { "more" } else { "done" };
        equal(line, &word(more), &word(admitted.more))?;
        self.last = Some(admitted);
        Ok(())
    }

    async fn read(&self, place: Place) -> Vec<Entry> {
        let entries =
            self.engine.store().read(&self.partition, place, StreamId::default(), ENTRIES_MAX).await;
        entries.expect("what was written can be read")
    }
}

/// A verdict that claims an entry names it, and the entry is the event's.
fn check_id(
    line: usize,
    entity: &Entity,
    position: Position,
    decision: &Decision,
    entries: &[Entry],
) -> Result<(), Failure> {
    let written = match decision.verdict {
        Verdict::Released { sequence } | Verdict::Passed { sequence } | Verdict::Late { sequence } => {
            sequence
        }
        Verdict::Parked { .. }
        | Verdict::Duplicate { .. }
        | Verdict::Conflict
        | Verdict::Stale { .. }
        | Verdict::Refused(_)
        | Verdict::Again => return equal(line, &None, &decision.id),
    };
    let named = entries.iter().find(|entry| Some(entry.id) == decision.id);
    let found = named.map(|entry| (entry.entity.as_str(), entry.sequence, entry.order == Order::Marker));
    equal(line, &Some((entity.as_str(), written, false)), &found)?;
    match position {
        Position::Given(sequence) => equal(line, &sequence, &written),
        Position::Assigned { .. } => Ok(()),
    }
}

fn word(verdict: Verdict) -> String {
    match verdict {
        Verdict::Released { sequence } => format!("RELEASED {sequence}"),
        Verdict::Parked { depth } => format!("PARKED {depth}"),
        Verdict::Passed { sequence } => format!("PASSED {sequence}"),
        Verdict::Duplicate { sequence } => format!("DUPLICATE {sequence}"),
        Verdict::Late { sequence } => format!("LATE {sequence}"),
        Verdict::Conflict => "CONFLICT".to_owned(),
        Verdict::Stale { epoch } => format!("STALE {epoch}"),
        Verdict::Refused(refusal) => format!("REFUSED {}", refusal.name()),
        Verdict::Again => "AGAIN".to_owned(),
    }
}

/// An entry as the files write it. A marker of an unknown shape is shown as it is.
fn show(entry: &Entry) -> String {
    let Entry { epoch, sequence, kind, attrs, .. } = entry;
    if entry.order == Order::Marker
        && let Some(marker) = marker(entry)
    {
        return marker;
    }
    let data = String::from_utf8_lossy(&entry.data);
    let mut shown = format!("{} {epoch}/{sequence} {data}", entry.order.name());
    if kind != "step" {
        shown += &format!(" type={kind}");
    }
    if attrs != "{}" {
        shown += &format!(" attrs={attrs}");
    }
    shown
}

fn marker(entry: &Entry) -> Option<String> {
    let Entry { epoch, sequence, attrs, .. } = entry;
    match entry.kind.as_str() {
        _ if !entry.data.is_empty() => None,
        "seriatim.gap" => {
            let inner = attrs.strip_prefix(r#"{"reason":""#)?.strip_suffix('}')?;
            let (reason, from) = inner.split_once(r#"","from":"#)?;
            Some(format!("gap {epoch}/{from}-{sequence} {reason}"))
        }
        "seriatim.epoch" => {
            let previous = attrs.strip_prefix(r#"{"previous":"#)?.strip_suffix('}')?;
            Some(format!("epoch {epoch}/{sequence} after {previous}"))
        }
        _ => None,
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(line: usize, expected: &T, found: &T) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    Err((line, format!("expected {expected:?}, found {found:?}")))
}

fn same(line: usize, what: &str, expected: &[String], found: &[String]) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    let list = |items: &[String]| if items.is_empty() { "none".to_owned() } else { items.join("; ") };
    Err((line, format!("{what}: expected {}, found {}", list(expected), list(found))))
}
