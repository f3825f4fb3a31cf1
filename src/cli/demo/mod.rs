//! `seriatim demo`: the problem and its cure, with real processes.
//!
//! A thousand evaluations run at once, each over in less than 100 ms. Their events
//! travel through four executors' connections with different delays, some twice, so
//! that many arrive in the wrong order, and one in a hundred loses a message on the way:
//! the sidecar asks its executor for it. The sidecar is a child process; what came out
//! is read back from the streams, replayed into the state machine of a storage worker that
//! refuses `provisioning -> completed`, and put before a judge together with what the
//! executors were told.

mod judged;
mod load;
mod picture;
mod read_back;
mod sidecar;
mod worker;

use std::time::{Duration, Instant};

use clap::Args;

use self::{
    load::{Executors, Load},
    picture::Picture,
    sidecar::Sidecar,
    worker::{Read, Workers},
};
use super::{
    Failure, Outcome, PrivateRedis,
    config_args::block_on,
    output::{print_json, progress},
};
use crate::{
    config::MEMORY_URL,
    operate::Verifier,
    order::{Order, Sequence},
    random::Random,
    store::{Entry, Layout},
};

#[derive(Args)]
pub struct DemoArgs {
    /// Use this Redis; its demo topic is deleted afterwards. Without it a redis-server or
    /// valkey-server found on the PATH is started as a child, else the embedded store serves.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Use the embedded store even if a Redis is at hand.
    #[arg(long, conflicts_with = "redis")]
    embedded: bool,
    /// The same load with ordering off: see what goes wrong without it.
    #[arg(long)]
    no_order: bool,
    /// The same load with executors that do not answer when they are asked for a lost message:
    /// its place is given up, and marked.
    #[arg(long, conflicts_with = "no_order")]
    no_resend: bool,
    /// How events stand in the streams.
    #[arg(long, value_name = "LAYOUT", default_value = Layout::Entry.name(), value_parser = Layout::ALL.map(Layout::name))]
    layout: String,
    /// Evaluations that run at once.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    entities: u32,
    /// Shuffles alike when given again.
    #[arg(long)]
    seed: Option<u64>,
    /// One JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

pub fn run(args: DemoArgs) -> Outcome {
    block_on(demo(args))
}

async fn demo(args: DemoArgs) -> Outcome {
    let seed = args.seed.unwrap_or_else(|| Random::from_system().below(1_000_000));
    let (own_redis, url, store) = choose_store(&args)?;
    if !args.json {
        println!("store: {store}");
        println!("load:  {} evaluations at once, seed {seed}", args.entities);
    }
    let topic = format!("demo-{:08x}", Random::from_system().below(1 << 32));
    let sidecar = Sidecar::start(&url, &topic, args.no_order, &args.layout).await?;
    let load = Load::plan(args.entities, &mut Random::from_seed(seed));
    let bar = progress(Some(load.deliveries.len() as u64), "publishing", !args.json);
    let work = async {
        let executors = Executors::connect(&sidecar, &topic, !args.no_resend);
        let mut published = load.publish(&executors, &bar).await?;
        bar.finish_and_clear();
        let entries = until_all_ended(&sidecar, &url, &topic, args.no_order).await?;
        published.resent = executors.resent();
        executors.close().await;
        Ok((published, entries, sidecar.measure(&topic).await?))
    };
    let outcome = tokio::select! {
        outcome = work => outcome,
        _ = tokio::signal::ctrl_c() => Err(Failure::Other(anyhow::anyhow!("interrupted"))),
    };
    // Whatever happened, the demo leaves nothing behind.
    sidecar.stop(&url, &topic).await?;
    drop(own_redis);
    let (published, entries, measured) = outcome?;

    let mut verifier = Verifier::new(Sequence::new(0).expect("0 is a sequence"));
    entries.iter().for_each(|entry| verifier.entry(entry));
    let picture = Picture {
        seed,
        store,
        embedded: url == MEMORY_URL,
        ordered: !args.no_order,
        resend: !args.no_resend,
        lost: load.lost(),
        went_in: Workers::replay(load.arriving().map(|d| (d.entity.as_str(), Read::Step(d.step.sequence())))),
        came_out: workers(&entries),
        proof: verifier.finish(),
        judged: judged::judge(&load, &published, &entries),
        entities: u64::from(args.entities),
        events: load.events(),
        published,
        measured,
    };
    if args.json {
        print_json(&picture.summary())
    } else {
        picture.print()
    }
    if picture.is_as_promised() { Ok(()) } else { Err(Failure::Found) }
}

/// Longer than any gap of the demo's topic is waited for.
const GAPS_END_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What came out, once no evaluation waits for a missing message any more.
async fn until_all_ended(
    sidecar: &Sidecar,
    url: &str,
    topic: &str,
    no_order: bool,
) -> Result<Vec<Entry>, Failure> {
    let begun = Instant::now();
    loop {
        let entries = read_back::all(sidecar, url, topic).await?;
        if no_order || workers(&entries).stuck == 0 || begun.elapsed() > GAPS_END_WITHIN {
            return Ok(entries);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What storage workers make of it, markers and all.
fn workers(entries: &[Entry]) -> Workers {
    let read = |entry: &Entry| match entry.order {
        Order::Marker => Read::Gap(entry.sequence.get()),
        Order::Strict | Order::Passed | Order::Late | Order::Replay => Read::Step(entry.sequence.get()),
    };
    Workers::replay(entries.iter().map(|entry| (entry.entity.as_str(), read(entry))))
}

/// The Redis child, if one was started; the URL; and a word for people.
fn choose_store(args: &DemoArgs) -> Result<(Option<PrivateRedis>, String, String), Failure> {
    if let Some(url) = &args.redis {
        return Ok((None, url.clone(), "the Redis that was given".to_owned()));
    }
    let program = if args.embedded { None } else { PrivateRedis::find() };
    let Some(program) = program else {
        let store = "embedded, in memory: nothing survives the process (no redis-server was found or wanted)";
        return Ok((None, MEMORY_URL.to_owned(), store.to_owned()));
    };
    let redis = PrivateRedis::start(&program, &[]).map_err(|error| Failure::Other(error.into()))?;
    let (url, store) =
        (redis.url(), format!("{} as a child process, on a private socket", program.display()));
    Ok((Some(redis), url, store))
}
