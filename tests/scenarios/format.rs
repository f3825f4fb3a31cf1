//! A scenario's text as steps. The format is described in `README.md` beside this file.

use seriatim::{
    order::{Entity, Epoch, Event, LatePlace, Ordering, Place, Position, Sequence},
    store::{Numbering, Offer, Payload, TopicSpec, id_digest},
};

/// The number of a line, and what is wrong there.
pub type Failure = (usize, String);

pub struct Scenario {
    pub topic: TopicSpec,
    pub steps: Vec<Step>,
}

pub struct Step {
    pub line: usize,
    pub act: Act,
}

pub enum Act {
    Plant { entity: Entity, state: String },
    Call { offers: Vec<Expected>, more: bool },
    Counted { drained: u64, after_terminal: u64 },
    State { entity: Entity, text: String },
    Stream { place: Place, entity: Entity, entries: Vec<String> },
}

/// An offer and the verdict it should get.
pub struct Expected {
    pub line: usize,
    pub offer: Offer,
    pub verdict: String,
}

impl Scenario {
    pub fn parse(name: &str, text: &str) -> Result<Self, Failure> {
        let policy = Default::default();
        let topic =
            TopicSpec { name: name.to_owned(), partitions: 1, numbering: Numbering::Producer, policy };
        let mut scenario = Scenario { topic, steps: Vec::new() };
        let mut lines = 0;
        for (line, content) in (1..).zip(text.lines()) {
            scenario.read_line(line, content).map_err(|what| (line, what))?;
            lines = line;
        }
        scenario.check_is_whole().map_err(|what| (lines, what))?;
        Ok(scenario)
    }

    fn read_line(&mut self, line: usize, content: &str) -> Result<(), String> {
        let is_indented = content.starts_with(' ');
        let (word, rest) = split_word(content.trim());
        let act = match word {
            "" => return Ok(()),
            _ if word.starts_with('#') => return Ok(()),
            "offer" if is_indented => return self.add_to_batch(line, rest),
            _ if is_indented => return Err("only the offers of a batch are indented".into()),
            "policy" => return rest.split_whitespace().try_for_each(|setting| set(&mut self.topic, setting)),
            "lane" => {
                let (entity, state) = split_word(rest);
                Act::Plant { entity: entity_of(entity)?, state: with_digests(state)? }
            }
            "offer" => {
                let (offer, expected) = halves(rest, "->")?;
                let (verdict, more) =
                    expected.strip_suffix(", more").map_or((expected, false), |v| (v, true));
                Act::Call { offers: vec![expect(line, offer, verdict)?], more }
            }
            "batch" | "call" => {
                let (_, more) = halves(content, "->")?;
                Act::Call { offers: Vec::new(), more: more_of(more)? }
            }
            "counted" => counted(rest)?,
            "state" => {
                let (entity, text) = halves(rest, "=")?;
                Act::State { entity: entity_of(entity)?, text: with_digests(text)? }
            }
            "events" => stream(Place::Events, rest)?,
            "late" => stream(Place::Late, rest)?,
            other => return Err(format!("no line begins with {other:?}")),
        };
        self.steps.push(Step { line, act });
        Ok(())
    }

    fn add_to_batch(&mut self, line: usize, rest: &str) -> Result<(), String> {
        let Some(Step { act: Act::Call { offers, .. }, .. }) = self.steps.last_mut() else {
            return Err("an indented offer follows a batch".into());
        };
        let (offer, verdict) = halves(rest, "->")?;
        offers.push(expect(line, offer, verdict)?);
        Ok(())
    }

    /// A scenario that leaves out what it should show would pass for no reason.
    fn check_is_whole(&self) -> Result<(), String> {
        let has = |wanted: fn(&Act) -> bool| self.steps.iter().any(|step| wanted(&step.act));
        let verdict = has(|act| matches!(act, Act::Call { offers, .. } if !offers.is_empty()));
        let stream = has(|act| matches!(act, Act::Stream { place: Place::Events, .. }));
        let state = has(|act| matches!(act, Act::State { .. }));
        if verdict && stream && state {
            return Ok(());
        }
        Err("a scenario has at least one offer, one line `events` and one line `state`".into())
    }
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest.trim()))
}

fn halves<'a>(text: &'a str, separator: &str) -> Result<(&'a str, &'a str), String> {
    let found = text.split_once(&format!(" {separator} "));
    let (left, right) = found.ok_or_else(|| format!("`{separator}` and what is expected are missing"))?;
    Ok((left.trim(), right.trim()))
}

