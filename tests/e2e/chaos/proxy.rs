//! What stands between a process and its Redis, and can do what networks do: swallow, cut, delay.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream, UnixStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
        unix,
    },
    sync::watch,
    task::JoinHandle,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Nothing comes through, and nobody is told. What was sent comes through when the hole is
    /// closed, as with TCP: perhaps long after its sender has given up.
    Hole,
    /// A request goes through, and its connection is closed before the reply.
    CutReply,
    /// Each piece comes so much later.
    Delay(Duration),
}

pub struct Proxy {
    url: String,
    mode: watch::Sender<Mode>,
    /// Connections that were closed instead of a reply.
    cut: Arc<AtomicU64>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// One in front of the server at this socket.
    pub async fn start(server: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        let (mode, seen) = watch::channel(Mode::Pass);
        let cut = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(accept(listener, server.to_owned(), seen, cut.clone()));
        Proxy { url, mode, cut, accepting }
    }

    pub fn url(&self) -> String {
        self.url.clone()
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: PathBuf, mode: watch::Receiver<Mode>, cut: Arc<AtomicU64>) {
    while let Ok((client, _)) = listener.accept().await {
        let (server, mode, cut) = (server.clone(), mode.clone(), cut.clone());
        tokio::spawn(async move {
            let _ = client.set_nodelay(true);
            // A server that is not there: whoever called is hung up on.
            if let Ok(server) = UnixStream::connect(&server).await {
                carry(client, server, mode, &cut).await;
            }
        });
    }
}

/// Until either side is closed, or a reply is cut.
async fn carry(client: TcpStream, server: UnixStream, mode: watch::Receiver<Mode>, cut: &AtomicU64) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = requests(from_client, to_server, mode.clone()) => {}
        () = replies(from_server, to_client, mode, cut) => {}
    }
}

const PIECE: usize = 1 << 16;

async fn requests(mut from: OwnedReadHalf, mut to: unix::OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut piece = vec![0; PIECE];
    while let Ok(size @ 1..) = from.read(&mut piece).await {
        if !opened(&mut mode).await || to.write_all(&piece[..size]).await.is_err() {
            return;
        }
    }
}

async fn replies(
    mut from: unix::OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<Mode>,
    cut: &AtomicU64,
) {
    let mut piece = vec![0; PIECE];
    while let Ok(size @ 1..) = from.read(&mut piece).await {
        if *mode.borrow() == Mode::CutReply {
            cut.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if !opened(&mut mode).await || to.write_all(&piece[..size]).await.is_err() {
            return;
        }
    }
}

/// Waits for as long as the mode says; whether there is still a proxy.
async fn opened(mode: &mut watch::Receiver<Mode>) -> bool {
    let now = *mode.borrow_and_update();
    match now {
        Mode::Pass | Mode::CutReply => true,
        Mode::Delay(by) => {
            tokio::time::sleep(by).await;
            true
        }
        Mode::Hole => mode.wait_for(|mode| *mode != Mode::Hole).await.is_ok(),
    }
}
