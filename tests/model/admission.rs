//! Admission: producers, sidecars that own nothing, a store with a replica that lags.
//!
//! - **A sidecar** is a call in flight. It predicts from the events alone and remembers
//!   nothing, so two sidecars are two calls, whoever sent them, and a crash is a call whose
//!   answer nobody gets. A call that was given up may still be carried out, later than the one
//!   that repeats it.
//! - **The store** is [`Node`]: the real rules, one call at a time, as a script is. Its replica
//!   is the same as of an earlier call. A failover makes the replica the store; what came of
//!   the lost calls is then judged as the history that has them not.
//! - **Producers** offer their events in any order, again after a call that failed, and again
//!   although they were answered (`resends`).
//! - **Time** moves as far as one look can move it, whenever somebody looks.
//!
//! Everything that can go wrong has a budget, so each run ends.

use std::sync::Arc;

use seriatim::order::{Policy, Verdict};
use stateright::{Model, Property};

use super::{
    judge::{
        DUE, EARLY, EDGE, EPOCH, Entry, FAST, Faults, HOLE, KEPT, LATE, LOST, NEXT, ORDER, PARKED, REPLY,
        STUCK, TURN, TWICE, small,
    },
    node::{Called, Node, Offer},
    seen::{Seen, Thing},
    world::{Act, Answer, Call, Stage, State, bits},
};

/// Breaks the design on purpose: the model must see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// What is contiguous is released by a second call of whoever knows of it.
    SecondCallDrains,
    /// Next moves in one step, the entries follow in another.
    AdvanceBeforeAppend,
    /// A gap is given up by whoever saw one, without the store comparing which.
    SkipFromView,
    /// A call that changes nothing writes nothing, so nothing waits for the replica.
    SilentDuplicate,
    /// An acknowledgement does not wait for the replica: as it is without WAIT, and what that costs.
    AckBeforeReplica,
}

#[derive(Clone, Debug)]
pub struct Admission {
    pub offers: Vec<Offer>,
    pub policy: Policy,
    /// Calls that somebody waits for, at once.
    pub sidecars: usize,
    /// Calls in flight, with those that nobody waits for.
    pub calls_max: usize,
    /// Events of one call.
    pub batch_max: u32,
    /// Lost requests, lost answers, calls given up too early, crashes.
    pub faults: u8,
    pub resends: u8,
    pub failovers: u8,
    /// Times that an operator, or a sidecar with a living producer, looks at a gap.
    pub looks: u8,
    /// Changes of the partition's mode by an operator.
    pub modes: u8,
    pub sweeps: bool,
    /// Time may have passed at any call, not only when somebody looks.
    pub time_in_calls: bool,
    /// An acknowledgement waits for the replica.
    pub waits: bool,
    pub flaw: Option<Flaw>,
    pub seen: Seen,
}

impl Admission {
    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn offers_of(&self, mask: u8) -> Vec<Offer> {
        bits(mask).map(|at| self.offers[at]).collect()
    }

    fn note_called(&self, called: &Called) {
        called.entries.iter().for_each(|entry| self.seen.note_entry(entry));
        called.verdicts.iter().for_each(|verdict| self.seen.note_verdict(*verdict));
    }

    fn execute(&self, state: &mut State, at: usize, later: bool) {
        let mut call = state.calls.remove(at);
        let offers = self.offers_of(call.mask);
        if state.store.is_idle_tomb() {
            self.seen.note(Thing::Waking);
        }
        if state.store.predict(&sorted(&offers), &self.policy).is_some() {
            self.seen.note(Thing::FastPath);
        }
        let apply = !self.is(Flaw::AdvanceBeforeAppend);
        let called = state.store.admit(&offers, later, &self.policy, apply);
        self.note_called(&called);
        let answer = self.answer(call.mask, &called);
        let changes = *state.store != called.node;
        state.store = Arc::new(called.node);
        if !apply {
            call.stage = Stage::Decided { entries: called.entries, answer };
            state.put(call);
        } else if call.is_awaited {
            let is_silent = self.is(Flaw::SilentDuplicate) && !changes;
            let is_hasty = is_silent || self.is(Flaw::AckBeforeReplica);
            let is_durable = !self.waits || state.replica.is_none() || is_hasty;
            call.stage = Stage::Answered { answer, is_durable };
            state.put(call);
        }
    }

