//! The clock that deadlines are counted on: it lives in the partition.
//!
//! It moves by at most two ticks between two looks at the wall clock, and never back.
//! So a wall clock that is set, a host that was suspended or an outage in which nobody
//! was there to deliver makes no gap expire: such time does not count.

/// How often somebody should look, in milliseconds.
pub const TICK_MS: u64 = 250;

/// The most that one look can add.
pub const ADVANCE_MAX_MS: u64 = 2 * TICK_MS;

/// A look within this time after the last one that did something does nothing.
pub const ELAPSE_MIN_MS: u64 = TICK_MS / 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionClock {
    /// Milliseconds that counted so far.
    pub now: u64,
    /// What the wall clock said at the last look.
    pub last: u64,
}

impl PartitionClock {
    pub fn advance(&mut self, wall: u64) -> u64 {
        self.now += wall.saturating_sub(self.last).min(ADVANCE_MAX_MS);
        self.last = wall;
        self.now
    }
}

/// The clock of one call: it advances when first asked, or not at all. A batch that is
/// all in order needs no time, and takes none.
#[derive(Debug)]
pub(super) struct CallClock<'a> {
    clock: &'a mut PartitionClock,
    wall: u64,
    asked: bool,
}

impl<'a> CallClock<'a> {
    pub fn new(clock: &'a mut PartitionClock, wall: u64) -> Self {
        CallClock { clock, wall, asked: false }
    }

    pub fn now(&mut self) -> u64 {
        if !std::mem::replace(&mut self.asked, true) {
            self.clock.advance(self.wall);
        }
        self.clock.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_the_wall_clock_do_not_count() {
        let mut clock = PartitionClock { now: 0, last: 1_000 };
        assert_eq!(clock.advance(1_200), 200);
        assert_eq!(clock.advance(1_200 + 3_600_000), 700, "an hour forward counts two ticks");
        assert_eq!(clock.advance(1_300), 700, "an hour back counts nothing");
        assert_eq!(clock.advance(1_400), 800, "and then it goes on");
    }
}
