//! A feed as text, so that two can be compared: if they read alike they go on alike, given the
//! same calls at the same times. What is only counted or told to people is left out.

use std::collections::{BTreeMap, HashMap};

use super::Feed;

impl Feed {
    pub fn describe(&self) -> String {
        let staged = &self.staged;
        let read = (
            self.position,
            &self.unfinished,
            self.widest,
            &self.loose,
            &self.suspects,
            self.term,
            self.asked,
        );
        let lanes: BTreeMap<_, _> =
            self.lanes.lanes().map(|(entity, lane)| (entity, lane.state().to_string())).collect();
        let lines = (sorted(&self.lines), &self.ready, lanes, sorted(&self.lineless));
        let out = (&self.out, self.abandoned, self.is_alone, self.next_tag);
        let held = (&self.holds, sorted(&self.deferred), self.look_at_holds, self.held);
        let said = (sorted(&staged.points), &staged.heads, &staged.ended, &staged.kept, &staged.dropped);
        let commits = (said, staged.changed, self.commits, self.store_clock);
        format!("{read:?}{lines:?}{out:?}{held:?}{commits:?}")
    }
}

fn sorted<K: Ord, V>(map: &HashMap<K, V>) -> BTreeMap<&K, &V> {
    map.iter().collect()
}