    fn answer(&self, mask: u8, called: &Called) -> Answer {
        let mut order: Vec<usize> = bits(mask).collect();
        order.sort_by_key(|at| (self.offers[*at].epoch, self.offers[*at].sequence));
        let (mut accepted, mut rejected) = (0, 0);
        for (at, verdict) in order.into_iter().zip(&called.verdicts) {
            match verdict {
                Verdict::Released { .. }
                | Verdict::Parked { .. }
                | Verdict::Passed { .. }
                | Verdict::Duplicate { .. }
                | Verdict::Late { .. } => accepted |= 1 << at,
                // The entity has ended: whatever else it had to say is over.
                Verdict::Conflict | Verdict::Stale { .. } | Verdict::Retired { .. } => rejected |= 1 << at,
                Verdict::Refused(_) | Verdict::Again => {}
            }
        }
        Answer { accepted, rejected, is_draining: called.node.rules.is_draining() }
    }

    fn receive(&self, state: &mut State, at: usize) {
        let call = state.calls.remove(at);
        let Stage::Answered { answer, .. } = call.stage else { unreachable!("only an answer is received") };
        for at in bits(answer.accepted) {
            let place = if state.store.has(&self.offers[at]) { &mut state.accepted } else { &mut state.lost };
            *place |= 1 << at;
        }
        state.todo |= call.mask & !(answer.accepted | answer.rejected);
        state.owes_drain |= answer.is_draining && self.is(Flaw::SecondCallDrains);
    }

    fn fail_over(&self, state: &mut State) {
        state.store = state.replica.clone().expect("there is a replica");
        state.failovers -= 1;
        if state.failovers == 0 {
            state.replica = None;
        }
        let is_gone = |at: &usize| !state.store.has(&self.offers[*at]);
        let lost: u8 = bits(state.accepted).filter(is_gone).fold(0, |mask, at| mask | 1 << at);
        (state.accepted, state.lost) = (state.accepted & !lost, state.lost | lost);
        for call in std::mem::take(&mut state.calls) {
            match call.stage {
                // Its connection ends before the replica has it.
                Stage::Answered { is_durable: false, .. } => state.todo |= call.mask,
                Stage::Answered { answer, .. } => {
                    let stage = Stage::Answered { answer, is_durable: true };
                    state.put(Call { stage, ..call });
                }
                Stage::Asked | Stage::Decided { .. } => state.put(call),
            }
        }
        self.seen.note(Thing::FailedOver);
        if lost != 0 {
            self.seen.note(Thing::AckLost);
        }
    }

    fn replicate(&self, state: &mut State) {
        state.replica = Some(state.store.clone());
        for call in &mut state.calls {
            if let Stage::Answered { is_durable, .. } = &mut call.stage {
                *is_durable = true;
            }
        }
        state.calls.sort();
    }

    /// Somebody gives up the gap that he saw, or what is there instead.
    fn skip(&self, state: &mut State) {
        let (epoch, next) = state.view.take().expect("somebody looked");
        let (mut of, mut at) = (epoch, next);
        if self.is(Flaw::SkipFromView)
            && let Some(lane) = state.store.lane()
        {
            (of, at) = (small(lane.epoch.get()), small(lane.next.get()));
        }
        let called = state.store.skip(of, at, &self.policy);
        self.note_called(&called);
        if called.entries.is_empty() {
            self.seen.note(Thing::StaleView);
        }
        let mut node = called.node;
        for entry in &called.entries {
            if let Entry::Gap { epoch: of, from, .. } = entry {
                node.judge.expect((*of, *from) == (epoch, next), EARLY);
            }
        }
        state.store = Arc::new(node);
    }

    fn is_gap_seen(&self, state: &State) -> Option<(u8, u8)> {
        let lane = state.store.lane()?;
        lane.wait?.gap?;
        Some((small(lane.epoch.get()), small(lane.next.get())))
    }

    fn sweep(&self, state: &mut State) {
        let (node, retired, forgotten) = state.store.sweep(&self.policy);
        if retired > 0 {
            self.seen.note(Thing::Sweeping);
        }
        if forgotten > 0 {
            self.seen.note(Thing::Forgetting);
            // What is not remembered begins anew, and answers of the former life are history.
            if !node.is_remembered() {
                state.accepted = 0;
                for call in &mut state.calls {
                    if let Stage::Answered { answer, .. } = &mut call.stage {
                        (answer.rejected, answer.accepted) = (answer.rejected | answer.accepted, 0);
                    }
                }
                state.calls.sort();
            }
        }
        state.store = Arc::new(node);
    }

