//! What producers were told, what stands in the streams and what workers wrote down, kept until
//! the judge has looked at it.
//!
//! A run is judged in windows, entities that began at about the same time, so that one of any
//! length fits into memory. Whatever is heard of a window that was judged counts as doubled.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
    time::{Duration, Instant},
};

use seriatim::{order, store};
use seriatim_checker::{
    Answer, Entry, Evidence, Fate, Name, Order, Rules, Run, Sent, Stream, Violation, Wrong, judge,
};

use super::sinks::Line;

/// Kept of what is wrong, to be shown.
const EXAMPLES_MAX: usize = 20;

/// An entity's name says which window it is of.
pub fn entity_name(window: u64, round: u64, number: u64) -> String {
    format!("job-{window}-{round}-{number}")
}

fn window_of(entity: &str) -> Option<u64> {
    entity.strip_prefix("job-")?.split('-').next()?.parse().ok()
}

/// Where a sent event is noted.
#[derive(Clone, Copy)]
pub struct Place {
    window: u64,
    at: usize,
}

#[derive(Default)]
struct Window {
    sent: Vec<Sent>,
    entries: Vec<Entry>,
    runs: Vec<Run>,
    /// The latest run of a delivery by a worker.
    latest: BTreeMap<(u32, u64, Name, Order), usize>,
    handled: BTreeSet<Name>,
    unanswered: usize,
    /// Since when nothing more is sent, and since when all of it is handled.
    closed: Option<Instant>,
    complete: Option<Instant>,
}

impl Window {
    fn is_complete(&self) -> bool {
        let all = self.sent.len();
        self.unanswered == 0 && self.entries.len() >= all && self.handled.len() >= all
    }
}

#[derive(Default)]
struct Book {
    windows: BTreeMap<u64, Window>,
    tally: Tally,
}

/// What has come of all windows so far.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    pub sent: u64,
    pub in_flight: u64,
    pub appended: u64,
    pub handled: u64,
    pub judged: u64,
    pub wrongs: BTreeMap<Wrong, u64>,
    pub examples: Vec<String>,
}

impl Tally {
    fn add(&mut self, violation: &Violation) {
        *self.wrongs.entry(violation.wrong).or_default() += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(violation.to_string());
        }
    }
}

pub struct Ledger {
    began: Instant,
    book: Mutex<Book>,
}

