//! `seriatim degrade` and `seriatim restore`: an operator takes the promise of order away
//! where waiting does more harm than disorder, and gives it back.

use clap::Args;

use super::{
    Failure, Outcome,
    config_args::{ConfigArgs, block_on, open_redis},
    output::print_json,
    verify::no_such_topic,
};
use crate::{
    random::Random,
    store::{PartitionId, Store},
};

#[derive(Args)]
pub struct DegradeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// The topic.
    #[arg(long, default_value = "evaluations")]
    topic: String,
    /// Only these partitions, for example --partition 3 --partition 4; otherwise all.
    #[arg(long, value_name = "NUMBER")]
    partition: Vec<u32>,
    /// One JSON object: topic, degraded, partitions, changed.
    #[arg(long)]
    json: bool,
}

pub fn run(args: DegradeArgs, degraded: bool) -> Outcome {
    let config = args.config.load(Vec::new())?;
    let store = open_redis(&config, &mut Random::from_system())?;
    block_on(set(&store, &args, degraded))
}

async fn set(store: &dyn Store, args: &DegradeArgs, degraded: bool) -> Outcome {
    let record = store.record(&args.topic).await?.ok_or_else(|| no_such_topic(&args.topic))?;
    if let Some(beyond) = args.partition.iter().find(|index| **index >= record.partitions) {
        let last = record.partitions - 1;
        return Err(Failure::Usage(anyhow::anyhow!(
            "topic {} has partitions 0 to {last}, not {beyond}; nothing was changed",
            args.topic
        )));
    }
    let partitions = match args.partition.as_slice() {
        [] => (0..record.partitions).collect(),
        given => given.to_vec(),
    };
    let mut changed = Vec::new();
    for index in &partitions {
        let partition = PartitionId { topic: args.topic.as_str().into(), index: *index };
        if store.set_degraded(&partition, degraded).await? {
            changed.push(*index);
        }
    }
    if args.json {
        print_json(&serde_json::json!({
            "topic": args.topic, "degraded": degraded, "partitions": partitions, "changed": changed,
        }));
        return Ok(());
    }
    let (is, was) = if degraded {
        ("degraded: events pass at once, marked, until `seriatim restore`", "degraded")
    } else {
        ("ordered again; what was missed meanwhile is marked", "ordered")
    };
    println!("{}: {} of {} partitions are now {is}", args.topic, changed.len(), partitions.len());
    if changed.len() < partitions.len() {
        println!("{}: {} were {was} already", args.topic, partitions.len() - changed.len());
    }
    Ok(())
}
