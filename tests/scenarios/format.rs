//! A scenario's text as steps. The format is described in `README.md` beside this file.

use seriatim::{
    order::{Entity, Epoch, Event, Place, Position},
    store::{GapId, Layout, Numbering, Offer, Payload, TopicSpec, id_digest},
};

use super::settings::{number, sequence_of, set};

/// The number of a line, and what is wrong there.
pub type Failure = (usize, String);

/// Lanes that `elapse` and `sweep` look at, where a line does not say how many.
pub const LOOK_MAX: usize = 100;

pub struct Scenario {
    pub steps: Vec<Step>,
}

pub struct Step {
    pub line: usize,
    pub act: Act,
}

pub enum Act {
    /// The topic comes into being, or gets another policy.
    Open(Box<TopicSpec>),
    Plant {
        entity: Entity,
        state: String,
    },
    Call {
        offers: Vec<Expected>,
        more: bool,
    },
    /// The wall clock moves, nothing else.
    Clock(i64),
    /// Time passes as with a living sidecar.
    Wait(u64),
    Extend(GapId),
    Counted {
        drained: u64,
        after_terminal: u64,
    },
    Do {
        deed: Deed,
        expected: Vec<String>,
    },
    See {
        view: View,
        expected: Vec<String>,
    },
}

/// An offer and the verdict it should get.
pub struct Expected {
    pub line: usize,
    pub offer: Offer,
    pub verdict: String,
}

/// A call that is answered with some words.
pub enum Deed {
    Elapse {
        lanes_max: usize,
    },
    Skip {
        gap: GapId,
        audit: String,
    },
    SetDegraded(bool),
    Announce {
        entity: Entity,
        within_ms: u64,
    },
    Sweep,
    Trim,
    /// Time passes, and every two ticks somebody sweeps.
    Age(u64),
}

/// Something to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    State(Entity),
    Tombstone(Entity),
    /// Where a lane stands among those of its age.
    Filed(Entity),
    /// An entity's entries.
    Entries(Place, Entity),
    /// All entries.
    Stream(Place),
    Edges,
    Noted,
    Probed,
    Announced,
    /// Streams that are full.
    Full,
}

impl Scenario {
    /// The text of a scenario, for a topic of this name and layout.
    pub fn parse(name: &str, layout: Layout, text: &str) -> Result<Self, Failure> {
        let policy = Default::default();
        let topic = TopicSpec {
            name: name.to_owned(),
            partitions: 1,
            layout,
            numbering: Numbering::Producer,
            policy,
        };
        let mut reader = Reader { topic, is_open: false, steps: Vec::new() };
        let mut lines = 0;
        for (line, content) in (1..).zip(text.lines()) {
            reader.read_line(line, content).map_err(|what| (line, what))?;
            lines = line;
        }
        let scenario = Scenario { steps: reader.steps };
        scenario.check_is_whole().map_err(|what| (lines, what))?;
        Ok(scenario)
    }

    pub fn looks_at(&self, wanted: impl Fn(&View) -> bool) -> bool {
        self.steps.iter().any(|step| matches!(&step.act, Act::See { view, .. } if wanted(view)))
    }

    /// A scenario that leaves out what it should show would pass for no reason.
    fn check_is_whole(&self) -> Result<(), String> {
        let in_events = |view: &View| match view {
            View::Entries(place, _) | View::Stream(place) => *place == Place::Events,
            View::Edges => true,
            _ => false,
        };
        let of_lane = |view: &View| matches!(view, View::State(_) | View::Tombstone(_));
        if self.looks_at(in_events) && self.looks_at(of_lane) {
            return Ok(());
        }
        Err("a scenario looks at `events` and at the state of a lane at least once each".into())
    }
}

struct Reader {
    /// As the lines so far would have it.
    topic: TopicSpec,
    is_open: bool,
    steps: Vec<Step>,
}

impl Reader {
    fn read_line(&mut self, line: usize, content: &str) -> Result<(), String> {
        let is_indented = content.starts_with(' ');
        let content = content.trim();
        let (word, rest) = split_word(content);
        let act = match word {
            "" => return Ok(()),
            _ if word.starts_with('#') => return Ok(()),
            "offer" if is_indented => return self.add_to_batch(line, rest),
            _ if is_indented => return Err("only the offers of a batch are indented".into()),
            "policy" => {
                self.is_open = false;
                return rest.split_whitespace().try_for_each(|setting| set(&mut self.topic, setting));
            }
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
            "clock" => Act::Clock(rest.parse().map_err(|_| format!("{rest:?} is not a step of a clock"))?),
            "wait" => Act::Wait(number(rest)?),
            "extend" => Act::Extend(gap_of(&rest.split_whitespace().collect::<Vec<_>>())?),
            "counted" => counted(rest)?,
            "elapse" | "skip" | "degrade" | "restore" | "announce" | "sweep" | "trim" | "age" => {
                let (deed, expected) = halves(content, "->")?;
                let words: Vec<&str> = deed.split_whitespace().collect();
                Act::Do { deed: deed_of(&words)?, expected: list(expected) }
            }
            _ => {
                let (view, expected) = halves(content, "=")?;
                let words: Vec<&str> = view.split_whitespace().collect();
                Act::See { view: view_of(&words)?, expected: list(&with_digests(expected)?) }
            }
        };
        if !std::mem::replace(&mut self.is_open, true) {
            self.steps.push(Step { line, act: Act::Open(Box::new(self.topic.clone())) });
        }
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
}

fn split_word(text: &str) -> (&str, &str) {
    text.split_once(' ').map_or((text, ""), |(word, rest)| (word, rest.trim()))
}

fn halves<'a>(text: &'a str, separator: &str) -> Result<(&'a str, &'a str), String> {
    let found = text.split_once(&format!(" {separator} "));
    let (left, right) = found.ok_or_else(|| format!("{text:?} lacks `{separator}` and what is expected"))?;
    Ok((left.trim(), right.trim()))
}

