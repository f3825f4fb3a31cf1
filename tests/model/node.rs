//! One copy of the store: the real rules, executed whole, and what their effects came to.
//!
//! A state is hashed by a text: the lane's own (`LaneState`), with times as distances from
//! the partition's clock, what is parked, and where the rings stand. The rules compare times
//! with each other only, so two copies that differ by a shift of the clock behave alike.

use std::{
    fmt::Write,
    hash::{Hash, Hasher},
    sync::LazyLock,
};

use seriatim::order::{
    DegradedBy, Effects, Entity, Epoch, Event, Filed, Finding, LaneState, Lengths, Partition, PartitionMode,
    Payload, Policy, Position, Range, Ring, Sequence, Verdict, jittered,
};

use super::judge::{DUE, EARLY, EPOCH, Entry, FAST, Judge, NEXT, PARKED, REPLY, TURN, Why, small};

/// How far one look moves the clock: as far as one look can.
pub const STEP: u64 = seriatim::order::ADVANCE_MAX_MS;
/// No run looks at the clock so often.
const STEPS_MAX: u64 = 1 << 16;
/// Keeps distances into the past above 0.
const MIDDLE: u64 = 1 << 30;
/// Due when a partition is restored, and not before.
const NEVER: u64 = 1 << 53;

pub static ENTITY: LazyLock<Entity> = LazyLock::new(|| Entity::new("e").expect("it is short"));

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    pub name: u8,
    pub terminal: bool,
}

impl Payload for Body {
    fn size(&self) -> u64 {
        1
    }

    fn same_as(&self, other: &Self) -> bool {
        self == other
    }

    fn kind(&self) -> &str {
        "step"
    }

    fn marked_illegal(self, _: Option<&str>) -> Self {
        self
    }
}

/// Something that a producer has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    pub epoch: u8,
    pub sequence: u8,
    pub body: Body,
}

impl Offer {
    pub fn event(&self) -> Event<Body> {
        Event {
            epoch: Epoch::new(self.epoch.into()).expect("it is small"),
            position: Position::Given(Sequence::new(self.sequence.into()).expect("it is small")),
            terminal: self.body.terminal,
            payload: self.body,
        }
    }
}

/// A gap as somebody outside the rules sees it, and since when it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    epoch: u8,
    next: u8,
    since: u64,
    /// When something terminal was first parked behind it.
    terminal_since: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub rules: Partition<Body>,
    pub judge: Judge,
    waiting: Option<Waiting>,
    text: String,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.judge == other.judge
    }
}

impl Eq for Node {}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
        self.judge.hash(state);
    }
}

/// What one call came to.
pub struct Called {
    pub node: Node,
    pub entries: Vec<Entry>,
    pub verdicts: Vec<Verdict>,
}

impl Node {
    pub fn new(policy: &Policy) -> Self {
        let rules = Partition::new(0);
        let mut node = Node { rules, judge: Judge::default(), waiting: None, text: String::new() };
        node.conclude(policy);
        node
    }

    pub fn lane(&self) -> Option<LaneState> {
        self.rules.lane(&ENTITY).map(|lane| lane.state())
    }

    fn wall(&self, later: bool) -> u64 {
        self.rules.clock().last + if later { STEP } else { 0 }
    }

    pub fn has_parked(&self, epoch: u8, sequence: u8) -> bool {
        let Some(lane) = self.rules.lane(&ENTITY) else { return false };
        lane.state().epoch.get() == u64::from(epoch)
            && lane.parked().any(|(parked, ..)| parked.get() == u64::from(sequence))
    }

    pub fn has(&self, offer: &Offer) -> bool {
        self.judge.has_written(offer.epoch, offer.sequence) || self.has_parked(offer.epoch, offer.sequence)
    }

    /// Does time have something to do here, sooner or later?
    pub fn is_awaited(&self) -> bool {
        let degraded = self.rules.is_degraded();
        let returns = matches!(self.rules.mode(), PartitionMode::Degraded { by: DegradedBy::Breaker, .. });
        returns || self.rules.gaps().any(|(_, due)| due != NEVER || !degraded)
    }

