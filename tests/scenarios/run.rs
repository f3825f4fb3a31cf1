//! Runs a scenario against one engine and stops at the first line that does not hold.

use seriatim::{
    order::{Entity, LaneState, Order, Place, Position, TICK_MS, Verdict},
    store::{Batch, Decision, Elapsed, Entry, Store, StoreError, StreamId},
};

use super::{
    engine::{Engine, due_of},
    format::{Act, Deed, Expected, Failure, LOOK_MAX, Scenario, Step, View},
    show,
};

/// More than any scenario writes.
const ENTRIES_MAX: usize = 1000;
/// More calls than one tick needs.
const CALLS_MAX: usize = 100;

pub async fn run(scenario: &Scenario, engine: &mut Engine<'_>) -> Result<(), Failure> {
    let mut bench = Bench { engine, counted: None, notes: Vec::new() };
    for step in &scenario.steps {
        bench.step(step).await?;
    }
    bench.check_the_rest(scenario).await
}

struct Bench<'a, 'c> {
    engine: &'a mut Engine<'c>,
    /// What the last call drained, and released after a terminal event.
    counted: Option<(u64, u64)>,
    /// Since they were last looked at.
    notes: Vec<String>,
}

impl Bench<'_, '_> {
    async fn step(&mut self, Step { line, act }: &Step) -> Result<(), Failure> {
        let line = *line;
        let failed = |error: &dyn std::fmt::Display| (line, error.to_string());
        match act {
            Act::Open(topic) => self.store().open(topic).await.map_err(|error| failed(&error)),
            Act::Plant { entity, state } => {
                let state = state.parse().map_err(|error| failed(&error))?;
                self.engine.plant(entity, &state).await;
                Ok(())
            }
            Act::Call { offers, more } => self.call(line, offers, *more).await,
            Act::Clock(ms) => {
                self.engine.step_clock(*ms);
                Ok(())
            }
            Act::Wait(ms) => self.wait(*ms).await.map_err(|error| failed(&error)),
            Act::Extend(gap) => {
                let extended = self.store().extend(&self.engine.partition, gap).await;
                extended.map_err(|error| failed(&error))
            }
            Act::Counted { drained, after_terminal } => {
                equal(line, &Some((*drained, *after_terminal)), &self.counted)
            }
            Act::Do { deed, expected } => {
                let answer = self.act(deed).await.map_err(|error| failed(&error))?;
                same(line, "answer", expected, &answer)
            }
            Act::See { view, expected } => {
                let mut found = self.see(view).await.map_err(|error| failed(&error))?;
                if let (View::State(_), [expected], [found]) = (view, &expected[..], &mut found[..])
                    && !expected.contains(";g")
                {
                    *found = without_times(found);
                }
                same(line, &format!("{view:?}"), expected, &found)
            }
        }
    }

    fn store(&self) -> &dyn Store {
        self.engine.store()
    }

    async fn call(&mut self, line: usize, offers: &[Expected], more: bool) -> Result<(), Failure> {
        let arrived = offers.iter().map(|expected| (expected.offer.clone(), expected)).collect();
        let (batch, mut expected) = Batch::form(arrived);
        let admitted = self.store().admit(&self.engine.partition, &batch).await;
        let admitted = admitted.map_err(|error| (line, error.to_string()))?;
        let entries = [self.read(Place::Events).await, self.read(Place::Late).await];
        let entries = entries.into_iter().collect::<Result<Vec<_>, _>>();
        let entries = entries.map_err(|error| (line, error.to_string()))?.concat();
        let mut found: Vec<_> = expected.drain(..).zip(&admitted.decisions).collect();
        // Reported in the order in which they are written, not decided.
        found.sort_by_key(|(expected, _)| expected.line);
        for (Expected { line, offer, verdict }, decision) in found {
            same(*line, "verdict", std::slice::from_ref(verdict), &[show::verdict(decision.verdict)])?;
            check_id(*line, &offer.entity, offer.event.position, decision, &entries)?;
        }
        self.counted = Some((admitted.drained, admitted.after_terminal));
        self.notes.extend(admitted.notes.iter().copied().map(show::note));
        equal(line, &show::more(more), &show::more(admitted.more))
    }

