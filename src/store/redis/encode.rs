//! A batch as the arguments of `admit`; they are described in `scripts/admit_predict.lua`,
//! `admit_rows.lua` and `admit_pairs.lua`.

use std::fmt::Write;

use ::redis::Cmd;

use super::{Opened, script};
use crate::{
    order::{Mode, Policy, Position},
    store::{
        LaneOffers, Layout, Offer,
        field::{self, push_number},
        lanes,
    },
};

/// No lane's state: sends a batch down the slow path.
const UNPREDICTABLE: &str = "!";

/// A call for these events, behind so many that the same transaction appends.
pub fn admit(opened: &Opened, offers: &[Offer], written: usize) -> Cmd {
    let Opened { keys, header, channel, topic, .. } = opened;
    let columns = Columns::of(offers, written, &topic.policy);
    let script = script::admit(topic.layout);
    let mut call = script.call(&keys.of_admit(), 7 + columns.args() + 7 * offers.len(), bytes_of(offers));
    call.arg(header).arg(channel).arg(columns.lanes).arg(offers.len()).arg(columns.firsts).arg(written);
    columns.add_to(&mut call);
    match topic.layout {
        Layout::Entry => offers.iter().for_each(|offer| add_row(&mut call, offer)),
        Layout::Batch => {
            add_pairs(&mut call, offers, &topic.policy);
            // Types that are terminal by our policy need not be by the one in force.
            let tag = |offer: &Offer| if offer.event.terminal { 't' } else { '-' };
            call.arg(offers.iter().map(tag).collect::<String>());
        }
    }
    call
}

/// About as many bytes as the events and what is said of their lanes take.
pub fn bytes_of(offers: &[Offer]) -> usize {
    offers.iter().map(|offer| offer.size() + 64).sum()
}

/// What is predicted of a call's lanes, as scripts take it.
pub struct Columns<'a> {
    offers: &'a [Offer],
    policy: &'a Policy,
    /// What a fast path appends is not counted, so it must not exceed the bound.
    fits: bool,
    pub lanes: usize,
    /// Lanes that begin with it.
    pub firsts: usize,
}

impl<'a> Columns<'a> {
    /// Of these events, where the same transaction appends so many others.
    pub fn of(offers: &'a [Offer], others: usize, policy: &'a Policy) -> Self {
        let fits = (offers.len() + others) as u64 <= policy.append_max;
        let firsts = lanes(offers).filter(|lane| begins(lane, policy)).count();
        Columns { offers, policy, fits, lanes: lanes(offers).count(), firsts }
    }

    /// How many arguments they are.
    pub fn args(&self) -> usize {
        4 * self.lanes + self.firsts
    }

    /// The entities whose lanes begin.
    pub fn beginning(&self) -> impl Iterator<Item = &'a str> {
        let policy = self.policy;
        lanes(self.offers).filter(move |lane| begins(lane, policy)).map(|lane| lane[0].entity.as_str())
    }

    /// The entities whose lanes go on.
    pub fn going_on(&self) -> impl Iterator<Item = &'a str> {
        let policy = self.policy;
        lanes(self.offers).filter(move |lane| !begins(lane, policy)).map(|lane| lane[0].entity.as_str())
    }

    /// The states before of those that go on, with commas between them; nothing if some lane cannot be predicted.
    pub fn joined(&self) -> Option<String> {
        let (mut joined, mut state) = (String::new(), String::new());
        for lane in lanes(self.offers) {
            write_before(&mut state, lane, self.policy, self.fits);
            if state == UNPREDICTABLE {
                return None;
            }
            if !state.is_empty() {
                joined.push_str(if joined.is_empty() { "" } else { "," });
                joined.push_str(&state);
            }
        }
        Some(joined)
    }

    /// Pairs of an entity and its state after.
    pub fn add_after(&self, call: &mut Cmd) {
        let mut state = String::new();
        for lane in lanes(self.offers) {
            write_after(&mut state, lane, self.policy);
            call.arg(lane[0].entity.as_str()).arg(state.as_str());
        }
    }

    fn add_to(&self, call: &mut Cmd) {
        let mut state = String::new();
        for lane in lanes(self.offers) {
            call.arg(lane[0].entity.as_str());
        }
        for lane in lanes(self.offers) {
            write_before(&mut state, lane, self.policy, self.fits);
            call.arg(state.as_str());
        }
        self.add_after(call);
        for entity in self.beginning() {
            call.arg(entity);
        }
    }
}

