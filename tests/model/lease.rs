//! Leases: two workers, one partition, and whoever is paused, fenced or dead.
//!
//! Whose the partition is, is decided by the real `LeaseBook`; what is delivered and written,
//! by the real `Feed`; what the store lets pass, by the embedded store's real fence
//! (`GroupPart`, which the scripts follow). Nobody is ever told to pause: every step may come
//! arbitrarily late, and time may pass before it. A crash leaves the worker's last commit under
//! way, and a new worker with a new name in its place.
//!
//! Time is hashed as how long each counter was silent, up to a lease, and counters as whether
//! they have moved since they were seen.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
};

use seriatim::{
    deliver::{feed::Answer, lease::Step},
    store::{Commit, Committed, GroupPart, Member, Running, StreamId},
};
use stateright::{Model, Property};

use super::{
    judge::Faults,
    seen::{Seen, Thing},
    worker::{Line, PARTITION, Phase, Slot, Worker, entity, id, read},
};

const FENCE: Faults = 1;
const TERMS: Faults = 1 << 1;
const STARTED: Faults = 1 << 2;
const FLOOR: Faults = 1 << 3;
const BACK: Faults = 1 << 4;
const TURNS: Faults = 1 << 5;
const REST: Faults = 1 << 6;

#[derive(Clone, Debug)]
pub struct Leases {
    pub stream: Vec<Line>,
    /// Times that the partition changes hands.
    pub takes: u8,
    /// Lost answers.
    pub faults: u8,
    pub crashes: u8,
    /// Commits that only say that their worker lives.
    pub renewals: u8,
    pub in_flight_max: usize,
    pub crashes_max: u32,
    /// The first entry was running when an earlier worker ended.
    pub has_suspect: bool,
    /// The store does not compare terms.
    pub is_unfenced: bool,
    pub seen: Seen,
}

#[derive(Clone, Debug)]
pub struct State {
    store: Arc<GroupPart>,
    members: BTreeMap<String, u64>,
    workers: [Worker; 2],
    /// Commits of workers that are dead.
    strays: Vec<Commit>,
    now: u64,
    born: u8,
    /// Entries whose handler ended well, as bits of their places.
    acked: u16,
    takes: u8,
    faults: u8,
    crashes: u8,
    renewals: u8,
    broken: Faults,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let GroupPart { floor, owner, term, count, asked, running, loose, resume, held, kept } = &*self.store;
        (floor, owner, term, count, asked, loose).hash(state);
        let resume: BTreeMap<_, _> = resume.iter().collect();
        let kept: BTreeMap<_, _> = kept.iter().collect();
        format!("{running:?}{resume:?}{held:?}{kept:?}{:?}", self.strays).hash(state);
        let (members, lease) = (&self.members, (*term, *count));
        self.workers.iter().for_each(|worker| worker.describe(members, lease, self.now, state));
        (self.acked, self.takes, self.faults, self.crashes, self.renewals, self.broken).hash(state);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let print = |state: &State| {
            let mut hasher = std::hash::DefaultHasher::new();
            state.hash(&mut hasher);
            hasher.finish()
        };
        print(self) == print(other)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Tick,
    /// Shows up, and looks at the lease.
    Look(usize),
    Take(usize),
    /// Learns that it has the lease, and reads on from the floor.
    Taken(usize),
    /// Starts what may start, and commits what is new.
    Pump(usize),
    Renew(usize),
    Execute(usize),
    Receive(usize),
    /// The store's answer is lost.
    Lose(usize),
    Finish(usize, usize),
    GiveBack(usize),
    Crash(usize),
    Stray(usize),
}

impl Act {
    /// Whose state it changes.
    fn worker(self) -> Option<usize> {
        match self {
            Act::Look(at)
            | Act::Take(at)
            | Act::Taken(at)
            | Act::Pump(at)
            | Act::Renew(at)
            | Act::Execute(at)
            | Act::Receive(at)
            | Act::Lose(at)
            | Act::Finish(at, _)
            | Act::GiveBack(at)
            | Act::Crash(at) => Some(at),
            Act::Tick | Act::Stray(_) => None,
        }
    }
}

