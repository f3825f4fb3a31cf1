//! Everything that came out, in the order a reader of the streams sees it.

use anyhow::Context;

use super::{
    super::{Failure, config_args::ConfigArgs, config_args::open_redis},
    sidecar::Sidecar,
};
use crate::{
    config::MEMORY_URL,
    order::Place,
    random::Random,
    store::{Entry, PartitionId, Store, StreamId},
    web::EntryJson,
};

pub const PARTITIONS: u32 = 16;
const PAGE: usize = 1000;

pub async fn all(sidecar: &Sidecar, url: &str, topic: &str) -> Result<Vec<Entry>, Failure> {
    if url == MEMORY_URL {
        return from_sidecar(sidecar, topic).await.map_err(Failure::Other);
    }
    let args = ConfigArgs { config: None, set: Vec::new(), redis: Some(url.to_owned()) };
    let store = open_redis(&args.load(Vec::new())?, &mut Random::from_system())?;
    let mut entries = Vec::new();
    for index in 0..PARTITIONS {
        let partition = PartitionId { topic: topic.into(), index };
        let mut after = StreamId::default();
        loop {
            let page = store.read(&partition, Place::Events, after, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.id.entry;
            entries.extend(page);
        }
    }
    Ok(entries)
}

/// The embedded store has no door but its sidecar's web port.
async fn from_sidecar(sidecar: &Sidecar, topic: &str) -> anyhow::Result<Vec<Entry>> {
    let mut entries: Vec<Entry> = Vec::new();
    for partition in 0..PARTITIONS {
        let mut after = StreamId::default();
        loop {
            let path = format!("/entries?topic={topic}&partition={partition}&after={after}");
            let page: Vec<EntryJson> = serde_json::from_str(&sidecar.get(&path).await?)?;
            let page: Option<Vec<Entry>> = page.into_iter().map(EntryJson::into_entry).collect();
            let page = page.context("the sidecar's entries are well formed")?;
            let Some(last) = page.last() else { break };
            after = last.id.entry;
            entries.extend(page);
        }
    }
    Ok(entries)
}
