//! Baseline: NATS JetStream, file storage, one subject an entity. Either with a message id, by
//! which it knows duplicates for two minutes, or with the sequence that the subject's last
//! message must have: that keeps order, but refuses what comes early instead of keeping it, and
//! allows one event of an entity in flight.
//!
//! A client by hand over one socket, which makes it as cheap as ours.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::{
    super::guarded::{Guarded, own_folder},
    load::{Load, Made, Shape},
    meter::{Length, Measured, Meter, Processes},
    scenario::Guard,
};

const CHUNK: usize = 64 << 10;
const LOOKS_MAX: u32 = 500;
const LOOK_EVERY: Duration = Duration::from_millis(20);
const INBOX: &str = "_INBOX.bench.";
const CREATED: u64 = u64::MAX;

/// A server that ends with us.
pub struct NatsServer {
    server: Guarded,
    port: u16,
}

impl NatsServer {
    pub fn start(program: &Path) -> anyhow::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = own_folder()?;
        let (at, text) = (folder.to_string_lossy().into_owned(), port.to_string());
        let arguments = ["-js", "-sd", &at, "-a", "127.0.0.1", "-p", &text];
        let server = Guarded::start(program, &arguments, &folder).context("nats-server cannot be started")?;
        Ok(NatsServer { server, port })
    }

    /// Connects as soon as it is ready.
    #[allow(clippy::disallowed_methods, reason = "nothing else runs before the server does")]
    fn connect(&self) -> anyhow::Result<TcpStream> {
        for _ in 0..LOOKS_MAX {
            match TcpStream::connect(("127.0.0.1", self.port)) {
                Ok(socket) => return Ok(socket),
                Err(_) => thread::sleep(LOOK_EVERY),
            }
        }
        bail!("nats-server did not start")
    }
}

pub fn publish(
    server: &NatsServer,
    guard: Guard,
    window: u64,
    shape: Shape,
    length: Length,
) -> anyhow::Result<Measured> {
    let mut client = Client::connect(server, length)?;
    let mut load = Load::new(shape);
    let mut last = vec![(0, 0); usize::try_from(shape.live)?];
    let mut open: Vec<(Made, Instant)> = Vec::new();
    let processes = Processes {
        client: Some(std::process::id()),
        store: Some(server.server.pid()),
        ..Processes::default()
    };
    let mut meter = Meter::start(length, processes, Instant::now());
    let (mut sent, mut answered) = (0, 0);
    loop {
        while sent - answered < window {
            let made = load.make();
            client.publish(sent, &mut load, &made, guard, &last);
            // What is unanswered is less than a window; places of answered ones are used again.
            let (place, entry) = (usize::try_from(sent % window)?, (made, Instant::now()));
            if place == open.len() {
                open.push(entry)
            } else {
                open[place] = entry
            }
            sent += 1;
        }
        let acks = client.exchange()?;
        let now = Instant::now();
        for Ack { number, sequence } in &acks {
            let (made, at) = open[usize::try_from(number % window)?];
            last[usize::try_from(made.slot)?] = (made.generation, *sequence);
            meter.took(now - at, 1);
        }
        answered += acks.len() as u64;
        if !meter.note(acks.len() as u64, now) {
            return meter.finish();
        }
    }
}

struct Client {
    socket: TcpStream,
    outgoing: Vec<u8>,
    incoming: Incoming,
    chunk: Vec<u8>,
}

impl Client {
    /// Connects and makes the stream.
    fn connect(server: &NatsServer, length: Length) -> anyhow::Result<Self> {
        let socket = server.connect()?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(length.longest()))?;
        let mut client =
            Client { socket, outgoing: Vec::new(), incoming: Incoming::default(), chunk: vec![0; CHUNK] };
        let stream = r#"{"name":"bench","subjects":["bench.>"],"storage":"file"}"#;
        write!(
            client.outgoing,
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true}}\r\n\
             SUB {INBOX}* 1\r\n\
             PUB $JS.API.STREAM.CREATE.bench {INBOX}{CREATED} {}\r\n{stream}\r\n",
            stream.len()
        )?;
        while client.exchange()?.is_empty() {}
        Ok(client)
    }

    fn publish(&mut self, number: u64, load: &mut Load, made: &Made, guard: Guard, last: &[(u64, u64)]) {
        let (entity, kind, data) = (load.entity(made), Load::kind(made), load.data());
        let sequence = made.sequence;
        let known = match guard {
            Guard::MessageId => format!("Nats-Msg-Id: {entity}-{sequence}"),
            Guard::ExpectedSequence => {
                let (generation, last) = last[usize::try_from(made.slot).expect("it is an index")];
                let expected = if generation == made.generation { last } else { 0 };
                format!("Nats-Expected-Last-Subject-Sequence: {expected}")
            }
        };
        let head = format!("NATS/1.0\r\n{known}\r\nSequence: {sequence}\r\nType: {kind}\r\n\r\n");
        let length = head.len() + data.len();
        write!(self.outgoing, "HPUB bench.{entity} {INBOX}{number} {} {length}\r\n{head}", head.len())
            .expect("a vector takes it");
        self.outgoing.extend_from_slice(&data);
        self.outgoing.extend_from_slice(b"\r\n");
    }

    /// Writes what is to be written and reads what has come.
    fn exchange(&mut self) -> anyhow::Result<Vec<Ack>> {
        self.socket.write_all(&self.outgoing)?;
        self.outgoing.clear();
        let read = self.socket.read(&mut self.chunk)?;
        ensure!(read > 0, "nats-server closed the connection");
        self.incoming.bytes.extend_from_slice(&self.chunk[..read]);
        let mut acks = Vec::new();
        while let Some(message) = self.incoming.next()? {
            match message {
                Message::Ping => self.outgoing.extend_from_slice(b"PONG\r\n"),
                Message::Ack(ack) => acks.push(ack),
            }
        }
        Ok(acks)
    }
}

