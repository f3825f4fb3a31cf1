//! A sidecar that does only what its test tells it, a connection that can be cut, and a
//! clock that is moved by hand.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{FutureExt, future::BoxFuture};
use seriatim::{
    client::{Producer, ProducerOptions},
    clock::Clock,
    grpc::pb::{
        self, Verdict,
        ingest_server::{Ingest, IngestServer},
    },
    random::Random,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::AbortHandle,
};
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Code, Request, Response, Status, Streaming, transport::Server};

/// How long anything in these tests may take before it counts as hanging.
const BOUND: Duration = Duration::from_secs(60);

pub const TOPIC: &str = "jobs";

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(BOUND, future).await;
    waited.unwrap_or_else(|_| panic!("this never happened: {what}"))
}

/// Lets other tasks run until something holds.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < BOUND, "this never happened: {what}");
        tokio::task::yield_now().await;
    }
}

pub fn event(entity: &str, sequence: u64) -> pb::Event {
    pb::Event {
        entity: entity.to_owned(),
        sequence: Some(sequence),
        r#type: "step".to_owned(),
        data: format!("{entity}/{sequence}").into(),
        ..Default::default()
    }
}

pub fn ask(entity: &str, from: u64, to: u64) -> pb::Resend {
    pb::Resend { topic: TOPIC.into(), entity: entity.into(), epoch: 0, from, to }
}

pub struct Adversary {
    streams: mpsc::UnboundedReceiver<Wire>,
    relay: SocketAddr,
    cut: watch::Sender<u64>,
    tasks: [AbortHandle; 2],
}

impl Drop for Adversary {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Adversary {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, streams) = mpsc::unbounded_channel();
        let server = Server::builder().add_service(IngestServer::new(Service { streams: sender }));
        let server = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)).map(drop));

        let entrance = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay = entrance.local_addr().unwrap();
        let (cut, cuts) = watch::channel(0);
        let relaying = tokio::spawn(relay_all(entrance, address, cuts));
        Adversary { streams, relay, cut, tasks: [server.abort_handle(), relaying.abort_handle()] }
    }

    pub fn target(&self) -> String {
        format!("http://{}", self.relay)
    }

    pub fn producer(&self, options: ProducerOptions) -> Producer {
        Producer::start(&self.target(), TOPIC, options)
    }

    /// One whose time does not pass by itself.
    pub fn producer_with(&self, clock: &ManualClock, options: ProducerOptions) -> Producer {
        let clock = Arc::new(clock.clone());
        Producer::start_with(&self.target(), TOPIC, options, clock, Random::from_seed(1))
    }

    /// The next stream that a producer opens.
    pub async fn accept(&mut self) -> Wire {
        within("a stream is opened", self.streams.recv()).await.expect("the server runs")
    }

    /// Breaks every connection, without a word.
    pub fn cut(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }
}

async fn relay_all(entrance: TcpListener, to: SocketAddr, cuts: watch::Receiver<u64>) {
    while let Ok((mut from_producer, _)) = entrance.accept().await {
        let mut cuts = cuts.clone();
        tokio::spawn(async move {
            cuts.mark_unchanged();
            let mut to_server = TcpStream::connect(to).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut from_producer, &mut to_server) => {}
                _ = cuts.changed() => {}
            }
        });
    }
}

/// One stream, as the sidecar sees it.
pub struct Wire {
    requests: Streaming<pb::PublishStreamRequest>,
    answers: mpsc::UnboundedSender<Result<pb::PublishStreamResponse, Status>>,
}

impl Wire {
    /// The next request's number and its only event.
    pub async fn read(&mut self) -> (u64, pb::Event) {
        let request = within("a request comes", self.requests.message()).await;
        one_event(request.expect("the connection lives").expect("the producer goes on"))
    }

    pub async fn read_many(&mut self, count: usize) -> Vec<(u64, pb::Event)> {
        let mut read = Vec::new();
        for _ in 0..count {
            read.push(self.read().await);
        }
        read
    }

    /// A request that is already there, after all others had time to send one.
    pub async fn read_now(&mut self) -> Option<(u64, pb::Event)> {
        for _ in 0..1000 {
            tokio::task::yield_now().await;
            if let Some(request) = self.requests.message().now_or_never() {
                return Some(one_event(request.unwrap().unwrap()));
            }
        }
        None
    }

