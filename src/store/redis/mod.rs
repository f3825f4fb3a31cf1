//! The Redis store: a script decides, next to the data.
//!
//! One connection carries all partitions, but for transactions. That keeps order because a
//! partition has at most one call in flight (the promise of [`Store::admit`]); many calls
//! of one partition on a multiplexed connection would overtake each other.
//!
//! No call is repeated here except where it certainly did not run: the script was
//! unknown to the server, or the partition was not there (a flushed or replaced
//! store), in which case the topic is opened anew first.
//!
//! **The policy in force is the one in `meta`.** Opening a topic offers ours; what others
//! offer later replaces it. Our predictions are made under our own policy, so the header
//! that a fast call expects names the version under which ours was in force. When a reply
//! shows another version we look once whether it says the same as ours; if not, calls
//! take the slow path, where the policy in `meta` decides, until ours is offered again.

mod calm;
#[cfg(test)]
mod cost;
mod encode;
mod entries;
mod fleet;
#[cfg(test)]
mod fuzz;
mod group_look;
mod group_reply;
mod groups;
mod known;
mod link;
mod look;
mod pipe;
mod port;
mod reply;
mod report;
mod resp;
mod rules;
mod script;
mod straight;
mod transaction;
mod waiter;
mod waits;

use std::sync::{Arc, Mutex, MutexGuard};

use ::redis::{Cmd, Value};
use dashmap::DashMap;
use tracing::{debug, warn};

use self::{
    calm::Calm,
    known::{Known, Tokens},
    link::Link,
    pipe::Pipe,
    reply::Answered,
    script::{OPEN_PARTITION, OPEN_TOPIC, RESUME},
    straight::{Rest, Settled},
    transaction::Trial,
};
pub use self::{
    link::{RedisSettings, Straight},
    report::ServerReport,
};
use super::{
    Admitted, Batch, Decision, Offer, OpenError, PartitionId, Path, StoreError, TopicSpec,
    keys::{PartitionKeys, probe_channel, topic_key},
    topic::{WIRE_VERSION, lists_text, policy_text},
};
use crate::order::{Entity, LaneState, Verdict};

pub struct RedisStore {
    link: Arc<Link>,
    pipe: Pipe,
    /// Identifies a store's history: given to a partition that is created by us.
    generation: u64,
    tokens: Tokens,
    straight: Straight,
    partitions: DashMap<PartitionId, Arc<Opened>>,
}

/// A partition as this process knows it.
struct Opened {
    topic: Arc<TopicSpec>,
    keys: PartitionKeys,
    channel: String,
    /// What meta says while our policy is in force and all is well.
    header: String,
    /// The last header seen under which another policy was in force.
    foreign: Mutex<String>,
    calm: Mutex<Calm>,
    /// What calls that went straight have left there.
    known: Mutex<Known>,
}

impl Opened {
    fn calm(&self) -> MutexGuard<'_, Calm> {
        self.calm.lock().expect("nobody panics holding it")
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics holding it")
    }
}

/// What a caller wants with its policy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// Put it in force.
    Offer,
    /// Only know whether it is.
    Look,
}

/// What became of a batch that might go straight.
enum Way {
    Straight(Admitted),
    /// It came to nothing.
    Barred,
    NotTried,
}

/// Is the partition gone, or made anew by somebody?
fn is_to_be_opened(reason: &str) -> bool {
    is_gone(reason) || reason.starts_with("ANOTHER")
}

fn is_gone(reason: &str) -> bool {
    reason.starts_with("UNINITIALISED")
}

impl RedisStore {
    /// Connects when first used. `generation` should differ between processes.
    pub fn new(settings: RedisSettings, generation: u64) -> Result<Self, StoreError> {
        let straight = settings.straight;
        let info = link::connection_info(&settings.url)?;
        let pipe = Pipe::new(info, settings.connect_timeout, settings.response_timeout);
        Ok(RedisStore {
            pipe,
            link: Arc::new(Link::new(settings)?),
            generation,
            tokens: Tokens::new(generation),
            straight,
            partitions: DashMap::new(),
        })
    }

    /// What the server is and how it is configured, for `doctor` and the start-up log.
    pub async fn report(&self) -> Result<ServerReport, StoreError> {
        report::read(&self.link).await
    }

    fn opened(&self, partition: &PartitionId) -> Result<Arc<Opened>, StoreError> {
        let found = self.partitions.get(partition).map(|opened| opened.clone());
        found.ok_or_else(|| StoreError::Broken(format!("partition {partition} is not open")))
    }

