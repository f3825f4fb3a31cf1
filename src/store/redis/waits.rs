//! Lanes that wait, or are about to, on the straight way (`straight.rs`): one event each that is parked, or fills the
//! gap that all others of its lane wait for.

use super::resp::Commands;
use crate::{
    order::{self, Mode, Policy, Position},
    store::{
        Guess, Offer,
        field::{self, push_number},
        keys::PartitionKeys,
        lanes,
    },
};

/// What `scripts/straight_waiting.lua` is told of each.
pub const ARGS: usize = 7;

/// The only event of a lane that waits, or is about to.
pub enum Wait<'a> {
    /// Ahead of its turn: it is parked.
    Ahead(&'a Offer),
    /// It is what the lane waits for, and these are parked behind it.
    Fills(&'a Offer, Vec<Offer>),
}

/// The first of the others, as far as it is foreseeable what becomes of them: so the order stays.
pub fn foreseen<'a>(
    others: &'a [Offer],
    guesses: &[Guess],
    policy: &Policy,
    mut take_behind: impl FnMut(&Offer, u64) -> Option<Vec<Offer>>,
) -> Vec<Wait<'a>> {
    let mut waits = Vec::new();
    let is_end = |offer: &Offer| policy.is_terminal(&offer.event);
    for (lane, guess) in lanes(others).zip(guesses) {
        let [offer] = lane else { break };
        if !matches!(offer.event.position, Position::Given(_)) {
            break;
        }
        waits.push(match guess {
            // Its lane may begin with it.
            Guess::Ahead if policy.mode_of(&offer.entity) == Mode::Enforce => Wait::Ahead(offer),
            Guess::Fills { run } if !is_end(offer) => {
                let Some(behind) = take_behind(offer, *run) else { break };
                if behind.split_last().is_some_and(|(_, before)| before.iter().any(is_end)) {
                    break;
                }
                Wait::Fills(offer, behind)
            }
            Guess::InTurn | Guess::Ahead | Guess::Fills { .. } | Guess::Unclear => break,
        });
    }
    waits
}

impl Wait<'_> {
    pub fn offer(&self) -> &Offer {
        match self {
            Wait::Ahead(offer) | Wait::Fills(offer, _) => offer,
        }
    }

    /// Those that are parked no longer.
    pub fn behind(&self) -> &[Offer] {
        match self {
            Wait::Ahead(_) => &[],
            Wait::Fills(_, behind) => behind,
        }
    }

    /// The events that go into the stream.
    pub fn appended(&self) -> impl Iterator<Item = &Offer> {
        let filled = match self {
            Wait::Ahead(_) => None,
            Wait::Fills(offer, behind) => Some(std::iter::once(*offer).chain(behind)),
        };
        filled.into_iter().flatten()
    }

    /// Adds what `scripts/straight_waiting.lua` has to know of it.
    pub fn add_to(&self, settle: &mut Commands, policy: &Policy) {
        let Offer { entity, event } = self.offer();
        let Position::Given(sequence) = event.position else { unreachable!("it would not be here") };
        let size = |offer: &Offer| order::Payload::size(&offer.event.payload);
        // What only is parked, and does not end its entity, needs to know the first wait only.
        let (what, run, size, waits) = match self {
            Wait::Ahead(offer) if policy.is_terminal(event) => ("t", 0, size(offer), usize::MAX),
            Wait::Ahead(offer) => ("a", 0, size(offer), 1),
            Wait::Fills(_, behind) => ("f", behind.len(), behind.iter().map(size).sum(), usize::MAX),
        };
        settle.arg(what).number(event.epoch.get()).number(sequence.get());
        settle.number(run as u64).number(size);
        let mut joined = String::new();
        for wait in policy.gap_waits_of(entity).take(waits) {
            joined.push_str(if joined.is_empty() { "" } else { ":" });
            push_number(&mut joined, wait);
        }
        settle.arg(if self.closes(policy) { "c" } else { "" }).arg(joined);
    }

    /// Does the last event that it releases end its entity?
    pub fn closes(&self, policy: &Policy) -> bool {
        match self {
            Wait::Ahead(_) => false,
            Wait::Fills(_, behind) => behind.last().is_some_and(|last| policy.is_terminal(&last.event)),
        }
    }
}

/// As `scripts/straight_waiting.lua` takes them.
pub fn limits(policy: &Policy) -> String {
    let Policy { parked_max, parked_bytes_max, ahead_max, .. } = policy;
    let (events, bytes) = (policy.partition_parked_max, policy.partition_parked_bytes_max);
    let (age, terminal) = (policy.parked_age_max, policy.terminal_wait);
    format!("{parked_max},{parked_bytes_max},{events},{bytes},{ahead_max},{age},{terminal}")
}

/// Parks what is ahead, and takes out what is not any more.
pub fn park(commands: &mut Commands, keys: &PartitionKeys, policy: &Policy, waits: &[Wait<'_>]) {
    let ahead =
        || waits.iter().filter_map(|wait| if let Wait::Ahead(offer) = wait { Some(*offer) } else { None });
    let behind = || waits.iter().flat_map(Wait::behind);
    let mut name = String::new();
    if ahead().next().is_some() {
        let park = commands.begin("HSET", 2 + 2 * ahead().count()).arg(&keys.parked);
        let mut value = Vec::new();
        for offer in ahead() {
            write_parked_name(&mut name, offer);
            field::write_value(&mut value, policy.is_terminal(&offer.event), &offer.event.payload);
            park.arg(&name).arg(&value);
        }
    }
    if behind().next().is_some() {
        let take = commands.begin("HDEL", 2 + behind().count()).arg(&keys.parked);
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
