//! Lanes that wait, or are about to, on the straight way (`straight.rs`): one event each that is parked, or fills the
//! gap that all others of its lane wait for. What the rules would make of it is foreseen here, from what is known of
//! the lane, and written by plain commands; `scripts/straight_waiting.lua` adds the time.

use super::{known::Known, resp::Commands};
use crate::{
    order::{self, Behind, Foreseen, LaneState, Mode, Note, Policy, Position, Timing, foresee},
    store::{
        Guess, LaneOffers, Offer,
        field::{self, push_number},
        keys::PartitionKeys,
    },
};

/// What `scripts/straight_waiting.lua` is told of all lanes together, and of each that gets a deadline.
const ARGS: usize = 9;
const ARGS_OF_TIMED: usize = 4;

/// The only event of a lane that waits, or is about to.
pub struct Wait<'a> {
    pub offer: &'a Offer,
    /// Parked events that are released with it, if it is what the lane waits for.
    pub behind: Option<Vec<Offer>>,
    pub foreseen: Foreseen,
    pub premise: Premise,
}

/// What a lane must be like before.
#[derive(PartialEq, Eq)]
pub enum Premise {
    /// There is none.
    Begins,
    /// As it is known to be.
    ByHeart,
    /// In this state.
    Looks(String),
}

/// What becomes of an entity's offers, if that is foreseeable. A lane that waits is always looked at: time moves it, too.
pub fn foresee<'a>(
    lane: LaneOffers<'a>,
    guess: Guess,
    policy: &Policy,
    known: &Known,
    rests: bool,
) -> Option<Wait<'a>> {
    let [offer] = lane else { return None };
    let Offer { entity, event } = offer;
    let Some((waiting, is_certain)) = known.waiting(entity) else {
        let place = rests.then(|| known.place_of(entity.as_str())).flatten();
        let (state, premise) = match (place, guess) {
            (Some((epoch, next)), _) => (LaneState::healthy(epoch, next), Premise::ByHeart),
            (None, Guess::Ahead { next }) => {
                let state = LaneState::healthy(event.epoch, next);
                let text = state.to_string();
                (state, Premise::Looks(text))
            }
            (None, Guess::Begins) if known.may_begin() && policy.mode_of(entity) == Mode::Enforce => {
                (LaneState::healthy(event.epoch, policy.first), Premise::Begins)
            }
            (None, Guess::InTurn | Guess::Begins | Guess::Waits | Guess::Unclear) => return None,
        };
        let foreseen = foresee::park(&state, entity, event, policy)?;
        return Some(Wait { offer, behind: None, foreseen, premise });
    };
    let state = &waiting.state;
    let premise = Premise::Looks(state.to_string());
    if event.position != Position::Given(state.next) {
        let foreseen = foresee::park(state, entity, event, policy)?;
        return Some(Wait { offer, behind: None, foreseen, premise });
    }
    // A state does not tell what the events are that are parked.
    if !(rests && is_certain) {
        return None;
    }
    let behind: Vec<Offer> = waiting.behind(foresee::run_behind(state)).cloned().collect();
    let is_end = |offer: &Offer| policy.is_terminal(&offer.event);
    if behind.split_last().is_some_and(|(_, before)| before.iter().any(is_end)) {
        return None;
    }
    let sizes = Behind {
        events: behind.len() as u64,
        bytes: behind.iter().map(size).sum(),
        ends: behind.last().is_some_and(is_end),
    };
    let foreseen = foresee::fill(state, entity, event, sizes, policy)?;
    Some(Wait { offer, behind: Some(behind), foreseen, premise })
}

fn size(offer: &Offer) -> u64 {
    order::Payload::size(&offer.event.payload)
}

impl Wait<'_> {
    /// Those that are parked no longer.
    fn released(&self) -> &[Offer] {
        self.behind.as_deref().unwrap_or_default()
    }

    /// The event, if it is parked.
    pub fn parked(&self) -> Option<&Offer> {
        self.behind.is_none().then_some(self.offer)
    }

    /// The events that go into the stream.
    pub fn appended(&self) -> impl Iterator<Item = &Offer> {
        let filled = self.behind.as_ref().map(|behind| std::iter::once(self.offer).chain(behind));
        filled.into_iter().flatten()
    }

    /// What the rules would note, at this time.
    pub fn notes(&self, now: u64) -> impl Iterator<Item = Note> {
        let filled = self.foreseen.filled.map(|since| Note::Filled(now.saturating_sub(since)));
        filled.into_iter().chain(self.foreseen.probes.then_some(Note::Probed))
    }

    /// The state that it leaves, where that does not take the time.
    pub fn state(&self) -> Option<&LaneState> {
        let (state, timing) = self.foreseen.state();
        timing.is_none().then_some(state)
    }

    fn timed(&self) -> Option<(&Offer, &LaneState, Timing)> {
        let (state, timing) = self.foreseen.state();
        timing.map(|timing| (self.offer, state, timing))
    }

    /// Is nothing parked any more?
    fn is_over(&self) -> bool {
        self.behind.is_some() && self.foreseen.depth() == 0
    }

    /// What to ask for, in the words of a probe: it is made for terminal events only.
    fn probe(&self) -> Option<[String; 5]> {
        let (state, _) = self.foreseen.state();
        let lowest = state.parked.as_ref().and_then(|parked| parked.sequences.first())?.first;
        let words = || {
            let upto = lowest.get() - 1;
            let Offer { entity, .. } = self.offer;
            [
                entity.to_string(),
                state.epoch.to_string(),
                state.next.to_string(),
                upto.to_string(),
                "0".into(),
            ]
        };
        self.foreseen.probes.then(words)
    }
}

