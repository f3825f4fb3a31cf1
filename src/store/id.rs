//! Where something stands in a stream: an entry by its id, an event by its entry and its place
//! in it.

use std::{fmt, str::FromStr};

use super::record::{RecordError, beginning};

/// The id of a stream entry, `milliseconds-counter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    pub milliseconds: u64,
    pub counter: u64,
}

impl StreamId {
    /// No entry can come behind it.
    pub const MAX: StreamId = StreamId { milliseconds: u64::MAX, counter: u64::MAX };
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(itoa::Buffer::new().format(self.milliseconds))?;
        f.write_str("-")?;
        f.write_str(itoa::Buffer::new().format(self.counter))
    }
}

impl FromStr for StreamId {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let parts = text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (milliseconds, counter) = parts.ok_or_else(|| RecordError::Id(beginning(text)))?;
        Ok(StreamId { milliseconds, counter })
    }
}

/// An event in a stream. In `entry` layout each is the only one of its entry, and its text is
/// the entry's id; in `batch` layout those behind the first add their place, `17-3#5`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId {
    pub entry: StreamId,
    /// Its place in the entry, from 0.
    pub index: u32,
}

impl EventId {
    /// Behind every event that this entry can hold.
    pub fn end_of(entry: StreamId) -> Self {
        EventId { entry, index: u32::MAX }
    }
}

/// The first event of an entry.
impl From<StreamId> for EventId {
    fn from(entry: StreamId) -> Self {
        EventId { entry, index: 0 }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            0 => write!(f, "{}", self.entry),
            index => write!(f, "{}#{index}", self.entry),
        }
    }
}

impl FromStr for EventId {
    type Err = RecordError;

    fn from_str(text: &str) -> Result<Self, RecordError> {
        let (entry, index) = text.split_once('#').unwrap_or((text, "0"));
        let index = index.parse().map_err(|_| RecordError::Id(beginning(text)))?;
        Ok(EventId { entry: entry.parse()?, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_ids_sort_by_number() {
        let id = |text: &str| text.parse::<StreamId>().unwrap();
        assert!(id("9-10") > id("9-9") && id("10-0") > id("9-10"));
        assert!("9".parse::<StreamId>().is_err());
    }

    #[test]
    fn events_sort_by_their_entries_first_and_read_as_they_are_written() {
        let ids = ["9-9#12", "9-10", "9-10#1", "9-10#2", "9-10#10", "10-0"];
        let parsed: Vec<EventId> = ids.map(|text| text.parse().unwrap()).to_vec();
        assert!(parsed.is_sorted());
        assert_eq!(parsed.iter().map(ToString::to_string).collect::<Vec<_>>(), ids);
        assert!(parsed[4] < EventId::end_of(parsed[4].entry) && EventId::end_of(parsed[4].entry) < parsed[5]);
        for text in ["", "9", "9-9#", "9-9#x", "9-9#-1", "#1", "9-9#4294967296"] {
            assert!(text.parse::<EventId>().is_err(), "{text:?}");
        }
    }
}
