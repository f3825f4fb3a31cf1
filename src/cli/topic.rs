//! `seriatim topic`: what topics there are, one of them, and the end of one.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{
    Failure, Outcome,
    config_args::{ConfigArgs, block_on, open_redis},
    output::{grouped, print_json, print_table},
    topic_args::no_such_topic,
};
use crate::{
    random::Random,
    store::{Floor, Measure, PartitionId, Store, StoreError, TopicRecord},
};

#[derive(Args)]
pub struct TopicArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// JSON instead of a table.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: TopicCommand,
}

#[derive(Subcommand)]
enum TopicCommand {
    /// All topics in the store.
    List,
    /// What is fixed about a topic, and the sizes of its partitions.
    Show {
        /// Its name.
        topic: String,
    },
    /// Delete a topic with its streams and ordering state, for ever. Asks twice.
    Delete {
        /// Its name.
        topic: String,
        /// For scripts: the topic's name once more, instead of the two questions.
        #[arg(long, value_name = "TOPIC")]
        confirm: Option<String>,
    },
}

#[derive(Serialize)]
struct Shown {
    topic: String,
    #[serde(flatten)]
    record: TopicRecord,
    partition_sizes: Vec<Partition>,
}

#[derive(Serialize)]
struct Partition {
    #[serde(flatten)]
    sizes: Measure,
    /// Up to where every group has done everything; nothing if there is no group.
    floor: Option<String>,
    /// The group that is furthest behind.
    floor_group: Option<String>,
}

pub fn run(args: TopicArgs) -> Outcome {
    let config = args.config.load(Vec::new())?;
    let store = open_redis(&config, &mut Random::from_system())?;
    block_on(async {
        match &args.command {
            TopicCommand::List => list(&store, args.json).await,
            TopicCommand::Show { topic } => show(&store, topic, args.json).await,
            TopicCommand::Delete { topic, confirm } => {
                delete(&store, topic, confirm.as_deref(), args.json).await
            }
        }
    })
}

async fn list(store: &dyn Store, json: bool) -> Outcome {
    let mut shown = Vec::new();
    for topic in store.topics().await? {
        shown.extend(look(store, &topic).await?);
    }
    if json {
        print_json(&shown);
        return Ok(());
    }
    let rows: Vec<Vec<String>> = shown.iter().map(summary).collect();
    print_table(&["topic", "partitions", "numbering", "entries", "entities", "parked", "late"], &rows);
    Ok(())
}

fn summary(shown: &Shown) -> Vec<String> {
    let sum = |of: fn(&Measure) -> u64| grouped(shown.partition_sizes.iter().map(|p| of(&p.sizes)).sum());
    vec![
        shown.topic.clone(),
        shown.record.partitions.to_string(),
        shown.record.numbering.clone(),
        sum(|m| m.entries),
        sum(|m| m.lanes),
        sum(|m| m.parked),
        sum(|m| m.late),
    ]
}

async fn show(store: &dyn Store, topic: &str, json: bool) -> Outcome {
    let shown = look(store, topic).await?.ok_or_else(|| no_such_topic(topic))?;
    if json {
        print_json(&shown);
        return Ok(());
    }
    for (field, value) in shown.record.fields() {
        println!("{field:<15} {value}");
    }
    let row = |(index, partition): (usize, &Partition)| {
        let m = &partition.sizes;
        let numbers = [m.entries, m.lanes, m.parked, m.parked_bytes, m.gaps, m.late, m.trimmed];
        let mut mode = if m.degraded { "degraded" } else { "ordered" }.to_owned();
        for (is_so, word) in [(m.full, ",full"), (m.late_full, ",late-full")] {
            mode += if is_so { word } else { "" };
        }
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let floor = [or_none(&partition.floor), or_none(&partition.floor_group)];
        [vec![index.to_string()], numbers.map(grouped).to_vec(), floor.to_vec(), vec![mode]].concat()
    };
    let rows: Vec<Vec<String>> = shown.partition_sizes.iter().enumerate().map(row).collect();
    let head = ["partition", "entries", "entities", "parked", "parked bytes", "gaps", "late", "trimmed"];
    print_table(&[&head[..], &["done up to", "group behind", "mode"]].concat(), &rows);
    Ok(())
}

async fn look(store: &dyn Store, topic: &str) -> Result<Option<Shown>, StoreError> {
    let Some(record) = store.record(topic).await? else { return Ok(None) };
    let mut partition_sizes = Vec::new();
    for index in 0..record.partitions {
        let id = PartitionId { topic: topic.into(), index };
        let sizes = store.measure(&id).await?;
        let floor = match store.floor(&id).await {
            // A deletion was interrupted; to be repeated it must not fail here.
            Err(StoreError::NotExecuted(_)) => None,
            answer => answer?,
        };
        let (floor, floor_group) = floor.map(|Floor { id, group }| (id.to_string(), group)).unzip();
        partition_sizes.push(Partition { sizes, floor, floor_group });
    }
    Ok(Some(Shown { topic: topic.to_owned(), record, partition_sizes }))
}

async fn delete(store: &dyn Store, topic: &str, confirm: Option<&str>, json: bool) -> Outcome {
    let shown = look(store, topic).await?.ok_or_else(|| no_such_topic(topic))?;
    let entries: u64 = shown.partition_sizes.iter().map(|p| p.sizes.entries + p.sizes.late).sum();
    match confirm {
        Some(name) if name == topic => {}
        Some(name) => {
            let error =
                anyhow::anyhow!("--confirm {name} is not the topic to delete, {topic}; nothing was deleted");
            return Err(Failure::Usage(error));
        }
        None => ask_twice(topic, entries)?,
    }
    store.delete_topic(topic).await?;
    if json {
        print_json(&serde_json::json!({ "deleted": topic, "entries": entries }));
    } else {
        println!("topic {topic} is deleted, {} entries with it", grouped(entries));
    }
    Ok(())
}

fn ask_twice(topic: &str, entries: u64) -> Outcome {
    if !io::stdin().is_terminal() {
        let error =
            anyhow::anyhow!("there is nobody to ask; write --confirm {topic} to delete it from a script");
        return Err(Failure::Usage(error));
    }
    let first = format!("Delete topic {topic} with {} entries, for ever? Type its name: ", grouped(entries));
    let last = "Stop its sidecars first, or they will create it anew. Really delete? Type yes: ";
    for (question, wanted) in [(first.as_str(), topic), (last, "yes")] {
        print!("{question}");
        let _ = io::stdout().flush();
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        if read.is_err() || answer.trim() != wanted {
            return Err(Failure::Usage(anyhow::anyhow!("nothing was deleted")));
        }
    }
    Ok(())
}