impl Ledger {
    pub fn new() -> Self {
        Ledger { began: Instant::now(), book: Mutex::default() }
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    /// Notes an event that is about to be sent.
    pub fn begin(&self, entity: &str, sequence: u64) -> Place {
        let (mut book, at) = (self.book.lock().unwrap(), self.now());
        book.tally.sent += 1;
        book.tally.in_flight += 1;
        let window = window_of(entity).expect("a name of ours");
        let noted = book.windows.entry(window).or_default();
        noted.unanswered += 1;
        let name = (entity.into(), 0, sequence);
        noted.sent.push(Sent { name, payload: sequence, at, fate: Fate::Unknown });
        Place { window, at: noted.sent.len() - 1 }
    }

    pub fn accepted(&self, place: Place) {
        let (mut book, at) = (self.book.lock().unwrap(), self.now());
        book.tally.in_flight -= 1;
        // One that was judged already counted this event as unanswered.
        if let Some(window) = book.windows.get_mut(&place.window) {
            window.unanswered -= 1;
            window.sent[place.at].fate = Fate::Accepted { at };
        }
    }

    /// Nothing more is sent of a window.
    pub fn close(&self, window: u64) {
        if let Some(window) = self.book.lock().unwrap().windows.get_mut(&window) {
            window.closed = Some(Instant::now());
        }
    }

    /// Notes what stands in a stream.
    pub fn appended(&self, entry: Entry) {
        let mut book = self.book.lock().unwrap();
        book.tally.appended += 1;
        let window = window_of(&entry.name.0);
        match window.and_then(|window| book.windows.get_mut(&window)) {
            Some(window) => window.entries.push(entry),
            None => book.stray("stands in the stream", &entry.name),
        }
    }

    /// Notes a line of a worker's journal.
    pub fn heard(&self, worker: u32, line: Line) {
        let mut book = self.book.lock().unwrap();
        let name: Name = (line.entity.as_str().into(), line.epoch, line.sequence);
        let window = window_of(&line.entity);
        let Some(window) = window.and_then(|window| book.windows.get_mut(&window)) else {
            if line.kind == "start" {
                book.stray("was started", &name);
            }
            return;
        };
        let key = (worker, line.term, name.clone(), line.order());
        if line.kind == "start" {
            window.latest.insert(key, window.runs.len());
            window.runs.push(line.run(worker, name));
            return;
        }
        let at = window.latest.get(&key).expect("a journal notes the start first");
        let run = &mut window.runs[*at];
        match line.kind.as_str() {
            "end" => {
                run.done = Some(line.at);
                let is_new = run.order != Order::Gap && window.handled.insert(name);
                book.tally.handled += u64::from(is_new);
            }
            "nack" => (run.done, run.is_nacked) = (Some(line.at), true),
            "acked" => run.answer = Some(Answer::Stored),
            "fenced" => run.answer = Some(Answer::Fenced),
            other => panic!("no journal says {other:?}"),
        }
    }

    /// Notes that a worker's process ended, at this time of the journals.
    pub fn ended(&self, worker: u32, at: u64) {
        let mut book = self.book.lock().unwrap();
        let runs = book.windows.values_mut().flat_map(|window| &mut window.runs);
        for run in runs.filter(|run| run.worker == worker && run.done.is_none()) {
            run.killed = Some(at);
        }
    }

    /// Events that were sent and are not handled yet.
    pub fn backlog(&self) -> u64 {
        let tally = &self.book.lock().unwrap().tally;
        tally.sent.saturating_sub(tally.handled)
    }

    /// Events that were sent and are not answered yet.
    pub fn in_flight(&self) -> u64 {
        self.book.lock().unwrap().tally.in_flight
    }

    pub fn tally(&self) -> Tally {
        self.book.lock().unwrap().tally.clone()
    }

    /// Is everything that was sent answered, in a stream, and handled?
    pub fn is_complete(&self) -> bool {
        self.book.lock().unwrap().windows.values().all(Window::is_complete)
    }

    /// Judges windows that were complete for `settle`, and those that are not complete though
    /// they were closed `stuck` ago.
    pub fn judge_old(&self, rules: &Rules, settle: Duration, stuck: Duration) {
        let mut book = self.book.lock().unwrap();
        let is_past = |since: Option<Instant>, wait| since.is_some_and(|since| since.elapsed() > wait);
        let mut ripe = Vec::new();
        for (number, window) in book.windows.iter_mut().filter(|(_, window)| window.closed.is_some()) {
            if window.complete.is_none() && window.is_complete() {
                window.complete = Some(Instant::now());
            }
            if is_past(window.complete, settle) || is_past(window.closed, stuck) {
                ripe.push(*number);
            }
        }
        let windows: Vec<Window> = ripe.iter().filter_map(|number| book.windows.remove(number)).collect();
        drop(book);
        windows.into_iter().for_each(|window| self.judge(window, rules, Vec::new()));
    }

    /// Judges all that is left.
    pub fn judge_rest(&self, rules: &Rules, mut leftovers: Vec<String>) -> Tally {
        let windows = std::mem::take(&mut self.book.lock().unwrap().windows);
        for window in windows.into_values() {
            self.judge(window, rules, std::mem::take(&mut leftovers));
        }
        self.tally()
    }

    fn judge(&self, window: Window, rules: &Rules, leftovers: Vec<String>) {
        let Window { sent, entries, mut runs, .. } = window;
        runs.sort_by_key(|run| run.started);
        let events = sent.len() as u64;
        let violations = judge(&Evidence { sent, entries, runs, leftovers }, rules);
        let mut book = self.book.lock().unwrap();
        book.tally.judged += events;
        violations.iter().for_each(|violation| book.tally.add(violation));
    }
}

impl Book {
    /// Something of a window that was judged, and had all it should have.
    fn stray(&mut self, what: &str, (entity, epoch, sequence): &Name) {
        let what = format!("{entity} epoch {epoch} sequence {sequence} {what} after all of it was judged");
        self.tally.add(&Violation { wrong: Wrong::Duplicated, what });
    }
}

/// An entry as the judge wants it. All events are sent, and waited for much longer than any
/// trouble lasts: a gap is false whenever it was given up, so it counts as later than all.
pub fn noted(entry: &store::Entry) -> Entry {
    let order = match entry.order {
        order::Order::Strict => Order::Strict,
        order::Order::Passed => Order::Passed,
        order::Order::Late => Order::Late,
        order::Order::Replay => Order::Replay,
        order::Order::Marker => Order::Gap,
    };
    let sequence = entry.sequence.get();
    Entry {
        stream: Stream::Events,
        at: u64::MAX,
        name: (entry.entity.as_str().into(), entry.epoch.get(), sequence),
        order,
        from: sequence,
        is_time_out: false,
        payload: sequence,
    }
}