impl Leases {
    /// Entries that the store says are done, as bits.
    fn done(&self, store: &GroupPart) -> u16 {
        let is_done = |number: u8, (name, sequence): Line| {
            let point = store.resume.get(&entity(name));
            let is_covered = point.is_some_and(|point| u64::from(sequence) < point.next.get());
            id(number) <= store.floor || store.loose.contains(&id(number).into()) || is_covered
        };
        let numbered = (1..).zip(&self.stream);
        numbered.filter(|(number, line)| is_done(*number, **line)).fold(0, |bits, (n, _)| bits | 1 << n)
    }

    fn last(&self) -> StreamId {
        id(self.stream.len() as u8)
    }

    /// The store carries a commit out.
    fn execute(&self, state: &mut State, commit: &Commit) -> Committed {
        let before = state.store.clone();
        let mut store = (*before).clone();
        let mut written = commit.clone();
        if self.is_unfenced {
            (written.term, written.number) = (store.term, store.count);
        }
        let committed = store.commit(&written, 0);
        let is_current = commit.term == before.term;
        if !is_current {
            expect(state, store == *before && matches!(committed, Committed::Fenced { .. }), FENCE);
            self.seen.note(Thing::FencedCommit);
        } else if store == *before {
            self.seen.note(Thing::AppliedOnce);
        }
        let newly = self.done(&store) & !self.done(&before);
        expect(state, newly == 0 || is_current, FENCE);
        expect(state, store.floor >= before.floor, BACK);
        let fell =
            before.resume.iter().any(|(of, point)| store.resume.get(of).is_none_or(|p| p.next < point.next));
        expect(state, !fell, BACK);
        state.store = Arc::new(store);
        committed
    }

    fn look(&self, state: &mut State, at: usize) {
        let count = state.members.entry(state.workers[at].name.clone()).or_default();
        *count += 1;
        let member = |(name, count): (&String, &u64)| Member { name: name.clone(), count: *count };
        let members: Vec<Member> = state.members.iter().map(member).collect();
        let (seen, now) = (state.store.seen(), state.now);
        let worker = &mut state.workers[at];
        worker.book.attended(&members, now);
        let step = worker.book.step(PARTITION, &seen, worker.slot().is_some(), now);
        match (&mut worker.phase, step) {
            (Phase::Free, Step::Take) if state.takes > 0 => worker.phase = Phase::Taking { seen },
            (Phase::Holding(slot), Step::Leave | Step::Keep | Step::GiveBack) => {
                slot.is_giving_back = step == Step::GiveBack;
            }
            _ => {}
        }
    }

    fn take(&self, state: &mut State, at: usize) {
        let Phase::Taking { seen } = &state.workers[at].phase else { unreachable!("it wants the lease") };
        let mut store = (*state.store).clone();
        let leased = store.lease(&state.workers[at].name, seen, 0);
        match &leased {
            Some(leased) => {
                expect(state, leased.term > state.store.term, TERMS);
                if state.store.owner.is_some() {
                    self.seen.note(Thing::TakenOver);
                }
                if !leased.running.is_empty() {
                    self.seen.note(Thing::Suspect);
                }
                state.takes -= 1;
            }
            None => self.seen.note(Thing::LeaseRaced),
        }
        state.store = Arc::new(store);
        state.workers[at].phase = Phase::Taken { leased };
    }

    fn read(&self, slot: &mut Slot, store: &GroupPart) {
        let after = slot.feed.position();
        let new = (1..).zip(&self.stream).filter(|(number, _)| id(*number) > after);
        let reads: Vec<_> = new.map(|(number, line)| read(number, *line)).collect();
        let unknown = slot.feed.unknown(&reads);
        let points = unknown.into_iter().map(|of| (of.clone(), store.resume.get(&of).cloned())).collect();
        slot.with_feed(|feed| feed.read(reads, points));
    }

    fn pump(&self, state: &mut State, at: usize, renew: bool) -> Option<()> {
        let Phase::Holding(slot) = &mut state.workers[at].phase else { return None };
        let credit = self.in_flight_max.saturating_sub(slot.feed.running());
        let mut started = Vec::new();
        if credit > 0 && !slot.is_giving_back {
            started = slot.with_feed(|feed| feed.start(credit, 0));
        }
        if slot.feed.has_news() == renew {
            return None;
        }
        slot.send(started);
        if renew {
            state.renewals -= 1;
        }
        Some(())
    }