    /// A partition of a topic that need not be open: reading takes names only.
    fn keys(&self, partition: &PartitionId) -> PartitionKeys {
        match self.partitions.get(partition) {
            Some(opened) => opened.keys.clone(),
            None => PartitionKeys::new(partition),
        }
    }

    async fn open_topic(&self, topic: &TopicSpec) -> Result<(), OpenError> {
        self.open_record(topic).await?;
        let shared = Arc::new(topic.clone());
        for index in 0..topic.partitions {
            let id = PartitionId { topic: topic.name.as_str().into(), index };
            let opened = self.open_partition(&shared, &id, Want::Offer).await;
            opened.map_err(|source| OpenError::Store { topic: topic.name.clone(), source })?;
        }
        Ok(())
    }

    /// Creates the topic's record, or checks that it is the same topic.
    async fn open_record(&self, topic: &TopicSpec) -> Result<(), OpenError> {
        let store_error = |source| OpenError::Store { topic: topic.name.clone(), source };
        let wanted = topic.record();
        let mut call = OPEN_TOPIC.call(&[&topic_key(&topic.name)], 10, 0);
        for (field, value) in wanted.fields() {
            call.arg(field).arg(value);
        }
        let reply = self.link.run(&OPEN_TOPIC, call).await.map_err(store_error)?;
        let found = reply::record(reply).map_err(store_error)?;
        match found.mismatch(&wanted) {
            Some(mismatch) => Err(OpenError::Mismatch { topic: topic.name.clone(), mismatch }),
            None => Ok(()),
        }
    }

    /// Opens a partition; true if our policy is in force there.
    async fn open_partition(
        &self,
        topic: &Arc<TopicSpec>,
        id: &PartitionId,
        want: Want,
    ) -> Result<(Arc<Opened>, bool), StoreError> {
        let (keys, channel) = (PartitionKeys::new(id), probe_channel(id));
        let mut call = OPEN_PARTITION.call(&keys.all(), 7, 0);
        call.arg(WIRE_VERSION).arg(policy_text(&topic.policy)).arg(lists_text(&topic.policy));
        call.arg(format!("{:016x}", self.generation));
        call.arg(if want == Want::Offer { "offer" } else { "look" }).arg(&channel);
        call.arg(topic.layout.name());
        let (header, is_ours) = reply::opened(self.link.run(&OPEN_PARTITION, call).await?)?;
        let topic = topic.clone();
        let known = Mutex::new(Known::new(self.generation, topic.partitions));
        let (foreign, calm) = (Mutex::default(), Mutex::default());
        let opened = Arc::new(Opened { topic, keys, channel, header, foreign, calm, known });
        if is_ours {
            self.partitions.insert(id.clone(), opened.clone());
        }
        Ok((opened, is_ours))
    }

    /// After the store lost the partition, or somebody made it anew: the same topic
    /// must be there, or this process has no business in it any more.
    async fn reopen(&self, topic: &Arc<TopicSpec>, id: &PartitionId) -> Result<Arc<Opened>, StoreError> {
        self.open_record(topic).await.map_err(|error| match error {
            OpenError::Store { source, .. } => source,
            OpenError::Mismatch { .. } => StoreError::Broken(error.to_string()),
        })?;
        Ok(self.open_partition(topic, id, Want::Offer).await?.0)
    }

    async fn admit_batch(&self, partition: &PartitionId, batch: &Batch) -> Result<Admitted, StoreError> {
        let opened = self.opened(partition)?;
        let layout = opened.topic.layout;
        let is_barred = match self.admit_straight(partition, &opened, batch).await? {
            Way::Straight(admitted) => return Ok(admitted),
            Way::Barred => true,
            Way::NotTried => false,
        };
        let offers = batch.offers();
        let encode = |opened: &Opened| {
            let mut known = opened.known();
            known.doubt(offers);
            encode::admit(opened, offers, None, known.token())
        };
        let (opened, value) = self.run_opened(partition, script::admit(layout), encode).await?;
        let mut admitted = self.read_admitted(partition, &opened, value, offers).await?;
        let is_released = |decision: &Decision| matches!(decision.verdict, Verdict::Released { .. });
        let is_as_expected = admitted.decisions[..batch.parts().0.len()].iter().all(is_released);
        if is_barred {
            admitted.path = Path::Barred;
        } else {
            opened.calm().note(is_as_expected);
        }
        Ok(admitted)
    }

