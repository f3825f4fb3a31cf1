//! What is under way in the store, and what follows when it is done.

use std::{ops::Range, time::Duration};

use futures_util::FutureExt;
use tracing::{debug, warn};

use super::Worker;
use crate::{
    deliver::{
        consumer::{Delivered, Delivery},
        feed::Started,
        task::Task,
    },
    order::Entity,
    store::{
        Attendance, Commit, Committed, Head, LeaseSeen, Leased, Member, PartitionId, Point, Read,
        RetiredPoints, Start, StoreError, StreamId, Streams, Waiter,
    },
};

/// All that is held in a partition.
type Heads = Vec<(Entity, Head)>;

/// Something that was asked of the store, and its answer.
pub enum Op {
    Attended(Result<Option<Attendance>, StoreError>),
    Registered(Result<bool, StoreError>),
    Departed,
    Seen(Result<Vec<LeaseSeen>, StoreError>),
    Leased(u32, Result<Option<(Leased, Heads)>, StoreError>),
    /// With what is held, if a person has decided something meanwhile.
    Committed(u32, u64, Result<(Committed, Option<Heads>), StoreError>),
    Read(u32, u64, usize, Result<Vec<Read>, StoreError>),
    /// It is time to read again.
    Paused(u32, u64),
    Met(u32, u64, Vec<Read>, Result<Vec<(Entity, Option<Point>)>, StoreError>),
    /// For at most so many entries of each partition.
    Waited(Vec<(u32, u64)>, usize, Box<dyn Waiter>, Result<Streams, StoreError>),
    Fetched(u32, u64, Entity, Range<u64>, Result<Vec<(u64, Task)>, StoreError>),
    Swept(u32, u64, Result<Option<RetiredPoints>, StoreError>),
    Released(u32, Result<(), StoreError>),
}

/// How long one wait for new entries takes: a partition that comes to wait meanwhile waits
/// for that.
const WAIT: Duration = Duration::from_millis(100);
/// The same while other partitions are being read: to look, not to wait.
const LOOK: Duration = Duration::from_millis(1);
/// How often it is read on while the handlers have enough to do: others may be behind that.
const AHEAD_EVERY_MS: u64 = 100;
/// Between two attempts to commit.
const COMMIT_AGAIN: Duration = Duration::from_millis(50);
/// How often some points are looked at, how often while that finds what can be forgotten, and how many.
const SWEEP_EVERY_MS: u64 = 1_000;
const SWEEP_AGAIN_MS: u64 = 100;
const SWEEP_COUNT: usize = 512;
/// After a call that failed.
const PAUSE: Duration = Duration::from_millis(200);

impl Worker {
    pub(super) fn attend(&mut self) {
        let (store, group) = (self.store.clone(), self.group.clone());
        let member = Member { name: self.me.clone(), count: self.attending.times };
        self.ops.push(async move { Op::Attended(store.attend(&group, &member).await) }.boxed());
    }

    pub(super) fn watch(&mut self) {
        let (store, group, partitions) = (self.store.clone(), self.group.clone(), self.partitions);
        self.ops.push(async move { Op::Seen(store.leases(&group, partitions).await) }.boxed());
    }

    pub(super) fn take(&mut self, index: u32, seen: LeaseSeen) {
        let (store, id, group) = (self.store.clone(), self.partition(index), self.group_name.clone());
        let me = self.me.clone();
        let take = async move {
            let Some(leased) = store.lease(&id, &group, &me, &seen).await? else { return Ok(None) };
            let heads = store.heads(&id, &group).await?;
            Ok(Some((leased, heads)))
        };
        self.ops.push(take.map(move |outcome| Op::Leased(index, outcome)).boxed());
    }

