//! How far a group is with each entity.

use super::StreamId;
use crate::order::LaneState;

/// How far an entity is acknowledged: a lane in which nothing is parked.
pub type Point = LaneState;

/// Points of entities that are retired: some of a group's, to be forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetiredPoints {
    /// Where to look for more; 0 at the beginning, and once all were looked at.
    pub cursor: u64,
    /// How far the stream went when they were found: nothing of these entities is behind that.
    pub upto: StreamId,
    /// Entities and their points, as texts.
    pub points: Vec<(String, String)>,
    /// How many of those before were forgotten.
    pub forgotten: u64,
}
