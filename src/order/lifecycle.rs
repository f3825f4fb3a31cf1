//! What an entity's events mean: which type may follow which.
//!
//! The rules release by number; a lifecycle only says whether what was released makes
//! sense. An illegal transition is marked on its entry and counted, never held back.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifecycle {
    /// Types that an epoch may begin with.
    pub initial: BTreeSet<String>,
    /// Type -> those that may follow it.
    pub transitions: BTreeMap<String, BTreeSet<String>>,
}

impl Lifecycle {
    pub(super) fn allows(&self, stage: Option<&str>, kind: &str) -> bool {
        match stage {
            None => self.initial.contains(kind),
            Some(stage) => self.transitions.get(stage).is_some_and(|next| next.contains(kind)),
        }
    }

    /// All types it speaks of. Any other is illegal wherever it stands, and leaves the
    /// stage as it is.
    pub fn types(&self) -> BTreeSet<&str> {
        let following = self.transitions.iter().flat_map(|(from, to)| to.iter().chain([from]));
        self.initial.iter().chain(following).map(String::as_str).collect()
    }
}
