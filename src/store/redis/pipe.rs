//! A connection for transactions, one behind the other.
//!
//! All else goes over another one (`link.rs`), whose library copies a call three times on its way and makes a value of
//! each answer: for the thousands of commands of the straight way that was a fourth of a sidecar's time. Here they are
//! sent as they were written, and answers are handed over as they came. It is one connection for all partitions,
//! because Redis answers the calls of many at once: then either it or the sidecar had nothing to do.
//!
//! As there, a connection on which anything is in doubt is given up, and its late answers with it.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use ::redis::{ConnectionAddr, ConnectionInfo};
use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    sync::{Mutex, mpsc, oneshot},
    time::timeout,
};
use tracing::debug;

use super::{
    link::{LIBRARY, VERSION},
    resp::{Answers, Commands, Incoming},
    transaction::{Transaction, Trial},
};
use crate::store::StoreError;

/// Room for at least so much is there when answers are read.
const READ_BYTES: usize = 8192;
/// The largest room that is kept for the next transaction.
const SPARE_BYTES_MAX: usize = 256 << 10;

pub struct Pipe {
    info: ConnectionInfo,
    connect_timeout: Duration,
    response_timeout: Duration,
    current: Mutex<Option<Connection>>,
    /// Attempts to connect that failed.
    failures: AtomicU64,
    spare: Spare,
}

/// Room for a transaction, of which the last one has no more need. Most are written as soon as they are made, so one
/// is enough; to ask the allocator for so much each time is dear.
#[derive(Clone, Default)]
struct Spare(Arc<std::sync::Mutex<Vec<u8>>>);

impl Spare {
    fn room(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nobody panics holding it")
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.room())
    }

    fn give_back(&self, mut room: Vec<u8>) {
        if room.capacity() <= SPARE_BYTES_MAX {
            room.clear();
            *self.room() = room;
        }
    }
}

#[derive(Clone)]
struct Connection {
    /// Bounded by the partitions, each of which has one call in flight.
    calls: mpsc::UnboundedSender<Call>,
    /// Whether the trial was passed.
    can_judge: bool,
}

struct Call {
    commands: Commands,
    answers: oneshot::Sender<Answers>,
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

impl Pipe {
    pub fn new(info: ConnectionInfo, connect_timeout: Duration, response_timeout: Duration) -> Self {
        Pipe {
            info,
            connect_timeout,
            response_timeout,
            current: Mutex::default(),
            failures: AtomicU64::new(0),
            spare: Spare::default(),
        }
    }

    /// Room for a transaction.
    pub fn room(&self) -> Vec<u8> {
        self.spare.take()
    }

    /// Runs a transaction: what each of its commands answered. Nothing if there is no connection for it, if the trial,
    /// which comes first on each, failed, or if it was refused as a whole before any of them ran.
    pub async fn transact(
        &self,
        transaction: Transaction,
        trial: Trial<'_>,
    ) -> Result<Option<Answers>, StoreError> {
        let connection = match self.connection(trial).await {
            Ok(connection) => connection,
            Err(error) => {
                debug!(%error, "there is no connection for a transaction");
                return Ok(None);
            }
        };
        if !connection.can_judge {
            return Ok(None);
        }
        let answers = connection.transact(transaction, self.response_timeout).await;
        if !matches!(answers, Ok(Some(_))) {
            // Also if it was refused: the server may have another role by now, or its address may be another's.
            self.discard(&connection).await;
        }
        answers.map_err(|error| StoreError::Ambiguous(error.to_string()))
    }

    /// The next transaction has another connection, and the trial in front of it: the server has forgotten what judges.
    pub async fn renew(&self) {
        *self.current.lock().await = None;
    }

    async fn connection(&self, trial: Trial<'_>) -> io::Result<Connection> {
        let failures_seen = self.failures.load(Ordering::Acquire);
        let mut current = self.current.lock().await;
        if let Some(connection) = current.as_ref().filter(|connection| !connection.calls.is_closed()) {
            return Ok(connection.clone());
        }
        // Whoever held the lock has just tried in vain: all who waited share that, or they would wait for each other.
        if self.failures.load(Ordering::Acquire) != failures_seen {
            return Err(io::Error::other("somebody else has just tried in vain"));
        }
        let connected = self.try_out(trial).await;
        match &connected {
            Ok(connection) => *current = Some(connection.clone()),
            Err(_) => _ = self.failures.fetch_add(1, Ordering::AcqRel),
        }
        connected
    }

    async fn try_out(&self, trial: Trial<'_>) -> io::Result<Connection> {
        let mut connection = timeout(self.connect_timeout, self.connect()).await??;
        let answers = connection.transact(trial.transaction(), self.response_timeout).await?;
        connection.can_judge = answers.is_some_and(|answers| trial.is_passed(answers));
        Ok(connection)
    }

