//! Who is connected, and may still have an event that is missing.
//!
//! A gap is probed by asking the producers of its entity to publish the missing events
//! again. A stream remembers which entities it published, in a table of fixed size: a
//! newer entity may push an older one out, whose producer is then not asked. Memory does
//! not grow with entities.

use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::sync::mpsc;
use tracing::{debug, warn};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::{Ports, closing::Closing};
use crate::{
    metrics::TopicMetrics,
    order::{Entity, Probe},
    store::{GapId, PartitionId, partition_of},
};

/// Entities that one stream remembers: in so many groups, so many in each, 33 KiB in all.
const GROUPS: usize = 1024;
const IN_GROUP: usize = 8;
/// Questions that wait for one stream; further ones are dropped, and asked again by the
/// next probe.
const RESENDS_WAITING_MAX: usize = 1024;
/// After so long without a word somebody calls out; who does not hear that either has lost
/// the connection without being told, and listens anew.
const QUIET: Duration = Duration::from_secs(5);
/// Waits that are extended at once; a message may carry a probe for each lane of a look.
const EXTENSIONS_AT_ONCE: usize = 32;
/// Between two attempts to listen for probes.
const LISTEN_AGAIN: Duration = Duration::from_millis(500);

/// A question to a producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resend {
    pub topic: Arc<str>,
    pub probe: Probe,
}

/// All streams of this sidecar.
#[derive(Default)]
pub struct LiveStreams {
    streams: Mutex<Vec<Weak<Shared>>>,
}

/// One stream; it is alive until this is dropped.
pub struct LiveStream(Arc<Shared>);

struct Shared {
    /// Made with the stream's first event: one that sends nothing costs next to nothing.
    remembered: OnceLock<Box<[Group]>>,
    resends: mpsc::Sender<Resend>,
}

/// Half of the digests of the last entities that fell into it; the oldest makes room.
#[derive(Default)]
struct Group {
    halves: [AtomicU32; IN_GROUP],
    oldest: AtomicU8,
}

impl Group {
    fn contains(&self, half: u32) -> bool {
        self.halves.iter().any(|known| known.load(Ordering::Relaxed) == half)
    }

    fn insert(&self, half: u32) {
        if !self.contains(half) {
            let at = usize::from(self.oldest.fetch_add(1, Ordering::Relaxed)) % IN_GROUP;
            self.halves[at].store(half, Ordering::Relaxed);
        }
    }
}

/// The group an entity falls into, and what is kept of it there. 0 stands for nobody.
fn digest(topic: &str, entity: &Entity) -> (usize, u32) {
    let digest = xxh3_64_with_seed(entity.as_str().as_bytes(), xxh3_64(topic.as_bytes()));
    (digest as usize % GROUPS, ((digest >> 32) as u32).max(1))
}

impl LiveStreams {
    /// A stream begins; what it is asked for comes through the receiver.
    pub fn join(&self) -> (LiveStream, mpsc::Receiver<Resend>) {
        let (resends, asked) = mpsc::channel(RESENDS_WAITING_MAX);
        let shared = Arc::new(Shared { remembered: OnceLock::new(), resends });
        let mut streams = self.streams.lock().expect("nobody panics holding it");
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&shared));
        (LiveStream(shared), asked)
    }

    /// Asks every stream that published the entity; true if there is one.
    pub fn ask(&self, topic: &Arc<str>, probe: &Probe) -> bool {
        let (group, half) = digest(topic, &probe.entity);
        let streams = self.streams.lock().expect("nobody panics holding it");
        let mut asked = false;
        for stream in streams.iter().filter_map(Weak::upgrade) {
            if stream.remembered.get().is_some_and(|groups| groups[group].contains(half)) {
                asked = true;
                let _ = stream.resends.try_send(Resend { topic: topic.clone(), probe: probe.clone() });
            }
        }
        asked
    }
}

impl LiveStream {
    /// The stream publishes an event of this entity.
    pub fn remember(&self, topic: &str, entity: &Entity) {
        let (group, half) = digest(topic, entity);
        let groups = self.0.remembered.get_or_init(|| (0..GROUPS).map(|_| Group::default()).collect());
        groups[group].insert(half);
    }
}

/// Passes a topic's probes on to its producers, and asks for more time where one of them
/// is connected when the last wait begins.
pub(super) struct Listener {
    pub topic: Arc<str>,
    pub partitions: u32,
    pub live: Arc<LiveStreams>,
    pub ports: Ports,
    pub metrics: Arc<TopicMetrics>,
}

impl Listener {
    pub async fn run(self, closing: Closing) {
        tokio::select! {
            biased;
            () = self.listen() => {}
            () = closing.begun() => {}
        }
    }

