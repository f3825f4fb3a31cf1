//! A lane as text: what both engines write and compare.
//!
//! ```text
//! 0:3                     epoch 0, next 3: a healthy lane, short and predictable
//! 0:3c                    closed: its terminal event was released
//! 0:3p                    passing: born where ordering was off; 0:3s likewise, measured
//! 0:3;k2,40,5-6           2 events, 40 bytes, sequences 5 and 6 are parked
//! ;g900,6,1,900,0,10900   what is parked up to 6 waits since 900 at most; 1 parked event is
//!                         terminal; the gap opened at 900, its attempt 0 ends at 10900.
//!                         While draining there is no gap, and the last three are left out
//! 0:9;m3-4,7              sequences 3, 4 and 7 were skipped (passing: are missing)
//! ;u6                     degraded: what is missing from 6 on is not marked yet
//! ;h3,900,180900          shadow: what is missing below 3 would have been given up; the
//!                         lowest of the rest would have been a gap from 900 to 180900
//! ;lrunning               the lifecycle's stage
//! 0:2;i0a..ff             digests of the last ids, 16 digits each (assigned numbering)
//! ```
//!
//! Times are milliseconds of the partition clock. The sections stand in this order.
//!
//! A healthy lane's text follows from its last event alone, which is what makes the
//! fast path possible: a sidecar can say which text must be there before a batch and
//! which after it, without having read either. Whatever is rare makes it longer.

use std::{fmt, str::FromStr};

use super::{
    identity::{Epoch, Sequence},
    policy::Mode,
    ranges::Ranges,
    recent::Recent,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    pub epoch: Epoch,
    pub next: Sequence,
    pub closed: bool,
    pub mode: Mode,
    pub parked: Option<ParkedSummary>,
    /// There if something is parked.
    pub wait: Option<Wait>,
    pub missing: Ranges,
    /// Degraded: what is missing from here on is not marked.
    pub unmarked: Option<Sequence>,
    /// There if the lane is a shadow and something is missing.
    pub shadow: Option<Shadow>,
    pub stage: Option<Box<str>>,
    pub recent: Recent,
}

/// How long a lane has been waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub age: Age,
    /// Parked events that are terminal.
    pub terminals: u64,
    /// The gap at next; none while the lane is draining.
    pub gap: Option<Gap>,
}

/// What bounds the age of parked events. It begins when the lane has nothing parked, and
/// anew when all that was parked then is out: in a lane that never has nothing parked the
/// oldest may be as old again, and not older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    pub since: u64,
    /// The highest sequence that was parked then.
    pub upto: Sequence,
}

/// The clock of one gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub opened: u64,
    /// Which wait of the schedule it is in.
    pub attempt: usize,
    /// When that wait ends.
    pub deadline: u64,
}

/// What a shadow lane measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shadow {
    /// What is missing below would have been given up.
    pub floor: Sequence,
    /// The lowest missing run from there on, while there is one.
    pub gap: Option<ShadowGap>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowGap {
    pub opened: u64,
    /// When it would be given up.
    pub deadline: u64,
}

/// What is parked, without the events themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParkedSummary {
    pub count: u64,
    pub bytes: u64,
    pub sequences: Ranges,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateError(pub String);

/// Of a text that is no state so much is told: it may be long.
const SHOWN_CHARS: usize = 80;

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a lane state: {:?}", self.0)
    }
}

impl std::error::Error for StateError {}

impl LaneState {
    /// A lane with nothing parked, missing or closed.
    pub fn healthy(epoch: Epoch, next: Sequence) -> Self {
        LaneState {
            epoch,
            next,
            closed: false,
            mode: Mode::Enforce,
            parked: None,
            wait: None,
            missing: Ranges::default(),
            unmarked: None,
            shadow: None,
            stage: None,
            recent: Recent::default(),
        }
    }
}

impl fmt::Display for LaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.next)?;
        f.write_str(if self.closed { "c" } else { "" })?;
        f.write_str(match self.mode {
            Mode::Enforce => "",
            Mode::Shadow => "s",
            Mode::Pass => "p",
        })?;
        if let Some(ParkedSummary { count, bytes, sequences }) = &self.parked {
            write!(f, ";k{count},{bytes},{sequences}")?;
        }
        if let Some(Wait { age, terminals, gap }) = self.wait {
            write!(f, ";g{},{},{terminals}", age.since, age.upto)?;
            if let Some(Gap { opened, attempt, deadline }) = gap {
                write!(f, ",{opened},{attempt},{deadline}")?;
            }
        }
        if !self.missing.is_empty() {
            write!(f, ";m{}", self.missing)?;
        }
        if let Some(from) = self.unmarked {
            write!(f, ";u{from}")?;
        }
        if let Some(Shadow { floor, gap }) = self.shadow {
            write!(f, ";h{floor}")?;
            if let Some(ShadowGap { opened, deadline }) = gap {
                write!(f, ",{opened},{deadline}")?;
            }
        }
        if let Some(stage) = &self.stage {
            write!(f, ";l{stage}")?;
        }
        if !self.recent.is_empty() {
            f.write_str(";i")?;
            self.recent.iter().try_for_each(|id| write!(f, "{id:016x}"))?;
        }
        Ok(())
    }
}