fn begins(lane: &LaneOffers<'_>, policy: &Policy) -> bool {
    lane[0].event.position == Position::Given(policy.first)
}

fn add_row(call: &mut Cmd, offer: &Offer) {
    let event = &offer.event;
    call.arg(offer.entity.as_str()).arg(event.epoch.get());
    match event.position {
        Position::Given(sequence) => call.arg(sequence.get()),
        Position::Assigned { .. } => call.arg(""),
    };
    call.arg(&*event.payload.kind).arg(&*event.payload.attrs).arg(&event.payload.data[..]);
    let tag = if event.terminal { "t" } else { "-" };
    match event.position {
        Position::Given(_) => call.arg(tag),
        Position::Assigned { id } => call.arg(format!("{tag}{id:016x}")),
    };
}

/// Names and values as they will stand in the stream if all is in order.
pub fn add_pairs(call: &mut Cmd, offers: &[Offer], policy: &Policy) {
    let (mut name, mut value) = (String::new(), Vec::new());
    for (index, Offer { entity, event }) in offers.iter().enumerate() {
        field::write_name(&mut name, index, event.epoch, entity.as_str(), |name| match event.position {
            Position::Given(sequence) => {
                push_number(name, sequence.get());
                name.push_str(":strict");
            }
            Position::Assigned { id } => write!(name, ":{id:016x}").expect("a string takes it"),
        });
        field::write_value(&mut value, policy.is_terminal(event), &event.payload);
        call.arg(name.as_str()).arg(&value[..]);
    }
}

/// The state that must be there for the lane to be healthy and its turn to have
/// come; nothing at all before an entity's first event.
fn write_before(state: &mut String, lane: LaneOffers<'_>, policy: &Policy, fits: bool) {
    state.clear();
    match lane[0].event.position {
        Position::Given(first) if fits && is_predictable(lane, policy) => {
            if first == policy.first {
                // A lane that is born in another mode is not for the fast path.
                if policy.mode_of(&lane[0].entity) != Mode::Enforce {
                    state.push_str(UNPREDICTABLE);
                }
            } else {
                push_number(state, lane[0].event.epoch.get());
                state.push(':');
                push_number(state, first.get());
            }
        }
        Position::Given(_) | Position::Assigned { .. } => state.push_str(UNPREDICTABLE),
    }
}

/// The state that the lane's last event leaves behind. Used only if the one before
/// was as predicted.
fn write_after(state: &mut String, lane: LaneOffers<'_>, policy: &Policy) {
    state.clear();
    let last = &lane[lane.len() - 1].event;
    if let Position::Given(sequence) = last.position {
        push_number(state, last.epoch.get());
        state.push(':');
        push_number(state, sequence.after().get());
        state.push_str(if policy.is_terminal(last) { "c" } else { "" });
    }
}

/// One epoch, contiguous, at most the last one terminal.
fn is_predictable(lane: LaneOffers<'_>, policy: &Policy) -> bool {
    policy.lifecycle.is_none()
        && lane.windows(2).all(|pair| {
            let (one, other) = (&pair[0].event, &pair[1].event);
            let follows = match (one.position, other.position) {
                (Position::Given(one), Position::Given(other)) => one.after() == other,
                (Position::Given(_) | Position::Assigned { .. }, _) => false,
            };
            follows && one.epoch == other.epoch && !policy.is_terminal(one)
        })
}