    async fn admit_straight(
        &self,
        partition: &PartitionId,
        opened: &Opened,
        batch: &Batch,
    ) -> Result<Way, StoreError> {
        let room = || self.pipe.room();
        let straightened = straight::straighten(self.straight, opened, batch, &self.tokens, room);
        let Some((transaction, straightened)) = straightened else { return Ok(Way::NotTried) };
        let answers = self.pipe.transact(transaction, Trial { keys: &opened.keys }).await;
        if !matches!(answers, Ok(Some(_))) {
            opened.known().lose();
            opened.calm().end();
        }
        let Some(answers) = answers? else { return Ok(Way::Barred) };
        let settled = match straightened.settled(answers, opened) {
            Err(StoreError::NotExecuted(reason)) => {
                debug!(reason, "nobody judged a transaction");
                self.pipe.renew().await;
                None
            }
            settled => settled?,
        };
        let Some(Settled { mut admitted, rest }) = settled else { return Ok(Way::Barred) };
        if let Some(rest) = rest {
            let places = rest.places.clone();
            admitted.join(self.admit_rest(partition, opened, rest).await?, &places);
            admitted.path = Path::Mixed;
        }
        Ok(Way::Straight(admitted))
    }

    /// What became of the events behind those that went straight. A call that failed inside of their transaction,
    /// because the script was not known, say, is made once more by itself.
    async fn admit_rest(
        &self,
        partition: &PartitionId,
        opened: &Opened,
        Rest { offers, answer, .. }: Rest,
    ) -> Result<Admitted, StoreError> {
        let answer = match answer {
            Some(answer) => answer,
            None => {
                let call = encode::admit(opened, &offers, None, opened.known().token());
                self.link.run(script::admit(opened.topic.layout), call).await?
            }
        };
        self.read_admitted(partition, opened, answer, &offers).await
    }

    async fn read_admitted(
        &self,
        partition: &PartitionId,
        opened: &Opened,
        value: Value,
        offers: &[Offer],
    ) -> Result<Admitted, StoreError> {
        let Answered { admitted, header, states } = reply::admitted(value, offers, opened.topic.layout)?;
        opened.known().learn(offers, &admitted.decisions, &states);
        if let Some(header) = header {
            self.note_header(partition, opened, header).await;
        }
        Ok(admitted)
    }

    /// Calls a script on an open partition, once more if the partition had to be opened
    /// anew first.
    async fn run_opened(
        &self,
        partition: &PartitionId,
        script: &script::Script,
        encode: impl Fn(&Opened) -> Cmd,
    ) -> Result<(Arc<Opened>, Value), StoreError> {
        let mut opened = self.opened(partition)?;
        let mut reopened = false;
        loop {
            match self.link.run(script, encode(&opened)).await {
                Ok(value) => return Ok((opened, value)),
                Err(StoreError::NotExecuted(reason)) if !reopened && is_to_be_opened(&reason) => {
                    // Time alone brings nothing back that was deleted.
                    if is_gone(&reason) && !script.admits() {
                        return Err(StoreError::NotExecuted(reason));
                    }
                    warn!(%partition, reason, "opening this partition anew");
                    opened = self.reopen(&opened.topic, partition).await?;
                    reopened = true;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Another version of the policy came into force: is it ours all the same?
    async fn note_header(&self, partition: &PartitionId, opened: &Opened, header: String) {
        let is_known = {
            let mut foreign = opened.foreign.lock().expect("nobody panics holding it");
            let is_known = header == opened.header || *foreign == header;
            if !is_known {
                foreign.clone_from(&header);
            }
            is_known
        };
        if is_known {
            return;
        }
        if let Ok((_, false)) = self.open_partition(&opened.topic, partition, Want::Look).await {
            warn!(
                %partition,
                header,
                "another sidecar put a policy in force that is not in this one's configuration; events are \
                 decided by that policy"
            );
        }
    }

    async fn resume_entity(
        &self,
        partition: &PartitionId,
        entity: &Entity,
    ) -> Result<Option<LaneState>, StoreError> {
        let keys = self.keys(partition);
        reply::lane_state(self.run_resume(&keys, entity.as_str()).await?)
    }

    async fn run_resume(&self, keys: &PartitionKeys, entity: &str) -> Result<Value, StoreError> {
        let mut of_script: Vec<&str> = vec![&keys.lanes, &keys.meta];
        of_script.extend(keys.tombs.iter().map(String::as_str));
        let mut call = RESUME.call(&of_script, 1, 0);
        call.arg(entity);
        self.link.run(&RESUME, call).await
    }

    async fn query(&self, command: Cmd) -> Result<Value, StoreError> {
        self.link.send(&command).await
    }
}