    /// Somebody should have looked at the time by now.
    pub fn is_overdue(&self) -> bool {
        let now = self.rules.clock().now;
        self.rules.gaps().any(|(_, due)| due <= now)
    }

    /// Offers events, in the order of a batch. `later`: time has passed since the last call.
    /// What is written is judged by the caller if `apply` is false.
    pub fn admit(&self, offers: &[Offer], later: bool, policy: &Policy, apply: bool) -> Called {
        let mut offers = offers.to_vec();
        offers.sort_by_key(|offer| (offer.epoch, offer.sequence));
        let predicted = self.predict(&offers, policy);
        let mut node = self.clone();
        let mut effects = Effects::new(policy.append_max);
        let mut verdicts = Vec::with_capacity(offers.len());
        let events = offers.iter().map(|offer| (&*ENTITY, offer.event()));
        node.rules.admit(events, self.wall(later), policy, &mut effects, |verdict, _| verdicts.push(verdict));
        let entries = entries(&effects);
        if !apply {
            node.conclude(policy);
        } else {
            node.apply(&entries, policy);
            node.expect_drained(&entries, policy);
            for (offer, verdict) in offers.iter().zip(&verdicts) {
                let is_true = node.is_true(offer, *verdict);
                node.judge.expect(is_true, REPLY);
            }
            if let Some(after) = predicted {
                let is_released = verdicts.iter().all(|verdict| matches!(verdict, Verdict::Released { .. }));
                let is_as_said = is_released
                    && entries.len() == offers.len()
                    && node.lane().is_some_and(|lane| lane.to_string() == after);
                node.judge.expect(is_as_said, FAST);
            }
        }
        Called { node, entries, verdicts }
    }

    /// The text that the fast path would write without a look at the rules, if it would: as a
    /// sidecar predicts it from the events alone.
    pub fn predict(&self, offers: &[Offer], policy: &Policy) -> Option<String> {
        let (first, last) = (offers.first()?, offers.last()?);
        let follows = |pair: &[Offer]| {
            let is_next = pair[0].sequence + 1 == pair[1].sequence;
            is_next && pair[0].epoch == pair[1].epoch && !pair[0].body.terminal
        };
        let is_plain = !self.rules.is_degraded() && !self.rules.is_draining();
        if !is_plain || offers.len() as u64 > policy.append_max || !offers.windows(2).all(follows) {
            return None;
        }
        let found = self.lane().map(|lane| lane.to_string()).unwrap_or_default();
        let is_begun = u64::from(first.sequence) != policy.first.get();
        let before = if is_begun { format!("{}:{}", first.epoch, first.sequence) } else { String::new() };
        let is_retired = self.rules.memory().tombs.get(&ENTITY).is_some();
        let closed = if last.body.terminal { "c" } else { "" };
        let after = format!("{}:{}{closed}", last.epoch, last.sequence + 1);
        (found == before && (is_begun || !is_retired)).then_some(after)
    }

    /// Does the verdict say what became of the event?
    fn is_true(&self, offer: &Offer, verdict: Verdict) -> bool {
        let Offer { epoch, sequence, .. } = *offer;
        let is_written = self.judge.has_written(epoch, sequence);
        let is_there = self.has(offer);
        let is_it = |said: Sequence| said.get() == u64::from(sequence);
        match verdict {
            Verdict::Released { sequence: said } => is_it(said) && is_written,
            Verdict::Passed { sequence: said } | Verdict::Late { sequence: said } => {
                is_it(said) && is_written
            }
            Verdict::Duplicate { sequence: said } => is_it(said) && is_there,
            Verdict::Parked { .. } | Verdict::Conflict => is_there,
            Verdict::Retired { epoch: said } => {
                let known = self.judge.epoch.map(u64::from);
                self.judge.is_closed && known == Some(said.get()) && Some(u64::from(epoch)) <= known
            }
            Verdict::Stale { epoch: said } => {
                said.get() > u64::from(epoch) && self.judge.epoch.map(u64::from) == Some(said.get())
            }
            Verdict::Refused(_) => !is_there,
            Verdict::Again => !self.has_parked(epoch, sequence),
        }
    }