impl FromStr for LaneState {
    type Err = StateError;

    fn from_str(text: &str) -> Result<Self, StateError> {
        parse(text).ok_or_else(|| StateError(text.chars().take(SHOWN_CHARS).collect()))
    }
}

fn parse(text: &str) -> Option<LaneState> {
    let mut sections = text.split(';');
    let (epoch, rest) = sections.next()?.split_once(':')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (next, flags) = rest.split_at(digits);
    let epoch = Epoch::new(epoch.parse().ok()?).ok()?;
    let mut state = LaneState::healthy(epoch, Sequence::new_next(next.parse().ok()?).ok()?);
    let (closed, mode) = flags.strip_prefix('c').map_or((false, flags), |rest| (true, rest));
    state.closed = closed;
    state.mode = match mode {
        "" => Mode::Enforce,
        "s" => Mode::Shadow,
        "p" => Mode::Pass,
        _ => return None,
    };
    for section in sections {
        let tag = section.chars().next().filter(char::is_ascii)?;
        let body = &section[1..];
        match tag {
            'k' => {
                let mut parts = body.splitn(3, ',');
                let (count, bytes) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
                state.parked = Some(ParkedSummary { count, bytes, sequences: Ranges::parse(parts.next()?)? });
            }
            'g' => state.wait = Some(wait(&numbers(body)?)?),
            'm' => state.missing = Ranges::parse(body)?,
            'u' => state.unmarked = Some(next_of(body)?),
            'h' => {
                let (floor, rest) = body.split_once(',').unwrap_or((body, ""));
                let gap = match rest {
                    "" => None,
                    rest => Some(shadow_gap(&numbers(rest)?)?),
                };
                state.shadow = Some(Shadow { floor: next_of(floor)?, gap });
            }
            'l' if !body.is_empty() => state.stage = Some(body.into()),
            'i' => {
                if body.is_empty() || !body.is_ascii() || body.len() % 16 != 0 {
                    return None;
                }
                let digest = |i: usize| u64::from_str_radix(&body[i..i + 16], 16).ok();
                state.recent = (0..body.len()).step_by(16).map(digest).collect::<Option<_>>()?;
            }
            _ => return None,
        }
    }
    Some(state)
}

fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split(',').map(|digits| digits.parse().ok()).collect()
}

fn next_of(digits: &str) -> Option<Sequence> {
    Sequence::new_next(digits.parse().ok()?).ok()
}

fn wait(numbers: &[u64]) -> Option<Wait> {
    let gap = match *numbers.get(3..)? {
        [] => None,
        [opened, attempt, deadline] => {
            Some(Gap { opened, attempt: usize::try_from(attempt).ok()?, deadline })
        }
        _ => return None,
    };
    let age = Age { since: numbers[0], upto: Sequence::new(numbers[1]).ok()? };
    Some(Wait { age, terminals: numbers[2], gap })
}

fn shadow_gap(numbers: &[u64]) -> Option<ShadowGap> {
    let [opened, deadline] = *numbers else { return None };
    Some(ShadowGap { opened, deadline })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_state_say_the_same() {
        for text in [
            "0:0",
            "0:3c",
            "7:3p",
            "7:3cp",
            "0:3s",
            "0:3;k2,40,5-6;g900,6,1,900,0,10900",
            "0:3;k2,40,3-4;g900,4,0",
            "0:9;m3-4,7;u6",
            "0:9s;m3-4,7;h5,900,1800",
            "0:9cs;m3-4;h5",
            "0:9;lrunning",
            "0:9;m3-4,7",
            "1:3c;k1,9,8;m2",
            "0:2;i00000000000000010000000000000002",
            "9007199254740991:9007199254740992",
        ] {
            let state: LaneState = text.parse().expect(text);
            assert_eq!(state.to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "0",
            "0:",
            ":0",
            "0:1x",
            "0:1;",
            "0:1;z",
            "0:1;k1,2",
            "0:1;i0",
            "0:1;g1",
            "0:1;g1,2",
            "0:1;g1,2,3,4",
            "0:1;h1,2",
            "0:1;u",
            "0:1;l",
            "0:1pc",
            "0:9007199254740993",
        ] {
            assert_eq!(text.parse::<LaneState>(), Err(StateError(text.to_owned())));
        }
    }
}
