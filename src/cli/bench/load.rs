//! What is published: lifecycle events of many entities at once, interleaved.
//!
//! A load has so many live entities, each in a slot. Slots are visited in turn, so that every
//! event of a batch belongs to another entity, which is the worst case; or, with `zipf`, some
//! far more often than others. An entity that had its last event is followed in its slot by a
//! new one. Slots begin at different places in their entities' lives ([`Load::before`] gives
//! what was published before the clock starts), so that at any moment a fourth of the events
//! are first ones and a fourth last ones, however many entities there are.
//!
//! Making an event costs some 50 ns: names are mixed from numbers, data is a slice of one
//! buffer, and what takes long to decide was decided before the clock starts.

use bytes::Bytes;

use crate::random::Random;

/// Bytes of data in each event.
pub const DATA_BYTES: usize = 300;
/// Bytes of an entity's name, which looks like a UUID.
pub const ENTITY_BYTES: usize = 36;
/// Events of an entity, where nothing else is said.
pub const LIFETIME: u64 = 4;
/// An entity that never ends.
pub const ENDLESS: u64 = u64::MAX;
/// A late event comes so many places later within its entity, at most.
pub const LATE_PLACES_MAX: u64 = 8;
/// Data is cut from so many letters.
const LETTERS: usize = 1 << 16;
/// Different orders in which late entities' events come.
const ORDERS: u64 = 4096;
/// Draws of slots that are made in advance, and then made use of again.
const DRAWS: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Entities that are live at a time.
    pub live: u64,
    /// Events of an entity, or [`ENDLESS`].
    pub lifetime: u64,
    /// So many in a hundred events come 1 to [`LATE_PLACES_MAX`] places later.
    pub late_percent: u64,
    /// Slot n is visited in proportion to 1/n; its entities are endless.
    pub zipf: bool,
    pub seed: u64,
}

impl Shape {
    /// Events that a slot has had when the load begins.
    fn begun(&self, slot: u64) -> u64 {
        if self.lifetime == ENDLESS { 0 } else { slot % self.lifetime }
    }
}

/// One event, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    pub slot: u64,
    pub generation: u64,
    pub sequence: u64,
    pub is_last: bool,
}

pub struct Load {
    shape: Shape,
    made: u64,
    letters: Bytes,
    cuts: Random,
    /// Orders in which an entity's events come, if any may be late.
    orders: Vec<Vec<u64>>,
    zipf: Option<Zipf>,
}

struct Zipf {
    draws: Vec<u32>,
    /// Events that each slot has had.
    had: Vec<u64>,
}

impl Load {
    pub fn new(shape: Shape) -> Self {
        let mut random = Random::from_seed(shape.seed);
        let letters: Vec<u8> = (0..LETTERS + DATA_BYTES).map(|_| b'a' + (random.below(26) as u8)).collect();
        let late = |random: &mut Random| order(shape.lifetime, shape.late_percent, random);
        let orders = match shape.late_percent {
            0 => Vec::new(),
            _ => (0..ORDERS).map(|_| late(&mut random)).collect(),
        };
        let zipf = shape.zipf.then(|| Zipf::new(shape.live, &mut random));
        Load { shape, made: 0, letters: letters.into(), cuts: random, orders, zipf }
    }

    /// What was published before: the beginnings of the lives that the load goes on with.
    pub fn before(&self) -> impl Iterator<Item = Made> + use<'_> {
        let begun = |slot: u64| (0..self.shape.begun(slot)).map(move |turn| (slot, turn));
        (0..self.shape.live).flat_map(begun).map(|(slot, turn)| self.event(slot, turn))
    }

    /// The next event.
    pub fn make(&mut self) -> Made {
        let place = self.made;
        self.made += 1;
        if let Some(zipf) = &mut self.zipf {
            let slot = u64::from(zipf.draws[usize::try_from(place).expect("it fits") % zipf.draws.len()]);
            let had = &mut zipf.had[usize::try_from(slot).expect("it is an index")];
            *had += 1;
            let turn = *had - 1;
            return self.event(slot, turn);
        }
        let slot = place % self.shape.live;
        self.event(slot, place / self.shape.live + self.shape.begun(slot))
    }

    /// The event of a slot that comes after `turn` others.
    fn event(&self, slot: u64, turn: u64) -> Made {
        let (generation, place) = (turn / self.shape.lifetime, turn % self.shape.lifetime);
        let sequence = match self.orders.len() as u64 {
            0 => place,
            orders => {
                let chosen = usize::try_from(mixed(slot ^ (generation << 40)) % orders).expect("an index");
                self.orders[chosen][usize::try_from(place).expect("it is an index")]
            }
        };
        Made { slot, generation, sequence, is_last: sequence + 1 == self.shape.lifetime }
    }

    /// The name of an event's entity.
    pub fn entity(&self, made: &Made) -> String {
        let high = mixed(self.shape.seed ^ made.slot.rotate_left(32) ^ made.generation);
        let low = mixed(high ^ made.slot);
        let mut name = *b"00000000-0000-0000-0000-000000000000";
        let digits = name.iter_mut().filter(|byte| **byte != b'-');
        for (nibble, digit) in digits.enumerate() {
            let half = if nibble < 16 { high } else { low };
            *digit = b"0123456789abcdef"[(half >> (4 * (nibble % 16))) as usize & 15];
        }
        String::from_utf8(name.to_vec()).expect("digits and dashes are text")
    }

    /// Data that is different each time, and copied by nobody until it is sent.
    pub fn data(&mut self) -> Bytes {
        let from = usize::try_from(self.cuts.draw() % LETTERS as u64).expect("it is an index");
        self.letters.slice(from..from + DATA_BYTES)
    }

    /// The type of an event.
    pub fn kind(made: &Made) -> &'static str {
        match made {
            Made { sequence: 0, .. } => "provisioning",
            Made { is_last: true, .. } => "completed",
            _ => "running",
        }
    }
}

