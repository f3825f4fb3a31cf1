//! What one event does to a lane that waits, or that it makes wait, told from the lane's state alone: for whoever knows
//! that by heart, and has no clock. Only what is usual is foreseen; all else is left to the rules. Where both speak they
//! say the same.

use super::{
    identity::{Entity, Sequence},
    lane::{Event, Payload, Position},
    policy::Policy,
    ranges::Range,
    state::{Age, Gap, LaneState, ParkedSummary, Wait},
};

/// A lane as an event leaves it, but for the time.
#[derive(Clone, Debug)]
pub struct Foreseen {
    /// Times that are not known yet are 0 in it.
    state: LaneState,
    timing: Option<Timing>,
    /// Since when the gap was open that it fills, if it does.
    pub filled: Option<u64>,
    /// Somebody should be asked for what is missing at next: the last attempt begins.
    pub probes: bool,
}

/// What only a clock can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The age of what is parked counts from now.
    pub starts_age: bool,
    /// The gap opens now.
    pub starts_gap: bool,
    /// Its attempt ends so long from now,
    pub wait: u64,
    /// and not later than this.
    pub end: u64,
}

impl Timing {
    pub fn deadline(&self, now: u64) -> u64 {
        (now + self.wait).min(self.end)
    }
}

/// A lane in which something may be parked, and nothing else is unusual.
pub fn is_plain(state: &LaneState) -> bool {
    let LaneState { parked, wait, .. } = state;
    let plain =
        LaneState { parked: parked.clone(), wait: *wait, ..LaneState::healthy(state.epoch, state.next) };
    let waits = wait.is_some_and(|wait| wait.gap.is_some());
    *state == plain && parked.is_some() == waits && wait.is_some() == waits
}

/// An event that is ahead of its turn is parked in a lane that is plain. Nothing where it might not be.
pub fn park<P: Payload>(
    lane: &LaneState,
    entity: &Entity,
    event: &Event<P>,
    policy: &Policy,
) -> Option<Foreseen> {
    let sequence = ahead(lane, event, policy)?;
    let size = event.payload.size();
    let mut state = lane.clone();
    let parked = state.parked.get_or_insert_with(ParkedSummary::default);
    let is_there = parked.sequences.contains(sequence);
    (parked.count, parked.bytes) = (parked.count + 1, parked.bytes + size);
    if is_there || parked.count > policy.parked_max || parked.bytes > policy.parked_bytes_max {
        return None;
    }
    parked.sequences.add(Range { first: sequence, last: sequence });
    let is_terminal = policy.is_terminal(event);
    let Some(wait) = &mut state.wait else {
        return Some(open(state, entity, None, u64::from(is_terminal), policy));
    };
    let is_first_terminal = is_terminal && wait.terminals == 0;
    wait.terminals += u64::from(is_terminal);
    let timing = is_first_terminal.then(|| {
        // Rule 6: the first terminal event parked behind a gap.
        let gap = wait.gap.as_mut().expect("a lane that waits has one");
        let rest = policy.gap_waits_from(entity, gap.attempt + 1);
        let end = (gap.deadline + rest).min(wait.age.since + policy.parked_age_max);
        gap.attempt = policy.last_attempt();
        Timing { starts_age: false, starts_gap: false, wait: policy.terminal_wait, end }
    });
    Some(Foreseen { state, timing, filled: None, probes: is_first_terminal })
}

/// The event that a plain lane waits for releases what is parked directly behind it: of so many bytes together, the last
/// of which ends the entity or not. Nothing where it might not be, or ends the entity itself.
pub fn fill<P: Payload>(
    lane: &LaneState,
    entity: &Entity,
    event: &Event<P>,
    behind: Behind,
    policy: &Policy,
) -> Option<Foreseen> {
    let (mut state, wait) = (lane.clone(), lane.wait?);
    let parked = state.parked.as_mut()?;
    let is_next = event.epoch == lane.epoch && event.position == Position::Given(lane.next);
    if !is_next || policy.is_terminal(event) || behind.events != run_behind(lane) {
        return None;
    }
    if behind.events > 0 {
        parked.sequences.pop_first();
    }
    parked.count = parked.count.checked_sub(behind.events)?;
    parked.bytes = parked.bytes.checked_sub(behind.bytes)?;
    state.next = (0..behind.events).fold(lane.next.after(), |next, _| next.after());
    let filled = wait.gap.map(|gap| gap.opened);
    if parked.count == 0 {
        (state.parked, state.wait, state.closed) = (None, None, behind.ends);
        return Some(Foreseen { state, timing: None, filled, probes: false });
    }
    // What is behind the end of an entity is not usual.
    let age = (state.next <= wait.age.upto).then_some(wait.age);
    let opened = (!behind.ends).then(|| open(state, entity, age, wait.terminals, policy))?;
    Some(Foreseen { filled, ..opened })
}

