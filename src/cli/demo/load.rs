//! What is published: when each event happens, when it arrives, what comes twice, and
//! what is lost on the way.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use seriatim_checker::Fate;
use tokio::sync::mpsc;

use super::{
    super::{Failure, publish::client_failure},
    sidecar::Sidecar,
};
use crate::{
    client::{Producer, ProducerOptions},
    grpc::pb::{self, Verdict},
    random::Random,
};

/// The steps of an evaluation, in the order they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Provisioning,
    Running,
    Completed,
}

impl Step {
    pub const ALL: [Step; 3] = [Step::Provisioning, Step::Running, Step::Completed];

    pub fn sequence(self) -> u64 {
        self as u64
    }

    pub fn name(self) -> &'static str {
        match self {
            Step::Provisioning => "provisioning",
            Step::Running => "running",
            Step::Completed => "completed",
        }
    }
}

/// One event on its way to the sidecar.
pub struct Delivery {
    pub entity: String,
    pub step: Step,
    /// When it arrives, after the start.
    at: Duration,
    executor: usize,
    /// Its executor sent it, and it never arrives.
    pub is_lost: bool,
}

pub struct Load {
    /// In the order of their arrival.
    pub deliveries: Vec<Delivery>,
    entities: u32,
}

/// What the producers saw.
pub struct Published {
    /// From sending an event to its verdict.
    pub latency_us: Histogram<u64>,
    pub parked: u64,
    pub duplicates: u64,
    /// Events that executors published again because the sidecar asked.
    pub resent: u64,
    /// Verdicts that are no success.
    pub failed: u64,
    /// What was heard of each delivery.
    pub fates: Vec<Fate>,
}

/// Connections over which an evaluation's events are spread.
const EXECUTORS: usize = 4;
/// All evaluations begin within this time: they run at once.
const BEGIN_WITHIN_US: u64 = 200_000;
/// The longest time between two steps: three steps take less than 100 ms.
const STEP_US: u64 = 45_000;
/// The longest way of an event to the sidecar.
const DELAY_US: u64 = 60_000;
const TWICE_PERCENT: u64 = 10;
/// One of so many evaluations loses a message.
const LOST_ONE_IN: u32 = 100;
const TIMER_STEP: Duration = Duration::from_millis(1);
/// Longer waits for a verdict count as this long.
const LATENCY_US_MAX: u64 = 60_000_000;

impl Load {
    pub fn plan(entities: u32, random: &mut Random) -> Self {
        let mut deliveries = Vec::new();
        for number in 0..entities {
            let mut happens = random.below(BEGIN_WITHIN_US);
            let mut executor = 0;
            // Backwards in time, so that an executor that loses a step has sent a later one,
            // by which the sidecar knows it.
            let mut times: Vec<u64> = Vec::new();
            for _ in Step::ALL {
                times.push(happens);
                happens += random.below(STEP_US);
            }
            for (step, happens) in Step::ALL.into_iter().zip(times).rev() {
                let is_lost = number % LOST_ONE_IN == 0 && step == Step::Running;
                if !is_lost {
                    executor = usize::try_from(random.below(EXECUTORS as u64)).expect("it is an index");
                }
                let copies = if !is_lost && random.below(100) < TWICE_PERCENT { 2 } else { 1 };
                for _ in 0..copies {
                    // What is lost was sent when it happened; it has no way to take long on.
                    let delay = if is_lost { 0 } else { random.below(DELAY_US) };
                    let at = Duration::from_micros(happens + delay);
                    let entity = format!("evaluation-{number:04}");
                    deliveries.push(Delivery { entity, step, at, executor, is_lost });
                }
            }
        }
        deliveries.sort_by_key(|delivery| delivery.at);
        Load { deliveries, entities }
    }

    /// Events without those that come twice.
    pub fn events(&self) -> u64 {
        u64::from(self.entities) * Step::ALL.len() as u64
    }

    /// Messages that never arrive.
    pub fn lost(&self) -> u64 {
        self.deliveries.iter().filter(|delivery| delivery.is_lost).count() as u64
    }

    /// What arrives, in its order.
    pub fn arriving(&self) -> impl Iterator<Item = &Delivery> {
        self.deliveries.iter().filter(|delivery| !delivery.is_lost)
    }

    /// Sends everything at its time and waits for all verdicts.
    pub async fn publish(&self, executors: &Executors, bar: &ProgressBar) -> Result<Published, Failure> {
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are possible");
        let fates = vec![Fate::Unknown; self.deliveries.len()];
        let mut published = Published { latency_us, parked: 0, duplicates: 0, resent: 0, failed: 0, fates };
        // A task for each event, which notes the time when its verdict is there.
        let (answers, mut answered) = mpsc::unbounded_channel();
        let start = Instant::now();
        for (place, delivery) in self.deliveries.iter().enumerate() {
            // Timers count in milliseconds: what is due within this one goes now.
            let wait = delivery.at.saturating_sub(start.elapsed());
            if wait >= TIMER_STEP {
                tokio::time::sleep(wait).await;
            }
            let executor = &executors.0[delivery.executor];
            if delivery.is_lost {
                executor.remember(delivery.event());
                continue;
            }
            let sent = Instant::now();
            let answer = executor.publish_when_room(delivery.event()).await;
            let answers = answers.clone();
            tokio::spawn(async move {
                let outcome = answer.await;
                let _ = answers.send((place, outcome, sent.elapsed()));
            });
            while let Ok((place, outcome, took)) = answered.try_recv() {
                published.note(place, outcome.map_err(client_failure)?, took, bar);
            }
        }
        drop(answers);
        while let Some((place, outcome, took)) = answered.recv().await {
            published.note(place, outcome.map_err(client_failure)?, took, bar);
        }
        Ok(published)
    }
}

/// The executors' connections; they stay open to be asked for what is missing.
pub struct Executors(Vec<Producer>);

impl Executors {
    pub fn connect(sidecar: &Sidecar, topic: &str, answer_resend: bool) -> Self {
        let options = ProducerOptions { answer_resend, ..ProducerOptions::default() };
        let connect = |_| Producer::start(&sidecar.target(), topic, options.clone());
        Executors((0..EXECUTORS).map(connect).collect())
    }

    pub fn resent(&self) -> u64 {
        self.0.iter().map(Producer::resent).sum()
    }

    pub async fn close(self) {
        for producer in self.0 {
            producer.close().await;
        }
    }
}

impl Published {
    fn note(&mut self, place: usize, result: pb::Result, took: Duration, bar: &ProgressBar) {
        self.latency_us.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.fates[place] = match result.verdict() {
            Verdict::Released | Verdict::Passed => Fate::Accepted { at: 0 },
            Verdict::Parked => {
                self.parked += 1;
                Fate::Accepted { at: 0 }
            }
            Verdict::Duplicate => {
                self.duplicates += 1;
                Fate::Known
            }
            _ => {
                self.failed += 1;
                Fate::Rejected
            }
        };
        bar.inc(1);
        bar.set_message(format!("{} parked", self.parked));
    }
}

impl Delivery {
    fn event(&self) -> pb::Event {
        pb::Event {
            entity: self.entity.clone(),
            sequence: Some(self.step.sequence()),
            r#type: self.step.name().to_owned(),
            terminal: self.step == Step::Completed,
            datacontenttype: "application/json".to_owned(),
            data: self.data().into(),
            ..Default::default()
        }
    }

    pub fn data(&self) -> String {
        format!(r#"{{"evaluation":"{}","step":"{}"}}"#, self.entity, self.step.name())
    }
}
