//! One run of one system, with a store of its own, from start to proof.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    super::{Failure, PrivateRedis},
    commit, delivery, direct,
    load::{LIFETIME, Load, Shape},
    memory,
    meter::{Length, Measured, Processes},
    nats::{self, NatsServer},
    pieces::{self, Pieces},
    publish::{self, Run},
    python,
    raw::{self, Raw},
    rig::{OwnRedis, OwnSidecar, Persistence, verified},
    scenario::{EXPECTED_WINDOW, Guard, How, PIECES_BATCH, Sidecar, System, UNARY, WINDOW},
};

/// Programs that are needed, and those that peers need.
pub struct Tools {
    redis: PathBuf,
    nats: Option<PathBuf>,
    python: Option<PathBuf>,
    /// Live entities of the baselines and of the store alone.
    live: u64,
}

impl Tools {
    pub fn find(redis: Option<&Path>, live: u64) -> Result<Self, Failure> {
        let redis = match redis {
            Some(program) if program.is_file() => program.to_owned(),
            Some(program) => {
                let error = anyhow::anyhow!("--redis-server {}: there is no such file", program.display());
                return Err(Failure::Usage(error));
            }
            None => PrivateRedis::find().ok_or_else(|| {
                Failure::Unreachable(anyhow::anyhow!(
                    "neither redis-server nor valkey-server is on the PATH; install one (apt install redis-server, \
                     brew install redis) or name it with --redis-server PATH"
                ))
            })?,
        };
        Ok(Tools { redis, nats: nats_server(), python: python_with_redis(), live })
    }

    /// Why a system cannot be measured here.
    pub fn lacks(&self, system: &System) -> Option<String> {
        match system {
            System::JetStream { .. } if self.nats.is_none() => Some(
                "there is no nats-server on the PATH or in target/bench; `make bench` gets one".to_owned(),
            ),
            System::Python if self.python.is_none() => {
                Some("no Python here has redis-py; `make clients` installs one that does".to_owned())
            }
            _ => {
                let layout = system.layout().filter(|layout| !layout.is_known())?;
                Some(format!("this version does not know layout = \"{}\"", layout.name()))
            }
        }
    }

    pub fn redis(&self) -> &Path {
        &self.redis
    }

    /// Runs it once.
    pub async fn run(&self, system: &System, seed: u64, length: Length) -> Result<Measured, Failure> {
        match system {
            System::Sidecar(run) => return self.sidecar(run, seed, length).await,
            System::Memory { layout } => {
                let redis = self.redis_with(Persistence::Nothing)?;
                return memory::measure(&redis, *layout, seed).await;
            }
            _ => {}
        }
        self.without_sidecar(system, seed, length).await.map_err(Failure::Other)
    }

    fn redis_with(&self, persistence: Persistence) -> Result<OwnRedis, Failure> {
        OwnRedis::start(&self.redis, persistence).map_err(Failure::Other)
    }

    async fn sidecar(&self, run: &Sidecar, seed: u64, length: Length) -> Result<Measured, Failure> {
        let redis = self.redis_with(run.persistence)?;
        let sidecar = OwnSidecar::start(&redis, run.layout).await?;
        let job = Run {
            target: sidecar.target(run.transport),
            load: Load::new(Shape { seed, ..run.shape }),
            length,
            processes: Processes { sidecar: sidecar.pid(), ..redis.processes() },
        };
        let published = match run.how {
            How::Stream(pace) => publish::stream(job, pace).await,
            How::Unary => publish::unary(job, UNARY).await,
        };
        sidecar.stop().await;
        let published = published.map_err(Failure::Other)?;
        let verified = verified(&redis, published.accepted).await.map_err(Failure::Other)?;
        Ok(Measured { verified: Some(verified), ..published.measured })
    }

    async fn without_sidecar(&self, system: &System, seed: u64, length: Length) -> anyhow::Result<Measured> {
        let redis = |persistence| OwnRedis::start(&self.redis, persistence);
        let base = Shape { live: self.live, lifetime: LIFETIME, late_percent: 0, zipf: false, seed };
        match system {
            System::Raw { batch, persistence } => {
                let redis = redis(*persistence)?;
                let (address, processes) = (redis.address(), redis.processes());
                raw::xadd(Raw { address, batch: *batch, load: Load::new(base), length, processes })
            }
            System::Direct { pace } => {
                let redis = redis(Persistence::Nothing)?;
                let (url, processes, load) = (redis.url(), redis.processes(), Load::new(base));
                direct::xadd(direct::Direct { url, pace: *pace, load, length, processes }).await
            }
            System::Commit { layout, batch } => {
                commit::admit(&redis(Persistence::Nothing)?, *layout, *batch, base, length).await
            }
            System::Pieces { layout, upto } => {
                let (layout, upto, batch) = (*layout, *upto, PIECES_BATCH);
                let pieces = Pieces { layout, upto, batch, shape: base, length };
                pieces::append(&redis(Persistence::Nothing)?, &pieces).await
            }
            System::Consumer { layout } => {
                delivery::consumer(&redis(Persistence::Nothing)?, *layout, seed, length).await
            }
            System::PlainLoop => delivery::plain_loop(&redis(Persistence::Nothing)?, seed, length).await,
            System::JetStream { guard } => {
                let program =
                    self.nats.as_deref().ok_or_else(|| anyhow::anyhow!("there is no nats-server"))?;
                let window = match guard {
                    Guard::MessageId => WINDOW,
                    Guard::ExpectedSequence => EXPECTED_WINDOW,
                };
                nats::publish(&NatsServer::start(program)?, *guard, window, base, length)
            }
            System::Python => {
                let program = self.python.as_deref().ok_or_else(|| anyhow::anyhow!("there is no Python"))?;
                python::publish(program, &redis(Persistence::Nothing)?, length)
            }
            System::Sidecar(_) | System::Memory { .. } => unreachable!("these have a sidecar"),
        }
    }
}

/// In folders of the PATH, then where `make bench` puts it.
fn nats_server() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let folders = env::split_paths(&path).map(|folder| folder.join("nats-server"));
    folders.chain(built("bench/venv/bin/nats-server")).find(|program| program.is_file())
}

fn python_with_redis() -> Option<PathBuf> {
    let candidates = built("clients/venv/bin/python").chain(built("bench/venv/bin/python"));
    candidates.chain(["python3".into()]).find(|program| {
        let import = Command::new(program)
            .args(["-c", "import redis"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        import.is_ok_and(|status| status.success())
    })
}

/// A file under `target`: of the project one stands in, or the one this program was built in.
fn built(file: &str) -> impl Iterator<Item = PathBuf> + use<> {
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.parent()?.join(file)));
    [Path::new("target").join(file)].into_iter().chain(beside)
}