/// Parked events that are directly behind the one that is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    pub events: u64,
    pub bytes: u64,
    /// The last of them ends the entity.
    pub ends: bool,
}

/// How many events are parked directly behind the one that is missing.
pub fn run_behind(lane: &LaneState) -> u64 {
    let lowest = lane.parked.as_ref().and_then(|parked| parked.sequences.first());
    let run = lowest.filter(|run| run.first.ahead_of(lane.next) == 1);
    run.map_or(0, |run| run.last.ahead_of(lane.next))
}

/// The event's sequence, if it is ahead of its turn and not too far.
fn ahead<P: Payload>(lane: &LaneState, event: &Event<P>, policy: &Policy) -> Option<Sequence> {
    let Position::Given(sequence) = event.position else { return None };
    let ahead = sequence.ahead_of(lane.next);
    (event.epoch == lane.epoch && ahead > 0 && ahead <= policy.ahead_max).then_some(sequence)
}

/// A gap that is new; the age goes on, or is new as well.
fn open(
    mut state: LaneState,
    entity: &Entity,
    age: Option<Age>,
    terminals: u64,
    policy: &Policy,
) -> Foreseen {
    let (attempt, wait) = if terminals > 0 {
        (policy.last_attempt(), policy.gap_waits_from(entity, 0).min(policy.terminal_wait))
    } else {
        (0, policy.gap_wait(entity, 0))
    };
    let (wait, end) = match age {
        Some(age) => (wait, age.since + policy.parked_age_max),
        None => (wait.min(policy.parked_age_max), u64::MAX),
    };
    let timing = Timing { starts_age: age.is_none(), starts_gap: true, wait, end };
    let highest = state.parked.as_ref().and_then(|parked| parked.sequences.last());
    let new = || Age { since: 0, upto: highest.expect("something is parked").last };
    let gap = Some(Gap { opened: 0, attempt, deadline: 0 });
    state.wait = Some(Wait { age: age.unwrap_or_else(new), terminals, gap });
    Foreseen { state, timing: Some(timing), filled: None, probes: terminals > 0 }
}

impl Foreseen {
    /// The lane, if that does not depend on the time; else with what depends on it.
    pub fn state(&self) -> (&LaneState, Option<Timing>) {
        (&self.state, self.timing)
    }

    /// The lane, at this time.
    pub fn at(self, now: u64) -> LaneState {
        let Foreseen { mut state, timing, .. } = self;
        if let (Some(timing), Some(wait)) = (timing, &mut state.wait) {
            if timing.starts_age {
                wait.age.since = now;
            }
            let gap = wait.gap.as_mut().expect("a lane that waits has one");
            gap.deadline = timing.deadline(now);
            if timing.starts_gap {
                gap.opened = now;
            }
        }
        state
    }

