//! Baseline: what Redis can do if nobody asks for order. `XADD` with four fields, written by
//! hand to a socket, in pipelines on four connections that overlap: nobody who writes to a
//! stream event by event is faster.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Instant,
};

use super::{
    load::Load,
    meter::{Length, Measured, Meter, Processes},
    rig::PARTITIONS,
};

pub const CONNECTIONS: usize = 4;
const CHUNK: usize = 64 << 10;

pub struct Raw {
    pub address: String,
    /// Commands of a pipeline.
    pub batch: u64,
    pub load: Load,
    pub length: Length,
    pub processes: Processes,
}

/// Each connection in turn: read the answers to its last pipeline, write the next. Meanwhile
/// Redis works for the others.
pub fn xadd(mut raw: Raw) -> anyhow::Result<Measured> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let socket = TcpStream::connect(&raw.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(raw.length.longest()))?;
        connections.push((socket, Replies::default(), None));
    }
    let mut meter = Meter::start(raw.length, raw.processes, Instant::now());
    let (mut pipeline, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    loop {
        for (socket, replies, sent) in &mut connections {
            if let Some(sent) = sent.take() {
                let mut answered = 0;
                while answered < raw.batch {
                    let read = socket.read(&mut chunk)?;
                    anyhow::ensure!(read > 0, "Redis closed the connection");
                    answered += replies.take(&chunk[..read])?;
                }
                let now = Instant::now();
                meter.took(now - sent, raw.batch);
                if !meter.note(raw.batch, now) {
                    return meter.finish();
                }
            }
            pipeline.clear();
            for _ in 0..raw.batch {
                write_xadd(&mut pipeline, &mut raw.load);
            }
            *sent = Some(Instant::now());
            socket.write_all(&pipeline)?;
        }
    }
}

/// `XADD stream * e <entity> s <sequence> t <type> p <data>`.
fn write_xadd(pipeline: &mut Vec<u8>, load: &mut Load) {
    let made = load.make();
    let (entity, data) = (load.entity(&made), load.data());
    let stream = stream_name(made.slot);
    pipeline.extend_from_slice(b"*11\r\n");
    for word in ["XADD", &stream, "*", "e", &entity, "s", &made.sequence.to_string(), "t", Load::kind(&made)]
    {
        write_word(pipeline, word.as_bytes());
    }
    write_word(pipeline, b"p");
    write_word(pipeline, &data);
}

fn write_word(pipeline: &mut Vec<u8>, word: &[u8]) {
    write!(pipeline, "${}\r\n", word.len()).expect("a vector takes it");
    pipeline.extend_from_slice(word);
    pipeline.extend_from_slice(b"\r\n");
}

/// The stream of a slot's entities.
pub fn stream_name(slot: u64) -> String {
    format!("bench:{}", slot % u64::from(PARTITIONS))
}

/// Counts answers, however the network cuts them.
#[derive(Default)]
struct Replies {
    /// The beginning of a line, as far as it came.
    line: Vec<u8>,
    /// Bytes of a text that are still to come.
    skip: usize,
}

impl Replies {
    /// How many answers ended within these bytes.
    fn take(&mut self, mut bytes: &[u8]) -> anyhow::Result<u64> {
        let mut ended = 0;
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                (self.skip, bytes) = (self.skip - skipped, &bytes[skipped..]);
                ended += u64::from(self.skip == 0);
                continue;
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |at| at + 1));
            (self.line, bytes) = ([&self.line[..], part].concat(), rest);
            if end.is_some() {
                let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
                self.line.clear();
                match line.strip_prefix('$') {
                    Some(length) => self.skip = length.parse::<usize>()? + 2,
                    None => anyhow::bail!("Redis answered {line:?} to an XADD"),
                }
            }
        }
        Ok(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::load::{DATA_BYTES, Shape};

    #[test]
    fn answers_are_counted_wherever_they_are_cut() {
        let text = b"$15\r\n1794799633588-0\r\n$16\r\n1794799633588-10\r\n$3\r\n1-2\r\n";
        for cut in 0..text.len() {
            for other in cut..text.len() {
                let mut replies = Replies::default();
                let parts = [&text[..cut], &text[cut..other], &text[other..]];
                let counted: u64 = parts.iter().map(|part| replies.take(part).unwrap()).sum();
                assert_eq!(counted, 3, "cut at {cut} and {other}");
            }
        }
        assert_eq!(Replies::default().take(&text[..21]).unwrap(), 0, "the first one lacks a byte");
        assert_eq!(Replies::default().take(&text[..22]).unwrap(), 1);
    }

    #[test]
    fn an_error_is_told() {
        let mut replies = Replies::default();
        assert_eq!(replies.take(b"$3\r\n1-2\r\n-OOM command").unwrap(), 1);
        assert!(
            replies.take(b" not allowed\r\n").unwrap_err().to_string().contains("OOM command not allowed")
        );
    }

    #[test]
    fn a_command_is_eleven_words_of_the_length_they_say() {
        let mut load = Load::new(Shape { live: 8, lifetime: 4, late_percent: 0, zipf: false, seed: 1 });
        let mut pipeline = Vec::new();
        write_xadd(&mut pipeline, &mut load);
        let text = String::from_utf8(pipeline).unwrap();
        let lines: Vec<&str> = text.split("\r\n").collect();
        assert_eq!((lines[0], lines.len()), ("*11", 1 + 2 * 11 + 1));
        assert!(lines[1..23].chunks(2).all(|pair| pair[0] == format!("${}", pair[1].len())), "{text}");
        assert_eq!((lines[2], lines[6], lines[22].len()), ("XADD", "*", DATA_BYTES));
    }
}
