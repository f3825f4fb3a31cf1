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
pub const UNPREDICTABLE: &str = "!";

/// A call for these events, by a caller that has left this token; behind so many others, if it is part of a
/// transaction that appends them.
pub fn admit(opened: &Opened, offers: &[Offer], written: Option<usize>, token: &str) -> Cmd {
    let Opened { keys, header, channel, topic, .. } = opened;
    let columns = Columns::of(offers, written.unwrap_or(0), &topic.policy);
    let script = script::admit(topic.layout);
    let mut call = script.call(&keys.of_admit(), 8 + columns.args() + 7 * offers.len(), bytes_of(offers));
    call.arg(header).arg(channel).arg(columns.lanes).arg(offers.len()).arg(columns.firsts);
    call.arg(written.map(|written| written.to_string()).unwrap_or_default()).arg(token);
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
fn bytes_of(offers: &[Offer]) -> usize {
    offers.iter().map(bytes_of_one).sum()
}

fn bytes_of_one(offer: &Offer) -> usize {
    offer.size() + 64
}

/// What is predicted of a call's lanes, as `admit` takes it.
struct Columns<'a> {
    offers: &'a [Offer],
    policy: &'a Policy,
    fits: bool,
    lanes: usize,
    /// Lanes that begin with it.
    firsts: usize,
}

impl<'a> Columns<'a> {
    /// Of these events, where the same transaction appends so many others.
    fn of(offers: &'a [Offer], others: usize, policy: &'a Policy) -> Self {
        let firsts = lanes(offers).filter(|lane| begins(lane, policy)).count();
        let fits = fits(offers.len() + others, policy);
        Columns { offers, policy, fits, lanes: lanes(offers).count(), firsts }
    }

    /// How many arguments they are.
    fn args(&self) -> usize {
        4 * self.lanes + self.firsts
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
        for lane in lanes(self.offers) {
            write_after(&mut state, lane, self.policy);
            call.arg(lane[0].entity.as_str()).arg(state.as_str());
        }
        for lane in lanes(self.offers).filter(|lane| begins(lane, self.policy)) {
            call.arg(lane[0].entity.as_str());
        }
    }
}

/// What a fast path appends is not counted, so it must not exceed the bound.
pub fn fits(appends: usize, policy: &Policy) -> bool {
    appends as u64 <= policy.append_max
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
fn add_pairs(call: &mut Cmd, offers: &[Offer], policy: &Policy) {
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
pub fn write_before(state: &mut String, lane: LaneOffers<'_>, policy: &Policy, fits: bool) {
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
pub fn write_after(state: &mut String, lane: LaneOffers<'_>, policy: &Policy) {
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
