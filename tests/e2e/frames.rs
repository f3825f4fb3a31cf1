//! HTTP/2 frames written by hand, for what no client library would send, and a reader that
//! counts what comes back. It knows of HTTP/2 what it needs to break its rules.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinHandle,
};

use super::sidecar::BOUND;

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The largest stream id, window and increment: 2^31 - 1.
pub const LARGEST: u32 = (1 << 31) - 1;
/// The largest frame that a server takes unless it says otherwise.
pub const FRAME_BYTES_MAX: usize = 16 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

pub const NOTHING: u8 = 0;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
const CANCEL: u32 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

pub fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(DATA, flags, stream, payload)
}

pub fn headers(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags, stream, block)
}

pub fn continuation(stream: u32, flags: u8, block: &[u8]) -> Vec<u8> {
    frame(CONTINUATION, flags, stream, block)
}

pub fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, NOTHING, stream, &CANCEL.to_be_bytes())
}

pub fn settings() -> Vec<u8> {
    frame(SETTINGS, NOTHING, 0, &[])
}

pub fn ping() -> Vec<u8> {
    frame(PING, NOTHING, 0, b"seriatim")
}

pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, NOTHING, stream, &increment.to_be_bytes())
}

/// The headers of a gRPC call, in HPACK without compression.
pub fn call(method: &str) -> Vec<u8> {
    const METHOD_POST: u8 = 0x83;
    const SCHEME_HTTP: u8 = 0x86;
    const PATH: u8 = 0x04;
    let mut block = vec![METHOD_POST, SCHEME_HTTP, PATH];
    block.extend(short(method));
    block.extend(header("content-type", "application/grpc"));
    block.extend(header("te", "trailers"));
    block
}

/// One header, literally.
pub fn header(name: &str, value: &str) -> Vec<u8> {
    [vec![0], short(name), short(value)].concat()
}

/// A text of less than 127 bytes, with its length.
fn short(text: &str) -> Vec<u8> {
    assert!(text.len() < 127);
    [&[text.len() as u8][..], text.as_bytes()].concat()
}

/// What the server sent, counted.
#[derive(Default)]
pub struct Answers {
    pub headers: AtomicU64,
    pub resets: AtomicU64,
    pub settings_acks: AtomicU64,
    pub pongs: AtomicU64,
    /// The server ends the connection, and says why.
    pub goaways: AtomicU64,
}

impl Answers {
    fn count(&self, kind: u8, flags: u8) {
        let of = match kind {
            HEADERS => &self.headers,
            RST_STREAM => &self.resets,
            SETTINGS if flags & ACK != 0 => &self.settings_acks,
            PING if flags & ACK != 0 => &self.pongs,
            GOAWAY => &self.goaways,
            _ => return,
        };
        of.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn of(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// A connection that sends what it is told to.
pub struct Gun {
    socket: OwnedWriteHalf,
    /// Reads answers; without it nobody does.
    reader: Result<JoinHandle<()>, OwnedReadHalf>,
}

/// A server that does not read on for so long does not want more from us.
const STALL_MAX: Duration = Duration::from_millis(200);

impl Gun {
    /// Connects, and says what every client says first.
    pub async fn aim(at: SocketAddr, answers: &Arc<Answers>) -> Option<Gun> {
        let (reader, socket) = TcpStream::connect(at).await.ok()?.into_split();
        let mut gun = Gun { socket, reader: Ok(tokio::spawn(read(reader, answers.clone()))) };
        gun.fire(&[PREFACE, &settings()].concat()).await.then_some(gun)
    }

    /// Connects and says nothing. Nor does it read what it is told.
    pub async fn aim_silently(at: SocketAddr) -> Option<Gun> {
        let (reader, socket) = TcpStream::connect(at).await.ok()?.into_split();
        Some(Gun { socket, reader: Err(reader) })
    }

    /// Sends bytes as they are; false once the server has closed, or takes nothing more.
    pub async fn fire(&mut self, bytes: &[u8]) -> bool {
        matches!(tokio::time::timeout(STALL_MAX, self.socket.write_all(bytes)).await, Ok(Ok(())))
    }

    /// Waits until the server has read all that was fired; false if it does not say so.
    pub async fn is_heard(&mut self, answers: &Answers) -> bool {
        let before = of(&answers.pongs);
        let begun = Instant::now();
        let mut is_open = self.fire(&ping()).await;
        while is_open && of(&answers.pongs) == before {
            let is_closed = self.reader.as_ref().is_ok_and(JoinHandle::is_finished);
            is_open = !is_closed && begun.elapsed() < BOUND;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        is_open
    }

    /// Says that nothing more comes, and waits until the server has read all, said all that it
    /// has to say, and closed.
    pub async fn end(mut self) {
        let _ = self.socket.shutdown().await;
        if let Ok(reader) = &mut self.reader {
            let _ = tokio::time::timeout(BOUND, reader).await;
        }
    }
}

impl Drop for Gun {
    /// The socket closes with its last half.
    fn drop(&mut self) {
        if let Ok(reader) = &self.reader {
            reader.abort();
        }
    }
}

async fn read(mut socket: OwnedReadHalf, answers: Arc<Answers>) {
    let mut head = [0; 9];
    while socket.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        if socket.read_exact(&mut payload).await.is_err() {
            return;
        }
        answers.count(head[3], head[4]);
    }
}