    async fn listen(&self) {
        let mut is_heard = true;
        loop {
            match self.ports.store.probes(&self.topic).await {
                Ok(mut probes) => {
                    is_heard = true;
                    self.hear(&mut probes).await;
                }
                Err(error) if std::mem::replace(&mut is_heard, false) => {
                    warn!(topic = %self.topic, %error, "probes are not heard; gaps are filled without Resend only");
                }
                Err(_) => {}
            }
            self.ports.clock.sleep(LISTEN_AGAIN).await;
        }
    }

    /// Until the connection ends, or seems to have ended without a word.
    async fn hear(&self, probes: &mut BoxStream<'static, Vec<Probe>>) {
        let mut called_out = false;
        loop {
            tokio::select! {
                biased;
                heard = probes.next() => match heard {
                    Some(probes) => {
                        called_out = false;
                        self.pass_on(probes).await;
                    }
                    None => return,
                },
                () = self.ports.clock.sleep(QUIET) => {
                    if called_out {
                        warn!(topic = %self.topic, "probes are not heard any more; listening anew");
                        return;
                    }
                    // If the store does not answer, nobody hears it: the same end.
                    let _ = self.ports.store.call_out(&self.topic).await;
                    called_out = true;
                }
            }
        }
    }

    async fn pass_on(&self, mut probes: Vec<Probe>) {
        probes.retain(|probe| self.live.ask(&self.topic, probe));
        self.metrics.resends.inc_by(probes.len() as u64);
        let extensible = probes.into_iter().filter(|probe| probe.is_extensible);
        stream::iter(extensible).for_each_concurrent(EXTENSIONS_AT_ONCE, |probe| self.extend(probe)).await;
    }

    async fn extend(&self, probe: Probe) {
        let index = partition_of(&probe.entity, self.partitions);
        let partition = PartitionId { topic: self.topic.clone(), index };
        let gap = GapId { entity: probe.entity, epoch: probe.epoch, next: probe.missing.first };
        if let Err(error) = self.ports.store.extend(&partition, &gap).await {
            // The gap ends in its time; nobody has to do anything.
            debug!(%partition, %error, "a wait was not extended");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::{Epoch, Range, Sequence};

    fn probe(entity: &str) -> Probe {
        let sequence = Sequence::new(1).unwrap();
        Probe {
            entity: Entity::new(entity).unwrap(),
            epoch: Epoch::new(0).unwrap(),
            missing: Range { first: sequence, last: sequence },
            is_extensible: false,
        }
    }

    #[test]
    fn only_a_living_stream_that_published_the_entity_is_asked() {
        let live = LiveStreams::default();
        let (jobs, tasks): (Arc<str>, Arc<str>) = ("jobs".into(), "tasks".into());
        let (one, mut asked_one) = live.join();
        let (_other, mut asked_other) = live.join();
        one.remember("jobs", &Entity::new("a").unwrap());
        assert!(
            live.ask(&jobs, &probe("a")) && !live.ask(&jobs, &probe("b")) && !live.ask(&tasks, &probe("a"))
        );
        assert_eq!(asked_one.try_recv().unwrap(), Resend { topic: jobs.clone(), probe: probe("a") });
        assert!(asked_one.try_recv().is_err() && asked_other.try_recv().is_err());
        drop(one);
        assert!(!live.ask(&jobs, &probe("a")), "who has left is not asked");
    }

    #[test]
    fn a_stream_remembers_thousands_and_forgets_the_oldest() {
        let live = LiveStreams::default();
        let (stream, _asked) = live.join();
        let name = |n: u32| format!("evaluation-{n}");
        let known = |range: std::ops::Range<u32>| {
            range.filter(|n| live.ask(&"jobs".into(), &probe(&name(*n)))).count()
        };
        (0..2_000).for_each(|n| stream.remember("jobs", &Entity::new(&name(n)).unwrap()));
        assert!(known(0..2_000) >= 1_990, "{} of 2,000", known(0..2_000));
        (2_000..50_000).for_each(|n| stream.remember("jobs", &Entity::new(&name(n)).unwrap()));
        assert_eq!(known(0..2_000), 0);
        assert!(known(49_000..50_000) >= 990);
    }

    #[test]
    fn a_stream_that_does_not_listen_costs_a_bounded_queue() {
        let live = LiveStreams::default();
        let (stream, mut asked) = live.join();
        stream.remember("jobs", &Entity::new("a").unwrap());
        (0..2 * RESENDS_WAITING_MAX).for_each(|_| assert!(live.ask(&"jobs".into(), &probe("a"))));
        let waiting = std::iter::from_fn(|| asked.try_recv().ok()).count();
        assert_eq!(waiting, RESENDS_WAITING_MAX);
    }
}
