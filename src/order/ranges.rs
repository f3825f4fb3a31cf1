//! A set of sequences as sorted, disjoint, inclusive runs.
//!
//! A lane uses it for what was skipped or is missing (rule 11: at most
//! [`Ranges::KEPT_MAX`] runs, more are merged, never dropped) and to tell which
//! sequences are parked. Its text form, `3-5,9`, is part of the lane state that both
//! engines write.

use std::fmt;

use super::identity::Sequence;

/// Sequences `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub first: Sequence,
    pub last: Sequence,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<Range>);

impl Ranges {
    /// How many runs a lane remembers as missing.
    pub const KEPT_MAX: usize = 16;

    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.0.iter().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn first(&self) -> Option<Range> {
        self.0.first().copied()
    }

    pub fn last(&self) -> Option<Range> {
        self.0.last().copied()
    }

    pub fn contains(&self, sequence: Sequence) -> bool {
        self.0.iter().any(|range| range.first <= sequence && sequence <= range.last)
    }

    /// Appends a run that lies above all others; joins it to the last if they touch.
    pub fn push(&mut self, range: Range) {
        debug_assert!(range.first <= range.last, "a run is not empty");
        match self.0.last_mut() {
            Some(top) if top.last.after() == range.first => top.last = range.last,
            top => {
                debug_assert!(top.is_none_or(|top| top.last < range.first), "runs are pushed in order");
                self.0.push(range);
            }
        }
    }

    /// Puts a run in, wherever it lies; joins those that touch.
    pub fn add(&mut self, mut range: Range) {
        let from = self.0.partition_point(|run| run.last.after() < range.first);
        let to = self.0.partition_point(|run| run.first <= range.last.after());
        if from < to {
            range.first = range.first.min(self.0[from].first);
            range.last = range.last.max(self.0[to - 1].last);
        }
        self.0.splice(from..to.max(from), [range]);
    }

    /// Takes one sequence out, splitting its run if it lies inside.
    pub fn remove(&mut self, sequence: Sequence) {
        let Some(at) = self.0.iter().position(|r| r.first <= sequence && sequence <= r.last) else { return };
        let Range { first, last } = self.0.remove(at);
        if sequence < last {
            self.0.insert(at, Range { first: sequence.after(), last });
        }
        if let Some(before) = sequence.before().filter(|before| first <= *before) {
            self.0.insert(at, Range { first, last: before });
        }
    }

    /// The lowest run that reaches `from` or lies above it, without what is below.
    pub fn first_from(&self, from: Sequence) -> Option<Range> {
        let run = self.0.iter().find(|run| run.last >= from)?;
        Some(Range { first: run.first.max(from), last: run.last })
    }

    /// How many sequences lie at `from` or above.
    pub fn count_from(&self, from: Sequence) -> u64 {
        let above = self.0.iter().filter(|run| run.last >= from);
        above.map(|run| run.last.ahead_of(run.first.max(from)) + 1).sum()
    }

    pub fn pop_first(&mut self) -> Option<Range> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    /// Rule 11: joins the two nearest neighbours until few enough are left; of
    /// equally near ones the lowest. The joined run also covers what lay between.
    pub fn merge_down(&mut self) {
        while self.0.len() > Self::KEPT_MAX {
            let distance = |i: &usize| self.0[i + 1].first.ahead_of(self.0[*i].last);
            let at = (0..self.0.len() - 1).min_by_key(distance).expect("more than one run is there");
            self.0[at].last = self.0.remove(at + 1).last;
        }
    }

    /// Reads the text form.
    pub(super) fn parse(text: &str) -> Option<Ranges> {
        let mut ranges = Ranges::default();
        for run in text.split(',') {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let number = |digits: &str| Sequence::new(digits.parse().ok()?).ok();
            let range = Range { first: number(first)?, last: number(last)? };
            if range.first > range.last || ranges.0.last().is_some_and(|top| top.last >= range.first) {
                return None;
            }
            ranges.push(range);
        }
        Some(ranges)
    }
}

impl FromIterator<Sequence> for Ranges {
    /// From ascending sequences.
    fn from_iter<I: IntoIterator<Item = Sequence>>(sequences: I) -> Self {
        let mut ranges = Ranges::default();
        for sequence in sequences {
            ranges.push(Range { first: sequence, last: sequence });
        }
        ranges
    }
}

impl fmt::Display for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Range { first, last }) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> Ranges {
        Ranges::parse(text).expect("the test's text is well formed")
    }

    fn without(text: &str, sequence: u64) -> String {
        let mut set = ranges(text);
        set.remove(Sequence::new(sequence).unwrap());
        set.to_string()
    }

    #[test]
    fn removing_shrinks_splits_or_leaves_a_run() {
        assert_eq!(without("3-5", 3), "4-5");
        assert_eq!(without("3-5", 5), "3-4");
        assert_eq!(without("3-5", 4), "3,5");
        assert_eq!(without("4", 4), "");
        assert_eq!(without("0-2", 0), "1-2");
        assert_eq!(without("3-5,9", 7), "3-5,9");
    }

    #[test]
    fn a_run_is_put_where_it_belongs() {
        let with = |text: &str, run: &str| {
            let mut set = ranges(text);
            set.add(ranges(run).first().unwrap());
            set.to_string()
        };
        assert_eq!(with("3-5,9", "7"), "3-5,7,9");
        assert_eq!(with("3-5,9", "6"), "3-6,9");
        assert_eq!(with("3-5,7", "6"), "3-7");
        assert_eq!(with("3-5,9", "8"), "3-5,8-9");
        assert_eq!(with("3-5", "4"), "3-5");
        assert_eq!(with("3-5", "0"), "0,3-5");
        assert_eq!(with("3-5", "8-9"), "3-5,8-9");
        assert_eq!(with("3-5,9,20", "4-12"), "3-12,20");
        assert_eq!(with("3-5,9,20", "0-30"), "0-30");
    }

    #[test]
    fn touching_runs_join_when_pushed() {
        let set: Ranges = [1, 2, 3, 7, 8, 10].map(|n| Sequence::new(n).unwrap()).into_iter().collect();
        assert_eq!(set.to_string(), "1-3,7-8,10");
    }

    #[test]
    fn the_seventeenth_run_merges_the_nearest_two_and_drops_nothing() {
        let mut set: Ranges = (0..17).map(|n| Sequence::new(n * 10).unwrap()).collect();
        set.remove(Sequence::new(50).unwrap());
        set.push(Range { first: Sequence::new(163).unwrap(), last: Sequence::new(164).unwrap() });
        set.merge_down();
        assert_eq!(set.to_string(), "0,10,20,30,40,60,70,80,90,100,110,120,130,140,150,160-164");
    }

    #[test]
    fn malformed_text_is_no_set() {
        for text in ["", "a", "5-3", "3,3", "3-5,4", "1-", "9007199254740992"] {
            assert_eq!(Ranges::parse(text), None, "{text:?}");
        }
    }
}
