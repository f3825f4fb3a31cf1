//! Lanes that wait, as this store has left them, with the events that are parked there: so that neither has to be read
//! when more comes, or their turn does. Where there are too many, one that depends on nothing but chance makes room: most
//! of the others are still here when they are needed.

use std::collections::HashMap;

use bytes::Bytes;

use crate::{
    order::{Entity, LaneState, Position, Ranges, Sequence},
    store::Offer,
};

/// How much the partitions of a topic keep together, where so much is parked.
const BYTES_OF_TOPIC: usize = 64 << 20;
/// Of a linear congruential generator.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
/// A lane in which more is parked is not kept: it would be gone through with each event.
const EVENTS_MAX: usize = 256;
/// Of a lane whose events may be somebody else's.
const UNCERTAIN: u64 = u64::MAX;
/// Of a lane, beside its events.
const LANE_BYTES: usize = 512;

pub struct Waiting {
    lanes: HashMap<Entity, WaitingLane>,
    /// All of them, by their numbers; some do not wait any more.
    places: Vec<(u64, Entity)>,
    begun: u64,
    chance: u64,
    bytes: usize,
    bytes_max: usize,
}

pub struct WaitingLane {
    number: u64,
    pub state: LaneState,
    /// All that is parked there, by sequence.
    events: Vec<(Sequence, Offer)>,
    size: usize,
    /// How often certainty had been lost when the first of them was parked.
    losses: u64,
    /// Something is about to become of it, and has not been told yet.
    is_doubted: bool,
}

impl WaitingLane {
    /// So many events that are parked directly behind the one that is missing.
    pub fn behind(&self, events: u64) -> impl Iterator<Item = &Offer> {
        self.events.iter().map(|(_, offer)| offer).take(events as usize)
    }

    /// Are these events what is parked there, as long as certainty was lost so often only?
    pub fn is_certain(&self, losses: u64) -> bool {
        self.losses == losses && !self.is_doubted
    }

    /// Those of other epochs are parked no longer.
    fn insert(&mut self, offer: &Offer) {
        let Position::Given(sequence) = offer.event.position else { return };
        if offer.event.epoch != self.state.epoch {
            return;
        }
        match self.events.binary_search_by_key(&sequence, |(sequence, _)| *sequence) {
            Ok(at) => self.events[at].1 = kept(offer),
            Err(at) => self.events.insert(at, (sequence, kept(offer))),
        }
    }

    fn is_whole(&self) -> bool {
        if self.events.len() > EVENTS_MAX {
            return false;
        }
        let found: Ranges = self.events.iter().map(|(sequence, _)| *sequence).collect();
        self.state.parked.as_ref().is_some_and(|parked| parked.sequences == found)
    }
}

impl Waiting {
    /// Of one of so many partitions.
    pub fn new(partitions: u32) -> Self {
        let bytes_max = BYTES_OF_TOPIC / partitions.max(1) as usize;
        Waiting { lanes: HashMap::new(), places: Vec::new(), begun: 0, chance: 0, bytes: 0, bytes_max }
    }

    pub fn get(&self, entity: &Entity) -> Option<&WaitingLane> {
        self.lanes.get(entity)
    }

    /// The lane is like this now, and these were parked lately. It is kept if all that is parked there is here; what was
    /// not certain does not become so.
    pub fn set(&mut self, entity: &Entity, state: LaneState, parked: &[&Offer], losses: u64) {
        if !self.lanes.contains_key(entity) {
            let (number, state, events) = (self.begun, state.clone(), Vec::new());
            let lane = WaitingLane { number, state, events, size: 0, losses, is_doubted: false };
            self.lanes.insert(entity.clone(), lane);
            self.places.push((self.begun, entity.clone()));
            self.begun += 1;
        }
        let lane = self.lanes.get_mut(entity).expect("it is here now");
        self.bytes -= lane.size;
        lane.events.retain(|(sequence, offer)| *sequence >= state.next && offer.event.epoch == state.epoch);
        lane.losses = if lane.is_certain(losses) { losses } else { UNCERTAIN };
        lane.state = state;
        for offer in parked {
            lane.insert(offer);
        }
        lane.size = LANE_BYTES + lane.events.iter().map(|(_, offer)| offer.size()).sum::<usize>();
        self.bytes += lane.size;
        if !lane.is_whole() {
            self.remove(entity);
        }
        self.make_room();
    }

    fn make_room(&mut self) {
        let is_here = |lanes: &HashMap<_, WaitingLane>, (number, entity): &(u64, Entity)| {
            lanes.get(entity).is_some_and(|lane| lane.number == *number)
        };
        if self.places.len() > 2 * self.lanes.len() {
            self.places.retain(|place| is_here(&self.lanes, place));
        }
        while self.bytes > self.bytes_max {
            self.chance = self.chance.wrapping_mul(MULTIPLIER).wrapping_add(1);
            let at = (self.chance >> 32) as usize % self.places.len();
            let place = self.places.swap_remove(at);
            if is_here(&self.lanes, &place) {
                self.remove(&place.1);
            }
        }
    }

    /// Something is about to become of it. If it was to before, and nobody has told what, nothing there is certain.
    pub fn doubt(&mut self, entity: &Entity) {
        if let Some(lane) = self.lanes.get_mut(entity) {
            lane.losses = if lane.is_doubted { UNCERTAIN } else { lane.losses };
            lane.is_doubted = true;
        }
    }

    /// What became of it was told.
    pub fn believe(&mut self, entity: &Entity) {
        if let Some(lane) = self.lanes.get_mut(entity) {
            lane.is_doubted = false;
        }
    }

    pub fn remove(&mut self, entity: &Entity) {
        if let Some(removed) = self.lanes.remove(entity) {
            self.bytes -= removed.size;
        }
    }
}

