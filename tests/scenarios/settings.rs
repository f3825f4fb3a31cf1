//! The words of a `policy` line.

use std::collections::BTreeSet;

use seriatim::{
    order::{BreakerPolicy, LatePlace, Lifecycle, Ordering, Overflow, Sequence},
    store::{Numbering, TopicSpec},
};

pub fn set(topic: &mut TopicSpec, setting: &str) -> Result<(), String> {
    let (name, value) = setting.split_once('=').ok_or("a setting is written name=value")?;
    let policy = &mut topic.policy;
    let (rollout, times) = (&mut policy.rollout, &mut policy.retirement);
    let retention = &mut policy.retention;
    let limit = match name {
        "parked_max" => &mut policy.parked_max,
        "parked_bytes_max" => &mut policy.parked_bytes_max,
        "partition_parked_max" => &mut policy.partition_parked_max,
        "partition_parked_bytes_max" => &mut policy.partition_parked_bytes_max,
        "ahead_max" => &mut policy.ahead_max,
        "append_max" => &mut policy.append_max,
        "announced_max" => &mut policy.announced_max,
        "percent" => &mut rollout.percent,
        "gap_wait_live" => &mut policy.gap_wait_live,
        "parked_age_max" => &mut policy.parked_age_max,
        "terminal_wait" => &mut policy.terminal_wait,
        "stuck_after" => &mut times.stuck_after,
        "retire_after" => &mut times.retire_after,
        "idle_retire_after" => &mut times.idle_retire_after,
        "remember_for" => &mut times.remember_for,
        "retain_ms" => &mut retention.retain_ms,
        "retain_entries" => &mut retention.retain_entries,
        "entries_max" => &mut retention.entries_max,
        "late_retain_ms" => &mut retention.late_retain_ms,
        "late_max" => &mut retention.late_max,
        _ => return set_other(topic, name, value),
    };
    *limit = number(value)?;
    Ok(())
}

fn set_other(topic: &mut TopicSpec, name: &str, value: &str) -> Result<(), String> {
    let policy = &mut topic.policy;
    match (name, value) {
        ("numbering", "assigned") => topic.numbering = Numbering::Assigned,
        ("ordering", "enforce") => policy.ordering = Ordering::Enforce,
        ("ordering", "shadow") => policy.ordering = Ordering::Shadow,
        ("ordering", "off") => policy.ordering = Ordering::Off,
        ("late", "inline") => policy.late = LatePlace::Inline,
        ("overflow", "skip") => policy.overflow = Overflow::Skip,
        ("overflow", "refuse") => policy.overflow = Overflow::Refuse,
        ("first", digits) => policy.first = sequence_of(digits)?,
        ("gap_waits", list) => policy.gap_waits = words(list).map(number).collect::<Result<_, _>>()?,
        ("breaker", list) => policy.breaker = breaker(list)?,
        ("allow", list) => policy.rollout.allow = words(list).map(str::to_owned).collect(),
        ("deny", list) => policy.rollout.deny = words(list).map(str::to_owned).collect(),
        ("terminal_types", list) => policy.terminal_types = set_of(list),
        ("initial", list) => policy.lifecycle.get_or_insert_default().initial = set_of(list),
        ("transitions", list) => transitions(policy.lifecycle.get_or_insert_default(), list)?,
        _ => return Err(format!("no topic is set with {name}={value}")),
    }
    Ok(())
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').filter(|word| !word.is_empty())
}

fn set_of(list: &str) -> BTreeSet<String> {
    words(list).map(str::to_owned).collect()
}

fn breaker(list: &str) -> Result<BreakerPolicy, String> {
    let numbers = words(list).map(number).collect::<Result<Vec<_>, _>>()?;
    let [skips, window, hold] = numbers[..] else {
        return Err("a breaker is written skips,window,hold".into());
    };
    Ok(BreakerPolicy { skips, window, hold })
}

fn transitions(lifecycle: &mut Lifecycle, list: &str) -> Result<(), String> {
    for pair in words(list) {
        let (from, to) = pair.split_once('>').ok_or("a transition is written from>to")?;
        lifecycle.transitions.entry(from.to_owned()).or_default().insert(to.to_owned());
    }
    Ok(())
}

pub fn number(digits: &str) -> Result<u64, String> {
    digits.parse().map_err(|_| format!("{digits:?} is not a number"))
}

pub fn sequence_of(digits: &str) -> Result<Sequence, String> {
    Sequence::new(number(digits)?).map_err(|error| error.to_string())
}
