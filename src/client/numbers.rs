//! The sequence of each entity's next event.

use std::{cmp, collections::HashMap, time::Duration};

use tonic::{Request, transport::Channel};

use super::ClientError;
use crate::grpc::pb::{self, ingest_client::IngestClient};

/// How long a sidecar may take to say where an entity stands.
const RESUME_TIMEOUT: Duration = Duration::from_secs(10);

/// Gives events their sequence. It remembers every entity it has numbered until
/// [`forget`](Numbers::forget) is called, so call that after an entity's terminal event.
#[derive(Debug)]
pub struct Numbers {
    first: u64,
    /// The highest epoch of each entity, and its next sequence.
    at: HashMap<String, (u64, u64)>,
}

impl Numbers {
    /// `first` is the topic's first sequence, 0 unless it is configured otherwise.
    pub fn new(first: u64) -> Self {
        Numbers { first, at: HashMap::new() }
    }

    /// The sequence of the entity's next event in this epoch. A higher epoch begins anew
    /// and ends the lower one: in that any event is STALE, whatever its sequence, so the
    /// first one is given and nothing is counted.
    pub fn next(&mut self, entity: &str, epoch: u64) -> u64 {
        if !self.at.contains_key(entity) {
            self.at.insert(entity.to_owned(), (epoch, self.first));
        }
        let at = self.at.get_mut(entity).expect("it is there now");
        match epoch.cmp(&at.0) {
            cmp::Ordering::Less => return self.first,
            cmp::Ordering::Equal => {}
            cmp::Ordering::Greater => *at = (epoch, self.first),
        }
        let sequence = at.1;
        // The largest sequence is 2^53 - 1; beyond it every event is INVALID anyway.
        at.1 = sequence.saturating_add(1);
        sequence
    }

    /// Goes on at `next`. Numbers that were given already are never given again: what is
    /// behind them changes nothing.
    pub fn resume_at(&mut self, entity: &str, epoch: u64, next: u64) {
        match self.at.get_mut(entity) {
            Some(at) => *at = (*at).max((epoch, next)),
            None => drop(self.at.insert(entity.to_owned(), (epoch, next))),
        }
    }

    /// Asks the sidecar where the entity stands and goes on there: for a producer that was
    /// restarted. The answer says more: `closed`, and what is `parked` beyond next. Those
    /// numbers are taken. Whoever cannot publish the same events between next and them
    /// again should begin a higher epoch.
    pub async fn resume(
        &mut self,
        client: &mut IngestClient<Channel>,
        topic: &str,
        entity: &str,
    ) -> Result<pb::ResumeResponse, ClientError> {
        let mut request =
            Request::new(pb::ResumeRequest { topic: topic.to_owned(), entity: entity.to_owned() });
        request.set_timeout(RESUME_TIMEOUT);
        let resumed = client.resume(request).await;
        let resumed = resumed.map_err(|status| ClientError::Status(Box::new(status)))?.into_inner();
        self.resume_at(entity, resumed.epoch, resumed.next);
        Ok(resumed)
    }

    /// Forgets an entity that has ended.
    pub fn forget(&mut self, entity: &str) {
        self.at.remove(entity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entity_counts_by_itself_from_the_first() {
        let mut numbers = Numbers::new(7);
        assert_eq!([numbers.next("a", 0), numbers.next("a", 0), numbers.next("b", 0)], [7, 8, 7]);
        assert_eq!([numbers.next("a", 0), numbers.next("b", 0)], [9, 8]);
    }

    #[test]
    fn a_higher_epoch_begins_anew_and_a_lower_one_is_over() {
        let mut numbers = Numbers::new(0);
        assert_eq!([numbers.next("a", 3), numbers.next("a", 3)], [0, 1]);
        assert_eq!([numbers.next("a", 4), numbers.next("a", 4)], [0, 1]);
        assert_eq!([numbers.next("a", 3), numbers.next("a", 3)], [0, 0]);
        assert_eq!(numbers.next("a", 4), 2, "the lower epoch changed nothing");
    }

    #[test]
    fn it_goes_on_where_the_sidecar_says_and_never_back() {
        let mut numbers = Numbers::new(0);
        numbers.resume_at("a", 2, 40);
        assert_eq!([numbers.next("a", 2), numbers.next("a", 2)], [40, 41]);
        numbers.resume_at("a", 2, 41);
        assert_eq!(numbers.next("a", 2), 42, "41 was given already");
        numbers.resume_at("a", 1, 100);
        assert_eq!(numbers.next("a", 2), 43, "epoch 1 is over");
        numbers.resume_at("a", 3, 5);
        assert_eq!(numbers.next("a", 3), 5);
    }

    #[test]
    fn a_forgotten_entity_takes_no_room() {
        let mut numbers = Numbers::new(0);
        for entity in 0..1000 {
            numbers.next(&entity.to_string(), 0);
            numbers.forget(&entity.to_string());
        }
        assert!(numbers.at.is_empty());
        assert_eq!(numbers.next("7", 0), 0);
    }
}