    pub(super) fn commit(&mut self, index: u32) {
        let (store, clock, id) = (self.store.clone(), self.clock.clone(), self.partition(index));
        let group = self.group_name.clone();
        let now = self.now();
        let slot = self.slots.get_mut(&index).expect("somebody saw it a moment ago");
        let commit: Commit = slot.feed.commit();
        (slot.is_committing, slot.committed_at) = (true, now);
        slot.started = std::mem::take(&mut slot.starting);
        slot.confirmed = std::mem::take(&mut slot.confirming);
        let (term, asked_before) = (slot.feed.term(), slot.feed.asked());
        // For as long as it takes: whatever happens meanwhile, it is applied once or fenced.
        let write = async move {
            loop {
                let outcome = async {
                    let committed = store.commit(&id, &group, &commit).await?;
                    // Before anything else is committed, or what is read would be older than
                    // what is known.
                    let is_asked =
                        matches!(committed, Committed::Done { asked, .. } if asked != asked_before);
                    let heads = if is_asked { Some(store.heads(&id, &group).await?) } else { None };
                    Ok((committed, heads))
                };
                match outcome.await {
                    Err(error) if StoreError::is_passing(&error) && !is_no_group(&error) => {
                        debug!(partition = %id, %error, "a commit is tried again");
                        clock.sleep(COMMIT_AGAIN).await;
                    }
                    outcome => return Op::Committed(index, term, outcome),
                }
            }
        };
        self.ops.push(write.boxed());
    }

    /// Reads on, if all that is there was not read yet.
    pub(super) fn read(&mut self, index: u32, now: u64) {
        let (store, id) = (self.store.clone(), self.partition(index));
        let (batch, is_closing) = (self.options.batch, self.is_closing);
        let ahead = (2 * batch).min(self.options.window_entries / 2);
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let count = slot.feed.entries_of(slot.feed.room().min(batch));
        let is_too_soon = slot.feed.in_hand() > ahead && now < slot.read_at + AHEAD_EVERY_MS;
        // What is given back is not read any more, or there would always be something new.
        let is_leaving = slot.is_giving_back || is_closing;
        if slot.is_reading || slot.is_caught_up || count == 0 || is_too_soon || is_leaving {
            return;
        }
        (slot.is_reading, slot.read_at) = (true, now);
        let (term, after) = (slot.feed.term(), slot.feed.position());
        let read = async move { Op::Read(index, term, count, store.read_on(&id, after, count).await) };
        self.ops.push(read.boxed());
    }

    /// Waits for new entries of those partitions of which everything was read.
    pub(super) fn wait(&mut self) {
        if self.waiter.is_none() {
            return;
        }
        let mut waiting: Vec<(PartitionId, StreamId)> = Vec::new();
        let (mut slots, mut others_read, mut count) = (Vec::new(), false, usize::MAX);
        let now = self.now();
        let topic = self.topic.clone();
        for (index, slot) in &mut self.slots {
            let is_leaving = slot.is_giving_back || self.is_closing;
            if slot.is_caught_up && !slot.is_reading && slot.feed.room() > 0 && !is_leaving {
                waiting.push((PartitionId { topic: topic.clone(), index: *index }, slot.feed.position()));
                slots.push((*index, slot.feed.term()));
                // One number for all of them: by whose entries are widest.
                count = count.min(slot.feed.entries_of(self.options.batch));
                (slot.is_reading, slot.read_at) = (true, now);
            } else {
                others_read |= slot.is_reading && !slot.is_pausing;
            }
        }
        if waiting.is_empty() {
            return;
        }
        let mut waiter = self.waiter.take().expect("it was there a moment ago");
        let at_most = if others_read { LOOK } else { WAIT };
        let wait = async move {
            let outcome = waiter.wait(&waiting, count, at_most).await;
            Op::Waited(slots, count, waiter, outcome)
        };
        self.ops.push(wait.boxed());
    }

