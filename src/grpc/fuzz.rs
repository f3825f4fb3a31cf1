//! Requests that are nearly right, as bytes, against the whole of the service: codec, checks,
//! rules, answer. Only the connection is missing; `tests/e2e/frame_gun.rs` has that.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use prost::Message;
use tokio::{runtime::Runtime, sync::watch};
use tonic::{
    Code, Status,
    codegen::{Service, http},
};

use super::{
    IngestService, Limits, NamesTheSetting,
    pb::{self, ingest_server::IngestServer},
};
use crate::{
    clock::SystemClock,
    fuzz::{MESSAGE_CHARS_MAX, cases, check_message, damaged, percent, pick, small_number, text},
    ingest::{Ingest, Options, Ports, Tasks},
    metrics::Metrics,
    order::Policy,
    random::Random,
    store::{Layout, MemoryStore, Numbering, Store, TopicSpec},
};

/// A store that fills up is replaced after so many requests.
const REQUESTS_MAX: u64 = 2_000;
const ANSWER_BYTES_MAX: usize = 4 << 20;
const REQUEST_BYTES_MAX: usize = 1 << 20;

type Served = NamesTheSetting<IngestServer<IngestService>>;

pub(super) fn limits() -> Limits {
    Limits {
        event_bytes: 1_000,
        attribute_bytes: 1_000,
        request_events: 8,
        request_bytes: REQUEST_BYTES_MAX,
        stream_in_flight: 16,
        connection_requests: 16,
    }
}

pub(super) struct World {
    service: Served,
    pub ingest: Arc<Ingest>,
    tasks: Tasks,
    _draining: watch::Sender<bool>,
}

impl World {
    pub async fn start() -> Self {
        let clock = Arc::new(SystemClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let metrics = Arc::new(Metrics::default());
        let of = |name: &str, numbering| TopicSpec {
            name: name.to_owned(),
            partitions: 2,
            layout: Layout::Entry,
            numbering,
            policy: Policy::default(),
        };
        let topics = vec![of("jobs", Numbering::Producer), of("counted", Numbering::Assigned)];
        for topic in &topics {
            store.open(topic).await.unwrap();
        }
        let options = Options {
            batch_events: 256,
            batch_bytes: 1 << 20,
            in_flight_events: 16_384,
            in_flight_bytes: 64 << 20,
            store_wait: Duration::from_secs(5),
            elapse_max: 128,
        };
        let ports = Ports { store, clock, metrics: metrics.clone() };
        let (ingest, tasks) = Ingest::start(topics, options, ports, Random::from_seed(1));
        let (draining, is_draining) = watch::channel(false);
        let service = IngestService::new(ingest.clone(), limits(), metrics, is_draining);
        let inner = IngestServer::new(service).max_decoding_message_size(REQUEST_BYTES_MAX);
        let service = NamesTheSetting { inner, request_bytes: REQUEST_BYTES_MAX };
        World { service, ingest, tasks, _draining: draining }
    }

    async fn end(mut self) {
        self.ingest.close();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("no task of the sidecar panics");
        }
    }

    /// Sends a body as it is; gives what came back, or the status.
    async fn ask(&mut self, method: &str, body: Vec<u8>) -> Result<Vec<u8>, Status> {
        let request = http::Request::post(format!("/seriatim.v1.Ingest/{method}"))
            .header("content-type", "application/grpc")
            .body(Body::from(body))
            .unwrap();
        let response = self.service.call(request).await.expect("a service that cannot fail");
        if let Some(status) = Status::from_header_map(response.headers()) {
            return Err(status);
        }
        let body = Body::new(response.into_body());
        Ok(to_bytes(body, ANSWER_BYTES_MAX).await.expect("an answer is bounded").to_vec())
    }
}

/// A message with the five bytes that stand before it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("it is short");
    [&[0][..], &length.to_be_bytes(), message].concat()
}

fn event(random: &mut Random) -> pb::Event {
    let attributes = (0..random.below(3)).map(|n| (format!("a{n}"), text(random))).collect();
    pb::Event {
        entity: format!("job-{}", random.below(5)),
        epoch: random.below(2),
        sequence: percent(random, 80).then(|| random.below(9)),
        r#type: pick(random, &["step", "done"]).to_string(),
        terminal: percent(random, 5),
        id: text(random),
        source: text(random),
        time: text(random),
        datacontenttype: text(random),
        data: text(random).into(),
        attributes,
    }
}

fn check_result(result: &pb::Result) {
    assert_ne!(result.verdict(), pb::Verdict::Unspecified, "{result:?}");
    assert!(result.detail.chars().count() <= MESSAGE_CHARS_MAX, "{result:?}");
    if result.verdict() == pb::Verdict::Invalid {
        assert!(!result.field.is_empty() && !result.reason.is_empty(), "{result:?}");
        check_message(&result.detail);
    }
}

#[test]
fn requests_as_bytes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut world = runtime.block_on(World::start());
    let (mut asked, mut answered) = (0, BTreeMap::new());
    cases("requests", |random| {
        asked += 1;
        if asked % REQUESTS_MAX == 0 {
            let old = std::mem::replace(&mut world, runtime.block_on(World::start()));
            runtime.block_on(old.end());
        }
        let method = *pick(random, &["Publish", "Publish", "Publish", "Announce", "Resume"]);
        let (topic, entity) = (pick(random, &["jobs", "jobs", "counted"]).to_string(), text(random));
        let message = match method {
            "Publish" => {
                let events = (0..random.below(10)).map(|_| event(random)).collect();
                pb::PublishRequest { topic, events }.encode_to_vec()
            }
            "Announce" => {
                let first_event_by_ms = small_number(random);
                pb::AnnounceRequest { topic, entity, first_event_by_ms }.encode_to_vec()
            }
            _ => pb::ResumeRequest { topic, entity }.encode_to_vec(),
        };
        let body = if percent(random, 90) {
            framed(&damaged(random, message))
        } else {
            damaged(random, framed(&message))
        };
        let code = check(&runtime, &mut world, method, body);
        *answered.entry(format!("{code:?}")).or_insert(0_u64) += 1;
    });
    println!("fuzz requests: {answered:?}");
    if asked >= REQUESTS_MAX {
        for code in [Code::Ok, Code::InvalidArgument, Code::NotFound, Code::Internal] {
            assert!(answered.contains_key(&format!("{code:?}")), "the cases are blind: no {code:?}");
        }
    }
    runtime.block_on(world.end());
}

fn check(runtime: &Runtime, world: &mut World, method: &str, body: Vec<u8>) -> Code {
    match runtime.block_on(world.ask(method, body)) {
        Ok(answer) => {
            if method == "Publish" && answer.len() > 5 {
                let response = pb::PublishResponse::decode(&answer[5..]).expect("our own answer");
                response.results.iter().for_each(check_result);
            }
            Code::Ok
        }
        Err(status) => {
            check_message(status.message());
            status.code()
        }
    }
}
