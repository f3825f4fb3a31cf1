//! What sidecars tell each other through Redis: probes, signs of life, who reconciles.

use ::redis::cmd;
use futures_util::{StreamExt, stream::BoxStream};

use super::{
    RedisStore, reply,
    script::{BEAT, LEAD, LEAVE},
};
use crate::{
    order::Probe,
    store::{
        Beat, PartitionId, SidecarSeen, StoreError,
        keys::{RECONCILER_KEY, SIDECARS_KEY, probe_channel, probe_pattern},
    },
};

impl RedisStore {
    /// On a connection of its own, which ends with the stream.
    pub(super) async fn listen_for_probes(
        &self,
        topic: &str,
    ) -> Result<BoxStream<'static, Vec<Probe>>, StoreError> {
        let messages = self.link.subscribe(&probe_pattern(topic)).await?;
        let probes = |payload: Vec<u8>| async move { reply::probes(&payload) };
        Ok(messages.filter_map(probes).boxed())
    }

    pub(super) async fn probe_nobody(&self, topic: &str) -> Result<(), StoreError> {
        let mut publish = cmd("PUBLISH");
        publish.arg(probe_channel(&PartitionId { topic: topic.into(), index: 0 })).arg("[]");
        self.query(publish).await.map(drop)
    }

    pub(super) async fn beat_once(&self, beat: &Beat) -> Result<Vec<SidecarSeen>, StoreError> {
        let mut call = BEAT.call(&[SIDECARS_KEY], 3, beat.about.len());
        call.arg(&beat.sidecar).arg(&beat.about).arg(beat.forget_after_ms);
        reply::sidecars(self.link.run(&BEAT, call).await?)
    }

    pub(super) async fn take_leave(&self, sidecar: &str) -> Result<(), StoreError> {
        let mut call = LEAVE.call(&[SIDECARS_KEY, RECONCILER_KEY], 1, 0);
        call.arg(sidecar);
        self.link.run(&LEAVE, call).await.map(drop)
    }

    /// Who was heard of, without saying anything oneself.
    pub async fn sidecars(&self) -> Result<Vec<SidecarSeen>, StoreError> {
        let mut all = cmd("HGETALL");
        all.arg(SIDECARS_KEY);
        let now = reply::wall_ms(self.query(cmd("TIME")).await?)?;
        reply::signs_of_life(self.query(all).await?, now)
    }

    pub(super) async fn take_lead(&self, owner: &str, for_ms: u64) -> Result<bool, StoreError> {
        let mut call = LEAD.call(&[RECONCILER_KEY], 2, 0);
        call.arg(owner).arg(for_ms);
        Ok(reply::number(self.link.run(&LEAD, call).await?)? == 1)
    }
}