    async fn connect(&self) -> io::Result<Connection> {
        let socket: Box<dyn Socket> = match self.info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let socket = TcpStream::connect((host.as_str(), *port)).await?;
                socket.set_nodelay(true)?;
                Box::new(socket)
            }
            ConnectionAddr::Unix(path) => Box::new(UnixStream::connect(path).await?),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let (calls, queue) = mpsc::unbounded_channel();
        let (within, spare) = (self.response_timeout, self.spare.clone());
        tokio::spawn(async move {
            if let Err(error) = carry(socket, queue, within, spare).await {
                debug!(%error, "the connection for transactions has ended");
            }
        });
        let connection = Connection { calls, can_judge: false };
        connection.introduce(&self.info).await?;
        Ok(connection)
    }

    /// Forgets this connection, unless somebody has already replaced it.
    async fn discard(&self, broken: &Connection) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|connection| connection.calls.same_channel(&broken.calls)) {
            *current = None;
        }
    }
}

impl Connection {
    /// Says who it is, and chooses the database.
    async fn introduce(&self, info: &ConnectionInfo) -> io::Result<()> {
        let redis = info.redis_settings();
        let mut commands = Commands::default();
        match (redis.username(), redis.password()) {
            (Some(user), Some(password)) => {
                commands.begin("AUTH", 3).arg(user).arg(password);
            }
            (None, Some(password)) => {
                commands.begin("AUTH", 2).arg(password);
            }
            (_, None) => {}
        }
        if redis.db() != 0 {
            commands.begin("SELECT", 2).arg(redis.db().to_string());
        }
        let needed = commands.count();
        // A server that is too old for it says so, which harms nobody.
        commands.begin("CLIENT", 4).args(["SETINFO", "LIB-NAME", LIBRARY]);
        commands.begin("CLIENT", 4).args(["SETINFO", "LIB-VER", VERSION]);
        let mut answers = self.exchange(commands).await?;
        (0..needed).try_for_each(|_| answers.okay()).map_err(io::Error::other)
    }

    /// What each command of a transaction answered; nothing if it was refused as a whole.
    async fn transact(&self, transaction: Transaction, within: Duration) -> io::Result<Option<Answers>> {
        let before_exec = transaction.commands.count() - 1;
        let mut answers = timeout(within, self.exchange(transaction.commands)).await??;
        // Those before the last say that they are queued, or why nothing will run.
        let is_list = answers.enter(before_exec).map_err(io::Error::other)?;
        Ok(is_list.then_some(answers))
    }

    async fn exchange(&self, commands: Commands) -> io::Result<Answers> {
        let (answers, answered) = oneshot::channel();
        let lost = || io::Error::new(io::ErrorKind::BrokenPipe, "the connection was lost");
        self.calls.send(Call { commands, answers }).map_err(|_| lost())?;
        answered.await.map_err(|_| lost())
    }
}

/// Sends calls and hands their answers over, as long as anybody has the connection: who waits for an answer does. If
/// it fails they are told by that.
async fn carry(
    mut socket: Box<dyn Socket>,
    mut calls: mpsc::UnboundedReceiver<Call>,
    within: Duration,
    spare: Spare,
) -> io::Result<()> {
    let mut waiting: VecDeque<(Incoming, oneshot::Sender<Answers>)> = VecDeque::new();
    let mut bytes = BytesMut::new();
    loop {
        bytes.reserve(READ_BYTES);
        tokio::select! {
            biased;
            call = calls.recv() => {
                let Some(Call { commands, answers }) = call else { return Ok(()) };
                waiting.push_back((Incoming::new(commands.count()), answers));
                let bytes = commands.into_bytes();
                timeout(within, socket.write_all(&bytes)).await??;
                spare.give_back(bytes);
            }
            read = socket.read_buf(&mut bytes) => {
                if read? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                hand_over(&mut bytes, &mut waiting)?;
            }
        }
    }
}

/// All that is there for those who wait.
fn hand_over(
    bytes: &mut BytesMut,
    waiting: &mut VecDeque<(Incoming, oneshot::Sender<Answers>)>,
) -> io::Result<()> {
    while let Some((incoming, _)) = waiting.front_mut() {
        let Some(length) = incoming.length(bytes)? else { return Ok(()) };
        let (_, answers) = waiting.pop_front().expect("it is the front");
        // Who has given up waiting does not want them.
        let _ = answers.send(Answers::new(bytes.split_to(length).freeze()));
    }
    if bytes.is_empty() { Ok(()) } else { Err(io::Error::other("an answer that nobody asked for")) }
}
