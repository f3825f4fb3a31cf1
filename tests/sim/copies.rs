//! What of a store is on its disk and on its replica, and what WAIT would say of it.
//!
//! Nothing is promised yet about what a store had answered and then lost, and no program asks
//! for WAIT. But the state is here, and a test that says by name what is lost today.

use seriatim::store::{MemoryImage, MemoryStore};

/// A store as it was after so many calls.
#[derive(Clone)]
struct Copy {
    offset: u64,
    image: MemoryImage,
}

pub struct Copies {
    /// Calls that were executed.
    offset: u64,
    disk: Copy,
    replica: Copy,
}

/// How a store loses what it had answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losing {
    PowerCut,
    FailOver,
}

/// What a client waits for that says WAIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// All that had happened when its last command was executed, whoever wrote it (7.0).
    LastCommand,
    /// Its own last write: after a command that only looked, perhaps nothing (7.2).
    LastWrite,
}

impl Copies {
    pub fn new(store: &MemoryStore) -> Self {
        let copy = Copy { offset: 0, image: store.image() };
        Copies { offset: 0, disk: copy.clone(), replica: copy }
    }

    pub fn executed(&mut self) -> u64 {
        self.offset += 1;
        self.offset
    }

    pub fn flush(&mut self, store: &MemoryStore) {
        self.disk = Copy { offset: self.offset, image: store.image() };
    }

    pub fn replicate(&mut self, store: &MemoryStore) {
        self.replica = Copy { offset: self.offset, image: store.image() };
    }

    /// The host loses its power, and what was not on the disk is gone; or the replica takes
    /// over, and what it had not heard of is.
    pub fn lose(&mut self, losing: Losing, store: &MemoryStore) {
        let left = match losing {
            Losing::PowerCut => self.disk.clone(),
            Losing::FailOver => self.replica.clone(),
        };
        store.put_back(&left.image);
        (self.offset, self.disk, self.replica) = (left.offset, left.clone(), left);
    }

    /// Would WAIT say now that the replica has it?
    pub fn is_replicated(&self, wait_for: WaitFor, last_command: u64, last_write: Option<u64>) -> bool {
        match wait_for {
            WaitFor::LastCommand => self.replica.offset >= last_command,
            WaitFor::LastWrite => last_write.is_none_or(|write| self.replica.offset >= write),
        }
    }
}

#[test]
fn wait_says_of_a_look_that_it_is_replicated_unless_it_waits_for_all() {
    let store = MemoryStore::default();
    let mut copies = Copies::new(&store);
    let others_write = copies.executed();
    // Our command only looked at what the other one wrote.
    let look = copies.executed();
    assert!(others_write < look);
    assert!(!copies.is_replicated(WaitFor::LastCommand, look, None));
    assert!(copies.is_replicated(WaitFor::LastWrite, look, None), "though the replica has nothing");
    assert!(!copies.is_replicated(WaitFor::LastWrite, look, Some(look)));
    copies.replicate(&store);
    assert!(copies.is_replicated(WaitFor::LastCommand, look, None));
    assert!(copies.is_replicated(WaitFor::LastWrite, look, Some(look)));
}
