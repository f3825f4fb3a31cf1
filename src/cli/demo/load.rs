//! What is published: when each event happens, when it arrives, and what comes twice.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use tokio::sync::mpsc;

use super::{
    super::{Failure, publish::client_failure},
    sidecar::Sidecar,
};
use crate::{
    client::{Publisher, connect},
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
    /// Verdicts that are no success.
    pub failed: u64,
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
const TIMER_STEP: Duration = Duration::from_millis(1);
/// Longer waits for a verdict count as this long.
const LATENCY_US_MAX: u64 = 60_000_000;

impl Load {
    pub fn plan(entities: u32, random: &mut Random) -> Self {
        let mut deliveries = Vec::new();
        for number in 0..entities {
            let mut happens = random.below(BEGIN_WITHIN_US);
            for step in Step::ALL {
                let times = if random.below(100) < TWICE_PERCENT { 2 } else { 1 };
                for _ in 0..times {
                    let at = Duration::from_micros(happens + random.below(DELAY_US));
                    let executor = usize::try_from(random.below(EXECUTORS as u64)).expect("it is an index");
                    deliveries.push(Delivery {
                        entity: format!("evaluation-{number:04}"),
                        step,
                        at,
                        executor,
                    });
                }
                happens += random.below(STEP_US);
            }
        }
        deliveries.sort_by_key(|delivery| delivery.at);
        Load { deliveries, entities }
    }

    /// Events without those that come twice.
    pub fn events(&self) -> u64 {
        u64::from(self.entities) * Step::ALL.len() as u64
    }

    /// Sends everything at its time and waits for all verdicts.
    pub async fn publish(
        &self,
        sidecar: &Sidecar,
        topic: &str,
        bar: &ProgressBar,
    ) -> Result<Published, Failure> {
        let mut executors = Vec::new();
        for _ in 0..EXECUTORS {
            let client = connect(&sidecar.target()).await.map_err(client_failure)?;
            executors.push(Publisher::open(client, topic).await.map_err(client_failure)?);
        }
        let latency_us = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are possible");
        let mut published = Published { latency_us, parked: 0, duplicates: 0, failed: 0 };
        // A task for each event, which notes the time when its verdict is there.
        let (answers, mut answered) = mpsc::unbounded_channel();
        let start = Instant::now();
        for delivery in &self.deliveries {
            // Timers count in milliseconds: what is due within this one goes now.
            let wait = delivery.at.saturating_sub(start.elapsed());
            if wait >= TIMER_STEP {
                tokio::time::sleep(wait).await;
            }
            let sent = Instant::now();
            let answer = executors[delivery.executor].submit(vec![delivery.event()]);
            let answers = answers.clone();
            tokio::spawn(async move {
                let outcome = answer.await;
                let _ = answers.send((outcome, sent.elapsed()));
            });
            while let Ok((outcome, took)) = answered.try_recv() {
                published.note(outcome.map_err(client_failure)?, took, bar);
            }
        }
        drop(answers);
        while let Some((outcome, took)) = answered.recv().await {
            published.note(outcome.map_err(client_failure)?, took, bar);
        }
        Ok(published)
    }
}

impl Published {
    fn note(&mut self, results: Vec<pb::Result>, took: Duration, bar: &ProgressBar) {
        self.latency_us.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        for result in results {
            match result.verdict() {
                Verdict::Released | Verdict::Passed => {}
                Verdict::Parked => self.parked += 1,
                Verdict::Duplicate => self.duplicates += 1,
                _ => self.failed += 1,
            }
        }
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
            data: format!(r#"{{"evaluation":"{}","step":"{}"}}"#, self.entity, self.step.name()).into(),
            ..Default::default()
        }
    }
}