/// How many arguments `settle` adds.
pub fn args(waits: &[Wait<'_>]) -> usize {
    let timed = waits.iter().filter(|wait| wait.timed().is_some()).count();
    let over = waits.iter().filter(|wait| wait.is_over()).count();
    if waits.is_empty() { 0 } else { ARGS + ARGS_OF_TIMED * timed + over }
}

/// Adds what `scripts/straight_waiting.lua` has to know. The rest of the batch may want to be parked as well.
pub fn settle(settle: &mut Commands, policy: &Policy, channel: &str, waits: &[Wait<'_>], rest: &[Offer]) {
    let parked = || waits.iter().filter_map(Wait::parked);
    let bytes = |offers: &mut dyn Iterator<Item = &Offer>| offers.map(size).sum::<u64>();
    settle.number((parked().count() + rest.len()) as u64).number(bytes(&mut parked().chain(rest)));
    let released = bytes(&mut waits.iter().flat_map(Wait::released));
    settle.number(bytes(&mut parked())).number(released);
    settle.number(policy.partition_parked_max).number(policy.partition_parked_bytes_max).arg(channel);
    let probes: Vec<String> = waits.iter().filter_map(Wait::probe).flatten().collect();
    settle.arg(if probes.is_empty() { String::new() } else { serde_json::json!(probes).to_string() });
    let timed = || waits.iter().filter_map(Wait::timed);
    settle.number(timed().count() as u64);
    for (offer, state, timing) in timed() {
        let Timing { wait, end, .. } = timing;
        settle.arg(offer.entity.as_str()).arg(without_time(state, timing)).number(wait).number(end);
    }
    settle.args(waits.iter().filter(|wait| wait.is_over()).map(|wait| wait.offer.entity.as_str()));
}

/// The state without its deadline, which stands last, and marks where the time belongs.
fn without_time(state: &LaneState, timing: Timing) -> String {
    let wait = state.wait.expect("it gets a deadline because it waits");
    let gap = wait.gap.expect("it gets a deadline because there is a gap");
    let at = |is_new: bool, time: u64| if is_new { "@".to_owned() } else { time.to_string() };
    let since = at(timing.starts_age, wait.age.since);
    let opened = at(timing.starts_gap, gap.opened);
    let parked = LaneState { wait: None, ..state.clone() };
    format!("{parked};g{since},{},{},{opened},{},", wait.age.upto, wait.terminals, gap.attempt)
}

/// Parks what is ahead, and takes out what is not any more.
pub fn park(commands: &mut Commands, keys: &PartitionKeys, policy: &Policy, waits: &[Wait<'_>]) {
    let ahead = || waits.iter().filter_map(Wait::parked);
    let behind = || waits.iter().flat_map(Wait::released);
    let mut name = String::new();
    if ahead().next().is_some() {
        let park = commands.begin("HSET", 2 + 2 * ahead().count()).arg(&keys.writable_parked);
        let mut value = Vec::new();
        for offer in ahead() {
            write_parked_name(&mut name, offer);
            field::write_value(&mut value, policy.is_terminal(&offer.event), &offer.event.payload);
            park.arg(&name).arg(&value);
        }
    }
    if behind().next().is_some() {
        let take = commands.begin("HDEL", 2 + behind().count()).arg(&keys.writable_parked);
        for offer in behind() {
            write_parked_name(&mut name, offer);
            take.arg(&name);
        }
    }
}

fn write_parked_name(name: &mut String, Offer { entity, event }: &Offer) {
    let Position::Given(sequence) = event.position else { unreachable!("it would not be here") };
    name.clear();
    push_number(name, event.epoch.get());
    name.push(':');
    push_number(name, sequence.get());
    name.push(':');
    name.push_str(entity.as_str());
}
