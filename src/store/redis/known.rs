//! What a store knows by heart of one partition: where lanes are that it moved itself, and what waits there.
//!
//! Every lane that goes on would have to be read, only to find what was written the last time. So each call that goes
//! straight leaves a token in the partition (`scripts/straight.lua`), another one each time, and whoever else moves
//! lanes removes it. Where it is found again, nothing has moved since, and what is known here is so: Redis decides that,
//! in the step that writes. Two sidecars that share a partition take each other's tokens away; then neither relies on
//! what it knows until it has been alone for some calls, and all lanes are read as if there were nothing here.
//!
//! Nothing is owned by it: it may be forgotten at any moment, and costs only time then. It is bounded, whatever is alive.

mod lanes;
mod waiting;

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
};

use self::{
    lanes::Lanes,
    waiting::{Waiting, WaitingLane},
};
use crate::{
    order::{Entity, Epoch, LaneState, Position, Sequence, Verdict, foresee},
    store::{Decision, Offer, lanes},
};

/// Calls in a row that found the token of the one before, until something may rest on it.
const ALONE_CALLS: u32 = 8;

/// Tokens, each of which is left once: this process's number, then theirs.
pub struct Tokens {
    process: u64,
    left: AtomicU64,
}

impl Tokens {
    /// `process` should differ between processes.
    pub fn new(process: u64) -> Self {
        Tokens { process, left: AtomicU64::new(0) }
    }

    /// Digits, always as many, so that one takes the place of another.
    pub fn draw(&self) -> String {
        format!("{:020}{:020}", self.process, self.left.fetch_add(1, Ordering::Relaxed))
    }
}

pub struct Known {
    /// The one that was left last; empty if there is none that could be found.
    token: String,
    alone_calls: u32,
    lanes: Lanes,
    /// Those that wait; some may not be certain any more.
    waiting: Waiting,
    /// How often certainty was lost.
    losses: u64,
    /// Calls until entities are expected again to begin with what comes too early.
    begun_calls: u32,
}

/// For so many calls no entity is expected to begin with what comes too early, once one did not.
const BEGUN_CALLS: u32 = 64;