/// JetStream has stored a message.
#[derive(Debug, PartialEq, Eq)]
struct Ack {
    number: u64,
    /// In the stream.
    sequence: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Message {
    Ping,
    Ack(Ack),
}

#[derive(Deserialize)]
struct PubAck {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<serde_json::Value>,
}

/// What the server sends, however the network cuts it.
#[derive(Default)]
struct Incoming {
    bytes: Vec<u8>,
    /// Everything before was taken.
    at: usize,
}

impl Incoming {
    /// The next one that came in full.
    fn next(&mut self) -> anyhow::Result<Option<Message>> {
        loop {
            let rest = &self.bytes[self.at..];
            let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
                self.bytes.drain(..self.at);
                self.at = 0;
                return Ok(None);
            };
            let line = std::str::from_utf8(&rest[..end])?;
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("MSG") => {
                    let (subject, length) = (words.next(), words.next_back());
                    let number =
                        subject.and_then(|subject| subject.strip_prefix(INBOX)).context("an inbox")?;
                    let (number, length) = (number.parse()?, length.context("a length")?.parse::<usize>()?);
                    let Some(payload) = rest.get(end + 2..end + 2 + length + 2) else {
                        self.bytes.drain(..self.at);
                        self.at = 0;
                        return Ok(None);
                    };
                    let ack: PubAck = serde_json::from_slice(&payload[..length])?;
                    if let Some(error) = ack.error {
                        bail!("JetStream refused: {error}");
                    }
                    ensure!(!ack.duplicate, "JetStream took an event for a duplicate");
                    self.at += end + 2 + length + 2;
                    return Ok(Some(Message::Ack(Ack { number, sequence: ack.seq })));
                }
                Some("PING") => {
                    self.at += end + 2;
                    return Ok(Some(Message::Ping));
                }
                Some("INFO" | "PONG" | "+OK") => self.at += end + 2,
                _ => bail!("nats-server said {line:?}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(parts: &[&[u8]]) -> anyhow::Result<Vec<Message>> {
        let (mut incoming, mut taken) = (Incoming::default(), Vec::new());
        for part in parts {
            incoming.bytes.extend_from_slice(part);
            while let Some(message) = incoming.next()? {
                taken.push(message);
            }
        }
        assert!(incoming.bytes.is_empty(), "nothing is left");
        Ok(taken)
    }

    #[test]
    fn acknowledgements_are_read_wherever_they_are_cut() {
        let text =
            b"INFO {\"server_id\":\"x\"}\r\nMSG _INBOX.bench.7 1 27\r\n{\"stream\":\"bench\",\"seq\":12}\
            \r\nPING\r\nMSG _INBOX.bench.8 1 27\r\n{\"stream\":\"bench\",\"seq\":13}\r\n";
        let ack = |number, sequence| Message::Ack(Ack { number, sequence });
        for cut in 0..text.len() {
            for other in cut..text.len() {
                let found = taken(&[&text[..cut], &text[cut..other], &text[other..]]).unwrap();
                assert_eq!(found, [ack(7, 12), Message::Ping, ack(8, 13)], "cut at {cut} and {other}");
            }
        }
    }

    #[test]
    fn a_refusal_is_told() {
        let answer = |json: &str| format!("MSG _INBOX.bench.7 1 {}\r\n{json}\r\n", json.len());
        assert!(taken(&[answer(r#"{"seq":12}"#).as_bytes()]).is_ok());
        for text in [
            answer(r#"{"error":{"description":"wrong last sequence"}}"#),
            answer(r#"{"seq":12,"duplicate":true}"#),
            answer("no JSON"),
            "HMSG _INBOX.bench.7 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n".to_owned(),
            "-ERR 'Unknown Protocol Operation'\r\n".to_owned(),
        ] {
            assert!(taken(&[text.as_bytes()]).is_err(), "{text}");
        }
    }
}
