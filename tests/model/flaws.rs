//! Designs that are wrong, each in one way: the model must find out.
//!
//! They are what the rules would be without one of their ideas. Each search ends with the
//! shortest history that breaks what is named; if it ends without one, the model is blind.

use std::collections::BTreeSet;

use seriatim::order::Policy;
use stateright::{Checker, HasDiscoveries, Model};

use super::{
    admission::{Admission, Flaw},
    lease::Leases,
    runs::{admission, leases, offer, policy},
};

/// Searches breadth first until the property is broken.
pub fn must_break<M>(name: &str, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + std::hash::Hash + PartialEq + Send + Sync + std::fmt::Debug + 'static,
    M::Action: Clone + PartialEq + Send + Sync + std::fmt::Debug + 'static,
{
    let wanted = HasDiscoveries::AllOf(BTreeSet::from([property]));
    let checker = model.checker().finish_when(wanted).spawn_bfs().join();
    let states = checker.unique_state_count();
    let path = checker.discovery(property);
    let path = path.unwrap_or_else(|| panic!("{name}: {property:?} holds in all {states} states"));
    let actions = path.into_actions();
    println!("{name:<44} {states:>10} states until {property:?} breaks: {actions:?}");
}

fn three() -> Admission {
    admission(&[offer(0, 0), offer(0, 1), offer(0, 2)], policy())
}

#[test]
fn draining_by_a_second_call_leaves_events_behind() {
    // A call has room for one entry: what it makes contiguous is for the next.
    let policy = Policy { append_max: 1, ..policy() };
    let flawed = Admission { flaw: Some(Flaw::SecondCallDrains), policy, ..three() };
    must_break("drained by a second call", flawed, "at rest nothing waits");
}

#[test]
fn moving_next_before_appending_writes_out_of_order() {
    let flawed = Admission { flaw: Some(Flaw::AdvanceBeforeAppend), ..three() };
    must_break("next moves before the entry is there", flawed, "entries of an epoch ascend");
}

#[test]
fn a_skip_that_the_store_does_not_decide_gives_up_what_nobody_waited_for() {
    let offers = [offer(0, 1), offer(0, 0), offer(0, 3)];
    let flawed = Admission { flaw: Some(Flaw::SkipFromView), looks: 1, ..admission(&offers, policy()) };
    must_break("skipped from an old view", flawed, "no gap is given up before its time");
}

#[test]
fn a_duplicate_that_writes_nothing_is_acknowledged_before_the_replica_has_it() {
    let flawed = Admission { flaw: Some(Flaw::SilentDuplicate), failovers: 1, waits: true, ..three() };
    must_break("a duplicate that writes nothing", flawed, "nothing acknowledged is lost");
}

#[test]
fn acknowledging_before_the_replica_has_it_can_lose_it() {
    let flawed = Admission { flaw: Some(Flaw::AckBeforeReplica), failovers: 1, waits: true, ..three() };
    must_break("acknowledged before the replica has it", flawed, "nothing acknowledged is lost");
}

#[test]
fn a_commit_without_a_fence_acknowledges_for_somebody_who_has_lost_the_partition() {
    let flawed = || Leases { is_unfenced: true, ..leases() };
    must_break("commits are not fenced", flawed(), "an older term changes nothing");
    must_break("commits are not fenced", flawed(), "floor and points never fall");
}
