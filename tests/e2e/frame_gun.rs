//! Floods of HTTP/2 frames, of the kinds that took servers down before, against a real
//! sidecar. Whatever is fired, an honest client beside it loses nothing, memory is bounded,
//! and afterwards nothing of it is left.

use std::{
    collections::VecDeque,
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use prost::Message;
use seriatim::{
    client::Publisher,
    grpc::pb::{self, Verdict},
};

use super::{
    frames::{
        Answers, END_HEADERS, END_STREAM, FRAME_BYTES_MAX, Gun, LARGEST, NOTHING, PREFACE, call,
        continuation, data, header, headers, of, ping, reset, settings, window_update,
    },
    producer::{event, publish_all, publish_one, publisher},
    sidecar::{BOUND, Sidecar, eventually},
    streams,
    support::{number_from_env, redis_server},
};

/// Nothing is trimmed that is to be looked at.
const CONFIG: &str = "[topics.jobs]\npartitions = 2\nretain_entries = 100000000\nentries_max = 200000000\n\
    [topics.noise]\npartitions = 1\n";
/// Frames of one flood; `make frames` fires more.
const FRAMES: u64 = 50_000;
/// Frames that are written at once.
const BURST: u32 = 50;
/// Bursts on one connection: of what the server ends soon, and of what it bears.
const FEW: u32 = 4;
const MANY: u32 = 100;
/// How long a flood may take for each so many frames.
const FRAMES_A_BOUND: u64 = 100_000;
/// What a flood may make the sidecar grow by: the windows and buffers of its connections.
const GROWTH_MAX_KIB: u64 = 24 << 10;

const ENTITIES: u64 = 20;
/// Of each entity, in one go of the honest client.
const ROUND: u64 = 10;
const WARM_UP_ROUNDS: u64 = 20;
const IN_FLIGHT: usize = 64;

const PUBLISH: &str = "/seriatim.v1.Ingest/Publish";
const PUBLISH_STREAM: &str = "/seriatim.v1.Ingest/PublishStream";

/// A field of the sidecar's status, in KiB: `VmRSS` now, `VmHWM` at its peak.
fn memory_kib(sidecar: &Sidecar, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", sidecar.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Publishes in turn for all entities; every event must be released.
async fn round(honest: &Publisher, rounds: &mut u64) {
    let sequences = *rounds * ROUND..(*rounds + 1) * ROUND;
    let events = sequences.flat_map(|n| (0..ENTITIES).map(move |entity| event(&format!("job-{entity}"), n)));
    let verdicts = tokio::time::timeout(BOUND, publish_all(honest, events, IN_FLIGHT)).await;
    let verdicts = verdicts.expect("an honest client is answered");
    assert_eq!(verdicts.get("RELEASED"), Some(&(ROUND * ENTITIES)), "{verdicts:?}");
    *rounds += 1;
}

/// Fires at an address about so many frames, fewer where they cost more; gives how many it were.
type Flood = fn(SocketAddr, u64, Arc<Answers>) -> BoxFuture<'static, u64>;

/// Fires while an honest client publishes, and looks at what is left. Gives what the server
/// answered, so that a flood can say whether it was taken for what it is.
async fn withstand(what: &str, flood: Flood) -> Arc<Answers> {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), CONFIG);
    let honest = publisher(&sidecar, "jobs").await;
    let mut rounds = 0;
    while rounds < WARM_UP_ROUNDS {
        round(&honest, &mut rounds).await;
    }
    let before = memory_kib(&sidecar, "VmRSS:");

    let frames = number_from_env("SERIATIM_FRAMES", FRAMES);
    let answers = Arc::new(Answers::default());
    let patience = BOUND * u32::try_from(1 + frames / FRAMES_A_BOUND).unwrap();
    let flood = tokio::time::timeout(patience, flood(sidecar.grpc, frames, answers.clone()));
    let flood = tokio::spawn(flood);
    while !flood.is_finished() {
        round(&honest, &mut rounds).await;
    }
    let fired = flood.await.unwrap().expect("the flood comes to its end");
    round(&honest, &mut rounds).await;

    // The honest client has one connection with one stream.
    for (count, expected) in [("seriatim_connections ", 1.0), ("seriatim_streams ", 1.0)] {
        eventually(count, || async { sidecar.metric(count).await == expected }).await;
    }
    let peak = memory_kib(&sidecar, "VmHWM:");
    let after = memory_kib(&sidecar, "VmRSS:");
    println!(
        "{what}: {fired} frames, {} events beside them; memory {before} KiB before, {peak} at its peak, \
         {after} after; server: {} headers, {} resets, {} goaways",
        rounds * ROUND * ENTITIES,
        of(&answers.headers),
        of(&answers.resets),
        of(&answers.goaways),
    );
    assert!(peak.saturating_sub(before) <= GROWTH_MAX_KIB, "{what}: from {before} to {peak} KiB");

    assert_eq!(publish_one(&sidecar, "jobs", event("after", 0)).await.verdict(), Verdict::Released);
    let mut connection = streams::connect(&redis.url()).await;
    let entries = streams::entries(&mut connection, "jobs", 2).await;
    assert_eq!(entries.len() as u64, rounds * ROUND * ENTITIES + 1, "each event once");
    for entity in 0..ENTITIES {
        let read = streams::of(&entries, &format!("job-{entity}"));
        assert!(read.iter().map(|entry| entry.sequence.get()).eq(0..rounds * ROUND), "job-{entity} in order");
    }
    answers
}