    /// What is wrong with the state as a whole.
    fn judge(&self, state: &mut State) {
        let is_kept = bits(state.accepted).all(|at| state.store.has(&self.offers[at]));
        let may_lose = self.failovers > 0 && !self.waits;
        let has_parked = state.store.rules.parked().0 > 0;
        let is_polled = !self.is(Flaw::SecondCallDrains);
        let is_at_rest = state.calls.is_empty()
            && state.todo == 0
            && !state.owes_drain
            && !(is_polled && state.store.is_awaited());
        for (holds, fault) in
            [(is_kept, KEPT), (state.lost == 0 || may_lose, LOST), (!is_at_rest || !has_parked, STUCK)]
        {
            if !holds {
                state.broken |= fault;
            }
        }
    }
}

fn sorted(offers: &[Offer]) -> Vec<Offer> {
    let mut offers = offers.to_vec();
    offers.sort_by_key(|offer| (offer.epoch, offer.sequence));
    offers
}

fn holds<const FAULT: Faults>(_: &Admission, state: &State) -> bool {
    state.faults_found() & FAULT == 0
}

impl Model for Admission {
    type State = State;
    type Action = Act;

    fn init_states(&self) -> Vec<State> {
        let store = Arc::new(Node::new(&self.policy));
        vec![State {
            replica: (self.failovers > 0).then(|| store.clone()),
            store,
            calls: Vec::new(),
            todo: u8::try_from((1_u32 << self.offers.len()) - 1).expect("there are few"),
            accepted: 0,
            lost: 0,
            faults: self.faults,
            resends: self.resends,
            failovers: self.failovers,
            looks: self.looks,
            modes: self.modes,
            view: None,
            owes_drain: false,
            broken: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Act>) {
        // What is broken is found: nothing follows. Only what is broken at once, and by design,
        // has to go on.
        if state.faults_found() != 0 && !self.is(Flaw::AdvanceBeforeAppend) {
            return;
        }
        if state.awaited() < self.sidecars && state.calls.len() < self.calls_max {
            let masks = (1..1_u32 << self.offers.len()).map(|mask| mask as u8);
            let fits = |mask: &u8| mask.count_ones() <= self.batch_max;
            let in_flight =
                state.calls.iter().filter(|call| call.is_awaited).fold(0, |mask, call| mask | call.mask);
            actions.extend(masks.filter(fits).filter_map(|mask| {
                let is_new = mask & !state.todo == 0;
                let is_again =
                    mask.is_power_of_two() && state.resends > 0 && mask & (state.todo | in_flight) == 0;
                (is_new || is_again).then_some(Act::Publish(mask))
            }));
        }
        for (at, call) in state.calls.iter().enumerate() {
            if at > 0 && state.calls[at - 1] == *call {
                continue;
            }
            match &call.stage {
                Stage::Asked => {
                    actions.push(Act::Execute(at, false));
                    if self.time_in_calls {
                        actions.push(Act::Execute(at, true));
                    }
                    if call.is_awaited && state.faults > 0 {
                        actions.extend([Act::Lose(at), Act::GiveUp(at)]);
                    }
                }
                Stage::Decided { .. } => {
                    actions.push(Act::Write(at));
                    if state.faults > 0 {
                        actions.push(Act::Lose(at));
                    }
                }
                Stage::Answered { is_durable, .. } => {
                    if *is_durable {
                        actions.push(Act::Receive(at));
                    }
                    if state.faults > 0 {
                        actions.push(Act::Lose(at));
                    }
                }
            }
        }
        if !self.is(Flaw::SecondCallDrains) && state.store.is_awaited() {
            actions.push(Act::Elapse);
        }
        let knows = !self.is(Flaw::SecondCallDrains) || state.owes_drain;
        if state.store.rules.is_draining() && knows {
            actions.push(Act::GoOn);
            if state.owes_drain && state.faults > 0 {
                // Whoever knew of it crashes.
                actions.push(Act::Lose(usize::MAX));
            }
        }
        // Looks at the time come more often than looks at what is old.
        if self.sweeps && state.store.is_remembered() && !state.store.is_overdue() {
            actions.push(Act::Sweep);
        }
        if let Some(replica) = &state.replica {
            let is_waited_for = |call: &Call| matches!(call.stage, Stage::Answered { is_durable: false, .. });
            if *replica != state.store || state.calls.iter().any(is_waited_for) {
                actions.push(Act::Replicate);
            }
            actions.push(Act::Failover);
        }
        match state.view {
            Some(_) => actions.extend([Act::Skip, Act::Extend]),
            None if state.looks > 0 && self.is_gap_seen(state).is_some() => actions.push(Act::Look),
            None => {}
        }
        if state.modes > 0 {
            actions.push(Act::Degrade(!state.store.rules.is_degraded()));
        }
    }

    fn next_state(&self, state: &State, action: Act) -> Option<State> {
        let mut state = state.clone();
        match action {
            Act::Publish(mask) => {
                if mask & !state.todo != 0 {
                    state.resends -= 1;
                }
                state.todo &= !mask;
                state.put(Call { is_awaited: true, mask, stage: Stage::Asked });
            }
            Act::Execute(at, later) => self.execute(&mut state, at, later),
            Act::Write(at) => {
                let mut call = state.calls.remove(at);
                let Stage::Decided { entries, answer } = call.stage else { unreachable!("it was decided") };
                let mut node = (*state.store).clone();
                node.apply(&entries, &self.policy);
                state.store = Arc::new(node);
                if call.is_awaited {
                    call.stage = Stage::Answered { answer, is_durable: true };
                    state.put(call);
                }
            }
            Act::Receive(at) => self.receive(&mut state, at),
            Act::Lose(usize::MAX) => {
                (state.owes_drain, state.faults) = (false, state.faults - 1);
            }
            Act::Lose(at) => {
                let call = state.calls.remove(at);
                state.todo |= call.mask;
                state.faults -= 1;
            }
            Act::GiveUp(at) => {
                let call = state.calls.remove(at);
                state.todo |= call.mask;
                state.faults -= 1;
                state.put(Call { is_awaited: false, ..call });
            }
            Act::Elapse => {
                let called = state.store.elapse(&self.policy);
                self.note_called(&called);
                state.store = Arc::new(called.node);
            }
            Act::GoOn => {
                let called = state.store.admit(&[], false, &self.policy, true);
                self.seen.note(Thing::FurtherDrain);
                state.owes_drain &= called.node.rules.is_draining();
                state.store = Arc::new(called.node);
            }
            Act::Sweep => self.sweep(&mut state),
            Act::Replicate => self.replicate(&mut state),
            Act::Failover => self.fail_over(&mut state),
            Act::Look => {
                state.view = self.is_gap_seen(&state);
                state.looks -= 1;
            }
            Act::Skip => self.skip(&mut state),
            Act::Extend => {
                let (epoch, next) = state.view.take().expect("somebody looked");
                state.store = Arc::new(state.store.extend(epoch, next, &self.policy).node);
            }
            Act::Degrade(degraded) => {
                let called = state.store.set_degraded(degraded, &self.policy);
                self.note_called(&called);
                state.store = Arc::new(called.node);
                state.modes -= 1;
            }
        }
        self.judge(&mut state);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("entries of an epoch ascend", holds::<ORDER>),
            Property::always("a hole has exactly its marker", holds::<HOLE>),
            Property::always("no number is written twice", holds::<TWICE>),
            Property::always("next follows what is written", holds::<NEXT>),
            Property::always("whose turn has come is not left parked", holds::<TURN>),
            Property::always("what is parked is indexed and not written", holds::<PARKED>),
            Property::always("epochs never fall", holds::<EPOCH>),
            Property::always("late is what was given up, once", holds::<LATE>),
            Property::always("degraded spans are bracketed", holds::<EDGE>),
            Property::always("an answer says what happened", holds::<REPLY>),
            Property::always("no gap is given up before its time", holds::<EARLY>),
            Property::always("the fast path says what the rules say", holds::<FAST>),
            Property::always("a look leaves nothing overdue", holds::<DUE>),
            Property::always("what was acknowledged is there", holds::<KEPT>),
            Property::always("nothing acknowledged is lost", holds::<LOST>),
            Property::always("at rest nothing waits", holds::<STUCK>),
        ]
    }
}
