//! When the straight way is worth trying: to be barred costs more than is won.

/// Calls in a row that were as expected before entries go straight, at first and at the most.
const CALM_CALLS: u32 = 8;

/// How many more calls must be as expected (what was likely to be in its turn was) until entries go straight. The
/// longer that went well, the fewer.
#[derive(Default)]
pub struct Calm {
    calls: u32,
    went_well: u32,
}

impl Calm {
    /// A call that did not go straight.
    pub fn note(&mut self, is_as_expected: bool) {
        self.calls = if is_as_expected { self.calls.saturating_add(1) } else { 0 };
    }

    pub fn went_straight(&mut self) {
        self.went_well = (self.went_well + 1).min(CALM_CALLS - 1);
    }

    /// It was barred.
    pub fn end(&mut self) {
        *self = Calm { calls: 0, went_well: self.went_well / 2 };
    }

    pub fn is_long_enough(&self) -> bool {
        self.calls + self.went_well >= CALM_CALLS
    }
}
