//! What Redis answered about groups of workers, as our own types; what is unexpected is an
//! error, as in `reply.rs`.

use ::redis::Value;

use super::reply::{array, bytes, lane_state, map, number, pairs, parsed, text, unexpected};
use crate::{
    order::Entity,
    store::{
        Attendance, Committed, Granted, Head, HoldState, KeptEvents, LeaseSeen, Leased, Member, Point,
        RetiredPoints, StoreError, StreamId, Switches,
    },
};

/// The groups of a topic, by name.
pub fn groups(value: Value) -> Result<Vec<(String, Switches)>, StoreError> {
    let of_pair = |(name, text): (String, String)| (name, switches(&text));
    let mut groups: Vec<(String, Switches)> = pairs(value)?.into_iter().map(of_pair).collect();
    groups.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(groups)
}

/// The reply of `attend`; nothing if there is no such group.
pub fn attendance(value: Value) -> Result<Option<Attendance>, StoreError> {
    if value == Value::Nil {
        return Ok(None);
    }
    let words = array(value)?.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let (first, members) = words.split_first().ok_or_else(|| unexpected("switches", &()))?;
    let member = |pair: &[String]| Member { name: pair[0].clone(), count: pair[1].parse().unwrap_or(0) };
    let mut members: Vec<Member> = members.chunks_exact(2).map(member).collect();
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(Attendance { members, switches: switches(first) }))
}

/// Owner, term and count of a lease; nothing if there is none.
pub fn lease_seen(value: Value) -> Result<Option<LeaseSeen>, StoreError> {
    let mut values = array(value)?.into_iter();
    let (Some(owner), Some(term), Some(count)) = (values.next(), values.next(), values.next()) else {
        return Err(unexpected("owner, term and count", &()));
    };
    if term == Value::Nil {
        return Ok(None);
    }
    let owner = Some(text(owner)?).filter(|owner| !owner.is_empty());
    Ok(Some(LeaseSeen { owner, term: number(term)?, count: number(count)? }))
}

/// The reply of `group_lease`; nothing if somebody else was faster.
pub fn leased(value: Value) -> Result<Option<Leased>, StoreError> {
    if value == Value::Nil {
        return Ok(None);
    }
    let words = array(value)?.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let [term, floor, running, loose, asked, now] = &words[..] else {
        return Err(unexpected("a lease", &words));
    };
    let number = |digits: &String| digits.parse().map_err(|_| unexpected("digits", digits));
    Ok(Some(Leased {
        term: number(term)?,
        floor: parsed(floor)?,
        running: running.split_whitespace().map(parsed).collect::<Result<_, _>>()?,
        loose: loose.split_whitespace().map(parsed).collect::<Result<_, _>>()?,
        asked: number(asked)?,
        now_ms: number(now)?,
    }))
}

/// The reply of `group_commit`.
pub fn committed(value: Value) -> Result<Committed, StoreError> {
    let numbers = array(value)?.into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
    match numbers[..] {
        [1, asked, now_ms] => Ok(Committed::Done { asked, now_ms }),
        [0, term] => Ok(Committed::Fenced { term }),
        _ => Err(unexpected("a commit's answer", &numbers)),
    }
}

/// The sentinel, then the points that were asked for.
pub fn points(group: &str, value: Value) -> Result<Vec<Option<Point>>, StoreError> {
    there(group, array(value)?)?.map(lane_state).collect()
}

/// Entities that are held, by name.
pub fn heads(group: &str, value: Value) -> Result<Vec<(Entity, Head)>, StoreError> {
    let pairs = pairs(value)?;
    if pairs.is_empty() {
        return Err(no_group(group));
    }
    let mut heads: Vec<(Entity, Head)> = Vec::new();
    for (entity, head) in pairs {
        // The sentinel has no name.
        if let Ok(entity) = Entity::new(&entity) {
            heads.push((entity, head.parse()?));
        }
    }
    heads.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(heads)
}

/// The sentinel, then the events of these numbers.
pub fn kept(group: &str, numbers: Vec<u64>, value: Value) -> Result<KeptEvents, StoreError> {
    let values = there(group, array(value)?)?;
    let found = numbers.into_iter().zip(values).filter(|(_, value)| *value != Value::Nil);
    found.map(|(number, value)| Ok((number, bytes(value)?.to_vec()))).collect()
}

/// The reply of `group_wish`.
pub fn granted(value: Value) -> Result<Granted, StoreError> {
    match text(value)?.as_str() {
        "" => Ok(Granted::Done),
        "-" => Ok(Granted::NotHeld),
        letter => {
            let state = HoldState::from_letter(letter.chars().next().unwrap_or(' '));
            state.map(Granted::Unfit).ok_or_else(|| unexpected("a state", &letter))
        }
    }
}

/// The reply of `group_sweep`: where to go on.
pub fn retired_points(value: Value) -> Result<Option<RetiredPoints>, StoreError> {
    if value == Value::Nil {
        return Ok(None);
    }
    let mut values = array(value)?.into_iter();
    let mut next = || values.next().unwrap_or(Value::Okay);
    let (cursor, forgotten, upto) = (number(next())?, number(next())?, parsed(text(next())?)?);
    let words = values.map(text).collect::<Result<Vec<_>, _>>()?;
    let points = words.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    Ok(Some(RetiredPoints { cursor, upto, points, forgotten }))
}

/// The last id of a stream, of what XINFO STREAM says.
pub fn last_id(value: Value) -> Result<StreamId, StoreError> {
    let last = map(value)?.into_iter().find(|(field, _)| field == "last-generated-id");
    last.map_or(Ok(StreamId::default()), |(_, value)| parsed(text(value)?))
}

/// Consumer groups that somebody made, and the last entry that each was given, of what
/// XINFO GROUPS says.
pub fn plain_groups(value: Value) -> Result<Vec<(String, StreamId)>, StoreError> {
    let mut groups = Vec::new();
    for group in array(value)? {
        let (mut name, mut delivered) = (String::new(), StreamId::default());
        for (field, value) in map(group)? {
            match field.as_str() {
                "name" => name = text(value)?,
                "last-delivered-id" => delivered = parsed(text(value)?)?,
                _ => {}
            }
        }
        groups.push((name, delivered));
    }
    Ok(groups)
}

fn no_group(group: &str) -> StoreError {
    StoreError::NotExecuted(format!("NOGROUP there is no group {group}"))
}

/// What was asked for behind the sentinel. Without that the group is gone, and nothing found
/// would mean something else: that nothing was done, or is held.
fn there(group: &str, values: Vec<Value>) -> Result<impl Iterator<Item = Value>, StoreError> {
    let mut values = values.into_iter();
    match values.next() {
        None | Some(Value::Nil) => Err(no_group(group)),
        Some(_) => Ok(values),
    }
}

fn switches(text: &str) -> Switches {
    Switches { paused: text.contains('p'), degraded: text.contains('x') }
}
