//! A producer that is as cheap as it can be, so that what is measured is the sidecar: one
//! connection, one event a message, and no task or future for an event. The stream of requests
//! makes the next event when the connection has room for it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use futures_util::{Stream, StreamExt, stream::FuturesUnordered};

use super::{
    load::{Load, Made},
    meter::{Length, Measured, Meter, Processes},
    pace::{Due, Pace, Timetable, keep_time},
    rig::TOPIC,
};
use crate::{
    client::{self, Publisher},
    grpc::pb::{self, Verdict},
};

/// Times of sending that are kept; far more than can be unanswered.
const SENT: usize = 1 << 16;
/// Events of a message, and messages unanswered, before the clock starts.
const BEFORE_EVENTS: usize = 256;
const BEFORE_UNANSWERED: usize = 4;

pub struct Run {
    pub target: String,
    pub load: Load,
    pub length: Length,
    pub processes: Processes,
}

/// What was measured, and how many events were accepted in all.
pub struct Published {
    pub measured: Measured,
    pub accepted: u64,
}

fn event(load: &mut Load, made: &Made) -> pb::Event {
    pb::Event { data: load.data(), ..bare(load, made) }
}

/// Without data.
fn bare(load: &Load, made: &Made) -> pb::Event {
    pb::Event {
        entity: load.entity(made),
        sequence: Some(made.sequence),
        r#type: Load::kind(made).to_owned(),
        terminal: made.is_last,
        ..Default::default()
    }
}

/// The requests of a stream, made when they are asked for.
struct Requests {
    load: Load,
    due: Due,
    next: u64,
    start: Instant,
    /// When each was sent, in nanoseconds after the start.
    sent: Arc<Vec<AtomicU64>>,
}

impl Stream for Requests {
    type Item = pb::PublishStreamRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let number = self.next;
        match self.due.poll(number, context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(false) => return Poll::Ready(None),
            Poll::Ready(true) => {}
        }
        self.next += 1;
        let made = self.load.make();
        let events = vec![event(&mut self.load, &made)];
        self.sent[place(number)].store(nanoseconds(self.start.elapsed()), Ordering::Relaxed);
        let topic = if number == 0 { TOPIC.to_owned() } else { String::new() };
        Poll::Ready(Some(pb::PublishStreamRequest { number, topic, events }))
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).expect("it fits") % SENT
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("a run is short")
}

/// Publishes over one `PublishStream`.
pub async fn stream(run: Run, pace: Pace) -> anyhow::Result<Published> {
    let before = publish_before(&run).await?;
    let mut client = client::connect(&run.target).await?;
    let start = Instant::now();
    let sent: Arc<Vec<AtomicU64>> = Arc::new((0..SENT).map(|_| AtomicU64::new(0)).collect());
    let (due, timetable) = match pace {
        Pace::Closed { window } => (Due::new(window), None),
        Pace::Open { per_second } => (Due::new(0), Some(Timetable::new(per_second))),
    };
    let timekeeper = timetable.map(|table| keep_time(table, start, due.clone(), run.length.longest()));
    let requests = Requests { load: run.load, due: due.clone(), next: 0, start, sent: sent.clone() };
    let mut meter = Meter::start(run.length, run.processes, start);
    let receive = async {
        let mut answers = client.publish_stream(requests).await?.into_inner();
        let mut accepted = 0;
        while let Some(response) = answers.message().await? {
            let now = Instant::now();
            let answered = response.answers.len() as u64;
            for answer in &response.answers {
                check(answer.failure.as_ref(), &answer.results)?;
                let since = match &timetable {
                    Some(table) => table.intended(answer.number),
                    None => Duration::from_nanos(sent[place(answer.number)].load(Ordering::Relaxed)),
                };
                meter.took((now - start).saturating_sub(since), 1);
            }
            accepted += answered;
            if timetable.is_none() {
                due.add(answered);
            }
            if !meter.note(answered, now) {
                due.stop();
            }
        }
        anyhow::Ok(accepted)
    };
    let accepted = tokio::time::timeout(run.length.longest(), receive).await;
    due.stop();
    if let Some(timekeeper) = timekeeper {
        let _ = timekeeper.join();
    }
    Ok(Published { measured: meter.finish()?, accepted: before + accepted?? })
}

/// Publishes with one unary call an event.
pub async fn unary(mut run: Run, in_flight: usize) -> anyhow::Result<Published> {
    let before = publish_before(&run).await?;
    let client = client::connect(&run.target).await?;
    let mut meter = Meter::start(run.length, run.processes, Instant::now());
    let mut open = FuturesUnordered::new();
    let (mut accepted, mut goes_on) = (0, true);
    let ends_by = Instant::now() + run.length.longest();
    loop {
        while goes_on && open.len() < in_flight {
            let made = run.load.make();
            let events = vec![event(&mut run.load, &made)];
            let (mut client, sent) = (client.clone(), Instant::now());
            open.push(async move {
                let request = pb::PublishRequest { topic: TOPIC.to_owned(), events };
                (client.publish(request).await, sent)
            });
        }
        let Some((answer, sent)) = open.next().await else { break };
        check(None, &answer?.into_inner().results)?;
        let now = Instant::now();
        anyhow::ensure!(now < ends_by, "it takes far too long");
        meter.took(now - sent, 1);
        accepted += 1;
        goes_on = meter.note(1, now);
    }
    Ok(Published { measured: meter.finish()?, accepted: before + accepted })
}

/// Publishes so many events of as many entities, each its first, as fast as it goes.
pub async fn open_lanes(target: &str, load: &mut Load, lanes: u64) -> anyhow::Result<()> {
    let firsts: Vec<Made> = (0..lanes).map(|slot| Made { slot, ..FIRST }).collect();
    publish_all(target, firsts.iter().map(|made| bare(load, made))).await?;
    Ok(())
}

const FIRST: Made = Made { slot: 0, generation: 0, sequence: 0, is_last: false };

/// What the load goes on with; how many events that was.
async fn publish_before(run: &Run) -> anyhow::Result<u64> {
    publish_all(&run.target, run.load.before().map(|made| bare(&run.load, &made))).await
}

async fn publish_all(target: &str, mut events: impl Iterator<Item = pb::Event>) -> anyhow::Result<u64> {
    let publisher = Publisher::open(client::connect(target).await?, TOPIC).await?;
    let mut open = std::collections::VecDeque::new();
    let mut published = 0;
    loop {
        let message: Vec<pb::Event> = events.by_ref().take(BEFORE_EVENTS).collect();
        let is_over = message.is_empty();
        published += message.len() as u64;
        if !is_over {
            open.push_back(publisher.submit(message));
        }
        while open.len() >= if is_over { 1 } else { BEFORE_UNANSWERED } {
            let results = open.pop_front().expect("it is not empty").await?;
            check(None, &results)?;
        }
        if is_over {
            return Ok(published);
        }
    }
}

/// Everything must be accepted: a run in which something was refused measures something else.
fn check(failure: Option<&pb::Failure>, results: &[pb::Result]) -> anyhow::Result<()> {
    if let Some(failure) = failure {
        anyhow::bail!("a request failed: {}", failure.message);
    }
    for result in results {
        let verdict = result.verdict();
        anyhow::ensure!(
            matches!(verdict, Verdict::Released | Verdict::Parked),
            "an event was answered {verdict:?}: {} {}",
            result.reason,
            result.detail
        );
    }
    Ok(())
}
