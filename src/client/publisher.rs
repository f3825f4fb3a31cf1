//! A producer's connection to a sidecar: pipelined, one answer for each request.
//!
//! [`Publisher::submit`] only queues, so that a caller decides the order of sending;
//! awaiting what it returns gives the results. Any error may be answered by
//! submitting the same events again: publishing is idempotent.

use std::{
    collections::HashMap,
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::{mpsc, oneshot};
use tonic::{Streaming, transport::Channel};

use super::{
    ClientError,
    connect::{Stream, outcome_of},
};
use crate::grpc::pb::{self, ingest_client::IngestClient};

type Waiting = Mutex<Option<HashMap<u64, oneshot::Sender<Result<Vec<pb::Result>, ClientError>>>>>;

/// One `PublishStream` call. Dropping it closes the stream.
pub struct Publisher {
    topic: String,
    next: AtomicU64,
    requests: mpsc::UnboundedSender<pb::PublishStreamRequest>,
    /// `None` once the stream has ended.
    waiting: Arc<Waiting>,
}

impl Publisher {
    pub async fn open(client: IngestClient<Channel>, topic: &str) -> Result<Self, ClientError> {
        let Stream { requests, answers } = Stream::open(client).await?;
        let waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        tokio::spawn(dispatch(answers, waiting.clone()));
        Ok(Publisher { topic: topic.to_owned(), next: AtomicU64::new(0), requests, waiting })
    }

    /// Queues a request; requests are sent in the order of these calls. The caller
    /// bounds how many it leaves unanswered.
    pub fn submit(
        &self,
        events: Vec<pb::Event>,
    ) -> impl Future<Output = Result<Vec<pb::Result>, ClientError>> + Send + use<> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        if let Some(waiting) = &mut *self.waiting.lock().expect("nobody panics holding it") {
            waiting.insert(number, answer);
        }
        let request = pb::PublishStreamRequest { number, topic: self.topic.clone(), events };
        // If the stream has ended, the dropped sender says so.
        let _ = self.requests.send(request);
        async move { answered.await.unwrap_or(Err(ClientError::Lost)) }
    }
}

async fn dispatch(mut answers: Streaming<pb::PublishStreamResponse>, waiting: Arc<Waiting>) {
    let ended = loop {
        match answers.message().await {
            Ok(Some(response)) => {
                let mut waiting = waiting.lock().expect("nobody panics holding it");
                let waiting = waiting.as_mut().expect("only the end of this task takes it");
                for answer in response.answers {
                    if let Some(sender) = waiting.remove(&answer.number) {
                        let _ = sender.send(outcome_of(answer));
                    }
                }
            }
            Ok(None) => break None,
            // It has a cause here: nobody answered, the connection broke.
            Err(status) if status.source().is_some() => break None,
            Err(status) => break Some(status),
        }
    };
    let unanswered = waiting.lock().expect("nobody panics holding it").take();
    for sender in unanswered.into_iter().flat_map(HashMap::into_values) {
        let error = ended.clone().map_or(ClientError::Lost, |status| ClientError::Status(Box::new(status)));
        let _ = sender.send(Err(error));
    }
}