    /// Lets a time pass in ticks, as a sidecar would.
    async fn wait(&mut self, ms: u64) -> Result<(), StoreError> {
        let (mut left, mut sum) = (ms, (0, 0));
        while left > 0 {
            let tick = left.min(TICK_MS);
            self.engine.step_clock(tick as i64);
            left -= tick;
            let mut calls = 0;
            loop {
                let elapsed = self.elapse(LOOK_MAX).await?;
                sum = (sum.0 + elapsed.drained, sum.1 + elapsed.after_terminal);
                calls += 1;
                if !elapsed.more {
                    break;
                }
                assert!(calls < CALLS_MAX, "elapse does not come to an end");
            }
        }
        self.counted = Some(sum);
        Ok(())
    }

    /// Lets a time pass, and sweeps every two ticks; returns all that was found.
    async fn age(&mut self, ms: u64) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for _ in 0..ms / (2 * TICK_MS) {
            self.wait(2 * TICK_MS).await?;
            found.extend(show::swept(&self.store().sweep(&self.engine.partition, LOOK_MAX, None).await?));
        }
        Ok(found)
    }

    async fn elapse(&mut self, lanes_max: usize) -> Result<Elapsed, StoreError> {
        let elapsed = self.store().elapse(&self.engine.partition, lanes_max).await?;
        self.counted = Some((elapsed.drained, elapsed.after_terminal));
        self.notes.extend(elapsed.notes.iter().copied().map(show::note));
        Ok(elapsed)
    }

    async fn act(&mut self, deed: &Deed) -> Result<Vec<String>, StoreError> {
        if let Deed::Age(ms) = deed {
            return self.age(*ms).await;
        }
        if let Deed::Elapse { lanes_max } = deed {
            let elapsed = self.elapse(*lanes_max).await?;
            let mut answer = vec![show::elapsed(&elapsed)];
            if elapsed.degraded != self.store().measure(&self.engine.partition).await?.degraded {
                answer.push(format!("a mode that is not the partition's: degraded = {}", elapsed.degraded));
            }
            return Ok(answer);
        }
        let (store, partition) = (self.engine.store(), &self.engine.partition);
        let answer = match deed {
            Deed::Skip { gap, audit } => {
                let skipped = store.skip(partition, gap, audit).await?;
                return Ok(skipped
                    .map(|range| format!("skipped {}-{}", range.first, range.last))
                    .into_iter()
                    .collect());
            }
            Deed::SetDegraded(degraded) => {
                if store.set_degraded(partition, *degraded).await? {
                    "changed"
                } else {
                    "unchanged"
                }
            }
            Deed::Announce { entity, within_ms } => {
                show::announcement(store.announce(partition, entity, *within_ms).await?)
            }
            Deed::Sweep => return Ok(show::swept(&store.sweep(partition, LOOK_MAX, None).await?)),
            Deed::Trim => return Ok(show::trimmed(&store.trim(partition, LOOK_MAX).await?)),
            Deed::Elapse { .. } | Deed::Age(_) => unreachable!("see above"),
        };
        Ok(vec![answer.to_owned()])
    }

    async fn see(&mut self, view: &View) -> Result<Vec<String>, StoreError> {
        Ok(match view {
            View::State(entity) => vec![self.state(entity).await?],
            View::Tombstone(entity) => vec![self.tombstone(entity).await?],
            View::Filed(entity) => self.engine.filed(entity).await,
            View::Entries(place, entity) => {
                let entries = self.read(*place).await?;
                entries.iter().filter(|entry| entry.entity == entity.as_str()).map(show::entry).collect()
            }
            View::Stream(place) => self.read(*place).await?.iter().map(show::entry_of_stream).collect(),
            View::Edges => {
                let entries = self.read(Place::Events).await?;
                entries.iter().filter(|entry| show::is_edge(entry)).map(show::entry).collect()
            }
            View::Noted => std::mem::take(&mut self.notes),
            View::Probed => self.engine.probed().await.iter().map(show::probe).collect(),
            View::Announced => {
                vec![self.store().measure(&self.engine.partition).await?.announced.to_string()]
            }
            View::Full => show::full(&self.store().measure(&self.engine.partition).await?),
        })
    }

    /// The lane's text. Whatever it is, it must have times if something is parked, those of a
    /// gap unless it is draining, and the lane must be listed by the deadline that it says.
    async fn state(&self, entity: &Entity) -> Result<String, StoreError> {
        let state = self.store().resume(&self.engine.partition, entity).await?;
        let (is_there, due) = self.engine.lane(entity).await;
        let shown = match &state {
            Some(state) if is_there => state.to_string(),
            Some(state) => format!("a tombstone of {state}"),
            None => "unknown".to_owned(),
        };
        if let Some(LaneState { parked, wait, .. }) = &state {
            let waits = parked.is_some() && due != Some(0);
            if parked.is_some() != wait.is_some() || waits != wait.is_some_and(|wait| wait.gap.is_some()) {
                return Ok(format!("with the wrong times: {shown}"));
            }
        }
        if due != state.filter(|_| is_there).as_ref().and_then(due_of) {
            return Ok(format!("listed as due at {due:?}: {shown}"));
        }
        Ok(shown)
    }

    async fn tombstone(&self, entity: &Entity) -> Result<String, StoreError> {
        let state = self.store().resume(&self.engine.partition, entity).await?;
        let shown = state.map_or("unknown".to_owned(), |state: LaneState| state.to_string());
        Ok(match self.engine.lane(entity).await {
            (false, None) => shown,
            (true, _) => format!("a lane: {shown}"),
            (false, due) => format!("listed as due at {due:?}: {shown}"),
        })
    }

    async fn read(&self, place: Place) -> Result<Vec<Entry>, StoreError> {
        self.store().read(&self.engine.partition, place, StreamId::default(), ENTRIES_MAX).await
    }

    /// What no line speaks of did not happen.
    async fn check_the_rest(&mut self, scenario: &Scenario) -> Result<(), Failure> {
        let end = scenario.steps.last().map_or(1, |step| step.line);
        let late = |view: &View| matches!(view, View::Entries(Place::Late, _));
        let edges = |view: &View| matches!(view, View::Edges | View::Stream(Place::Events));
        for (view, is_to_be_seen) in [
            (View::Stream(Place::Late), !scenario.looks_at(late)),
            (View::Edges, !scenario.looks_at(edges)),
            (View::Noted, scenario.looks_at(|view| *view == View::Noted)),
            (View::Probed, true),
        ] {
            if is_to_be_seen {
                let found = self.see(&view).await.map_err(|error| (end, error.to_string()))?;
                same(end, &format!("{view:?}, of which no line speaks"), &[], &found)?;
            }
        }
        Ok(())
    }
}

