//! The sidecar as a whole: bind, open the topics, serve, drain.

mod fleet;
mod readiness;
mod reload;

use std::{
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    net::{TcpListener, UnixListener},
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
use tracing::{info, warn};

use self::{fleet::FleetMember, readiness::Readiness, reload::Reloader};
use crate::{
    clock::{Clock, SystemClock},
    config::{Config, Source},
    grpc::{self, Connections, DeliveryService, IngestService, Listener},
    ingest::{self, Ingest, Ports, Tasks},
    metrics::Metrics,
    random::Random,
    store::{OpenError, Store, TopicSpec},
    web,
};

/// Where the sidecar listens, as bound: port 0 has become a real one.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Bound {
    pub grpc: Option<SocketAddr>,
    pub socket: Option<PathBuf>,
    pub web: Option<SocketAddr>,
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}: {source}")]
    Bind { address: String, source: io::Error },
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}")]
    Config(#[from] crate::config::ConfigError),
    #[error("{0} ended by itself, which is a bug; the log above says more")]
    Died(&'static str),
}

/// While draining: how often it is looked whether anybody is still being served, and
/// how long the last answers have to leave.
const IDLE_LOOK: Duration = Duration::from_millis(20);
const IDLE_GRACE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` resolves, then drains. `on_ready` is called once, when
/// all topics are open and the addresses answer.
pub async fn run(
    config: Config,
    source: Source,
    store: Arc<dyn Store>,
    mut random: Random,
    on_ready: impl FnOnce(&Bound),
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    // From the beginning, or one that comes while the store is waited for would be the end.
    let hangup = signal(SignalKind::hangup()).expect("signals can be listened to");
    let (listeners, web_listener, bound) = bind(&config).await?;
    let metrics = Arc::new(Metrics::default());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let ports = Ports { store: store.clone(), clock: clock.clone(), metrics: metrics.clone() };
    let (readiness, health) = Readiness::new(metrics.clone());
    if let Some(listener) = web_listener {
        let state =
            web::WebState { metrics: metrics.clone(), ready: readiness.watch(), store: store.clone() };
        tokio::spawn(web::serve(listener, state));
    }

    let specs = topic_specs(&config)?;
    let opened = async {
        for spec in &specs {
            open(&ports, spec, config.store.start_wait()).await?;
        }
        Ok::<(), OpenError>(())
    };
    let mut shutdown = pin!(shutdown);
    tokio::select! {
        opened = opened => opened?,
        () = &mut shutdown => return Ok(()),
    }
    let (ingest, mut tasks) = Ingest::start(
        specs.clone(),
        ingest_options(&config),
        ports.clone(),
        Random::from_seed(random.draw()),
    );
    let (drain, draining) = watch::channel(false);
    let service = IngestService::new(ingest.clone(), grpc_limits(&config), metrics.clone(), draining.clone());
    let delivery = DeliveryService {
        store: store.clone(),
        clock: clock.clone(),
        random: Arc::new(Mutex::new(Random::from_seed(random.draw()))),
        config: Arc::new(config.delivery.clone()),
        metrics: metrics.clone(),
        draining: draining.clone(),
        consumers: Arc::default(),
    };
    let connections = Connections::new(config.limits.connections, metrics.clone());
    let mut server = tokio::spawn(grpc::serve(
        service,
        delivery,
        health,
        listeners,
        connections,
        draining,
        grpc_limits(&config),
    ));
    // What goes on beside, and ends without being waited for.
    let mut beside = JoinSet::new();
    beside.spawn(readiness.clone().watch_store(store, clock.clone()));
    let member = FleetMember {
        name: format!("{:016x}", random.draw()),
        about: about(&config, &bound),
        fleet: config.fleet.clone(),
        ports: ports.clone(),
    };
    let member = Arc::new(member);
    beside.spawn(member.clone().beat());
    beside.spawn(member.clone().reconcile(specs, Random::from_seed(random.draw())));
    let unsure = Default::default();
    let reloader = Reloader { source, config: config.clone(), unsure, ingest: ingest.clone(), ports };
    beside.spawn(reloader.run(hangup));
    readiness.set(true).await;
    on_ready(&bound);

    // A task that ends before it is told to has a bug: better to be restarted than to
    // turn a partition's events away for ever.
    tokio::select! {
        () = shutdown => {}
        Some(_) = tasks.join_next() => return Err(ServeError::Died("a partition's task")),
        _ = &mut server => return Err(ServeError::Died("the gRPC server")),
    }
    info!("draining: no new requests, open ones are answered");
    // While the listener still lives: once it is gone a successor may bind this path.
    if let Some(path) = &bound.socket {
        let _ = std::fs::remove_file(path);
    }
    beside.shutdown().await;
    readiness.set(false).await;
    let _ = drain.send(true);
    let drained = async {
        drain_all(server, ingest, tasks, metrics, clock).await;
        member.leave().await;
    };
    if tokio::time::timeout(Duration::from_millis(config.limits.drain_ms), drained).await.is_err() {
        warn!("limits.drain_ms passed before all clients had left; their open requests are safe to repeat");
    }
    info!("stopped");
    Ok(())
}

/// Clients first, then what they had submitted.
async fn drain_all(
    mut server: JoinHandle<Result<(), tonic::transport::Error>>,
    ingest: Arc<Ingest>,
    mut tasks: Tasks,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
) {
    // Somebody who only watches our health may stay connected; nobody waits for that.
    let idle = async {
        while metrics.in_flight_events.get() > 0 || metrics.streams.get() > 0 {
            clock.sleep(IDLE_LOOK).await;
        }
        clock.sleep(IDLE_GRACE).await;
    };
    tokio::select! {
        _ = &mut server => {}
        () = idle => server.abort(),
    }
    // Not by dropping it: a connection that stays open holds on to it.
    ingest.close();
    while tasks.join_next().await.is_some() {}
}

async fn bind(config: &Config) -> Result<(Vec<Listener>, Option<TcpListener>, Bound), ServeError> {
    let mut listeners = Vec::new();
    let mut bound = Bound::default();
    if let Some((listener, address)) = bind_tcp(&config.listen.grpc).await? {
        bound.grpc = Some(address);
        listeners.push(Listener::Tcp(listener));
    }
    if !config.listen.socket.is_empty() {
        let path = PathBuf::from(&config.listen.socket);
        listeners.push(Listener::Unix(bind_unix(&path)?));
        bound.socket = Some(path);
    }
    let web = bind_tcp(&config.listen.web).await?;
    bound.web = web.as_ref().map(|(_, address)| *address);
    Ok((listeners, web.map(|(listener, _)| listener), bound))
}

async fn bind_tcp(address: &str) -> Result<Option<(TcpListener, SocketAddr)>, ServeError> {
    if address.is_empty() {
        return Ok(None);
    }
    let failed = |source| ServeError::Bind { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok(Some((listener, local)))
}

/// Replaces a socket that a killed process left behind, but nothing else. Only the
/// owner and its group may connect.
fn bind_unix(path: &Path) -> Result<UnixListener, ServeError> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let failed = |source| ServeError::Bind { address: path.display().to_string(), source };
    if let Ok(found) = std::fs::symlink_metadata(path) {
        let in_use = || std::os::unix::net::UnixStream::connect(path).is_ok();
        if !found.file_type().is_socket() {
            return Err(failed(io::Error::other(
                "something that is not a socket is there; remove it by hand",
            )));
        }
        if in_use() {
            return Err(failed(io::Error::other("another process listens there")));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660)).map_err(failed)?;
    Ok(listener)
}

fn topic_specs(config: &Config) -> Result<Vec<TopicSpec>, ServeError> {
    config.topics.iter().map(|(name, topic)| Ok(topic.spec(name)?)).collect()
}

/// What other sidecars, and people, are told about this one.
fn about(config: &Config, bound: &Bound) -> String {
    let about = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "topics": config.topics.keys().collect::<Vec<_>>(),
        "listen": bound,
    });
    about.to_string()
}

/// Opens one topic, waiting for a store that is not there yet.
async fn open(ports: &Ports, spec: &TopicSpec, wait: Duration) -> Result<(), OpenError> {
    const RETRY_EVERY: Duration = Duration::from_millis(500);
    let begun = ports.clock.now();
    let mut told = false;
    loop {
        match ports.store.open(spec).await {
            Ok(()) => return Ok(()),
            Err(OpenError::Store { source, .. })
                if source.is_passing() && ports.clock.now().saturating_sub(begun) < wait =>
            {
                ports.metrics.count_store_error(source.class());
                if !std::mem::replace(&mut told, true) {
                    warn!(error = %source, "the store is not there yet; waiting for it");
                }
                ports.clock.sleep(RETRY_EVERY).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn ingest_options(config: &Config) -> ingest::Options {
    ingest::Options {
        batch_events: config.limits.batch_events,
        batch_bytes: config.limits.batch_bytes,
        in_flight_events: config.limits.in_flight_events,
        in_flight_bytes: config.limits.in_flight_bytes,
        store_wait: config.store.wait(),
        elapse_max: config.limits.elapse_max,
    }
}

fn grpc_limits(config: &Config) -> grpc::Limits {
    grpc::Limits {
        event_bytes: config.limits.event_bytes,
        attribute_bytes: config.limits.attribute_bytes,
        request_events: config.limits.request_events,
        request_bytes: config.limits.request_bytes,
        stream_in_flight: config.limits.stream_in_flight,
        connection_requests: config.limits.connection_requests,
    }
}