    /// How many events are parked.
    pub fn depth(&self) -> u64 {
        self.state.parked.as_ref().map_or(0, |parked| parked.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Effects, Epoch, Partition, Verdict};

    /// Nothing but its size.
    #[derive(Clone, Debug)]
    struct Sized(u64);

    impl Payload for Sized {
        fn size(&self) -> u64 {
            self.0
        }
        fn same_as(&self, other: &Self) -> bool {
            self.0 == other.0
        }
        fn kind(&self) -> &str {
            "step"
        }
        fn marked_illegal(self, _: Option<&str>) -> Self {
            self
        }
    }

    /// All orders of a few events: what is foreseen is what the rules do, and nearly all is foreseen.
    #[test]
    fn what_is_foreseen_is_what_the_rules_do() {
        let policy = Policy { gap_waits: vec![1_000, 500], parked_age_max: 1_200, ..Policy::default() };
        let entity = Entity::new("job-26").unwrap();
        let (mut parks, mut fills, mut others) = (0, 0, 0);
        for order in 0..5_040_u64 {
            // The terminal one is the sixth; the seventh comes behind the end.
            let (mut left, mut order) = ((0..7).collect::<Vec<u64>>(), order);
            let mut partition = Partition::new(0);
            let (mut wall, mut sizes) = (0, std::collections::BTreeMap::new());
            while !left.is_empty() {
                let number = left.remove(order as usize % left.len());
                order /= left.len() as u64 + 1;
                wall += 137;
                let event = Event {
                    epoch: Epoch::new(0).unwrap(),
                    position: Position::Given(Sequence::new(number).unwrap()),
                    terminal: number == 5,
                    payload: Sized(10 + number),
                };
                let before = partition.lane(&entity).map(|lane| lane.state());
                let before = before.unwrap_or_else(|| LaneState::healthy(event.epoch, policy.first));
                let run = run_behind(&before);
                let next = before.next.get();
                let behind = Behind {
                    events: run,
                    bytes: (next + 1..=next + run).map(|n| sizes[&n]).sum(),
                    ends: run > 0 && next + run == 5,
                };
                let has_end_inside = (next + 1..next + run).contains(&5);
                let foreseen = if !is_plain(&before) || has_end_inside {
                    None
                } else if number == next {
                    fill(&before, &entity, &event, behind, &policy)
                } else {
                    park(&before, &entity, &event, &policy)
                };
                let mut effects = Effects::new(policy.append_max);
                let mut verdicts = Vec::new();
                partition.admit([(&entity, event)], wall, &policy, &mut effects, |verdict, _| {
                    verdicts.push(verdict)
                });
                sizes.insert(number, 10 + number);
                let after = partition.lane(&entity).unwrap().state();
                let Some(foreseen) = foreseen else {
                    others += 1;
                    continue;
                };
                assert_eq!(foreseen.probes, !effects.probes.is_empty());
                assert!(effects.probes.iter().all(|probe| !probe.is_extensible));
                let now = partition.clock().now;
                if verdicts == [Verdict::Parked { depth: foreseen.depth() }] {
                    parks += 1;
                } else {
                    assert_eq!(verdicts, [Verdict::Released { sequence: before.next }]);
                    assert_eq!(effects.drained, run);
                    fills += 1;
                }
                assert_eq!(foreseen.at(now), after);
            }
        }
        assert!(parks > 10_000 && fills > 5_000, "{parks} parked, {fills} filled, {others} not foreseen");
    }

    #[test]
    fn what_is_not_usual_is_not_foreseen() {
        let policy = Policy { parked_max: 2, parked_bytes_max: 100, ahead_max: 5, ..Policy::default() };
        let entity = Entity::new("e").unwrap();
        let event = |epoch, sequence, size, terminal| Event {
            epoch: Epoch::new(epoch).unwrap(),
            position: Position::Given(Sequence::new(sequence).unwrap()),
            terminal,
            payload: Sized(size),
        };
        let lane: LaneState = "1:3;k1,60,5;g1,5,0,1,0,9".parse().unwrap();
        let parks = |lane: &LaneState, event| park(lane, &entity, &event, &policy).is_some();
        assert!(parks(&lane, event(1, 4, 40, false)) && parks(&lane, event(1, 8, 40, true)));
        for refused in [
            event(1, 4, 41, false),
            event(1, 9, 1, false),
            event(1, 5, 1, false),
            event(1, 3, 1, false),
            event(1, 2, 1, false),
            event(0, 4, 1, false),
            event(2, 4, 1, false),
        ] {
            assert!(!parks(&lane, refused.clone()), "{refused:?}");
        }
        assert!(!parks(&"1:3;k2,9,5-6;g1,5,0,1,0,9".parse().unwrap(), event(1, 4, 1, false)));
        let fills = |event, behind| fill(&lane, &entity, &event, behind, &policy).is_some();
        assert!(fills(event(1, 3, 1, false), Behind::default()));
        assert!(!fills(event(1, 3, 1, true), Behind::default()), "the end of an entity");
        assert!(!fills(event(1, 4, 1, false), Behind::default()));
        assert!(!fills(event(1, 3, 1, false), Behind { events: 1, bytes: 60, ends: false }));
        for state in
            ["1:3c;k1,60,5;g1,5,0,1,0,9", "1:3;k1,60,5;g1,5,0,1,0,9;m1", "1:3;k1,60,3;g1,3,0", "1:3p"]
        {
            assert!(!is_plain(&state.parse().unwrap()), "{state}");
        }
        assert!(is_plain(&lane) && is_plain(&"1:3".parse().unwrap()));
    }
}
