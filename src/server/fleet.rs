//! What a sidecar does for all of them: it gives signs of life, and takes its turn in
//! looking for lost work.

use std::{sync::Arc, time::Duration};

use tracing::{info, warn};

use crate::{
    clock::Clock,
    config::Fleet,
    ingest::Ports,
    operate::{Pace, Reconciled, reconcile},
    random::Random,
    store::{Beat, PartitionId, StoreError, TopicSpec},
};

/// Every so many looks for what is old, one at everything: nothing should ever be out of
/// place, and looking for it reads every lane.
const REPAIRS_EVERY: u64 = 10;

/// Entities that a log line names, at most.
const NAMED_MAX: usize = 5;

pub struct FleetMember {
    /// Unique to this process.
    pub name: String,
    /// What it says about itself, as JSON.
    pub about: String,
    pub fleet: Fleet,
    pub ports: Ports,
}

impl FleetMember {
    /// Signs of life, for ever.
    pub async fn beat(self: Arc<Self>) {
        let every = Duration::from_millis(self.fleet.heartbeat_interval_ms);
        let beat = Beat {
            sidecar: self.name.clone(),
            about: self.about.clone(),
            forget_after_ms: self.fleet.forget_after_ms(),
        };
        loop {
            match self.ports.store.beat(&beat).await {
                Ok(seen) => {
                    let is_alive = |silent_ms: u64| silent_ms < self.fleet.orphan_threshold_ms;
                    let alive = seen.iter().filter(|sidecar| is_alive(sidecar.silent_ms)).count();
                    self.ports.metrics.sidecars.set(i64::try_from(alive).unwrap_or(i64::MAX));
                }
                Err(error) => self.ports.metrics.count_store_error(error.class()),
            }
            self.ports.clock.sleep(every).await;
        }
    }

    /// The last sign: this process ends as it should.
    pub async fn leave(&self) {
        // If the store is away, others see that this sidecar is silent.
        let _ = self.ports.store.leave(&self.name).await;
    }

    /// Looks for lost work whenever it is this sidecar's turn, for ever.
    pub async fn reconcile(self: Arc<Self>, topics: Vec<TopicSpec>, mut random: Random) {
        let every = self.fleet.reconcile_interval_ms;
        for look in 0u64.. {
            // Between half and one and a half: sidecars that started together drift apart.
            let wait = Duration::from_millis(every / 2 + random.below(every));
            self.ports.clock.sleep(wait).await;
            for topic in &topics {
                if let Err(error) = self.reconcile_topic(topic, look % REPAIRS_EVERY == 0).await {
                    self.ports.metrics.count_store_error(error.class());
                    warn!(topic = topic.name, %error, "looking for lost work was cut short");
                }
            }
        }
    }

    async fn reconcile_topic(&self, topic: &TopicSpec, repairs: bool) -> Result<(), StoreError> {
        let Ports { store, clock, metrics } = &self.ports;
        let pace = Pace {
            repairs,
            count: self.fleet.reconcile_max,
            pause: Duration::from_millis(self.fleet.reconcile_pause_ms),
        };
        let mut stuck = 0;
        for index in 0..topic.partitions {
            // Asked for each partition, so that the right does not run out on the way.
            if !store.lead_reconciler(&self.name, self.fleet.lead_ms()).await? {
                return Ok(());
            }
            let partition = PartitionId { topic: topic.name.as_str().into(), index };
            let mut found = Reconciled::default();
            let looked = reconcile(&**store, &partition, pace, &**clock as &dyn Clock, &mut found).await;
            // Told at once, also if it was cut short: some of it is found only once.
            metrics.count_reconciled(&topic.name, found.missing, found.retired);
            found.kinds.iter().for_each(|(kind, count)| metrics.count_repaired(&topic.name, kind, *count));
            say(&partition, &found);
            stuck += found.stuck;
            looked?;
        }
        metrics.set_stuck(&topic.name, stuck);
        Ok(())
    }
}

/// One line for each kind of trouble: a line for each entity would bury everything else.
fn say(partition: &PartitionId, found: &Reconciled) {
    let names = |names: Vec<&str>| names.into_iter().take(NAMED_MAX).collect::<Vec<_>>().join(", ");
    if found.stuck > 0 {
        let first = names(found.stuck_lanes.iter().map(|lane| lane.entity.as_str()).collect());
        warn!(%partition, count = found.stuck, first, "entities are stuck: no terminal event for stuck_after_ms");
    }
    if found.missing > 0 {
        let first = names(found.missing_entities.iter().map(|entity| entity.entity.as_str()).collect());
        warn!(%partition, count = found.missing, first, "announced entities did not begin in time");
    }
    if found.mended + found.unmended > 0 {
        let first = names(found.out_of_place.iter().map(|found| found.entity.as_str()).collect());
        let (mended, left) = (found.mended, found.unmended);
        warn!(%partition, mended, left, first, "found out of place; see `seriatim reconcile`");
    }
    if found.retired > 0 {
        info!(%partition, retired = found.retired, forgotten = found.forgotten, "retired old lanes");
    }
}