/// The text of a lane without the times of its gap.
fn without_times(text: &str) -> String {
    let kept: Vec<&str> = text.split(';').filter(|section| !section.starts_with('g')).collect();
    kept.join(";")
}

/// A verdict that claims an entry names it, and the entry is the event's.
fn check_id(
    line: usize,
    entity: &Entity,
    position: Position,
    decision: &Decision,
    entries: &[Entry],
) -> Result<(), Failure> {
    let (written, order) = match decision.verdict {
        Verdict::Released { sequence } => (sequence, Order::Strict),
        Verdict::Passed { sequence } => (sequence, Order::Passed),
        Verdict::Late { sequence } => (sequence, Order::Late),
        Verdict::Parked { .. }
        | Verdict::Duplicate { .. }
        | Verdict::Retired { .. }
        | Verdict::Conflict
        | Verdict::Stale { .. }
        | Verdict::Refused(_)
        | Verdict::Again => return equal(line, &None, &decision.id),
    };
    // Entries of both streams may have this id.
    let named = entries.iter().filter(|entry| Some(entry.id.entry) == decision.id);
    let found: Vec<_> = named.map(|entry| (entry.entity.as_str(), entry.sequence, entry.order)).collect();
    if !found.contains(&(entity.as_str(), written, order)) {
        return Err((line, format!("the verdict names an entry that is not the event's: {found:?}")));
    }
    match position {
        Position::Given(sequence) => equal(line, &sequence, &written),
        Position::Assigned { .. } => Ok(()),
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
