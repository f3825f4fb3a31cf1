//! What an ordered event costs Redis, piece by piece: the commands that the straight way
//! (`store/redis/straight.rs`) sends, without what judges them. Nobody decides anything here, so
//! nothing is promised of the result; each line adds one piece to the line before.

use std::{cell::RefCell, time::Instant};

use futures_util::future::try_join_all;
use redis::{Pipeline, aio::MultiplexedConnection};

use super::{
    direct::connect,
    load::{Load, Made, Shape},
    meter::{Length, Measured, Meter},
    raw::{CONNECTIONS, stream_name},
    rig::{Layout, OwnRedis, PARTITIONS},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    /// The entries as they stand in the stream.
    Entries,
    /// In a transaction.
    Transaction,
    /// Where each entity is, read before.
    Read,
    /// And written; new ones are filed by age.
    Written,
}

impl Piece {
    pub const ALL: [Piece; 4] = [Piece::Entries, Piece::Transaction, Piece::Read, Piece::Written];

    pub fn name(self) -> &'static str {
        match self {
            Piece::Entries => "the entries",
            Piece::Transaction => "in a transaction",
            Piece::Read => "states read",
            Piece::Written => "states written",
        }
    }
}

pub struct Pieces {
    pub layout: Layout,
    /// All up to this one.
    pub upto: Piece,
    /// Events of a call.
    pub batch: usize,
    pub shape: Shape,
    pub length: Length,
}

/// As in `commit`: 16 partitions, four calls in flight.
pub async fn append(redis: &OwnRedis, pieces: &Pieces) -> anyhow::Result<Measured> {
    let connection = connect(&redis.url()).await?;
    let live = (pieces.shape.live / u64::from(PARTITIONS)).max(pieces.batch as u64);
    let part = |index: u32| {
        let seed = pieces.shape.seed ^ (u64::from(index) << 32);
        (stream_name(index.into()), Load::new(Shape { live, seed, ..pieces.shape }))
    };
    let mut parts: Vec<(String, Load)> = (0..PARTITIONS).map(part).collect();
    for (stream, load) in &parts {
        let before: Vec<Made> = load.before().collect();
        for made in before.chunks(pieces.batch) {
            let mut states = redis::pipe();
            add_states(&mut states, stream, load, made);
            states.exec_async(&mut connection.clone()).await?;
        }
    }
    let meter = RefCell::new(Meter::start(pieces.length, redis.processes(), Instant::now()));
    let callers = parts.chunks_mut(PARTITIONS as usize / CONNECTIONS).map(|parts| async {
        loop {
            for (stream, load) in &mut *parts {
                let began = Instant::now();
                call(connection.clone(), pieces, stream, load).await?;
                let now = Instant::now();
                meter.borrow_mut().took(now - began, pieces.batch as u64);
                if !meter.borrow_mut().note(pieces.batch as u64, now) {
                    return anyhow::Ok(());
                }
            }
        }
    });
    tokio::time::timeout(pieces.length.longest(), try_join_all(callers)).await??;
    meter.into_inner().finish()
}

async fn call(
    mut connection: MultiplexedConnection,
    pieces: &Pieces,
    stream: &str,
    load: &mut Load,
) -> anyhow::Result<()> {
    let made: Vec<Made> = (0..pieces.batch).map(|_| load.make()).collect();
    let mut commands = Pipeline::new();
    if pieces.upto >= Piece::Transaction {
        commands.atomic();
    }
    if pieces.upto >= Piece::Read {
        commands.cmd("HMGET").arg(lanes(stream));
        for made in &made {
            commands.arg(load.entity(made));
        }
    }
    if pieces.upto >= Piece::Written {
        add_states(&mut commands, stream, load, &made);
    }
    match pieces.layout {
        Layout::Entry => made.iter().for_each(|made| add_entry(&mut commands, stream, load, made)),
        Layout::Batch => {
            commands.cmd("XADD").arg(stream).arg("*");
            for (index, made) in made.iter().enumerate() {
                let (sequence, kind, attrs) = (made.sequence, Load::kind(made), attrs(made));
                commands.arg(format!("{index}:0:{sequence}:strict:{}", load.entity(made)));
                let head = format!("-:{}:{}:{kind}{attrs}", kind.len(), attrs.len());
                commands.arg([head.as_bytes(), &load.data()].concat());
            }
        }
    }
    Ok(commands.exec_async(&mut connection).await?)
}

/// As the straight way writes one.
fn add_entry(commands: &mut Pipeline, stream: &str, load: &mut Load, made: &Made) {
    let append = commands.cmd("XADD").arg(stream).arg("*").arg("entity").arg(load.entity(made));
    append.arg("epoch").arg(0).arg("sequence").arg(made.sequence).arg("type").arg(Load::kind(made));
    append.arg("order").arg("strict").arg("attrs").arg(attrs(made)).arg("data").arg(&load.data()[..]);
}

/// Where entities are after these events, and the new ones by age.
fn add_states(commands: &mut Pipeline, stream: &str, load: &Load, made: &[Made]) {
    commands.cmd("HSET").arg(lanes(stream));
    for made in made {
        let closed = if made.is_last { "c" } else { "" };
        commands.arg(load.entity(made)).arg(format!("0:{}{closed}", made.sequence + 1));
    }
    let new: Vec<String> =
        made.iter().filter(|made| made.sequence == 0).map(|made| load.entity(made)).collect();
    if !new.is_empty() {
        commands.cmd("RPUSH").arg(format!("{stream}:born")).arg(new);
    }
}

fn attrs(made: &Made) -> &'static str {
    if made.is_last { r#"{"terminal":true}"# } else { "{}" }
}

fn lanes(stream: &str) -> String {
    format!("{stream}:lanes")
}
