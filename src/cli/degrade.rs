//! `seriatim degrade` and `seriatim restore`: an operator takes the promise of order away
//! where waiting does more harm than disorder, and gives it back.

use clap::Args;

use super::{Failure, Outcome, config_args::block_on, output::print_json, topic_args::TopicArgs};
use crate::store::Store;

#[derive(Args)]
pub struct DegradeArgs {
    #[command(flatten)]
    topic: TopicArgs,
    /// Only these partitions, for example --partition 3 --partition 4; otherwise all.
    #[arg(long, value_name = "NUMBER")]
    partition: Vec<u32>,
    /// One JSON object: topic, degraded, partitions, changed, and those left after a failure.
    #[arg(long)]
    json: bool,
}

pub fn run(args: DegradeArgs, degraded: bool) -> Outcome {
    let (_, store) = args.topic.open()?;
    block_on(set(&store, &args, degraded))
}

async fn set(store: &dyn Store, args: &DegradeArgs, degraded: bool) -> Outcome {
    let record = args.topic.record(store).await?;
    if let Some(beyond) = args.partition.iter().find(|index| **index >= record.partitions) {
        let last = record.partitions - 1;
        return Err(Failure::Usage(anyhow::anyhow!(
            "topic {} has partitions 0 to {last}, not {beyond}; nothing was changed",
            args.topic.name
        )));
    }
    let partitions = match args.partition.as_slice() {
        [] => (0..record.partitions).collect(),
        given => given.to_vec(),
    };
    let (mut changed, mut done, mut failed) = (Vec::new(), 0, None);
    for index in &partitions {
        let partition = args.topic.partition(*index);
        match store.set_degraded(&partition, degraded).await {
            Ok(true) => changed.push(*index),
            Ok(false) => {}
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
        done += 1;
    }
    let left = &partitions[done..];
    if args.json {
        print_json(&serde_json::json!({
            "topic": args.topic.name, "degraded": degraded, "partitions": partitions, "changed": changed, "left": left,
        }));
    } else {
        print(args, degraded, changed.len(), done);
    }
    match failed {
        None => Ok(()),
        Some(error) => {
            eprintln!("seriatim: partitions {left:?} may be as they were; running this again is safe");
            Err(error.into())
        }
    }
}

fn print(args: &DegradeArgs, degraded: bool, changed: usize, done: usize) {
    let (is, was) = if degraded {
        ("degraded: events pass at once, marked, until `seriatim restore`", "degraded")
    } else {
        ("ordered again; sidecars mark what was missed meanwhile", "ordered")
    };
    println!("{}: {changed} of {done} partitions are now {is}", args.topic.name);
    if changed < done {
        println!("{}: {} were {was} already", args.topic.name, done - changed);
    }
}
