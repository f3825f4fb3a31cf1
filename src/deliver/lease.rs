//! Who is alive, and whose a partition is: decided by watching counters.
//!
//! A member and a lease count up while their owner lives. Whoever watches one that has not
//! moved for the lease's time, on its own monotonic clock, may take it. No wall clock is
//! compared with another, and none that is set voids or freezes a lease.

use std::collections::BTreeMap;

use super::assign::desired;
use crate::store::{LeaseSeen, Member};

/// Members that were silent for so many leases are shown out.
const SHOWN_OUT_AFTER: u64 = 10;

/// What to do about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is somebody else's, or nobody's who is us.
    Leave,
    /// It is ours.
    Keep,
    /// It is ours, and should be another's.
    GiveBack,
    /// It should be ours, and nobody living has it.
    Take,
}

#[derive(Clone, Debug)]
pub struct LeaseBook {
    me: String,
    lease_ms: u64,
    members: BTreeMap<String, Watched<u64>>,
    leases: BTreeMap<u32, Watched<(u64, u64)>>,
}

/// A counter, and when it was last seen to move.
#[derive(Clone, Debug)]
struct Watched<T> {
    value: T,
    moved_at: u64,
}

impl<T: PartialEq> Watched<T> {
    /// How long it has not moved.
    fn see(&mut self, value: T, now: u64) -> u64 {
        if self.value != value {
            (self.value, self.moved_at) = (value, now);
        }
        now - self.moved_at
    }
}

impl LeaseBook {
    pub fn new(me: &str, lease_ms: u64) -> Self {
        LeaseBook { me: me.to_owned(), lease_ms, members: BTreeMap::new(), leases: BTreeMap::new() }
    }

    /// Notes who showed up; returns those who are long gone.
    pub fn attended(&mut self, members: &[Member], now: u64) -> Vec<String> {
        self.members.retain(|name, _| members.iter().any(|member| member.name == *name));
        let mut gone = Vec::new();
        for Member { name, count } in members {
            let fresh = || Watched { value: *count, moved_at: now };
            let silent = self.members.entry(name.clone()).or_insert_with(fresh).see(*count, now);
            if silent >= SHOWN_OUT_AFTER * self.lease_ms && *name != self.me {
                gone.push(name.clone());
            }
        }
        gone
    }

    /// Members that live, as far as can be seen; this one does.
    pub fn living(&self, now: u64) -> impl Iterator<Item = &str> {
        let others = self
            .members
            .iter()
            .filter(move |(name, watched)| **name != self.me && now - watched.moved_at < self.lease_ms);
        others.map(|(name, _)| name.as_str()).chain([self.me.as_str()])
    }

    /// The counters of members that it watches, each with how long it was silent.
    pub fn members(&self, now: u64) -> impl Iterator<Item = (&str, u64, u64)> {
        self.members.iter().map(move |(name, seen)| (name.as_str(), seen.value, now - seen.moved_at))
    }

    /// The same of leases: partition, term and count.
    pub fn leases(&self, now: u64) -> impl Iterator<Item = (u32, (u64, u64), u64)> {
        self.leases.iter().map(move |(partition, seen)| (*partition, seen.value, now - seen.moved_at))
    }