/// As it came it would keep all that was read with it from the connection.
fn kept(offer: &Offer) -> Offer {
    let mut kept = offer.clone();
    kept.event.payload.data = Bytes::copy_from_slice(&offer.event.payload.data);
    kept
}

#[cfg(test)]
mod tests {
    use super::{super::tests::offer, *};

    fn entity(name: &str) -> Entity {
        Entity::new(name).unwrap()
    }

    fn set(waiting: &mut Waiting, name: &str, state: &str, parked: &[&Offer]) {
        waiting.set(&entity(name), state.parse().unwrap(), parked, 0);
    }

    fn behind(waiting: &Waiting, name: &str, events: u64) -> Option<Vec<String>> {
        let data = |offer: &Offer| String::from_utf8(offer.event.payload.data.to_vec()).unwrap();
        waiting.get(&entity(name)).map(|lane| lane.behind(events).map(data).collect())
    }

    #[test]
    fn a_lane_is_here_with_all_that_is_parked_or_not_at_all() {
        let mut waiting = Waiting::new(1);
        set(&mut waiting, "a", "1:3;k1,9,5;g1,5,0,1,0,9", &[&offer("a", 5, "five")]);
        set(&mut waiting, "a", "1:3;k2,9,4-5;g1,5,0,1,0,9", &[&offer("a", 4, "four")]);
        assert_eq!(behind(&waiting, "a", 2).unwrap(), ["four", "five"]);
        assert_eq!(behind(&waiting, "b", 2), None);
        // Somebody else has parked 7, and released 4.
        set(&mut waiting, "a", "1:5;k2,9,5,7;g1,5,0,1,0,9", &[]);
        assert_eq!(behind(&waiting, "a", 2), None);
        assert_eq!((waiting.bytes, waiting.lanes.len()), (0, 0));
        // What was released is not here any more.
        set(&mut waiting, "a", "1:3;k2,9,4,7;g1,4,0,1,0,9", &[&offer("a", 4, "4"), &offer("a", 7, "7")]);
        set(&mut waiting, "a", "1:5;k1,9,7;g1,7,0,1,0,9", &[]);
        assert_eq!(behind(&waiting, "a", 2).unwrap(), ["7"]);
        set(&mut waiting, "a", "1:8", &[]);
        assert_eq!((waiting.bytes, waiting.lanes.len()), (0, 0));
        // The same sequence of another epoch is another event.
        set(&mut waiting, "a", "1:3;k1,9,5;g1,5,0,1,0,9", &[&offer("a", 5, "five")]);
        set(&mut waiting, "a", "2:0;k2,9,5,7;g1,5,0,1,0,9", &[]);
        assert_eq!(behind(&waiting, "a", 2), None);
        set(&mut waiting, "a", "2:0;k1,9,5;g1,5,0,1,0,9", &[&offer("a", 5, "five")]);
        assert_eq!(behind(&waiting, "a", 2), None);
        let deep = format!("1:3;k300,9,5-{};g1,5,0,1,0,9", 4 + 300);
        let offers: Vec<Offer> = (5..305).map(|n| offer("a", n, "")).collect();
        set(&mut waiting, "a", &deep, &offers.iter().collect::<Vec<_>>());
        assert_eq!(behind(&waiting, "a", 2), None, "too many to be gone through with each");
    }

    #[test]
    fn what_is_doubted_is_here_and_not_certain() {
        let mut waiting = Waiting::new(1);
        set(&mut waiting, "a", "1:3;k1,9,5;g1,5,0,1,0,9", &[&offer("a", 5, "five")]);
        waiting.doubt(&entity("a"));
        waiting.doubt(&entity("b"));
        let is_certain = |waiting: &Waiting| waiting.get(&entity("a")).unwrap().is_certain(0);
        assert!(!is_certain(&waiting));
        waiting.believe(&entity("a"));
        assert!(is_certain(&waiting));
        // Nobody was told what became of it the first time.
        waiting.doubt(&entity("a"));
        waiting.doubt(&entity("a"));
        waiting.believe(&entity("a"));
        assert!(!is_certain(&waiting));
        set(&mut waiting, "a", "1:3;k2,9,5,7;g1,5,0,1,1,9", &[&offer("a", 7, "seven")]);
        assert!(!is_certain(&waiting), "what it was before is not known");
    }

    #[test]
    fn there_is_room_for_some_and_most_of_those_stay() {
        let mut waiting = Waiting::new(1);
        let data = "x".repeat(BYTES_OF_TOPIC / 1000);
        let wait = |waiting: &mut Waiting, n: u64| {
            let name = n.to_string();
            set(waiting, &name, "1:3;k1,9,5;g1,5,0,1,0,9", &[&offer(&name, 5, &data)]);
        };
        (0..1_500).for_each(|n| wait(&mut waiting, n));
        assert!(waiting.bytes <= waiting.bytes_max && waiting.lanes.len() > 900, "{}", waiting.lanes.len());
        let old = (0..750).filter(|n| waiting.get(&entity(&n.to_string())).is_some()).count();
        assert!((300..600).contains(&old), "{old} of the first half");
        // Lanes that come and go take no room.
        (0..1_500).for_each(|n| waiting.remove(&entity(&n.to_string())));
        for n in 0..10_000 {
            wait(&mut waiting, n);
            waiting.remove(&entity(&n.to_string()));
            assert!(waiting.places.len() <= 2, "{}", waiting.places.len());
        }
        set(&mut waiting, "a", "1:3;k1,9,5;g1,5,0,1,0,9", &[&offer("a", 5, &"x".repeat(BYTES_OF_TOPIC))]);
        assert_eq!((waiting.bytes, waiting.lanes.len()), (0, 0), "too large to be kept");
    }
}