    /// A look at the clock, as long after the last one as counts.
    pub fn elapse(&self, policy: &Policy) -> Called {
        let mut node = self.clone();
        let mut effects = Effects::new(policy.append_max);
        let wall = self.wall(true);
        let elapsed = node.rules.elapse(wall, policy, usize::MAX, Lengths::default(), &mut effects);
        let entries = entries(&effects);
        let now = node.rules.clock().now;
        for entry in &entries {
            if let Entry::Gap { epoch, from, why: Why::Timeout, .. } = *entry {
                let is_time = self.may_give_up(epoch, from, now, policy);
                node.judge.expect(is_time, EARLY);
            }
        }
        node.apply(&entries, policy);
        node.expect_drained(&entries, policy);
        let deadline = node.lane().and_then(|lane| lane.wait?.gap).map(|gap| gap.deadline);
        node.judge.expect(elapsed.more || deadline.is_none_or(|deadline| deadline > now), DUE);
        Called { node, entries, verdicts: Vec::new() }
    }

    /// Only a call without room leaves something behind whose turn has come.
    fn expect_drained(&mut self, entries: &[Entry], policy: &Policy) {
        let has_room = (entries.len() as u64) < policy.append_max;
        self.judge.expect(!(has_room && self.rules.is_draining()), TURN);
    }

    /// Has this very gap been waited for as long as the topic says?
    fn may_give_up(&self, epoch: u8, from: u8, now: u64, policy: &Policy) -> bool {
        let gap = self.waiting.filter(|gap| gap.epoch == epoch && gap.next == from);
        let waits = policy.gap_waits.iter().enumerate();
        let all: u64 = waits.map(|(attempt, wait)| jittered(*wait, &ENTITY, attempt)).sum();
        gap.is_some_and(|gap| {
            let is_over = now >= gap.since + all;
            is_over || gap.terminal_since.is_some_and(|since| now >= since + all.min(policy.terminal_wait))
        })
    }

    /// An operator gives up the gap that he saw.
    pub fn skip(&self, epoch: u8, next: u8, policy: &Policy) -> Called {
        let mut node = self.clone();
        let mut effects = Effects::new(policy.append_max);
        let (of, at) = (Epoch::new(epoch.into()), Sequence::new(next.into()));
        let (of, at) = (of.expect("it is small"), at.expect("it is small"));
        let range = node.rules.skip(&ENTITY, of, at, self.wall(false), policy, &mut effects);
        let entries = entries(&effects);
        node.apply(&entries, policy);
        node.judge.expect(range.is_some() == entries.iter().any(is_gap), REPLY);
        Called { node, entries, verdicts: Vec::new() }
    }

    /// Somebody knows a living producer of the gap that he saw.
    pub fn extend(&self, epoch: u8, next: u8, policy: &Policy) -> Called {
        let mut node = self.clone();
        let (of, at) = (Epoch::new(epoch.into()), Sequence::new(next.into()));
        let (of, at) = (of.expect("it is small"), at.expect("it is small"));
        node.rules.extend(&ENTITY, of, at, self.wall(false), policy);
        node.apply(&[], policy);
        Called { node, entries: Vec::new(), verdicts: Vec::new() }
    }

    pub fn set_degraded(&self, degraded: bool, policy: &Policy) -> Called {
        let mut node = self.clone();
        let mut effects = Effects::new(policy.append_max);
        if degraded {
            node.rules.degrade(self.wall(false), &mut effects);
        } else {
            node.rules.restore(self.wall(false), &mut effects);
        }
        let entries = entries(&effects);
        node.apply(&entries, policy);
        Called { node, entries, verdicts: Vec::new() }
    }