/// Fires what `burst` makes of fresh stream ids until so many frames were written, on a new
/// connection whenever the server closes the old one, or has got so many bursts on it: what it
/// does not read any more is no flood. `opening` comes first on each.
async fn fire(
    at: SocketAddr,
    frames: u64,
    answers: &Arc<Answers>,
    opening: &[u8],
    bursts: u32,
    burst: impl Fn(u32) -> (u64, Vec<u8>),
) -> u64 {
    let mut fired = 0;
    while fired < frames {
        let Some(mut gun) = Gun::aim(at, answers).await else { continue };
        let mut stream = 1;
        let mut is_open = gun.fire(opening).await;
        // A connection costs a few frames as well.
        fired += 3;
        while is_open && fired < frames && stream < 2 * BURST * bursts {
            let (count, bytes) = burst(stream);
            is_open = gun.fire(&bytes).await;
            fired += count;
            // Each of a burst has an id of its own.
            stream += 2 * BURST;
        }
        gun.end().await;
    }
    fired
}

/// The ids of a burst of streams.
fn ids(first: u32) -> impl Iterator<Item = u32> {
    (0..BURST).map(move |n| first + 2 * n)
}

fn burst_of(frames_each: u64, first: u32, of_stream: impl Fn(u32) -> Vec<u8>) -> (u64, Vec<u8>) {
    (u64::from(BURST) * frames_each, ids(first).flat_map(of_stream).collect())
}

/// The same frame, over and over.
fn same(frame: Vec<u8>) -> impl Fn(u32) -> (u64, Vec<u8>) {
    move |_| (BURST.into(), frame.repeat(BURST as usize))
}

fn rapid_reset(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let block = call(PUBLISH_STREAM);
        let one = |id| [headers(id, END_HEADERS, &block), reset(id)].concat();
        fire(at, frames, &answers, &[], FEW, |first| burst_of(2, first, one)).await
    })
}

