//! `seriatim reconcile`: looks for lost work once, now. Sidecars do the same by themselves.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::{
    Failure, Outcome,
    config_args::block_on,
    output::{grouped, print_json, print_table, progress},
    topic_args::TopicArgs,
};
use crate::{
    clock::SystemClock,
    operate::{Pace, Reconciled, reconcile},
    store::Store,
};

#[derive(Args)]
pub struct ReconcileArgs {
    #[command(flatten)]
    topic: TopicArgs,
    /// One JSON object: stuck, missing, retired, mended, unmended, and the first of each.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Shown<'a> {
    topic: &'a str,
    ok: bool,
    #[serde(flatten)]
    found: &'a Reconciled,
}

pub fn run(args: ReconcileArgs) -> Outcome {
    let (config, store) = args.topic.open()?;
    let pace = Pace {
        repairs: true,
        count: config.fleet.reconcile_max,
        pause: Duration::from_millis(config.fleet.reconcile_pause_ms),
    };
    let found = block_on(look(&store, &args, pace))?;
    let ok = found.is_clean();
    if args.json {
        print_json(&Shown { topic: &args.topic.name, ok, found: &found });
    } else {
        print(&args.topic.name, &found);
    }
    if ok { Ok(()) } else { Err(Failure::Found) }
}

async fn look(store: &dyn Store, args: &ReconcileArgs, pace: Pace) -> Result<Reconciled, Failure> {
    let record = args.topic.record(store).await?;
    let bar = progress(Some(u64::from(record.partitions)), "partitions", !args.json);
    let (mut found, clock) = (Reconciled::default(), SystemClock::default());
    for index in 0..record.partitions {
        let partition = args.topic.partition(index);
        reconcile(store, &partition, pace, &clock, &mut found).await?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(found)
}

fn print(topic: &str, found: &Reconciled) {
    let row = |what: &str, count: u64| vec![what.to_owned(), grouped(count)];
    print_table(
        &[topic, ""],
        &[
            row("stuck", found.stuck),
            row("missing", found.missing),
            row("retired", found.retired),
            row("forgotten", found.forgotten),
            row("mended", found.mended),
            row("left for you", found.unmended),
        ],
    );
    for lane in &found.stuck_lanes {
        let seconds = lane.idle_ms / 1000;
        println!(
            "stuck    {:?} {}/{}: {}, unmoved for {seconds} s",
            lane.entity, lane.epoch, lane.next, lane.reason
        );
    }
    for entity in &found.missing_entities {
        println!("missing  {:?}: announced, {} s overdue", entity.entity, entity.overdue_ms / 1000);
    }
    for thing in &found.out_of_place {
        let what = if thing.mended { "mended " } else { "look at" };
        println!("{what}  {:?}: {} ({})", thing.entity, thing.kind, thing.what);
    }
    println!("{}", if found.is_clean() { "ok: nothing is lost" } else { "NOT ok" });
}