    /// Looks at what is old. Returns how many were retired and forgotten, too.
    pub fn sweep(&self, policy: &Policy) -> (Node, u64, u64) {
        let mut node = self.clone();
        let swept = node.rules.sweep(self.wall(true), policy, usize::MAX, None);
        // Whoever is reported as stuck is not forgotten.
        let is_stuck = swept.findings.iter().any(|finding| matches!(finding, Finding::Stuck { .. }));
        node.judge.expect(!is_stuck || node.lane().is_some(), NEXT);
        if swept.forgotten > 0 && node.lane().is_none() {
            node.judge.forget();
        }
        node.conclude(policy);
        (node, swept.retired, swept.forgotten)
    }

    /// Its lane was open when it was retired.
    pub fn is_idle_tomb(&self) -> bool {
        self.rules.memory().tombs.get(&ENTITY).is_some_and(|tomb| !tomb.closed)
    }

    /// Something is known of the entity: its lane, or what is left of it.
    pub fn is_remembered(&self) -> bool {
        self.rules.resume(&ENTITY).is_some()
    }

    pub fn apply(&mut self, entries: &[Entry], policy: &Policy) {
        entries.iter().for_each(|entry| self.judge.see(*entry));
        self.conclude(policy);
    }

    /// After anything happened: is the lane what its streams say, and how is it hashed?
    fn conclude(&mut self, policy: &Policy) {
        let lane = self.lane();
        if let Some(lane) = &lane {
            self.check(lane);
        } else if let Some(tomb) = self.rules.memory().tombs.get(&ENTITY).cloned() {
            let is_same = tomb.next.get() == u64::from(self.judge.top)
                && self.judge.epoch.map(u64::from) == Some(tomb.epoch.get());
            self.judge.expect(is_same, NEXT);
        } else {
            // Nothing is left, so nothing may have been written.
            self.judge.expect(self.judge.epoch.is_none(), NEXT);
        }
        self.judge.expect(self.judge.is_degraded == self.rules.is_degraded(), EPOCH);
        self.watch(lane.as_ref());
        self.text = self.describe(lane.as_ref(), policy);
    }

    fn check(&mut self, lane: &LaneState) {
        let epoch = small(lane.epoch.get());
        let known = *self.judge.epoch.get_or_insert(epoch);
        let mut judge = self.judge;
        judge.expect(known == epoch, EPOCH);
        let missing = lane.missing.iter().flat_map(sequences).fold(0, |bits, s| bits | 1 << s);
        let is_next = lane.next.get() == u64::from(judge.top) && missing == judge.marked | judge.unmarked;
        judge.expect(is_next && lane.closed == judge.is_closed, NEXT);
        let parked: Vec<u8> = self
            .rules
            .lane(&ENTITY)
            .expect("its state was taken")
            .parked()
            .map(|p| small(p.0.get()))
            .collect();
        let due = self.rules.gaps().next().map(|(_, due)| due);
        let is_apart = parked.iter().all(|s| !judge.has_written(epoch, *s) && *s >= judge.top);
        judge.expect(is_apart && (parked.is_empty() || due.is_some()), PARKED);
        judge.expect(!parked.contains(&judge.top) || (self.rules.is_draining() && due == Some(0)), TURN);
        self.judge = judge;
    }

    fn watch(&mut self, lane: Option<&LaneState>) {
        let now = self.rules.clock().now;
        let gap = lane.filter(|lane| {
            let runs = lane.parked.as_ref().map(|parked| &parked.sequences);
            lane.unmarked.is_none() && runs.is_some_and(|runs| !runs.contains(lane.next))
        });
        let Some(lane) = gap else {
            self.waiting = None;
            return;
        };
        let (epoch, next) = (small(lane.epoch.get()), small(lane.next.get()));
        let before = self.waiting.filter(|gap| gap.epoch == epoch && gap.next == next);
        let has_terminal = lane.wait.is_some_and(|wait| wait.terminals > 0);
        let terminal_since = before.and_then(|gap| gap.terminal_since).or(Some(now)).filter(|_| has_terminal);
        let since = before.map_or(now, |gap| gap.since);
        self.waiting = Some(Waiting { epoch, next, since, terminal_since });
    }

