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
    /// Until the first bytes came: when they must have.
    silent: Option<Pin<Box<Sleep>>>,
    _place: Place,
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
                            let silent = Some(Box::pin(tokio::time::sleep(SILENCE_MAX)));
                            let connection = Connection { socket, silent, _place: place };
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

/// A peer that connects and says nothing holds a place; HTTP/2 itself would let it.
const SILENCE_MAX: Duration = Duration::from_secs(10);
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
        let read = match &mut self.socket {
            Socket::Tcp(socket) => Pin::new(socket).poll_read(context, buffer),
            Socket::Unix(socket) => Pin::new(socket).poll_read(context, buffer),
        };
        if read.is_ready() {
            self.silent = None;
        } else if let Some(deadline) = &mut self.silent
            && deadline.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
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
