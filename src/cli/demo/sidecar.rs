//! The demo's sidecar: its configuration, and what it says of itself at the end.

use std::fs;

use super::{
    super::{Failure, config_args::ConfigArgs, config_args::open_redis, private_sidecar::PrivateSidecar},
    read_back::PARTITIONS,
};
use crate::{config::MEMORY_URL, random::Random, store::Store};

/// Somebody watches: a Redis that is not there is told soon.
const START_WAIT_MS: u64 = 2000;

pub struct Sidecar(PrivateSidecar);

/// What the sidecar says of itself at the end.
pub struct Measured {
    pub depth_p99: u64,
    pub depth_mean: f64,
    /// Peak resident memory, where the kernel tells.
    pub rss_mb: Option<f64>,
}

impl Sidecar {
    pub async fn start(url: &str, topic: &str, no_order: bool, layout: &str) -> Result<Self, Failure> {
        Ok(Sidecar(PrivateSidecar::start(&config(url, topic, no_order, layout), topic).await?))
    }

    pub fn target(&self) -> String {
        self.0.target()
    }

    /// Asks the sidecar's web port.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        self.0.get(path).await
    }

    pub async fn measure(&self, topic: &str) -> Result<Measured, Failure> {
        let metrics = self.get("/metrics").await.map_err(Failure::Other)?;
        let (depth_p99, depth_mean) = depth(&metrics, topic);
        let rss_mb = self.0.pid().and_then(peak_memory_mb);
        Ok(Measured { depth_p99, depth_mean, rss_mb })
    }

    /// Ends the child and removes what the demo made.
    pub async fn stop(self, url: &str, topic: &str) -> Result<(), Failure> {
        self.0.stop().await;
        if url == MEMORY_URL {
            return Ok(());
        }
        let args = ConfigArgs { config: None, set: Vec::new(), redis: Some(url.to_owned()) };
        let store = open_redis(&args.load(Vec::new())?, &mut Random::from_system())?;
        Ok(store.delete_topic(topic).await?)
    }
}

fn config(url: &str, topic: &str, no_order: bool, layout: &str) -> String {
    let ordering = if no_order { "off" } else { "enforce" };
    format!(
        "log = \"warn\"\n[listen]\ngrpc = \"127.0.0.1:0\"\nweb = \"127.0.0.1:0\"\n\
         [store]\nurl = {url:?}\nstart_wait_ms = {START_WAIT_MS}\n\
         [topics.{topic}]\npartitions = {PARTITIONS}\nordering = \"{ordering}\"\nlayout = \"{layout}\"\n\
         gap_waits_ms = [200, 800]\nterminal_wait_ms = 1000\n"
    )
}

/// 99th percentile and mean of the depth histogram in a metrics text.
fn depth(metrics: &str, topic: &str) -> (u64, f64) {
    let value = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    let label = format!("topic=\"{topic}\"");
    let named = |name: &str| {
        let name = format!("seriatim_lane_depth_{name}");
        metrics.lines().filter(move |line| line.starts_with(&name)).filter(|line| line.contains(&label))
    };
    let first = |name: &str| named(name).next().and_then(value).unwrap_or(0.0);
    let (count, sum) = (first("count"), first("sum"));
    let bound = |line: &str| line.split("le=\"").nth(1)?.split('"').next()?.parse::<f64>().ok();
    let p99 =
        named("bucket").find(|line| value(line).is_some_and(|below| below >= 0.99 * count)).and_then(bound);
    (p99.unwrap_or(0.0) as u64, if count > 0.0 { sum / count } else { 0.0 })
}

fn peak_memory_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some((kibibytes / 1024.0 * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn percentile_and_mean_are_read_from_the_buckets() {
        let metrics = "seriatim_lane_depth_sum{topic=\"t\"} 30.0\nseriatim_lane_depth_count{topic=\"t\"} 100\n\
            seriatim_lane_depth_bucket{le=\"0.0\",topic=\"t\"} 80\n\
            seriatim_lane_depth_bucket{le=\"1.0\",topic=\"t\"} 98\n\
            seriatim_lane_depth_bucket{le=\"2.0\",topic=\"t\"} 99\n\
            seriatim_lane_depth_bucket{le=\"+Inf\",topic=\"t\"} 100\n";
        assert_eq!(depth(metrics, "t"), (2, 0.3));
    }
}