/// The server has begun with each of these when it is reset: none counts as not yet accepted.
fn reset_when_accepted(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let (block, mut fired) = (call(PUBLISH_STREAM), 0);
        while fired < frames / 4 {
            let Some(mut gun) = Gun::aim(at, &answers).await else { continue };
            let mut first = 1;
            while fired < frames / 4 {
                let opened: Vec<u8> = ids(first).flat_map(|id| headers(id, END_HEADERS, &block)).collect();
                let is_open = gun.fire(&opened).await && gun.is_heard(&answers).await;
                if !is_open || !gun.fire(&ids(first).flat_map(reset).collect::<Vec<u8>>()).await {
                    break;
                }
                fired += 2 * u64::from(BURST) + 1;
                first += 2 * BURST;
            }
        }
        fired
    })
}

/// The server has work with each of these, and goes on with it after the reset.
fn rapid_reset_of_work(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let request = pb::PublishRequest { topic: "noise".into(), events: vec![event("noise", 0)] };
        let message = request.encode_to_vec();
        let message = [&[0, 0, 0, 0, u8::try_from(message.len()).unwrap()][..], &message].concat();
        let block = call(PUBLISH);
        let one = |id| [headers(id, END_HEADERS, &block), data(id, END_STREAM, &message), reset(id)].concat();
        fire(at, frames, &answers, &[], FEW, |first| burst_of(3, first, one)).await
    })
}

fn endless_headers(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let opening = headers(1, NOTHING, &call(PUBLISH));
        let full = header("x", &"y".repeat(100)).repeat(FRAME_BYTES_MAX / 110);
        let empty = fire(at, frames / 2, &answers, &opening, MANY, same(continuation(1, NOTHING, &[]))).await;
        empty + fire(at, frames / 2, &answers, &opening, MANY, same(continuation(1, NOTHING, &full))).await
    })
}

fn empty_data(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let opening = headers(1, END_HEADERS, &call(PUBLISH_STREAM));
        fire(at, frames, &answers, &opening, MANY, same(data(1, NOTHING, &[]))).await
    })
}

fn settings_and_pings(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let fired = fire(at, frames / 2, &answers, &[], MANY, same(settings())).await;
        fired + fire(at, frames / 2, &answers, &[], MANY, same(ping())).await
    })
}

/// Nobody reads what the server has to answer.
fn pings_of_the_deaf(at: SocketAddr, frames: u64, _: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let (pings, mut fired) = ([settings(), ping()].concat().repeat(BURST as usize), 0);
        while fired < frames {
            let Some(mut gun) = Gun::aim_silently(at).await else { continue };
            let mut is_open = gun.fire(&[PREFACE, &settings()].concat()).await;
            while is_open && fired < frames {
                is_open = gun.fire(&pings).await;
                fired += 2 * u64::from(BURST);
            }
        }
        fired
    })
}

/// The peer breaks the rules of a stream, so the server resets it, and the peer is free to
/// open the next.
fn made_to_reset(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let block = call(PUBLISH_STREAM);
        let one = |id| [headers(id, END_HEADERS, &block), window_update(id, LARGEST)].concat();
        fire(at, frames, &answers, &[], MANY, |first| burst_of(2, first, one)).await
    })
}

fn oversized_headers(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(async move {
        let much = header("x", &"y".repeat(100)).repeat(FRAME_BYTES_MAX / 110);
        let (block, much) = (call(PUBLISH), &much);
        let one = |id| {
            let more = [continuation(id, NOTHING, much), continuation(id, END_HEADERS, much)].concat();
            [headers(id, END_STREAM, &block), more].concat()
        };
        // Each of these frames is as large as a hundred others.
        fire(at, frames / 10, &answers, &[], MANY, |first| burst_of(3, first, one)).await
    })
}

/// Each ends its connection, so what is tried is coming and going.
fn overflowing_windows(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    Box::pin(
        async move { fire(at, frames / 10, &answers, &window_update(0, LARGEST), 1, same(ping())).await },
    )
}