fn list(text: &str) -> Vec<String> {
    match text {
        "none" | "nothing" => Vec::new(),
        items => items.split("; ").map(str::to_owned).collect(),
    }
}

fn deed_of(words: &[&str]) -> Result<Deed, String> {
    Ok(match words {
        ["elapse"] => Deed::Elapse { lanes_max: LOOK_MAX },
        ["elapse", lanes] => Deed::Elapse { lanes_max: number(lanes)? as usize },
        ["skip", entity, place] => Deed::Skip { gap: gap_of(&[entity, place])?, audit: String::new() },
        ["skip", entity, place, audit] => {
            Deed::Skip { gap: gap_of(&[entity, place])?, audit: (*audit).to_owned() }
        }
        ["degrade"] => Deed::SetDegraded(true),
        ["restore"] => Deed::SetDegraded(false),
        ["announce", entity, within] => {
            Deed::Announce { entity: entity_of(entity)?, within_ms: number(within)? }
        }
        ["sweep"] => Deed::Sweep,
        ["trim"] => Deed::Trim,
        ["age", ms] => Deed::Age(number(ms)?),
        other => return Err(format!("nobody can do {:?}", other.join(" "))),
    })
}

fn view_of(words: &[&str]) -> Result<View, String> {
    Ok(match words {
        ["state", entity] => View::State(entity_of(entity)?),
        ["tombstone", entity] => View::Tombstone(entity_of(entity)?),
        ["filed", entity] => View::Filed(entity_of(entity)?),
        ["events", entity] => View::Entries(Place::Events, entity_of(entity)?),
        ["late", entity] => View::Entries(Place::Late, entity_of(entity)?),
        ["stream"] => View::Stream(Place::Events),
        ["edges"] => View::Edges,
        ["noted"] => View::Noted,
        ["probed"] => View::Probed,
        ["announced"] => View::Announced,
        ["full"] => View::Full,
        other => return Err(format!("nobody can look at {:?}", other.join(" "))),
    })
}

fn gap_of(words: &[&str]) -> Result<GapId, String> {
    let [entity, place] = words else { return Err("a gap is written entity epoch/next".into()) };
    let (epoch, next) = place.split_once('/').ok_or("a place is written epoch/sequence")?;
    Ok(GapId { entity: entity_of(entity)?, epoch: epoch_of(epoch)?, next: sequence_of(next)? })
}

fn entity_of(name: &str) -> Result<Entity, String> {
    Entity::new(name).map_err(|error| error.to_string())
}

fn epoch_of(digits: &str) -> Result<Epoch, String> {
    Epoch::new(number(digits)?).map_err(|error| error.to_string())
}

fn more_of(word: &str) -> Result<bool, String> {
    match word {
        "more" => Ok(true),
        "done" => Ok(false),
        other => Err(format!("a call leaves `more` or is `done`, not {other:?}")),
    }
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
    let payload = Payload { kind: kind.into(), attrs: attrs.to_owned().into(), data: data.to_owned().into() };
    let event = Event { epoch: epoch_of(epoch)?, position, terminal, payload };
    Ok(Offer { entity: entity_of(entity)?, event })
}

fn counted(rest: &str) -> Result<Act, String> {
    let facts = rest.strip_prefix("drained=").and_then(|rest| rest.split_once(" after_terminal="));
    let (drained, after_terminal) = facts.ok_or("it is written `counted drained=0 after_terminal=0`")?;
    Ok(Act::Counted { drained: number(drained)?, after_terminal: number(after_terminal)? })
}

/// Replaces `i(a,b)` by what a lane remembers of the ids a and b.
fn with_digests(state: &str) -> Result<String, String> {
    let Some((before, rest)) = state.split_once(";i(") else { return Ok(state.to_owned()) };
    let ids = rest.strip_suffix(')').ok_or("the ids end the state, in brackets")?;
    let digests: String = ids.split(',').map(|id| format!("{:016x}", id_digest(id))).collect();
    Ok(format!("{before};i{digests}"))
}
