//! Between the wire and the domain: events in, verdicts out.
//!
//! Everything that can be wrong with an event by itself is found here, with the field
//! and a sentence, before the rules see it.

use std::borrow::Cow;

use super::{Limits, pb, status};
use crate::{
    ingest::{Invalid, Outcome, Resend, Topic},
    order::{Entity, Epoch, Event, LaneState, Position, Probe, Refusal, Sequence, Verdict},
    store::{Decision, Numbering, Offer, Payload, StreamId, id_digest},
};

const TYPE_BYTES_MAX: usize = 64;
const EXTENSION_NAME_MAX: usize = 32;
/// Prefix of the types of markers.
const RESERVED_TYPES: &str = "seriatim.";
/// Attribute names that have a meaning of their own.
const RESERVED_NAMES: [&str; 16] = [
    "contenttype",
    "data",
    "datacontenttype",
    "entity",
    "epoch",
    "from",
    "id",
    "order",
    "previous",
    "reason",
    "sequence",
    "source",
    "specversion",
    "terminal",
    "time",
    "waited",
];

/// Checks one event and turns it into an offer for the topic.
pub fn offer(event: pb::Event, topic: &Topic, limits: &Limits) -> Result<Offer, Invalid> {
    let entity =
        Entity::new(&event.entity).map_err(|error| invalid("entity", "entity_bytes", error.to_string()))?;
    check_type(&event.r#type)?;
    if event.data.len() > limits.event_bytes {
        let detail = format!(
            "data has {} bytes, limits.event_bytes allows {}; keep large payloads elsewhere and send a reference",
            event.data.len(),
            limits.event_bytes
        );
        return Err(invalid("data", "event_bytes", detail));
    }
    check_attribute_bytes(attribute_bytes(&event), limits)?;
    check_attribute_names(&event)?;
    let epoch = Epoch::new(event.epoch).map_err(|error| invalid("epoch", "number_max", error.to_string()))?;
    let position = position(&event, topic)?;
    let terminal = event.terminal;
    // For whoever reads the entry. Whether the lane closes is decided by the policy in force.
    let is_last = terminal || topic.is_terminal(&event.r#type);
    let attrs = attrs_json(&event, is_last);
    check_attribute_bytes(attrs.len(), limits)?;
    let payload = Payload { kind: event.r#type.into_boxed_str(), attrs, data: event.data };
    Ok(Offer { entity, event: Event { epoch, position, terminal, payload } })
}

fn invalid(field: &'static str, reason: &'static str, detail: String) -> Invalid {
    Invalid { field, reason, detail }
}

fn check_type(kind: &str) -> Result<(), Invalid> {
    if !(1..=TYPE_BYTES_MAX).contains(&kind.len()) {
        let detail = format!("a type has 1 to {TYPE_BYTES_MAX} bytes, this one has {}", kind.len());
        return Err(invalid("type", "type_bytes", detail));
    }
    if kind.starts_with(RESERVED_TYPES) {
        let detail = format!("types that begin with {RESERVED_TYPES:?} are reserved for markers");
        return Err(invalid("type", "reserved", detail));
    }
    Ok(())
}

/// As they are sent, and as they are stored: escaping may make them longer.
fn check_attribute_bytes(bytes: usize, limits: &Limits) -> Result<(), Invalid> {
    if bytes <= limits.attribute_bytes {
        return Ok(());
    }
    let detail = format!(
        "id, source, time, datacontenttype and attributes have {bytes} bytes together, \
         limits.attribute_bytes allows {}",
        limits.attribute_bytes
    );
    Err(invalid("attributes", "attribute_bytes", detail))
}

fn attribute_bytes(event: &pb::Event) -> usize {
    let own = event.id.len() + event.source.len() + event.time.len() + event.datacontenttype.len();
    own + event.attributes.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
}

fn check_attribute_names(event: &pb::Event) -> Result<(), Invalid> {
    for name in event.attributes.keys() {
        let is_name = (1..=EXTENSION_NAME_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !is_name {
            let name = status::shown(name);
            let detail =
                format!("{name} is no attribute name: 1 to {EXTENSION_NAME_MAX} characters a-z, 0-9");
            return Err(invalid("attributes", "attribute_name", detail));
        }
        if RESERVED_NAMES.contains(&name.as_str()) {
            let detail = format!("{name:?} has a meaning of its own; use the event's field, or another name");
            return Err(invalid("attributes", "reserved", detail));
        }
    }
    Ok(())
}

fn position(event: &pb::Event, topic: &Topic) -> Result<Position, Invalid> {
    let of_topic = &topic.spec.name;
    match (topic.spec.numbering, event.sequence) {
        (Numbering::Producer, Some(number)) => {
            let sequence = Sequence::new(number)
                .map_err(|error| invalid("sequence", "number_max", error.to_string()))?;
            let first = topic.spec.policy.first;
            if sequence < first {
                let detail =
                    format!("sequence {number} lies before {first}, the first one of topic {of_topic}");
                return Err(invalid("sequence", "first_sequence", detail));
            }
            Ok(Position::Given(sequence))
        }
        (Numbering::Producer, None) => {
            let detail =
                format!("topic {of_topic} is numbered by its producers: every event needs a sequence");
            Err(invalid("sequence", "numbering", detail))
        }
        (Numbering::Assigned, Some(_)) => {
            let detail = format!("topic {of_topic} assigns sequences by arrival: leave the sequence out");
            Err(invalid("sequence", "numbering", detail))
        }
        (Numbering::Assigned, None) if event.id.is_empty() => {
            let detail = format!("topic {of_topic} recognises duplicates by id: every event needs one");
            Err(invalid("id", "numbering", detail))
        }
        (Numbering::Assigned, None) => Ok(Position::Assigned { id: id_digest(&event.id) }),
    }
}

/// The attributes as compact JSON; absent ones are left out.
fn attrs_json(event: &pb::Event, terminal: bool) -> Cow<'static, str> {
    let own = [
        ("id", &event.id),
        ("source", &event.source),
        ("time", &event.time),
        ("contenttype", &event.datacontenttype),
    ];
    // Most events have none.
    if event.attributes.is_empty() && own.iter().all(|(_, value)| value.is_empty()) {
        return Cow::Borrowed(if terminal { r#"{"terminal":true}"# } else { "{}" });
    }
    let own = own.into_iter().filter(|(_, value)| !value.is_empty());
    let extensions = event.attributes.iter().map(|(name, value)| (name.as_str(), value));
    let mut json = String::from("{");
    for (name, value) in own.chain(extensions) {
        if json.len() > 1 {
            json.push(',');
        }
        let value = serde_json::to_string(value).expect("a text is always JSON");
        json.extend(["\"", name, "\":", &value]);
    }
    if terminal {
        json.push_str(",\"terminal\":true");
    }
    json.push('}');
    Cow::Owned(json)
}

/// What a request weighs while it is in flight.
pub fn weight(events: &[pb::Event]) -> usize {
    const ENVELOPE: usize = 256;
    // Attributes are held as they came and as JSON.
    let of_event = |event: &pb::Event| {
        event.data.len() + event.entity.len() + event.r#type.len() + 2 * attribute_bytes(event) + ENVELOPE
    };
    events.iter().map(of_event).sum()
}

/// Why a request as a whole has no results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    Unavailable(String),
    Broken(String),
}

/// The results of a request, in its order; or why there are none. An event whose
/// outcome is unknown fails the whole request: publishing it again is always safe.
pub fn results(outcomes: &mut dyn ExactSizeIterator<Item = Outcome>) -> Result<Vec<pb::Result>, Failed> {
    // Not collected, which would make room for four where there is one.
    let mut results = Vec::with_capacity(outcomes.len());
    for outcome in outcomes {
        results.push(result(outcome)?);
    }
    Ok(results)
}

fn result(outcome: Outcome) -> Result<pb::Result, Failed> {
    match outcome {
        Outcome::Decided(Decision { verdict, id }) => Ok(decided(verdict, id)),
        Outcome::Invalid(Invalid { field, reason, detail }) => Ok(pb::Result {
            verdict: pb::Verdict::Invalid.into(),
            field: field.to_owned(),
            reason: reason.to_owned(),
            detail,
            ..Default::default()
        }),
        Outcome::Refused { reason, detail } => Ok(refused(reason, detail, RETRY_AFTER_MS)),
        Outcome::Unavailable(message) => Err(Failed::Unavailable(message)),
        Outcome::Broken(message) => Err(Failed::Broken(message)),
    }
}

/// How long a refused event should wait: long enough for a gap to close.
const RETRY_AFTER_MS: u32 = 100;
/// The same where a stream is full: streams are trimmed about once a second.
const RETRY_AFTER_TRIM_MS: u32 = 1_000;

fn refused(reason: &str, detail: String, retry_after_ms: u32) -> pb::Result {
    pb::Result {
        verdict: pb::Verdict::Refused.into(),
        reason: reason.to_owned(),
        detail,
        retry_after_ms,
        ..Default::default()
    }
}

fn decided(verdict: Verdict, id: Option<StreamId>) -> pb::Result {
    let stream_id = id.map(stream_id).unwrap_or_default();
    let plain = |verdict: pb::Verdict, sequence: Sequence| pb::Result {
        verdict: verdict.into(),
        stream_id,
        sequence: sequence.get(),
        ..Default::default()
    };
    match verdict {
        Verdict::Released { sequence } => plain(pb::Verdict::Released, sequence),
        Verdict::Passed { sequence } => plain(pb::Verdict::Passed, sequence),
        Verdict::Late { sequence } => plain(pb::Verdict::Late, sequence),
        Verdict::Duplicate { sequence } => plain(pb::Verdict::Duplicate, sequence),
        Verdict::Parked { .. } => pb::Result { verdict: pb::Verdict::Parked.into(), ..Default::default() },
        Verdict::Retired { epoch } => pb::Result {
            verdict: pb::Verdict::Duplicate.into(),
            reason: "retired".to_owned(),
            detail: format!(
                "the entity ended in epoch {epoch} some time ago; a higher epoch starts it again"
            ),
            ..Default::default()
        },
        Verdict::Conflict => pb::Result {
            verdict: pb::Verdict::Conflict.into(),
            detail: "another event with this entity, epoch and sequence is parked; do not retry".to_owned(),
            ..Default::default()
        },
        Verdict::Stale { epoch } => pb::Result {
            verdict: pb::Verdict::Stale.into(),
            reason: "epoch".to_owned(),
            detail: format!("the entity is in epoch {epoch}; do not retry"),
            ..Default::default()
        },
        Verdict::Refused(refusal) => {
            refused(refusal.name(), refusal_detail(refusal), retry_after_ms(refusal))
        }
        Verdict::Again => unreachable!("an undecided event is offered again, not answered"),
    }
}

/// With room for all of it from the beginning, and without a formatter: there is one for each event.
fn stream_id(id: StreamId) -> String {
    const USUAL_BYTES: usize = 24;
    let mut text = String::with_capacity(USUAL_BYTES);
    text.push_str(itoa::Buffer::new().format(id.milliseconds));
    text.push('-');
    text.push_str(itoa::Buffer::new().format(id.counter));
    text
}

fn retry_after_ms(refusal: Refusal) -> u32 {
    match refusal {
        Refusal::AheadMax
        | Refusal::ParkedMax
        | Refusal::ParkedBytesMax
        | Refusal::PartitionParkedMax
        | Refusal::PartitionParkedBytesMax => RETRY_AFTER_MS,
        Refusal::EntriesMax | Refusal::LateMax => RETRY_AFTER_TRIM_MS,
    }
}

fn refusal_detail(refusal: Refusal) -> String {
    let detail = match refusal {
        Refusal::AheadMax => "too far ahead of the sequence that is released next; is the numbering right?",
        Refusal::ParkedMax => "too many events of this entity wait for a missing one; send that one first",
        Refusal::ParkedBytesMax => {
            "too many bytes of this entity wait for a missing event; send that one first"
        }
        Refusal::PartitionParkedMax => "too many events of this partition wait for missing ones",
        Refusal::PartitionParkedBytesMax => "too many bytes of this partition wait for missing events",
        Refusal::EntriesMax => {
            "the partition's stream is full, because a group of workers is behind; `seriatim group list` shows which"
        }
        Refusal::LateMax => {
            "the event is late, and the partition's stream of late events is full of young ones; read and trim it"
        }
    };
    format!("{detail} (topic setting {})", refusal.name())
}

pub fn resend(resend: Resend) -> pb::Resend {
    let Probe { entity, epoch, missing, .. } = resend.probe;
    pb::Resend {
        topic: resend.topic.to_string(),
        entity: entity.to_string(),
        epoch: epoch.get(),
        from: missing.first.get(),
        to: missing.last.get(),
    }
}

pub fn resumed(state: Option<LaneState>, topic: &Topic) -> pb::ResumeResponse {
    let Some(state) = state else {
        return pb::ResumeResponse { next: topic.spec.policy.first.get(), ..Default::default() };
    };
    let parked = state.parked.iter().flat_map(|parked| parked.sequences.iter());
    pb::ResumeResponse {
        known: true,
        epoch: state.epoch.get(),
        next: state.next.get(),
        parked: parked.map(|range| pb::Range { first: range.first.get(), last: range.last.get() }).collect(),
        closed: state.closed,
    }
}