    fn receive(&self, state: &mut State, at: usize) {
        let Phase::Holding(slot) = &mut state.workers[at].phase else { unreachable!("it has a commit") };
        let sent = slot.commit.take().expect("it was sent");
        match sent.reply.expect("it was answered") {
            Committed::Done { asked, now_ms } => {
                slot.with_feed(|feed| feed.committed(asked, now_ms, 0, false));
                slot.running.extend(&sent.started);
                let is_current = slot.term == state.store.term;
                let (running, acked) = (slot.running.clone(), state.acked);
                for (_, number) in sent.started {
                    let (name, sequence) = self.stream[usize::from(number) - 1];
                    // All before it was handled, and nothing of it beside it.
                    let before = (1..).zip(&self.stream).filter(|(_, of)| of.0 == name && of.1 < sequence);
                    let in_turn = before.clone().all(|(n, _): (u8, _)| acked & (1 << n) != 0);
                    let of_entity =
                        running.iter().filter(|(_, n)| self.stream[usize::from(*n) - 1].0 == name);
                    let is_held = state.store.held.contains_key(&entity(name));
                    expect(state, (in_turn || is_held || !is_current) && of_entity.count() == 1, TURNS);
                }
            }
            Committed::Fenced { .. } => state.workers[at].phase = Phase::Free,
        }
    }

    fn crash(&self, state: &mut State, at: usize) {
        let worker = Worker::new(state.born);
        state.born += 1;
        state.crashes -= 1;
        let dead = std::mem::replace(&mut state.workers[at], worker);
        if let Phase::Holding(Slot { commit: Some(sent), .. }) = dead.phase
            && sent.reply.is_none()
        {
            state.strays.push(sent.commit);
        }
    }

    fn judge(&self, state: &mut State) {
        let done = self.done(&state.store);
        for (number, (name, _)) in (1..).zip(&self.stream) {
            let is_handled = state.acked & (1 << number) != 0 || state.store.held.contains_key(&entity(name));
            expect(state, done & (1 << number) == 0 || is_handled, FLOOR);
        }
        if !state.store.held.is_empty() {
            self.seen.note(Thing::DeadLetter);
        }
        let terms: Vec<u64> = state.workers.iter().filter_map(|worker| Some(worker.slot()?.term)).collect();
        let is_apart = terms.len() < 2 || terms[0] != terms[1];
        expect(state, is_apart && terms.iter().all(|term| *term <= state.store.term), TERMS);
        for at in 0..state.workers.len() {
            let Some(slot) = state.workers[at].slot().filter(|slot| slot.term == state.store.term) else {
                continue;
            };
            let noted = |number: u8| state.store.running.iter().any(|running| running.id.entry == id(number));
            let is_noted = slot.running.iter().all(|(_, number)| noted(*number));
            let is_at_rest = slot.commit.is_none() && slot.running.is_empty() && !slot.feed.has_news();
            let has_read = slot.feed.position() == self.last();
            // Nothing is left to start either, nor to hold instead.
            let mut feed = (*slot.feed).clone();
            let is_idle = is_at_rest && has_read && feed.start(1, 0).is_empty() && !feed.has_news();
            let is_done = state.store.floor == self.last();
            expect(state, is_noted, STARTED);
            expect(state, !is_idle || is_done, REST);
        }
    }
}

fn restate(phase: &mut Phase) {
    if let Phase::Holding(slot) = phase {
        slot.restate();
    }
}

fn expect(state: &mut State, holds: bool, fault: Faults) {
    if !holds {
        state.broken |= fault;
    }
}

fn holds<const FAULT: Faults>(_: &Leases, state: &State) -> bool {
    state.broken & FAULT == 0
}