fn number(digits: &str) -> Result<u64, String> {
    digits.parse().map_err(|_| format!("{digits:?} is not a number"))
}

fn entity_of(name: &str) -> Result<Entity, String> {
    Entity::new(name).map_err(|error| error.to_string())
}

fn sequence_of(digits: &str) -> Result<Sequence, String> {
    Sequence::new(number(digits)?).map_err(|error| error.to_string())
}

fn more_of(word: &str) -> Result<bool, String> {
    match word {
        "more" => Ok(true),
        "done" => Ok(false),
        other => Err(format!("a call leaves `more` or is `done`, not {other:?}")),
    }
}

fn set(topic: &mut TopicSpec, setting: &str) -> Result<(), String> {
    let (name, value) = setting.split_once('=').ok_or("a setting is written name=value")?;
    let policy = &mut topic.policy;
    match (name, value) {
        ("numbering", "assigned") => topic.numbering = Numbering::Assigned,
        ("ordering", "off") => policy.ordering = Ordering::Off,
        ("late", "inline") => policy.late = LatePlace::Inline,
        ("first", digits) => policy.first = sequence_of(digits)?,
        ("parked_max", digits) => policy.parked_max = number(digits)?,
        ("parked_bytes_max", digits) => policy.parked_bytes_max = number(digits)?,
        ("partition_parked_max", digits) => policy.partition_parked_max = number(digits)?,
        ("partition_parked_bytes_max", digits) => policy.partition_parked_bytes_max = number(digits)?,
        ("ahead_max", digits) => policy.ahead_max = number(digits)?,
        ("append_max", digits) => policy.append_max = number(digits)?,
        _ => return Err(format!("no topic is set with {setting:?}")),
    }
    Ok(())
}

fn expect(line: usize, offer: &str, verdict: &str) -> Result<Expected, String> {
    Ok(Expected { line, offer: offer_of(offer)?, verdict: verdict.to_owned() })
}

fn offer_of(text: &str) -> Result<Offer, String> {
    let mut words = text.split_whitespace();
    let mut word = |what: &str| words.next().ok_or_else(|| format!("the offer has no {what}"));
    let (entity, place, data) = (word("entity")?, word("epoch/sequence")?, word("data")?);
    let (epoch, position) = place.split_once('/').ok_or("a place is written epoch/sequence")?;
    let position = match position.strip_prefix('#') {
        Some(id) => Position::Assigned { id: id_digest(id) },
        None => Position::Given(sequence_of(position)?),
    };
    let (mut terminal, mut kind, mut attrs) = (false, "step", "{}");
    for word in words {
        match word.split_once('=') {
            None if word == "terminal" => terminal = true,
            Some(("type", value)) => kind = value,
            Some(("attrs", value)) => attrs = value,
            Some(_) | None => return Err(format!("an offer does not say {word:?}")),
        }
    }
    let payload = Payload { kind: kind.into(), attrs: attrs.into(), data: data.to_owned().into() };
    let epoch = Epoch::new(number(epoch)?).map_err(|error| error.to_string())?;
    Ok(Offer { entity: entity_of(entity)?, event: Event { epoch, position, terminal, payload } })
}

fn counted(rest: &str) -> Result<Act, String> {
    let facts = rest.strip_prefix("drained=").and_then(|rest| rest.split_once(" after_terminal="));
    let (drained, after_terminal) = facts.ok_or("it is written `counted drained=0 after_terminal=0`")?;
    Ok(Act::Counted { drained: number(drained)?, after_terminal: number(after_terminal)? })
}

fn stream(place: Place, rest: &str) -> Result<Act, String> {
    let (entity, entries) = halves(rest, "=")?;
    let entries = match entries {
        "none" => Vec::new(),
        entries => entries.split("; ").map(str::to_owned).collect(),
    };
    Ok(Act::Stream { place, entity: entity_of(entity)?, entries })
}

/// Replaces `i(a,b)` by what a lane remembers of the ids a and b.
fn with_digests(state: &str) -> Result<String, String> {
    let Some((before, rest)) = state.split_once("i(") else { return Ok(state.to_owned()) };
    let ids = rest.strip_suffix(')').ok_or("the ids end the state, in brackets")?;
    let digests: String = ids.split(',').map(|id| format!("{:016x}", id_digest(id))).collect();
    Ok(format!("{before}i{digests}"))
}