impl Known {
    /// Of one of so many partitions. `key` keeps others from finding entities that are taken for each other.
    pub fn new(key: u64, partitions: u32) -> Self {
        Known {
            token: String::new(),
            alone_calls: 0,
            lanes: Lanes::new(key, partitions),
            waiting: Waiting::new(partitions),
            losses: 0,
            begun_calls: 0,
        }
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// May a call rest on it? At once, where it is tested.
    pub fn is_of_use(&self, at_once: bool) -> bool {
        !self.token.is_empty() && (at_once || self.alone_calls >= ALONE_CALLS)
    }

    /// Where an entity's lane is, if it is known: nothing is parked or missing there.
    pub fn place_of(&self, entity: &str) -> Option<(Epoch, Sequence)> {
        self.lanes.get(entity)
    }

    /// An entity's lane, as far as it is known to wait; and whether that is certain, as long as the token is there.
    pub fn waiting(&self, entity: &Entity) -> Option<(&WaitingLane, bool)> {
        self.waiting.get(entity).map(|lane| (lane, lane.is_certain(self.losses)))
    }

    /// Is an entity that is not known taken to be new? Where more are alive than can be known, that is seldom so.
    pub fn may_begin(&self) -> bool {
        self.begun_calls == 0
    }

    /// One was not new, perhaps.
    pub fn expect_no_beginnings(&mut self) {
        self.begun_calls = BEGUN_CALLS;
    }

    /// A call has left this token, and found the one before it or not.
    pub fn leave(&mut self, token: String, found: bool) {
        self.begun_calls = self.begun_calls.saturating_sub(1);
        if found {
            self.alone_calls = self.alone_calls.saturating_add(1);
        } else {
            self.lose();
        }
        self.token = token;
    }

    /// Nothing is certain any more.
    pub fn lose(&mut self) {
        self.token.clear();
        self.alone_calls = 0;
        self.lanes.clear();
        self.losses += 1;
    }

    /// This was released last, and nothing of its entity is parked any more.
    pub fn filled(&mut self, last: &Offer, is_closed: bool) {
        self.waiting.remove(&last.entity);
        self.moved(last, is_closed);
    }

    /// This was released last, and nothing of its entity is parked or missing.
    pub fn moved(&mut self, last: &Offer, is_closed: bool) {
        match last.event.position {
            Position::Given(sequence) if !is_closed => {
                self.lanes.set(last.entity.as_str(), last.event.epoch, sequence.after());
            }
            Position::Given(_) | Position::Assigned { .. } => self.lanes.remove(last.entity.as_str()),
        }
    }

    /// An entity's lane waits like this; these were parked lately.
    pub fn waits(&mut self, entity: &Entity, state: LaneState, parked: &[&Offer]) {
        self.lanes.remove(entity.as_str());
        self.waiting.set(entity, state, parked, self.losses);
    }

    /// Something is about to become of their lanes, and nobody may ever learn what.
    pub fn doubt(&mut self, offers: &[Offer]) {
        for lane in lanes(offers) {
            self.lanes.remove(lane[0].entity.as_str());
            self.waiting.doubt(&lane[0].entity);
        }
    }

    /// What `admit` has decided about them, and in which states it left lanes that wait.
    pub fn learn(&mut self, offers: &[Offer], decisions: &[Decision], states: &HashMap<String, LaneState>) {
        let mut decisions = decisions.iter();
        for lane in lanes(offers) {
            let is_parked = |decision: &Decision| matches!(decision.verdict, Verdict::Parked { .. });
            let decided = lane.iter().zip(decisions.by_ref().take(lane.len()));
            let parked = decided.filter(|(_, decision)| is_parked(decision)).map(|(offer, _)| offer);
            let parked: Vec<&Offer> = parked.collect();
            self.waiting.believe(&lane[0].entity);
            match states.get(lane[0].entity.as_str()) {
                Some(state) if foresee::is_plain(state) => {
                    self.waits(&lane[0].entity, state.clone(), &parked)
                }
                Some(_) | None => self.waiting.remove(&lane[0].entity),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        order::{Entity, Event},
        store::Payload,
    };

    pub(super) fn offer(entity: &str, sequence: u64, data: &str) -> Offer {
        let payload = Payload { kind: "t".into(), attrs: "{}".into(), data: data.to_owned().into() };
        let position = Position::Given(Sequence::new(sequence).unwrap());
        let event = Event { epoch: Epoch::new(1).unwrap(), position, terminal: false, payload };
        Offer { entity: Entity::new(entity).unwrap(), event }
    }

    fn at(known: &Known, entity: &str) -> Option<u64> {
        known.place_of(entity).map(|(_, next)| next.get())
    }

    #[test]
    fn it_is_of_use_once_nobody_else_was_there_for_some_calls() {
        let (tokens, mut known) = (Tokens::new(7), Known::new(7, 16));
        for _ in 0..=ALONE_CALLS {
            assert!(!known.is_of_use(false));
            known.leave(tokens.draw(), !known.token().is_empty());
        }
        assert!(known.is_of_use(false));
        known.moved(&offer("a", 4, ""), false);
        assert_eq!(at(&known, "a"), Some(5));
        // Somebody else was there.
        known.leave(tokens.draw(), false);
        assert_eq!((known.is_of_use(false), at(&known, "a")), (false, None));
        assert!(known.is_of_use(true), "its token is there all the same");
        known.lose();
        assert!(!known.is_of_use(true));
    }

    #[test]
    fn no_token_is_left_twice() {
        let tokens = Tokens::new(u64::MAX);
        let (one, other) = (tokens.draw(), tokens.draw());
        assert_ne!(one, other);
        assert!(
            [one, other].iter().all(|token| token.len() == 40 && token.bytes().all(|b| b.is_ascii_digit()))
        );
    }

    #[test]
    fn lanes_are_known_while_they_only_go_on() {
        let mut known = Known::new(7, 16);
        known.moved(&offer("a", 1, ""), false);
        known.moved(&offer("b", 0, ""), false);
        known.moved(&offer("c", 0, ""), false);
        let state = "1:2;k1,3,3;g1,3,0,1,0,9".parse().unwrap();
        known.waits(&Entity::new("a").unwrap(), state, &[&offer("a", 3, "")]);
        known.moved(&offer("b", 1, ""), true);
        assert_eq!((at(&known, "a"), at(&known, "b"), at(&known, "c")), (None, None, Some(1)));
        known.doubt(&[offer("c", 9, "")]);
        assert_eq!(at(&known, "c"), None);
    }

    #[test]
    fn what_admit_says_of_lanes_that_wait_is_certain_until_something_is_about_to_become_of_them() {
        let mut known = Known::new(7, 16);
        let is_certain =
            |known: &Known, entity: &str| known.waiting(&Entity::new(entity).unwrap()).map(|(_, is)| is);
        let offers = [offer("a", 5, ""), offer("b", 5, ""), offer("c", 5, ""), offer("d", 5, "")];
        let parked = Decision { verdict: Verdict::Parked { depth: 1 }, id: None };
        let states = [
            ("a", "1:3;k1,9,5;g1,5,0,1,0,9"),
            // Something else is parked there, and something is missing.
            ("b", "1:3;k2,9,5,7;g1,5,0,1,0,9"),
            ("c", "1:3;k1,9,5;g1,5,0,1,0,9;m2"),
        ];
        let states = states.map(|(entity, state)| (entity.to_owned(), state.parse().unwrap())).into();
        known.learn(&offers, &[parked; 4], &states);
        let certain = ["a", "b", "c", "d"].map(|entity| is_certain(&known, entity));
        assert_eq!(certain, [Some(true), None, None, None]);
        known.doubt(&offers);
        assert_eq!(is_certain(&known, "a"), Some(false));
        known.learn(&offers, &[parked; 4], &states);
        assert_eq!(is_certain(&known, "a"), Some(true));
        // What was parked before somebody else was there need not be what is parked.
        known.lose();
        assert_eq!(is_certain(&known, "a"), Some(false));
        known.learn(&offers, &[parked; 4], &states);
        assert_eq!(is_certain(&known, "a"), Some(false));
        known.learn(&offers, &[parked; 4], &HashMap::new());
        assert_eq!(is_certain(&known, "a"), None);
    }
}