    /// The producer closed its side, in peace or otherwise.
    pub async fn ended(&mut self) -> Result<(), Status> {
        match within("the stream ends", self.requests.message()).await {
            Ok(None) => Ok(()),
            Ok(Some(request)) => panic!("the stream goes on: {request:?}"),
            Err(status) => Err(status),
        }
    }

    pub fn respond(&self, answers: Vec<pb::Answer>, resends: Vec<pb::Resend>) {
        let _ = self.answers.send(Ok(pb::PublishStreamResponse { answers, resends }));
    }

    pub fn answer(&self, number: u64, verdict: Verdict) {
        self.respond(vec![verdict_of(number, verdict)], Vec::new());
    }

    /// Reads one request and releases it.
    pub async fn release(&mut self) -> pb::Event {
        let (number, event) = self.read().await;
        self.answer(number, Verdict::Released);
        event
    }

    pub fn ask(&self, resends: Vec<pb::Resend>) {
        self.respond(Vec::new(), resends);
    }

    pub fn end(self, status: Status) {
        let _ = self.answers.send(Err(status));
    }
}

fn one_event(mut request: pb::PublishStreamRequest) -> (u64, pb::Event) {
    assert_eq!((request.topic.as_str(), request.events.len()), (TOPIC, 1));
    (request.number, request.events.remove(0))
}

pub fn verdict_of(number: u64, verdict: Verdict) -> pb::Answer {
    result_of(number, pb::Result { verdict: verdict.into(), ..Default::default() })
}

pub fn result_of(number: u64, result: pb::Result) -> pb::Answer {
    pb::Answer { number, results: vec![result], failure: None }
}

pub fn failure_of(number: u64, code: Code, retry_after_ms: u32) -> pb::Answer {
    let failure = pb::Failure { code: code as u32, message: "it failed".into(), retry_after_ms };
    pb::Answer { number, results: Vec::new(), failure: Some(failure) }
}

struct Service {
    streams: mpsc::UnboundedSender<Wire>,
}

#[tonic::async_trait]
impl Ingest for Service {
    async fn publish(&self, _: Request<pb::PublishRequest>) -> Result<Response<pb::PublishResponse>, Status> {
        Err(Status::unimplemented("a producer only streams"))
    }

    type PublishStreamStream = UnboundedReceiverStream<Result<pb::PublishStreamResponse, Status>>;

    async fn publish_stream(
        &self,
        request: Request<Streaming<pb::PublishStreamRequest>>,
    ) -> Result<Response<Self::PublishStreamStream>, Status> {
        let (answers, outgoing) = mpsc::unbounded_channel();
        let _ = self.streams.send(Wire { requests: request.into_inner(), answers });
        Ok(Response::new(UnboundedReceiverStream::new(outgoing)))
    }

    async fn announce(
        &self,
        _: Request<pb::AnnounceRequest>,
    ) -> Result<Response<pb::AnnounceResponse>, Status> {
        Err(Status::unimplemented("nobody asks"))
    }

    async fn resume(&self, _: Request<pb::ResumeRequest>) -> Result<Response<pb::ResumeResponse>, Status> {
        Err(Status::unimplemented("nobody asks"))
    }
}

/// Time that stands still until it is moved.
#[derive(Clone)]
pub struct ManualClock(watch::Sender<Duration>);

impl Default for ManualClock {
    fn default() -> Self {
        ManualClock(watch::Sender::new(Duration::ZERO))
    }
}

impl ManualClock {
    pub fn advance(&self, by: Duration) {
        self.0.send_modify(|now| *now += by);
    }

    /// Moves time on, step by step, until the future is done.
    pub async fn advance_until<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = Box::pin(future);
        loop {
            tokio::select! {
                biased;
                done = &mut future => return done,
                () = tokio::time::sleep(Duration::from_millis(1)) => self.advance(Duration::from_secs(1)),
            }
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        *self.0.borrow()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let due = self.now() + duration;
        let mut moved = self.0.subscribe();
        async move { drop(moved.wait_for(|now| *now >= due).await) }.boxed()
    }
}