impl Zipf {
    fn new(slots: u64, random: &mut Random) -> Self {
        let mut sum = 0.0;
        let reached: Vec<f64> = (1..=slots)
            .map(|rank| {
                sum += 1.0 / rank as f64;
                sum
            })
            .collect();
        let unit = |draw: u64| (draw >> 11) as f64 / (1u64 << 53) as f64;
        let draw = |_| {
            let point = unit(random.draw()) * sum;
            reached.partition_point(|reached| *reached < point).min(reached.len() - 1) as u32
        };
        Zipf { draws: (0..DRAWS).map(draw).collect(), had: vec![0; reached.len()] }
    }
}

/// The order in which an entity's events come: some are moved 1 to [`LATE_PLACES_MAX`] places
/// back, behind the one that has that place.
fn order(lifetime: u64, late_percent: u64, random: &mut Random) -> Vec<u64> {
    let mut places: Vec<(u64, bool, u64)> = (0..lifetime)
        .map(|sequence| match random.below(100) < late_percent {
            true => (sequence + 1 + random.below(LATE_PLACES_MAX), true, sequence),
            false => (sequence, false, sequence),
        })
        .collect();
    places.sort_unstable();
    places.into_iter().map(|(_, _, sequence)| sequence).collect()
}

/// SplitMix64's last step.
fn mixed(number: u64) -> u64 {
    Random::from_seed(number).draw()
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    const SHAPE: Shape = Shape { live: 1000, lifetime: 4, late_percent: 0, zipf: false, seed: 7 };

    /// All events of complete lives, by entity and in the order they come.
    fn lives(shape: Shape, events: u64) -> HashMap<(u64, u64), Vec<u64>> {
        let mut load = Load::new(shape);
        let mut lives: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
        let before: Vec<Made> = load.before().collect();
        for made in before.into_iter().chain((0..events).map(|_| load.make())) {
            lives.entry((made.slot, made.generation)).or_default().push(made.sequence);
        }
        lives.retain(|_, sequences| sequences.len() as u64 == shape.lifetime);
        lives
    }

    #[test]
    fn each_entity_lives_from_its_first_to_its_last_event_in_order() {
        let lives = lives(SHAPE, 20_000);
        assert!(lives.len() > 4_000, "{}", lives.len());
        assert!(lives.values().all(|sequences| sequences == &[0, 1, 2, 3]));
    }

    #[test]
    fn any_stretch_has_as_many_first_and_last_events_as_any_other() {
        let mut load = Load::new(SHAPE);
        for _ in 0..20 {
            let stretch: Vec<Made> = (0..100).map(|_| load.make()).collect();
            assert_eq!(stretch.iter().filter(|made| made.sequence == 0).count(), 25);
            assert_eq!(stretch.iter().filter(|made| made.is_last).count(), 25);
            assert_eq!(stretch.iter().map(|made| made.slot).collect::<HashSet<_>>().len(), 100);
        }
    }

    #[test]
    fn late_events_are_as_many_and_as_late_as_they_should_be() {
        for percent in [1, 10, 50] {
            let lives = lives(Shape { lifetime: 16, late_percent: percent, ..SHAPE }, 320_000);
            let (mut late, mut events) = (0, 0);
            for sequences in lives.values() {
                let mut sorted = sequences.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..16).collect::<Vec<_>>(), "nothing is lost or doubled");
                // Late by n: n events with higher numbers came before it.
                for (place, sequence) in sequences.iter().enumerate() {
                    let by = sequences[..place].iter().filter(|other| *other > sequence).count() as u64;
                    assert!(by <= LATE_PLACES_MAX, "{sequences:?}");
                    late += u64::from(by > 0);
                    events += 1;
                }
            }
            // Some that are moved overtake none: their neighbours moved as well, or there are none.
            let share = 100.0 * late as f64 / events as f64;
            assert!(share <= percent as f64 * 1.1 && share >= percent as f64 * 0.6, "{percent}: {share}");
        }
    }

    #[test]
    fn the_hot_entity_has_its_share_and_all_are_numbered_without_a_gap() {
        let mut load = Load::new(Shape { zipf: true, lifetime: ENDLESS, ..SHAPE });
        let mut had = vec![0; 1000];
        for _ in 0..100_000 {
            let made = load.make();
            let had = &mut had[usize::try_from(made.slot).unwrap()];
            assert_eq!((made.sequence, made.is_last), (*had, false));
            *had += 1;
        }
        // 1/H(1000) = 13.4 % go to the first, half of that to the second.
        assert!((12_000..15_000).contains(&had[0]), "{}", had[0]);
        assert!((6_000..7_500).contains(&had[1]), "{}", had[1]);
        assert_eq!(load.before().count(), 0);
    }

    #[test]
    fn names_look_like_uuids_and_differ() {
        let mut load = Load::new(SHAPE);
        let names: HashSet<String> = (0..1000)
            .map(|_| {
                let made = load.make();
                load.entity(&made)
            })
            .collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| name.len() == ENTITY_BYTES && name.split('-').count() == 5));
        let made = load.make();
        assert_eq!(load.entity(&made), load.entity(&made), "an entity keeps its name");
        assert_eq!(load.data().len(), DATA_BYTES);
    }
}