    fn describe(&self, lane: Option<&LaneState>, policy: &Policy) -> String {
        let now = self.rules.clock().now;
        let mut text = String::with_capacity(96);
        if let Some(lane) = lane {
            write!(text, "{}|", shifted(lane.clone(), now)).expect("a string takes it");
            for (_, _, body) in self.rules.lane(&ENTITY).expect("its state was taken").parked() {
                write!(text, "{},", body.name).expect("a string takes it");
            }
        }
        if let Some(gap) = self.waiting {
            let terminal = gap.terminal_since.map(|since| now - since);
            write!(text, "|w{},{:?}", now - gap.since, terminal).expect("a string takes it");
        }
        if self.rules.is_degraded() {
            let told = self.rules.told();
            let told = if (1..NEVER).contains(&told) { told + MIDDLE - now } else { told };
            write!(text, "|d{told}").expect("a string takes it");
        }
        if policy.breaker.skips > 0 {
            let breaker = self.rules.breaker();
            let leaked = (now - breaker.at).min(policy.breaker.window);
            let held = match self.rules.mode() {
                PartitionMode::Degraded { by: DegradedBy::Breaker, since } => Some(now - since),
                PartitionMode::Degraded { by: DegradedBy::Operator, .. } | PartitionMode::Ordered => None,
            };
            let held = held.map(|held| held.min(policy.breaker.hold));
            write!(text, "|b{},{leaked},{held:?}", breaker.level).expect("a string takes it");
        }
        let times = policy.retirement;
        if times.retire_after < STEPS_MAX * STEP {
            let memory = self.rules.memory();
            let filed = |filed: &Filed| match filed {
                None => String::new(),
                Some((since, seen)) => {
                    let age = (now - since).min(times.idle_retire_after);
                    let seen: LaneState = seen.parse().expect("the rules wrote it");
                    // A lane that waited and moved on is never again what it was.
                    let is_past = seen.wait.is_some() && Some(&seen) != lane;
                    if is_past { format!("{age},past") } else { format!("{age},{}", shifted(seen, now)) }
                }
            };
            describe_ring(&mut text, &memory.opened, now, times.stuck_after, filed);
            describe_ring(&mut text, &memory.closed, now, times.retire_after, filed);
            describe_ring(&mut text, &memory.tombs, now, times.remember_for, ToString::to_string);
        }
        text
    }
}

fn is_gap(entry: &Entry) -> bool {
    matches!(entry, Entry::Gap { .. })
}

fn entries(effects: &Effects<Body>) -> Vec<Entry> {
    effects.actions.iter().map(Entry::of).collect()
}

fn sequences(range: Range) -> impl Iterator<Item = u8> {
    (range.first.get()..=range.last.get()).map(small)
}

/// The state with its times as distances from now.
fn shifted(mut lane: LaneState, now: u64) -> LaneState {
    let shift = |time: u64| time + MIDDLE - now;
    if let Some(wait) = &mut lane.wait {
        wait.age.since = shift(wait.age.since);
        if let Some(gap) = &mut wait.gap {
            (gap.opened, gap.deadline) = (shift(gap.opened), shift(gap.deadline));
        }
    }
    lane
}

/// Buckets from the current one on, each with its age, as far as that matters.
fn describe_ring<T>(text: &mut String, ring: &Ring<T>, now: u64, age: u64, show: impl Fn(&T) -> String) {
    let hand = ring.hand();
    let buckets = ring.buckets();
    // A ring that does not turn within a run has no age.
    let is_turning = age < STEPS_MAX * STEP;
    let old = |since: u64| if is_turning { (now - since).min(age) } else { 0 };
    write!(text, "|{}", old(hand.turned)).expect("a string takes it");
    for step in 0..buckets.len() {
        let at = (hand.current + step) % buckets.len();
        for value in buckets[at].values() {
            write!(text, "/{step}:{}:{}", old(hand.ended[at]), show(value)).expect("a string takes it");
        }
    }
}
