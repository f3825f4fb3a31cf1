//! A worker that writes down everything it is given and what became of it: one line of JSON
//! for the beginning and the end of each handler, and for its answer once that is in the
//! store. `tests/checker/check.py` reads such journals and says whether all promises were
//! kept; it knows nothing of this program.
//!
//! Run it with `cargo run --example recording_worker -- --help`.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use clap::Parser;
use seriatim::{
    clock::SystemClock,
    deliver::{Consumer, ConsumerOptions, Delivered, Delivery},
    random::Random,
    store::{RedisSettings, RedisStore, Straight},
};

#[derive(Parser)]
struct Args {
    /// Where Redis is: redis://host:port or redis+unix:///path.
    #[arg(long)]
    redis: String,
    /// The topic.
    #[arg(long)]
    topic: String,
    /// The group of workers.
    #[arg(long)]
    group: String,
    /// This worker's name.
    #[arg(long)]
    name: String,
    /// The journal; lines are appended.
    #[arg(long)]
    journal: PathBuf,
    /// The longest time that handling an event takes.
    #[arg(long, default_value_t = 10)]
    handler_ms: u64,
    /// Events that are handled at once.
    #[arg(long, default_value_t = 16)]
    in_flight: usize,
    /// How long a lease lasts without a sign of life.
    #[arg(long, default_value_t = 2_000)]
    lease_ms: u64,
    /// Of so many percent of the events the first attempt fails.
    #[arg(long, default_value_t = 0)]
    nack_percent: u64,
}

struct Journal {
    file: File,
    worker: String,
}

impl Journal {
    /// One write for a line: whenever the process is killed, at most the last one is cut.
    fn note(&self, kind: &str, delivery: &Delivery) {
        let (order, from) = match &delivery.content {
            Delivered::Event { order, .. } => (*order, None),
            Delivered::Gap { from, .. } => ("gap", Some(*from)),
        };
        #[expect(clippy::disallowed_methods, reason = "journals of several processes are put in order by it")]
        let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
        let mut line = serde_json::json!({
            "kind": kind,
            "at": at.as_nanos() as u64,
            "worker": self.worker,
            "partition": delivery.partition,
            "term": delivery.term,
            "entity": delivery.entity,
            "epoch": delivery.epoch,
            "sequence": delivery.sequence,
            "order": order,
            "attempt": delivery.attempt,
            "id": delivery.id.map(|id| id.to_string()),
        });
        if let Some(from) = from {
            line["from"] = from.into();
        }
        (&self.file).write_all(format!("{line}\n").as_bytes()).expect("the journal can be written");
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let file = OpenOptions::new().create(true).append(true).open(&args.journal)?;
    let journal = Arc::new(Journal { file, worker: args.name.clone() });
    let settings = RedisSettings {
        url: args.redis.clone(),
        connect_timeout: Duration::from_secs(2),
        response_timeout: Duration::from_secs(5),
        straight: Straight::default(),
    };
    let mut random = Random::from_system();
    let store = Arc::new(RedisStore::new(settings, random.draw())?);
    let mut options = ConsumerOptions {
        name: args.name.clone(),
        in_flight_max: args.in_flight,
        lease: Duration::from_millis(args.lease_ms),
        renew: Duration::from_millis(args.lease_ms / 6),
        // It is killed for what no event is to blame for, and the same event may be there each time.
        crashes_max: u32::MAX,
        ..ConsumerOptions::new(&args.topic, &args.group)
    };
    (options.retry.base_ms, options.retry.unsafe_retry) = (100, true);
    let consumer = Consumer::start(store, Arc::new(SystemClock::default()), random, options).await?;
    work(consumer, journal, &args).await;
    Ok(())
}

async fn work(mut consumer: Consumer, journal: Arc<Journal>, args: &Args) {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .expect("signals can be listened to");
    let mut random = Random::from_system();
    loop {
        let delivery = tokio::select! {
            delivery = consumer.next() => delivery,
            _ = terminate.recv() => break,
        };
        let Some(delivery) = delivery else { break };
        let takes = Duration::from_millis(random.below(args.handler_ms + 1));
        let fails = delivery.attempt == 1 && random.below(100) < args.nack_percent;
        let journal = journal.clone();
        tokio::spawn(async move {
            journal.note("start", &delivery);
            tokio::time::sleep(takes).await;
            if fails {
                journal.note("nack", &delivery);
                let _ = delivery.nack("it was decided so").await;
                return;
            }
            journal.note("end", &delivery);
            let copy = delivery.described();
            let answer = delivery.ack().await;
            journal.note(if answer.is_ok() { "acked" } else { "fenced" }, &copy);
        });
    }
    consumer.close().await;
}
