//! `seriatim dead`: entities that a group gave up on, whole and in order, and what becomes of
//! them.

use clap::{Args, Subcommand};
use serde::Serialize;

use super::{
    Failure, Outcome,
    config_args::block_on,
    output::{grouped, print_json, print_table},
    topic_args::{TopicArgs, no_such_group},
};
use crate::{
    deliver::KeptEvent,
    order::Entity,
    store::{Granted, GroupStore, Head, HoldState, RedisStore, Store, Wish, partition_of},
};

#[derive(Args)]
pub struct DeadArgs {
    #[command(flatten)]
    topic: TopicArgs,
    /// The group of workers.
    #[arg(long, global = true, default_value = "")]
    group: String,
    /// JSON instead of a table or a sentence.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: DeadCommand,
}

#[derive(Subcommand)]
enum DeadCommand {
    /// Dead letters of the group: entities, how much of each is held, and why.
    List {
        /// Also those that are tried again or paused.
        #[arg(long)]
        all: bool,
    },
    /// One held entity, with its events in order.
    Show {
        /// The entity.
        entity: String,
        /// Events to show, from the first on.
        #[arg(long, default_value_t = 20)]
        limit: u64,
    },
    /// Try it again now, in order, with all its attempts; live events follow behind.
    Redrive {
        /// The entity; or --all.
        #[arg(required_unless_present = "all")]
        entity: Option<String>,
        /// All dead letters of the group.
        #[arg(long, conflicts_with = "entity")]
        all: bool,
    },
    /// Give its first event up: a gap is delivered in its place, then the rest.
    Skip {
        /// The entity.
        entity: String,
    },
    /// Give up all that is held of it: one gap is delivered, then what comes from now on.
    Drop {
        /// The entity.
        entity: String,
    },
}

#[derive(Serialize)]
struct Shown {
    entity: String,
    partition: u32,
    state: HoldState,
    events: u64,
    bytes: u64,
    attempts: u32,
    due_ms: u64,
    reason: String,
}

impl Shown {
    fn of(entity: &Entity, partition: u32, head: &Head) -> Self {
        Shown {
            entity: entity.to_string(),
            partition,
            state: head.state,
            events: head.next - head.first,
            bytes: head.bytes,
            attempts: head.attempts,
            due_ms: head.due_ms,
            reason: head.reason.clone(),
        }
    }
}

pub fn run(args: DeadArgs) -> Outcome {
    if args.group.is_empty() {
        return Err(Failure::Usage(anyhow::anyhow!(
            "say which group: --group NAME; see `seriatim group list`"
        )));
    }
    let (_, store) = args.topic.open()?;
    block_on(decide(&store, &args))
}

async fn decide(store: &RedisStore, args: &DeadArgs) -> Outcome {
    let partitions = args.topic.record(store).await?.partitions;
    let groups = store.groups(&args.topic.name).await?;
    if !groups.iter().any(|(name, _)| *name == args.group) {
        return Err(no_such_group(&args.topic.name, &args.group));
    }
    match &args.command {
        DeadCommand::List { all } => {
            let held = held(store, args, partitions, *all).await?;
            if args.json {
                print_json(&held);
            } else {
                print(&held);
            }
            Ok(())
        }
        DeadCommand::Show { entity, limit } => show(store, args, partitions, entity, *limit).await,
        DeadCommand::Redrive { entity: Some(entity), .. } => {
            one(store, args, partitions, entity, Wish::Redrive).await
        }
        DeadCommand::Redrive { entity: None, .. } => {
            let mut outcome = Ok(());
            for dead in held(store, args, partitions, false).await? {
                match one(store, args, partitions, &dead.entity, Wish::Redrive).await {
                    // It is not dead any more, or somebody was faster: the others all the same.
                    Err(Failure::Found) => outcome = Err(Failure::Found),
                    other => other?,
                }
            }
            outcome
        }
        DeadCommand::Skip { entity } => one(store, args, partitions, entity, Wish::Skip).await,
        DeadCommand::Drop { entity } => one(store, args, partitions, entity, Wish::Drop).await,
    }
}

async fn held(store: &dyn Store, args: &DeadArgs, partitions: u32, all: bool) -> Result<Vec<Shown>, Failure> {
    let mut held = Vec::new();
    for index in 0..partitions {
        for (entity, head) in store.heads(&args.topic.partition(index), &args.group).await? {
            if all || head.state == HoldState::Dead {
                held.push(Shown::of(&entity, index, &head));
            }
        }
    }
    held.sort_by(|a, b| a.entity.cmp(&b.entity));
    Ok(held)
}

async fn show(store: &dyn Store, args: &DeadArgs, partitions: u32, entity: &str, limit: u64) -> Outcome {
    let name = Entity::new(entity).map_err(|error| Failure::Usage(error.into()))?;
    let index = partition_of(&name, partitions);
    let partition = args.topic.partition(index);
    let heads = store.heads(&partition, &args.group).await?;
    let Some((_, head)) = heads.iter().find(|(held, _)| *held == name) else {
        eprintln!("seriatim: nothing of {entity:?} is held by group {}", args.group);
        return Err(Failure::Found);
    };
    let numbers = head.first..head.next.min(head.first + limit);
    let kept = store.kept(&partition, &args.group, &name, numbers).await?;
    let mut events = Vec::new();
    for (_, text) in kept {
        events.push(KeptEvent::parse(&text).map_err(Failure::from)?);
    }
    let shown = Shown::of(&name, index, head);
    if args.json {
        print_json(&serde_json::json!({ "held": shown, "events": events }));
        return Ok(());
    }
    print(&[shown]);
    let row = |event: &KeptEvent| {
        vec![event.order.clone(), event.epoch.to_string(), event.sequence.to_string(), event.r#type.clone()]
    };
    print_table(&["order", "epoch", "sequence", "type"], &events.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

async fn one(store: &dyn Store, args: &DeadArgs, partitions: u32, entity: &str, wish: Wish) -> Outcome {
    let name = Entity::new(entity).map_err(|error| Failure::Usage(error.into()))?;
    let partition = args.topic.partition(partition_of(&name, partitions));
    let granted = store.wish(&partition, &args.group, &name, wish).await?;
    let done = match wish {
        Wish::Redrive => "is tried again, in order",
        Wish::Skip => "goes on behind a gap for its first event",
        Wish::Drop => "goes on behind a gap for all that was held",
        Wish::Pause => "is paused",
        Wish::Resume => "goes on",
    };
    if args.json {
        print_json(&serde_json::json!({ "entity": entity, "done": granted == Granted::Done }));
    }
    match granted {
        Granted::Done => {
            if !args.json {
                println!("{entity:?} {done}, as soon as a worker of {} has its partition", args.group);
            }
            Ok(())
        }
        Granted::NotHeld => {
            eprintln!("seriatim: nothing of {entity:?} is held by group {}", args.group);
            Err(Failure::Found)
        }
        Granted::Unfit(state) => {
            eprintln!("seriatim: {entity:?} is {state:?}; nothing was changed");
            Err(Failure::Found)
        }
    }
}

fn print(held: &[Shown]) {
    let row = |shown: &Shown| {
        vec![
            shown.entity.clone(),
            format!("{:?}", shown.state).to_lowercase(),
            grouped(shown.events),
            shown.attempts.to_string(),
            shown.reason.chars().take(60).collect(),
        ]
    };
    print_table(
        &["entity", "state", "events", "attempts", "reason"],
        &held.iter().map(row).collect::<Vec<_>>(),
    );
}
