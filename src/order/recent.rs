//! The last ids of a lane that numbers by arrival.
//!
//! Such a lane cannot recognise a duplicate by its sequence, so it remembers the
//! digests of its last [`RECENT_MAX`] ids. Every event it released pushed one, hence a
//! remembered id also tells which sequence it got.

use std::collections::VecDeque;

use super::identity::Sequence;

/// How many ids an assigned lane remembers.
pub const RECENT_MAX: usize = 64;

/// Digests of ids, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent(VecDeque<u64>);

impl Recent {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().copied()
    }

    /// The sequence that the event with this id got, in a lane whose next is `next`.
    pub fn find(&self, id: u64, next: Sequence) -> Option<Sequence> {
        let newer = self.0.iter().rev().position(|known| *known == id)? as u64;
        let sequence = next.get().checked_sub(newer + 1).expect("each remembered id took a sequence");
        Some(Sequence::new(sequence).expect("it is below next"))
    }

    pub fn push(&mut self, id: u64) {
        self.0.push_back(id);
        if self.0.len() > RECENT_MAX {
            self.0.pop_front();
        }
    }
}

impl FromIterator<u64> for Recent {
    fn from_iter<I: IntoIterator<Item = u64>>(ids: I) -> Self {
        let mut recent = Recent::default();
        ids.into_iter().for_each(|id| recent.push(id));
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_remembered_with_its_sequence_until_64_newer_ones_came() {
        let mut recent = Recent::default();
        (0..64).for_each(|id| recent.push(id));
        let next = Sequence::new(64).unwrap();
        assert_eq!(recent.find(0, next), Sequence::new(0).ok());
        assert_eq!(recent.find(63, next), Sequence::new(63).ok());
        recent.push(64);
        assert_eq!(recent.find(0, next.after()), None);
        assert_eq!(recent.find(1, next.after()), Sequence::new(1).ok());
    }
}