    /// Looks up where entities stand that came into view, then takes the entries.
    fn meet(&mut self, index: u32, reads: Vec<Read>) {
        let (store, id, group) = (self.store.clone(), self.partition(index), self.group_name.clone());
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let unknown = slot.feed.unknown(&reads);
        if unknown.is_empty() {
            slot.take_in(reads, Vec::new());
            return;
        }
        slot.is_looking_up = true;
        let term = slot.feed.term();
        let look = async move {
            let points = store.points(&id, &group, &unknown).await;
            let points = points.map(|points| unknown.into_iter().zip(points).collect());
            Op::Met(index, term, reads, points)
        };
        self.ops.push(look.boxed());
    }

    pub(super) fn fetch_held(&mut self, index: u32, now: u64) {
        let (store, id, group) = (self.store.clone(), self.partition(index), self.group_name.clone());
        let Some(slot) = self.slots.get_mut(&index) else { return };
        // What the commit under way brings is not there yet.
        if slot.is_committing {
            return;
        }
        let term = slot.feed.term();
        for (entity, numbers) in slot.feed.wanted(now) {
            let (store, id, group) = (store.clone(), id.clone(), group.clone());
            let fetch = async move {
                let kept = store.kept(&id, &group, &entity, numbers.clone()).await;
                let task = |(number, text): (u64, Vec<u8>)| Ok((number, Task::from_text(&text)?));
                let tasks = kept.and_then(|kept| kept.into_iter().map(task).collect());
                Op::Fetched(index, term, entity, numbers, tasks)
            };
            self.ops.push(fetch.boxed());
        }
    }

    /// Forgets what is known of retired entities, a little at a time. The store does so once it
    /// knows that the group has come past them.
    pub(super) fn sweep(&mut self, index: u32, now: u64) {
        let (store, id, group) = (self.store.clone(), self.partition(index), self.group_name.clone());
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let found = &slot.retired;
        let every = if found.points.is_empty() { SWEEP_EVERY_MS } else { SWEEP_AGAIN_MS };
        let has_come_past = found.points.is_empty() || slot.feed.floor() >= found.upto;
        if slot.is_sweeping || now < slot.swept_at + every || !has_come_past {
            return;
        }
        (slot.swept_at, slot.is_sweeping) = (now, true);
        let (term, found) = (slot.feed.term(), found.clone());
        let sweep = async move {
            Op::Swept(index, term, store.sweep_points(&id, &group, term, &found, SWEEP_COUNT).await)
        };
        self.ops.push(sweep.boxed());
    }

    /// Gives a partition back once nothing of it is in hand.
    pub(super) fn release_if_done(&mut self, index: u32) {
        let (store, id, group) = (self.store.clone(), self.partition(index), self.group_name.clone());
        let is_closing = self.is_closing;
        let Some(slot) = self.slots.get_mut(&index) else { return };
        let is_wanted = slot.is_giving_back || is_closing;
        let is_done = slot.feed.running() == 0 && !slot.is_committing && !slot.feed.has_news();
        if is_wanted && is_done {
            let term = slot.feed.term();
            self.slots.remove(&index);
            let release = async move { Op::Released(index, store.release(&id, &group, term).await) };
            self.ops.push(release.boxed());
        }
    }

    fn is_term(&self, index: u32, term: u64) -> bool {
        self.slots.get(&index).is_some_and(|slot| slot.feed.term() == term)
    }

