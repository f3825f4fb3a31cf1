//! Verdicts, entries, notes and findings as the files write them.

use seriatim::{
    order::{Announcement, Finding, Note, Order, Probe, Swept, Verdict},
    store::{Elapsed, Entry, Measure, Trimmed},
};

pub fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Released { sequence } => format!("RELEASED {sequence}"),
        Verdict::Parked { depth } => format!("PARKED {depth}"),
        Verdict::Passed { sequence } => format!("PASSED {sequence}"),
        Verdict::Duplicate { sequence } => format!("DUPLICATE {sequence}"),
        Verdict::Retired { .. } => "DUPLICATE retired".to_owned(),
        Verdict::Late { sequence } => format!("LATE {sequence}"),
        Verdict::Conflict => "CONFLICT".to_owned(),
        Verdict::Stale { epoch } => format!("STALE {epoch}"),
        Verdict::Refused(refusal) => format!("REFUSED {}", refusal.name()),
        Verdict::Again => "AGAIN".to_owned(),
    }
}

/// An entry without its entity. A marker of an unknown shape is shown as it is.
pub fn entry(entry: &Entry) -> String {
    let Entry { epoch, sequence, kind, attrs, .. } = entry;
    if entry.order == Order::Marker
        && let Some(marker) = marker(entry)
    {
        return marker;
    }
    let data = String::from_utf8_lossy(&entry.data);
    let mut shown = format!("{} {epoch}/{sequence} {data}", entry.order.name());
    if kind != "step" {
        shown += &format!(" type={kind}");
    }
    if attrs != "{}" {
        shown += &format!(" attrs={attrs}");
    }
    shown
}

/// Does it concern the whole partition?
pub fn is_edge(entry: &Entry) -> bool {
    entry.entity.is_empty()
}

pub fn entry_of_stream(of_stream: &Entry) -> String {
    if is_edge(of_stream) {
        return entry(of_stream);
    }
    format!("{} {}", of_stream.entity, entry(of_stream))
}

fn marker(entry: &Entry) -> Option<String> {
    let Entry { epoch, sequence, attrs, .. } = entry;
    serde_json::from_str::<serde_json::Value>(attrs).ok()?;
    let reason_only = || attrs.strip_prefix(r#"{"reason":""#)?.strip_suffix(r#""}"#);
    match entry.kind.as_str() {
        _ if !entry.data.is_empty() => None,
        "seriatim.gap" => {
            let inner = attrs.strip_prefix(r#"{"reason":""#)?.strip_suffix('}')?;
            let (reason, rest) = inner.split_once(r#"","from":"#)?;
            let (from, rest) = rest.split_once(',').unwrap_or((rest, ""));
            let (waited, audit) = match rest.strip_prefix(r#""waited":"#) {
                Some(rest) => rest.split_once(',').unwrap_or((rest, "")),
                None => ("0", rest),
            };
            let mut shown = format!("gap {epoch}/{from}-{sequence} {reason}");
            if waited != "0" {
                shown += &format!(" after {waited}");
            }
            if !audit.is_empty() {
                shown += &format!(" {audit}");
            }
            Some(shown)
        }
        "seriatim.epoch" => {
            let previous = attrs.strip_prefix(r#"{"previous":"#)?.strip_suffix('}')?;
            Some(format!("epoch {epoch}/{sequence} after {previous}"))
        }
        "seriatim.degraded" if is_edge(entry) => Some(format!("degraded {}", reason_only()?)),
        "seriatim.restored" if is_edge(entry) => Some(format!("restored {}", reason_only()?)),
        _ => None,
    }
}

pub fn note(note: Note) -> String {
    match note {
        Note::Filled(ms) => format!("filled {ms}"),
        Note::Skipped(reason) => format!("skipped {}", reason.name()),
        Note::Probed => "probed".to_owned(),
        Note::Illegal => "illegal".to_owned(),
        Note::Distance(places) => format!("distance {places}"),
        Note::WouldWait(ms) => format!("would wait {ms}"),
        Note::WouldSkip => "would skip".to_owned(),
        Note::WouldBeLate => "would be late".to_owned(),
    }
}

pub fn probe(probe: &Probe) -> String {
    let Probe { entity, epoch, missing, is_extensible } = probe;
    let extensible = if *is_extensible { " extensible" } else { "" };
    format!("{entity} {epoch}/{}-{}{extensible}", missing.first, missing.last)
}

pub fn more(more: bool) -> &'static str {
    if more { "more" } else { "done" }
}

pub fn elapsed(elapsed: &Elapsed) -> String {
    match elapsed {
        Elapsed { ran: false, .. } => "early".to_owned(),
        Elapsed { lanes: 1, .. } => format!("1 lane, {}", more(elapsed.more)),
        Elapsed { lanes, .. } => format!("{lanes} lanes, {}", more(elapsed.more)),
    }
}

pub fn announcement(announcement: Announcement) -> &'static str {
    match announcement {
        Announcement::Noted => "noted",
        Announcement::Begun => "begun",
        Announcement::Full => "full",
    }
}

pub fn trimmed(trimmed: &Trimmed) -> Vec<String> {
    if !trimmed.ran {
        return vec!["early".to_owned()];
    }
    let counts = [("events", trimmed.events), ("late", trimmed.late)].into_iter();
    counts.filter(|(_, count)| *count > 0).map(|(what, count)| format!("{what} {count}")).collect()
}

pub fn full(measure: &Measure) -> Vec<String> {
    let streams = [("events", measure.full), ("late", measure.late_full)].into_iter();
    streams.filter(|(_, full)| *full).map(|(stream, _)| stream.to_owned()).collect()
}

pub fn swept(swept: &Swept) -> Vec<String> {
    let finding = |finding: &Finding| match finding {
        Finding::Stuck { entity, state, since } => format!("stuck {entity} {state} since {since}"),
        Finding::Missing { entity, due } => format!("missing {entity} due {due}"),
    };
    let mut shown: Vec<String> = swept.findings.iter().map(finding).collect();
    for (what, count) in [("retired", swept.retired), ("forgotten", swept.forgotten)] {
        if count > 0 {
            shown.push(format!("{what} {count}"));
        }
    }
    if swept.more {
        shown.push("more".to_owned());
    }
    shown
}
