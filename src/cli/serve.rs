//! `seriatim serve`: the sidecar.

use std::{
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use tokio::{
    io::AsyncReadExt,
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};
use tracing::{info, warn};

use super::{
    Failure, Outcome,
    config_args::{ConfigArgs, open_redis},
    output::print_json,
};
use crate::{
    config::{Config, MEMORY_URL, Source},
    random::Random,
    server::{self, Bound, ServeError},
    store::{MemoryStore, OpenError, RedisStore, Store},
    telemetry,
};

#[derive(Args)]
pub struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Short for --set listen.grpc=ADDRESS; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Short for --set listen.socket=PATH.
    #[arg(long, value_name = "PATH")]
    socket: Option<String>,
    /// Short for --set listen.web=ADDRESS.
    #[arg(long, value_name = "ADDRESS")]
    web: Option<String>,
    /// Print the bound addresses as one JSON object on standard output when ready.
    #[arg(long)]
    json: bool,
    /// Check the configuration and end.
    #[arg(long)]
    check: bool,
    /// End when standard input closes, so that the process never outlives its parent.
    #[arg(long)]
    exit_with_parent: bool,
}

pub fn run(args: ServeArgs) -> Outcome {
    let flags = [("listen.grpc", &args.listen), ("listen.socket", &args.socket), ("listen.web", &args.web)];
    let given = flags.iter().filter_map(|(key, value)| Some((key.to_string(), value.as_ref()?.clone())));
    let source = args.config.source(given.collect())?;
    let config = source.load().map_err(|error| Failure::Usage(error.into()))?;
    telemetry::start(&config.log, config.log_format)
        .map_err(|error| Failure::Usage(anyhow::anyhow!(error)))?;
    if args.check {
        return check(&config);
    }
    let runtime = runtime(config.threads).map_err(|error| Failure::Other(error.into()))?;
    let outcome = runtime.block_on(serve(args, config, source));
    // A client that ignores us must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

/// One thread has a runtime of its own kind: its queue is first in, first out, so that
/// the calls of all partitions are written before the connection is flushed once. With
/// workers, a woken task overtakes the others, and each call is a write of its own.
fn runtime(threads: usize) -> io::Result<Runtime> {
    let mut builder = match threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.worker_threads(threads).enable_all().build()
}

/// What validation cannot know: whether the store's URL is understood. It connects
/// to nothing.
fn check(config: &Config) -> Outcome {
    if config.store.url != MEMORY_URL {
        open_redis(config, &mut Random::from_system())?;
    }
    println!("the configuration is sound");
    Ok(())
}

async fn serve(args: ServeArgs, config: Config, source: Source) -> Outcome {
    let shutdown = shutdown(args.exit_with_parent);
    let mut random = Random::from_system();
    let store: Arc<dyn Store> = if config.store.url == MEMORY_URL {
        Arc::new(MemoryStore::default())
    } else {
        let redis = Arc::new(open_redis(&config, &mut random)?);
        say_what_could_be_lost(&redis).await;
        redis
    };
    info!(version = env!("CARGO_PKG_VERSION"), store = store.describe(), "starting");
    let topics: Vec<&str> = config.topics.keys().map(String::as_str).collect();
    let topics = topics.join(", ");
    let ready = |bound: &Bound| {
        let shown = |address: Option<String>| address.unwrap_or_else(|| "-".to_owned());
        info!(
            grpc = shown(bound.grpc.map(|a| a.to_string())),
            socket = shown(bound.socket.as_ref().map(|p| p.display().to_string())),
            web = shown(bound.web.map(|a| a.to_string())),
            topics,
            "ready"
        );
        if args.json {
            print_json(bound);
        }
    };
    let gave_up = format!(
        "{} did not answer within store.start_wait_ms ({}); is it running there?",
        store.describe(),
        config.store.start_wait_ms
    );
    let served = server::run(config, source, store, random, ready, shutdown);
    served.await.map_err(|error| match error {
        ServeError::Open(OpenError::Store { ref source, .. }) if source.is_passing() => {
            Failure::Unreachable(anyhow::anyhow!("{gave_up} {error}"))
        }
        ServeError::Open(error) => error.into(),
        ServeError::Bind { ref source, .. } if source.kind() == ErrorKind::AddrInUse => {
            Failure::Usage(anyhow::anyhow!(
                "{error}; stop what listens there, or choose another with --listen, --web or --socket"
            ))
        }
        ServeError::Bind { .. } | ServeError::Config(_) => Failure::Usage(error.into()),
        ServeError::Died(_) => Failure::Other(error.into()),
    })
}

/// At start-up, in plain words: durability is the store's, and its settings are
/// rarely looked at.
async fn say_what_could_be_lost(store: &RedisStore) {
    let Ok(report) = store.report().await else { return };
    info!(version = report.version, durability = report.what_could_be_lost(), "the store");
    if report.evicts() {
        warn!(
            policy = report.maxmemory_policy,
            "the store may evict ordering state, which breaks every promise; set maxmemory-policy noeviction"
        );
    }
}

/// Listens to signals from the moment it is called, not only when it is awaited.
fn shutdown(exit_with_parent: bool) -> impl Future<Output = ()> {
    let terminate = signal(SignalKind::terminate()).expect("signals can be listened to");
    let interrupt = signal(SignalKind::interrupt()).expect("signals can be listened to");
    until_told(terminate, interrupt, exit_with_parent)
}

async fn until_told(mut terminate: Signal, mut interrupt: Signal, exit_with_parent: bool) {
    let parent_gone = async {
        let mut input = tokio::io::stdin();
        let mut ignored = [0; 64];
        while exit_with_parent && matches!(input.read(&mut ignored).await, Ok(read) if read > 0) {}
        if !exit_with_parent {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = parent_gone => {}
    }
}