    pub(super) fn done(&mut self, op: Op) {
        match op {
            Op::Attended(outcome) => self.attended(outcome),
            Op::Registered(outcome) => {
                self.attending.is_under_way = false;
                if let Err(error) = outcome {
                    warn!(group = %self.group, %error, "the group could not be registered");
                }
            }
            Op::Departed => {}
            Op::Seen(outcome) => {
                self.watching.is_under_way = false;
                match outcome {
                    Ok(seen) => self.leases_seen(&seen),
                    Err(error) => debug!(group = %self.group, %error, "leases were not seen"),
                }
            }
            Op::Leased(index, outcome) => self.taken(index, outcome),
            Op::Committed(index, term, outcome) if self.is_term(index, term) => {
                self.committed(index, term, outcome);
            }
            Op::Read(index, term, count, outcome) if self.is_term(index, term) => match outcome {
                Ok(reads) => {
                    let slot = self.slots.get_mut(&index).expect("its term was compared");
                    slot.note_end(Read::entries(&reads) < count);
                    self.meet(index, reads);
                }
                Err(error) => self.read_failed(index, &error),
            },
            Op::Paused(index, term) if self.is_term(index, term) => {
                let slot = self.slots.get_mut(&index).expect("its term was compared");
                (slot.is_reading, slot.is_pausing) = (false, false);
            }
            Op::Met(index, term, reads, outcome) if self.is_term(index, term) => {
                let slot = self.slots.get_mut(&index).expect("its term was compared");
                slot.is_looking_up = false;
                match outcome {
                    Ok(points) => slot.take_in(reads, points),
                    Err(error) => self.read_failed(index, &error),
                }
            }
            Op::Waited(slots, count, waiter, outcome) => {
                self.waiter = Some(waiter);
                self.waited(&slots, count, outcome);
            }
            Op::Fetched(index, term, entity, numbers, outcome) if self.is_term(index, term) => {
                let now = self.now();
                if let Err(error) = &outcome {
                    warn!(group = %self.group, partition = index, %error, "what is held was not fetched");
                }
                let slot = self.slots.get_mut(&index).expect("its term was compared");
                slot.feed.fetched(&entity, numbers, outcome.ok(), now);
            }
            Op::Swept(index, term, outcome) if self.is_term(index, term) => {
                let slot = self.slots.get_mut(&index).expect("its term was compared");
                slot.is_sweeping = false;
                if let Ok(Some(found)) = outcome {
                    slot.retired = found;
                }
            }
            Op::Released(index, Err(error)) => {
                debug!(partition = index, %error, "a partition was not given back; its lease runs out");
            }
            // Of a lease that is over.
            Op::Committed(..)
            | Op::Read(..)
            | Op::Paused(..)
            | Op::Met(..)
            | Op::Fetched(..)
            | Op::Swept(..)
            | Op::Released(..) => {}
        }
    }

    fn taken(&mut self, index: u32, outcome: Result<Option<(Leased, Heads)>, StoreError>) {
        self.taking.remove(&index);
        match outcome {
            Ok(Some((leased, heads))) if !self.is_closing => self.leased(index, leased, heads),
            Ok(Some((leased, _))) => self.give_back_unused(index, leased.term),
            Ok(None) => {}
            Err(error) => {
                warn!(group = %self.group, partition = index, %error, "a partition was not taken");
                // A removal that crossed a registration leaves a lease without a floor.
                if is_no_group(&error) && !self.is_closing {
                    self.register_anew();
                }
            }
        }
    }

    fn attended(&mut self, outcome: Result<Option<Attendance>, StoreError>) {
        self.attending.is_under_way = false;
        match outcome {
            Ok(Some(attendance)) => {
                let now = self.now();
                if attendance.switches.degraded != self.switches.degraded {
                    let degraded = attendance.switches.degraded;
                    self.slots.values_mut().for_each(|slot| slot.feed.set_degraded(degraded));
                }
                self.switches = attendance.switches;
                for gone in self.book.attended(&attendance.members, now) {
                    let (store, group) = (self.store.clone(), self.group.clone());
                    let depart = async move {
                        let _ = store.depart(&group, &gone).await;
                        Op::Departed
                    };
                    self.ops.push(depart.boxed());
                }
            }
            Ok(None) => {
                warn!(group = %self.group, "the group is not registered any more; registering it anew");
                self.register_anew();
            }
            Err(error) => debug!(group = %self.group, %error, "the members were not seen"),
        }
    }