    /// What to do about a partition whose lease was just seen. `holds`: we have it, and
    /// know its term.
    pub fn step(&mut self, partition: u32, seen: &LeaseSeen, holds: bool, now: u64) -> Step {
        let value = (seen.term, seen.count);
        let fresh = || Watched { value, moved_at: now };
        let silent = self.leases.entry(partition).or_insert_with(fresh).see(value, now);
        let should_be_ours = |besides: &str| {
            desired(partition, self.living(now).filter(|name| *name != besides)) == Some(&self.me)
        };
        match seen.owner.as_deref() {
            Some(owner) if owner == self.me && holds => {
                if should_be_ours("") {
                    Step::Keep
                } else {
                    Step::GiveBack
                }
            }
            // Taken in a call whose answer was lost.
            Some(owner) if owner == self.me => Step::Take,
            Some(owner) if silent >= self.lease_ms && should_be_ours(owner) => Step::Take,
            None if should_be_ours("") => Step::Take,
            Some(_) | None => Step::Leave,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 1_000;

    fn member(name: &str, count: u64) -> Member {
        Member { name: name.to_owned(), count }
    }

    fn seen(owner: &str, term: u64, count: u64) -> LeaseSeen {
        LeaseSeen { owner: Some(owner.to_owned()).filter(|o| !o.is_empty()), term, count }
    }

    /// A book of `me`, and a partition that should be `me`'s and one that should be `you`'s.
    fn book() -> (LeaseBook, u32, u32) {
        let of = |who: &str| (0..).find(|p| desired(*p, ["me", "you"].into_iter()) == Some(who)).unwrap();
        (LeaseBook::new("me", LEASE), of("me"), of("you"))
    }

    #[test]
    fn what_is_free_goes_to_whom_it_should() {
        let (mut book, mine, yours) = book();
        book.attended(&[member("me", 1), member("you", 1)], 0);
        assert_eq!(book.step(mine, &seen("", 1, 0), false, 0), Step::Take);
        assert_eq!(book.step(yours, &seen("", 1, 0), false, 0), Step::Leave);
    }

    #[test]
    fn a_lease_that_counts_up_is_left_alone_however_long() {
        let (mut book, mine, _) = book();
        for count in 0..100 {
            book.attended(&[member("me", count), member("you", count)], count * 900);
            assert_eq!(book.step(mine, &seen("you", 5, count), false, count * 900), Step::Leave);
        }
    }

    #[test]
    fn a_lease_that_does_not_move_for_its_time_is_taken_not_earlier() {
        let (mut book, mine, yours) = book();
        book.attended(&[member("me", 0), member("you", 0)], 0);
        for partition in [mine, yours] {
            assert_eq!(book.step(partition, &seen("you", 5, 7), false, 100), Step::Leave);
            assert_eq!(book.step(partition, &seen("you", 5, 7), false, 1_099), Step::Leave);
        }
        // Its owner is not asked to take what it does not keep alive, even if it shows up still.
        book.attended(&[member("me", 1), member("you", 1)], 1_099);
        assert_eq!(book.step(yours, &seen("you", 5, 7), false, 1_100), Step::Take);
        assert_eq!(book.step(mine, &seen("you", 5, 7), false, 1_100), Step::Take);
    }

    #[test]
    fn what_should_be_anothers_is_given_back_and_what_a_dead_one_should_have_is_not() {
        let (mut book, _, yours) = book();
        book.attended(&[member("me", 1)], 0);
        assert_eq!(book.step(yours, &seen("me", 5, 0), true, 0), Step::Keep);
        book.attended(&[member("me", 2), member("you", 1)], 100);
        assert_eq!(book.step(yours, &seen("me", 5, 1), true, 100), Step::GiveBack);
        book.attended(&[member("me", 3), member("you", 1)], 1_100);
        assert_eq!(book.step(yours, &seen("me", 5, 2), true, 1_100), Step::Keep);
    }

    #[test]
    fn a_lease_of_ours_that_we_do_not_know_of_is_taken_again() {
        let (mut book, mine, _) = book();
        assert_eq!(book.step(mine, &seen("me", 5, 0), false, 0), Step::Take);
    }

    #[test]
    fn who_is_long_gone_is_shown_out() {
        let (mut book, ..) = book();
        assert_eq!(book.attended(&[member("me", 1), member("you", 1)], 0), Vec::<String>::new());
        assert_eq!(book.attended(&[member("me", 1), member("you", 1)], 9_999), Vec::<String>::new());
        assert_eq!(book.attended(&[member("me", 1), member("you", 1)], 10_000), ["you"]);
    }
}