/// Many connections, each with a request that never comes to its end.
fn unfinished(at: SocketAddr, frames: u64, answers: Arc<Answers>) -> BoxFuture<'static, u64> {
    const CONNECTIONS: usize = 40;
    const STREAMS: u32 = 20;
    Box::pin(async move {
        let mut guns = VecDeque::new();
        // The oldest make room for new ones, so that what a connection leaves behind would add up.
        let connections = frames / u64::from(8 * STREAMS);
        for _ in 0..connections {
            guns.truncate(CONNECTIONS - 1);
            let Some(mut gun) = Gun::aim(at, &answers).await else { continue };
            let block = call(PUBLISH);
            for id in (0..STREAMS).map(|n| 1 + 2 * n) {
                // A message is announced, and its first byte comes.
                gun.fire(&[headers(id, END_HEADERS, &block), data(id, NOTHING, b"\0\0\0\x01\0\0")].concat())
                    .await;
            }
            gun.fire(&headers(1 + 2 * STREAMS, NOTHING, &block)).await;
            guns.push_front(gun);
        }
        connections * u64::from(2 * STREAMS + 2)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_opened_and_reset() {
    let answers = withstand("rapid reset", rapid_reset).await;
    assert!(of(&answers.goaways) > 0, "the server ends such connections");
    withstand("rapid reset of work", rapid_reset_of_work).await;
    let answers = withstand("reset when accepted", reset_when_accepted).await;
    assert_eq!(of(&answers.goaways), 0, "a client may change its mind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_never_end_or_are_too_many() {
    let answers = withstand("endless headers", endless_headers).await;
    assert!(of(&answers.goaways) > 0, "the server ends such connections");
    let answers = withstand("oversized headers", oversized_headers).await;
    assert!(of(&answers.headers) + of(&answers.resets) + of(&answers.goaways) > 0, "they are refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_say_nothing() {
    let answers = withstand("empty data", empty_data).await;
    assert!(of(&answers.headers) + of(&answers.goaways) > 0, "the call was taken for one");
    let answers = withstand("settings and pings", settings_and_pings).await;
    assert!(of(&answers.settings_acks) > 0 && of(&answers.pongs) > 0, "they are answered");
    withstand("pings of the deaf", pings_of_the_deaf).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_made_to_reset() {
    let answers = withstand("made to reset", made_to_reset).await;
    assert!(of(&answers.resets) > 0 && of(&answers.goaways) > 0, "it resets, and then has enough");
    let answers = withstand("overflowing windows", overflowing_windows).await;
    assert!(of(&answers.goaways) > 0, "the server ends such connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_that_never_end() {
    withstand("unfinished requests", unfinished).await;
}

/// How often a byte is sent: often enough not to be silent.
const DRIP: Duration = Duration::from_millis(500);

/// A client that greets one byte at a time holds its place no longer than one that says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_greeting_byte_by_byte_loses_its_place() {
    let redis = redis_server(&[]);
    let sidecar = Sidecar::start(&redis.url(), &format!("[limits]\nconnections = 3\n{CONFIG}"));
    let honest = publisher(&sidecar, "jobs").await;
    let (mut rounds, is_over) = (0, Arc::new(AtomicBool::new(false)));
    let mut slow = Vec::new();
    for drips in [true, false] {
        let mut gun = Gun::aim_silently(sidecar.grpc).await.unwrap();
        let is_over = is_over.clone();
        slow.push(tokio::spawn(async move {
            let mut bytes = PREFACE.iter();
            gun.fire(&[*bytes.next().unwrap()]).await;
            while !is_over.load(Ordering::Relaxed) {
                tokio::time::sleep(DRIP).await;
                if let Some(byte) = bytes.next().filter(|_| drips) {
                    gun.fire(&[*byte]).await;
                }
            }
        }));
    }
    eventually("all places are taken", || async { sidecar.metric("seriatim_connections ").await == 3.0 })
        .await;
    eventually("the slow ones lose theirs", || async {
        sidecar.metric("seriatim_connections ").await == 1.0
    })
    .await;
    round(&honest, &mut rounds).await;
    is_over.store(true, Ordering::Relaxed);
    for task in slow {
        task.await.unwrap();
    }
}