    /// From the beginning, whatever it was at first: better twice than never.
    pub(super) fn register_anew(&mut self) {
        if std::mem::replace(&mut self.attending.is_under_way, true) {
            return;
        }
        let (store, group, partitions) = (self.store.clone(), self.group.clone(), self.partitions);
        let register =
            async move { Op::Registered(store.register(&group, partitions, Start::Beginning).await) };
        self.ops.push(register.boxed());
    }

    /// Taken at the last moment: for somebody else.
    fn give_back_unused(&mut self, index: u32, term: u64) {
        let (store, id, group) = (self.store.clone(), self.partition(index), self.group_name.clone());
        let release = async move { Op::Released(index, store.release(&id, &group, term).await) };
        self.ops.push(release.boxed());
    }

    fn committed(&mut self, index: u32, term: u64, outcome: Result<(Committed, Option<Heads>), StoreError>) {
        match outcome {
            Ok((Committed::Done { asked, now_ms }, heads)) => {
                let now = self.now();
                let slot = self.slots.get_mut(&index).expect("its term was compared");
                (slot.is_committing, slot.is_moving) = (false, true);
                for confirm in slot.confirmed.drain(..) {
                    let _ = confirm.send(Ok(()));
                }
                let started = std::mem::take(&mut slot.started);
                slot.feed.committed(asked, now_ms, now, slot.is_looking_up);
                if let Some(heads) = heads {
                    slot.feed.heads(heads);
                }
                started.into_iter().for_each(|started| self.hand_out(index, term, started));
            }
            Ok((Committed::Fenced { term }, _)) => self.lose(index, term),
            Err(error) => {
                // Nothing is known of what was written: the next owner finds out.
                warn!(group = %self.group, partition = index, %error, "a partition is let go: it cannot be committed");
                self.lose(index, term);
            }
        }
    }

    fn hand_out(&self, index: u32, term: u64, started: Started) {
        let Started { tag, entity, task, attempt } = started;
        let _ = self.deliver.send(Delivery {
            partition: index,
            term,
            entity: entity.to_string(),
            epoch: task.epoch.get(),
            sequence: task.sequence.get(),
            attempt,
            id: task.id,
            content: Delivered::of(task.what),
            answers: Some((tag, self.answer.clone())),
            is_taken: false,
        });
    }

    fn waited(&mut self, slots: &[(u32, u64)], count: usize, outcome: Result<Streams, StoreError>) {
        let slots: Vec<u32> = slots
            .iter()
            .filter(|(index, term)| self.is_term(*index, *term))
            .map(|(index, _)| *index)
            .collect();
        match outcome {
            Ok(mut streams) => {
                for index in slots {
                    // One that is not in the answer has nothing new.
                    let stream = streams.iter_mut().find(|(id, _)| id.index == index);
                    let reads = stream.map(|(_, reads)| std::mem::take(reads)).unwrap_or_default();
                    let slot = self.slots.get_mut(&index).expect("its term was compared");
                    slot.note_end(Read::entries(&reads) < count);
                    self.meet(index, reads);
                }
            }
            Err(error) => {
                debug!(group = %self.group, %error, "waiting for entries failed");
                // Read without waiting, after a pause.
                slots.into_iter().for_each(|index| self.read_failed(index, &error));
            }
        }
    }

    /// Tries again, not at once.
    fn read_failed(&mut self, index: u32, error: &StoreError) {
        debug!(partition = index, %error, "entries were not read");
        let Some(slot) = self.slots.get_mut(&index) else { return };
        (slot.is_reading, slot.is_pausing, slot.is_caught_up) = (true, true, false);
        slot.ends_at = None;
        let (clock, term) = (self.clock.clone(), slot.feed.term());
        let pause = async move {
            clock.sleep(PAUSE).await;
            Op::Paused(index, term)
        };
        self.ops.push(pause.boxed());
    }
}

fn is_no_group(error: &StoreError) -> bool {
    error.to_string().contains("NOGROUP")
}
