//! `seriatim skip`: an operator gives one gap up, and the stream says who and why.

use clap::Args;

use super::{Failure, Outcome, config_args::block_on, output::print_json, topic_args::TopicArgs};
use crate::{
    order::{Entity, LaneState, Mode, Range},
    store::{GapId, Store, partition_of},
};

#[derive(Args)]
pub struct SkipArgs {
    #[command(flatten)]
    topic: TopicArgs,
    /// The entity whose gap is to be given up.
    entity: String,
    /// Only if the gap still begins with this sequence.
    #[arg(long, value_name = "SEQUENCE")]
    next: Option<u64>,
    /// Who decided it; stands in the marker.
    #[arg(long, value_name = "NAME", env = "USER", default_value = "unknown")]
    by: String,
    /// Why; stands in the marker, too.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Say what would be given up, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// One JSON object: entity, epoch, from, to, skipped.
    #[arg(long)]
    json: bool,
}

pub fn run(args: SkipArgs) -> Outcome {
    let (_, store) = args.topic.open()?;
    block_on(skip(&store, &args))
}

async fn skip(store: &dyn Store, args: &SkipArgs) -> Outcome {
    let entity = Entity::new(&args.entity).map_err(|error| Failure::Usage(error.into()))?;
    let record = args.topic.record(store).await?;
    let index = partition_of(&entity, record.partitions);
    let partition = args.topic.partition(index);
    let state = store.resume(&partition, &entity).await?;
    let (state, seen) = gap_of(state, args)?;
    let range = if args.dry_run {
        seen
    } else {
        let gap = GapId { entity, epoch: state.epoch, next: state.next };
        let given_up = store.skip(&partition, &gap, &audit(args)).await?;
        given_up.ok_or_else(|| nothing(args, "the gap was filled or given up a moment ago"))?
    };
    let (epoch, from, to, skipped) = (state.epoch.get(), range.first.get(), range.last.get(), !args.dry_run);
    if args.json {
        print_json(&serde_json::json!({
            "entity": args.entity, "epoch": epoch, "from": from, "to": to, "skipped": skipped,
        }));
    } else {
        let done = if skipped { "given up" } else { "would be given up" };
        println!("{done}: {from} to {to} of {:?} in epoch {epoch}; what comes now is late", args.entity);
    }
    Ok(())
}

/// The lane and its gap, if it is the one that was meant.
fn gap_of(state: Option<LaneState>, args: &SkipArgs) -> Result<(LaneState, Range), Failure> {
    let state = state.ok_or_else(|| nothing(args, "nothing is known of this entity"))?;
    if state.mode != Mode::Enforce || state.unmarked.is_some() {
        return Err(nothing(args, "its events pass at present, and wait for nothing"));
    }
    let lowest = state.parked.as_ref().and_then(|parked| parked.sequences.first()).map(|run| run.first);
    let Some(lowest) = lowest.filter(|lowest| *lowest > state.next) else {
        return Err(nothing(args, "it has no gap: nothing is parked behind a missing event"));
    };
    match args.next {
        Some(next) if next != state.next.get() => {
            Err(nothing(args, &format!("its gap begins with {}, not with {next}", state.next)))
        }
        _ => {
            let last = lowest.before().expect("it is above next");
            let gap = Range { first: state.next, last };
            Ok((state, gap))
        }
    }
}

fn nothing(args: &SkipArgs, why: &str) -> Failure {
    eprintln!("seriatim: nothing was given up for {:?} in topic {}: {why}", args.entity, args.topic.name);
    Failure::Found
}

/// Members of the marker's attributes, as JSON.
fn audit(args: &SkipArgs) -> String {
    let text = |text: &str| serde_json::to_string(text).expect("a string is JSON");
    let by = format!("\"by\":{}", text(&args.by));
    args.note.as_ref().map_or(by.clone(), |note| format!("{by},\"note\":{}", text(note)))
}
