//! What the server accepts: TCP and Unix socket alike, each connection counted and
//! their number bounded.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{Stream, stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Sleep,
};
use tonic::transport::server::Connected;
use tracing::warn;

use crate::metrics::Metrics;

/// Bounds and counts connections over all listeners.
#[derive(Clone)]
pub struct Connections {
    places: Arc<Semaphore>,
    metrics: Arc<Metrics>,
}

pub struct Connection {
    socket: Socket,
    /// Until its greeting is there: when it must be.
    greeting: Option<Greeting>,
    _place: Place,
}

struct Greeting {
    due: Pin<Box<Sleep>>,
    /// Bytes that are not there yet.
    missing: usize,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

struct Place {
    _permit: OwnedSemaphorePermit,
    metrics: Arc<Metrics>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}

/// Where connections come from.
pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Tcp(listener) => {
                let (socket, _) = listener.accept().await?;
                socket.set_nodelay(true)?;
                Ok(Socket::Tcp(socket))
            }
            Listener::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
        }
    }
}

impl Connections {
    pub fn new(most: usize, metrics: Arc<Metrics>) -> Self {
        Connections { places: Arc::new(Semaphore::new(most)), metrics }
    }

    /// Connections of one listener, for ever. One too many is closed at once: better
    /// than a client that waits without knowing why.
    pub fn of(&self, listener: Listener) -> impl Stream<Item = io::Result<Connection>> + Send + use<> {
        stream::unfold((self.clone(), listener), |(connections, listener)| async move {
            loop {
                match listener.accept().await {
                    Ok(socket) => match connections.places.clone().try_acquire_owned() {
                        Ok(permit) => {
                            connections.metrics.connections.inc();
                            let place = Place { _permit: permit, metrics: connections.metrics.clone() };
                            let due = Box::pin(tokio::time::sleep(GREETING_MAX));
                            let greeting = Some(Greeting { due, missing: GREETING_BYTES });
                            let connection = Connection { socket, greeting, _place: place };
                            return Some((Ok(connection), (connections, listener)));
                        }
                        Err(_) => warn!("limits.connections are open; a further one was closed"),
                    },
                    Err(error) => {
                        warn!(%error, "a connection could not be accepted");
                        // Out of file descriptors, most likely: give others time to close.
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        })
    }
}

/// A peer that connects and says nothing, or greets byte by byte, holds a place; HTTP/2
/// itself would let it. Once it has greeted, it is asked for a sign of life.
const GREETING_MAX: Duration = Duration::from_secs(10);
/// What every client sends first, the preface.
const GREETING_BYTES: usize = 24;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match &mut self.socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_read(context, buffer),
            Socket::Unix(socket) => Pin::new(socket).poll_read(context, buffer),
        };
        if let Some(greeting) = &mut self.greeting {
            greeting.missing = greeting.missing.saturating_sub(buffer.filled().len() - before);
            if greeting.missing == 0 {
                self.greeting = None;
            } else if read.is_pending() && greeting.due.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_write(context, bytes),
            Socket::Unix(socket) => Pin::new(socket).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_write_vectored(context, slices),
            Socket::Unix(socket) => Pin::new(socket).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_flush(context),
            Socket::Unix(socket) => Pin::new(socket).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_shutdown(context),
            Socket::Unix(socket) => Pin::new(socket).poll_shutdown(context),
        }
    }
}