impl Model for Leases {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let running =
            if self.has_suspect { vec![Running { id: id(1).into(), crashes: 0 }] } else { Vec::new() };
        vec![State {
            store: Arc::new(GroupPart { running, ..GroupPart::default() }),
            members: BTreeMap::new(),
            workers: [Worker::new(0), Worker::new(1)],
            strays: Vec::new(),
            now: 0,
            born: 2,
            acked: 0,
            takes: self.takes,
            faults: self.faults,
            crashes: self.crashes,
            renewals: self.renewals,
            broken: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        if state.broken != 0 {
            return;
        }
        actions.push(Act::Tick);
        for (at, worker) in state.workers.iter().enumerate() {
            if state.crashes > 0 {
                actions.push(Act::Crash(at));
            }
            match &worker.phase {
                Phase::Free => actions.push(Act::Look(at)),
                Phase::Taking { .. } => actions.push(Act::Take(at)),
                Phase::Taken { .. } => {
                    actions.push(Act::Taken(at));
                    if state.faults > 0 {
                        actions.push(Act::Lose(at));
                    }
                }
                Phase::Holding(slot) => {
                    actions.push(Act::Look(at));
                    actions.extend((0..slot.running.len()).map(|handler| Act::Finish(at, handler)));
                    match &slot.commit {
                        None => {
                            actions.push(Act::Pump(at));
                            if state.renewals > 0 {
                                actions.push(Act::Renew(at));
                            }
                            if slot.is_giving_back && slot.feed.running() == 0 && !slot.feed.has_news() {
                                actions.push(Act::GiveBack(at));
                            }
                        }
                        Some(sent) if sent.reply.is_none() => actions.push(Act::Execute(at)),
                        Some(_) => {
                            actions.push(Act::Receive(at));
                            if state.faults > 0 {
                                actions.push(Act::Lose(at));
                            }
                        }
                    }
                }
            }
        }
        actions.extend((0..state.strays.len()).map(Act::Stray));
    }

    fn next_state(&self, state: &State, action: Act) -> Option<State> {
        let mut state = state.clone();
        match action {
            Act::Tick => state.now += 1,
            Act::Look(at) => self.look(&mut state, at),
            Act::Take(at) => self.take(&mut state, at),
            Act::Taken(at) => {
                let Phase::Taken { leased } = &state.workers[at].phase else {
                    unreachable!("it was answered")
                };
                let slot = leased.as_ref().map(|leased| {
                    let mut slot = Slot::new(leased, self.crashes_max);
                    self.read(&mut slot, &state.store);
                    Phase::Holding(slot)
                });
                state.workers[at].phase = slot.unwrap_or(Phase::Free);
            }
            Act::Pump(at) => self.pump(&mut state, at, false)?,
            Act::Renew(at) => self.pump(&mut state, at, true)?,
            Act::Execute(at) => {
                let sent =
                    state.workers[at].slot().and_then(|slot| slot.commit.clone()).expect("it was sent");
                let reply = self.execute(&mut state, &sent.commit);
                if let Phase::Holding(Slot { commit: Some(sent), .. }) = &mut state.workers[at].phase {
                    sent.reply = Some(reply);
                }
            }
            Act::Receive(at) => self.receive(&mut state, at),
            Act::Lose(at) => {
                state.faults -= 1;
                match &mut state.workers[at].phase {
                    Phase::Holding(Slot { commit: Some(sent), .. }) => sent.reply = None,
                    phase => *phase = Phase::Free,
                }
            }
            Act::Finish(at, handler) => {
                let Phase::Holding(slot) = &mut state.workers[at].phase else { unreachable!("it runs") };
                let (tag, number) = slot.running.remove(handler);
                slot.with_feed(|feed| feed.answer(tag, Answer::Ack, 0));
                state.acked |= 1 << number;
            }
            Act::GiveBack(at) => {
                let term = state.workers[at].slot().expect("it has the lease").term;
                let mut store = (*state.store).clone();
                store.release(term);
                (state.store, state.workers[at].phase) = (Arc::new(store), Phase::Free);
                self.seen.note(Thing::GivenBack);
            }
            Act::Crash(at) => self.crash(&mut state, at),
            Act::Stray(at) => {
                let commit = state.strays.remove(at);
                if let Committed::Fenced { .. } = self.execute(&mut state, &commit) {
                    self.seen.note(Thing::StrayFenced);
                }
            }
        }
        if let Some(at) = action.worker() {
            restate(&mut state.workers[at].phase);
        }
        self.judge(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("an older term changes nothing", holds::<FENCE>),
            Property::always("terms grow and are nobody else's", holds::<TERMS>),
            Property::always("what runs was noted before", holds::<STARTED>),
            Property::always("done is what was handled or is held", holds::<FLOOR>),
            Property::always("floor and points never fall", holds::<BACK>),
            Property::always("one of an entity at a time, in turn", holds::<TURNS>),
            Property::always("whoever rests has done everything", holds::<REST>),
        ]
    }
}
