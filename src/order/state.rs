//! A lane as text: what both engines write and compare.
//!
//! ```text
//! 0:3                  epoch 0, next 3: a healthy lane, short and predictable
//! 0:3c                 closed: its terminal event was released
//! 0:3p                 passing: born while ordering was off
//! 0:3;k2,40,5-6        2 events, 40 bytes, sequences 5 and 6 are parked
//! 0:9;m3-4,7           sequences 3, 4 and 7 were skipped (passing: are missing)
//! 0:2;i0a..ff          digests of the last ids, 16 digits each (assigned numbering)
//! ```
//!
//! A healthy lane's text follows from its last event alone, which is what makes the
//! fast path possible: a sidecar can say which text must be there before a batch and
//! which after it, without having read either. Whatever is rare makes it longer.

use std::{fmt, str::FromStr};

use super::{
    identity::{Epoch, Sequence},
    ranges::Ranges,
    recent::Recent,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    pub epoch: Epoch,
    pub next: Sequence,
    pub closed: bool,
    pub passing: bool,
    pub parked: Option<ParkedSummary>,
    pub missing: Ranges,
    pub recent: Recent,
}

/// What is parked, without the events themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedSummary {
    pub count: u64,
    pub bytes: u64,
    pub sequences: Ranges,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateError(pub String);

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
            passing: false,
            parked: None,
            missing: Ranges::default(),
            recent: Recent::default(),
        }
    }
}

impl fmt::Display for LaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epoch, self.next)?;
        f.write_str(if self.closed { "c" } else { "" })?;
        f.write_str(if self.passing { "p" } else { "" })?;
        if let Some(ParkedSummary { count, bytes, sequences }) = &self.parked {
            write!(f, ";k{count},{bytes},{sequences}")?;
        }
        if !self.missing.is_empty() {
            write!(f, ";m{}", self.missing)?;
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
        parse(text).ok_or_else(|| StateError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<LaneState> {
    let mut sections = text.split(';');
    let (epoch, rest) = sections.next()?.split_once(':')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (next, flags) = rest.split_at(digits);
    let epoch = Epoch::new(epoch.parse().ok()?).ok()?;
    let mut state = LaneState::healthy(epoch, Sequence::new_next(next.parse().ok()?).ok()?);
    (state.closed, state.passing) = match flags {
        "" => (false, false),
        "c" => (true, false),
        "p" => (false, true),
        "cp" => (true, true),
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
            'm' => state.missing = Ranges::parse(body)?,
            'i' => {
                if !body.is_ascii() || body.len() % 16 != 0 {
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
            "0:3;k2,40,5-6",
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
        for text in ["", "0", "0:", ":0", "0:1x", "0:1;", "0:1;z", "0:1;k1,2", "0:1;i0", "0:9007199254740993"]
        {
            assert_eq!(text.parse::<LaneState>(), Err(StateError(text.to_owned())));
        }
    }
}
