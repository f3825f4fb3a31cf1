//! `seriatim group`: who reads a topic, how far they are, and what a person decides about
//! them.

use clap::{Args, Subcommand};

use super::{
    Failure, Outcome,
    config_args::block_on,
    consume::From,
    output::{grouped, print_json, print_table},
    topic_args::{TopicArgs, no_such_group},
};
use crate::{
    deliver::is_name,
    order::Entity,
    store::{
        Granted, GroupId, GroupMeasure, GroupStore, RedisStore, Start, Store, StreamId, Switches, Wish,
        partition_of,
    },
};

#[derive(Args)]
pub struct GroupArgs {
    #[command(flatten)]
    topic: TopicArgs,
    /// JSON instead of a table or a sentence.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Subcommand)]
enum GroupCommand {
    /// All groups that read the topic, also plain ones of XREADGROUP, and how far they are.
    List,
    /// Make a group before its first worker comes: from then on nothing is trimmed that it has not done.
    Register {
        /// Its name: a-z, 0-9 and '-'.
        group: String,
        /// Where it begins.
        #[arg(long, value_enum, default_value_t = From::Beginning)]
        from: From,
        /// Begin behind this entry instead, in every partition; an id reads like 1763000000000-0.
        #[arg(long, value_name = "ID", conflicts_with = "from")]
        after: Option<String>,
    },
    /// Remove a group and all that it holds, for ever. A dead group blocks trimming until then.
    Remove {
        /// Its name; of a plain group as well.
        group: String,
        /// For scripts: the group's name once more.
        #[arg(long, value_name = "GROUP")]
        confirm: String,
    },
    /// Deliver nothing to a group, or nothing of one entity, until it is resumed.
    Pause {
        /// The group's name.
        group: String,
        /// Only this entity.
        #[arg(long)]
        entity: Option<String>,
    },
    /// Go on with what was paused.
    Resume {
        /// The group's name.
        group: String,
        /// Only this entity.
        #[arg(long)]
        entity: Option<String>,
    },
    /// Deliver what is out of order at once, marked, instead of waiting for what is missing.
    Degrade {
        /// The group's name.
        group: String,
    },
    /// Wait for what is missing again.
    Restore {
        /// The group's name.
        group: String,
    },
}

pub fn run(args: GroupArgs) -> Outcome {
    let (_, store) = args.topic.open()?;
    block_on(decide(&store, &args))
}

async fn decide(store: &RedisStore, args: &GroupArgs) -> Outcome {
    let partitions = args.topic.record(store).await?.partitions;
    let id = |group: &str| GroupId { topic: args.topic.name.clone(), group: group.to_owned() };
    match &args.command {
        GroupCommand::List => {
            let found = store.measure_groups(&args.topic.name, partitions).await?;
            if args.json {
                print_json(&found)
            } else {
                print(&found)
            }
            Ok(())
        }
        GroupCommand::Register { group, from, after } => {
            if !is_name(group) {
                let error = anyhow::anyhow!("{group:?} is not made of 1 to 64 characters a-z, 0-9 and -");
                return Err(Failure::Usage(error));
            }
            let start = match after {
                Some(text) => Start::After(entry_id(text)?),
                None => from.start(),
            };
            let is_new = store.register(&id(group), partitions, start).await?;
            let what = if is_new { "registered" } else { "was registered already; it stays where it is" };
            say(args, group, what, is_new);
            Ok(())
        }
        GroupCommand::Remove { group, confirm } if group != confirm => {
            Err(Failure::Usage(anyhow::anyhow!("--confirm {confirm} is not {group}; nothing was removed")))
        }
        GroupCommand::Remove { group, .. } => {
            let found = store.measure_groups(&args.topic.name, partitions).await?;
            match found.iter().find(|found| found.group == *group) {
                Some(measure) if !measure.registered => {
                    store.remove_plain_group(&id(group), partitions).await?;
                }
                Some(_) => store.remove(&id(group), partitions).await?,
                None => {
                    // What is left of a removal that was cut short would block trimming for ever.
                    store.remove(&id(group), partitions).await?;
                    return Err(no_such_group(&args.topic.name, group));
                }
            }
            say(args, group, "removed, with all that it held", true);
            Ok(())
        }
        GroupCommand::Pause { group, entity: Some(entity) } => {
            wish(store, args, group, entity, Wish::Pause, "is paused", partitions).await
        }
        GroupCommand::Resume { group, entity: Some(entity) } => {
            wish(store, args, group, entity, Wish::Resume, "goes on", partitions).await
        }
        GroupCommand::Pause { group, entity: None } => {
            switch(store, args, group, "is paused", |switches| switches.paused = true).await
        }
        GroupCommand::Resume { group, entity: None } => {
            switch(store, args, group, "goes on", |switches| switches.paused = false).await
        }
        GroupCommand::Degrade { group } => {
            switch(store, args, group, "is degraded", |switches| switches.degraded = true).await
        }
        GroupCommand::Restore { group } => {
            switch(store, args, group, "promises order again", |switches| switches.degraded = false).await
        }
    }
}

fn entry_id(text: &str) -> Result<StreamId, Failure> {
    text.parse().map_err(|error| {
        Failure::Usage(anyhow::anyhow!(
            "--after: {error}, which reads like 1763000000000-0; nothing was registered"
        ))
    })
}

async fn switch(
    store: &dyn Store,
    args: &GroupArgs,
    group: &str,
    what: &str,
    change: impl FnOnce(&mut Switches),
) -> Outcome {
    let groups = store.groups(&args.topic.name).await?;
    let Some((_, before)) = groups.into_iter().find(|(name, _)| name == group) else {
        return Err(no_such_group(&args.topic.name, group));
    };
    let mut switches = before;
    change(&mut switches);
    let id = GroupId { topic: args.topic.name.clone(), group: group.to_owned() };
    store.switch(&id, switches).await?;
    let when = format!("{what}; its workers see that within their renew_ms");
    say(args, group, &when, switches != before);
    Ok(())
}

async fn wish(
    store: &dyn Store,
    args: &GroupArgs,
    group: &str,
    entity: &str,
    wish: Wish,
    what: &str,
    partitions: u32,
) -> Outcome {
    let name = Entity::new(entity).map_err(|error| Failure::Usage(error.into()))?;
    let partition = args.topic.partition(partition_of(&name, partitions));
    let granted = match store.wish(&partition, group, &name, wish).await {
        Err(error) if error.to_string().contains("NOGROUP") => {
            return Err(no_such_group(&args.topic.name, group));
        }
        granted => granted?,
    };
    let sentence = match granted {
        Granted::Done => format!("{entity:?} {what}"),
        Granted::NotHeld => format!("{entity:?} is not held: nothing was changed"),
        Granted::Unfit(state) => format!("{entity:?} is {state:?}: nothing was changed"),
    };
    say(args, group, &sentence, granted == Granted::Done);
    if granted == Granted::Done { Ok(()) } else { Err(Failure::Found) }
}

fn say(args: &GroupArgs, group: &str, what: &str, changed: bool) {
    if args.json {
        print_json(&serde_json::json!({ "topic": args.topic.name, "group": group, "changed": changed }));
    } else {
        println!("{group}: {what}");
    }
}

fn print(groups: &[GroupMeasure]) {
    let row = |found: &GroupMeasure| {
        let state = match (found.registered, found.switches) {
            (false, _) => "plain",
            (true, Switches { paused: true, .. }) => "paused",
            (true, Switches { degraded: true, .. }) => "degraded",
            (true, _) => "ok",
        };
        let number = |number: Option<u64>| number.map_or("-".to_owned(), grouped);
        vec![
            found.group.clone(),
            state.to_owned(),
            number(found.members),
            grouped(found.behind_ms),
            number(found.held),
            number(found.dead),
        ]
    };
    print_table(
        &["group", "state", "members", "behind ms", "held", "dead"],
        &groups.iter().map(row).collect::<Vec<_>>(),
    );
}
