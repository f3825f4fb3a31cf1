//! `seriatim verify`: the proof, read from the streams alone.

use clap::Args;

use super::{
    Failure, Outcome,
    config_args::block_on,
    output::{grouped, print_json, print_table, progress},
    topic_args::TopicArgs,
};
use crate::{
    operate::{FindingKind, Report, verify_topic},
    store::Store,
};

#[derive(Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    topic: TopicArgs,
    /// One JSON object: entries, entities, inversions, unmarked_gaps, duplicates, ok and more.
    #[arg(long)]
    json: bool,
}

pub fn run(args: VerifyArgs) -> Outcome {
    let (_, store) = args.topic.open()?;
    let report = block_on(read(&store, &args))?;
    if args.json {
        print_json(&report);
    } else {
        print(&args.topic.name, &report);
    }
    if report.ok { Ok(()) } else { Err(Failure::Found) }
}

async fn read(store: &dyn Store, args: &VerifyArgs) -> Result<Report, Failure> {
    let record = args.topic.record(store).await?;
    let mut total = 0;
    for index in 0..record.partitions {
        let partition = args.topic.partition(index);
        total += store.measure(&partition).await?.entries;
    }
    let bar = progress(Some(total), "reading", !args.json);
    let report = verify_topic(store, &args.topic.name, &record, |read| bar.inc(read)).await?;
    bar.finish_and_clear();
    Ok(report)
}

fn kind(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Inversion => "inversion",
        FindingKind::UnmarkedGap => "unmarked gap",
        FindingKind::Duplicate => "duplicate",
        FindingKind::IllegalTransition => "illegal transition",
    }
}

fn print(topic: &str, report: &Report) {
    let row = |what: &str, count: u64| vec![what.to_owned(), grouped(count)];
    print_table(
        &[topic, ""],
        &[
            row("entries", report.entries),
            row("entities", report.entities),
            row("inversions", report.inversions),
            row("unmarked gaps", report.unmarked_gaps),
            row("duplicates", report.duplicates),
            row("markers", report.markers),
            row("passed", report.passed),
            row("late", report.late),
            row("illegal transitions", report.illegal),
        ],
    );
    for finding in &report.findings {
        if finding.kind == FindingKind::IllegalTransition {
            let (entity, epoch, sequence) = (&finding.entity, finding.epoch, finding.sequence);
            println!(
                "illegal transition at {} in partition {}: entity {entity:?}, epoch {epoch}, sequence {sequence}; \
                 its attrs say after which stage",
                finding.id, finding.partition
            );
            continue;
        }
        println!(
            "{} at {} in partition {}: entity {:?}, epoch {}, sequence {} where {} should have come",
            kind(finding.kind),
            finding.id,
            finding.partition,
            finding.entity,
            finding.epoch,
            finding.sequence,
            finding.next
        );
    }
    println!("{}", if report.ok { "ok: every entity is in order" } else { "NOT ok" });
}
