//! A second opinion: what the executors were told and what stands in the streams, before a
//! judge that shares no code with what it judges.

use seriatim_checker::{self as checker, Evidence, Rules, Sent, Stream, Violation};

use super::load::{Load, Published};
use crate::{
    order::Order,
    store::{Entry, id_digest},
};

/// Everything that is wrong with what came out.
pub fn judge(load: &Load, published: &Published, entries: &[Entry]) -> Vec<Violation> {
    let sent = load.deliveries.iter().zip(&published.fates).map(|(delivery, fate)| Sent {
        name: (delivery.entity.as_str().into(), 0, delivery.step.sequence()),
        payload: id_digest(&delivery.data()),
        at: 0,
        fate: *fate,
    });
    let evidence = Evidence {
        sent: sent.collect(),
        entries: entries.iter().map(noted).collect(),
        ..Evidence::default()
    };
    checker::judge(&evidence, &Rules { is_final: true, ..Rules::default() })
}

/// An entry as the judge wants it. A gap counts as later than all that was accepted: none of
/// that may have been given up.
fn noted(entry: &Entry) -> checker::Entry {
    let order = match entry.order {
        Order::Strict => checker::Order::Strict,
        Order::Passed => checker::Order::Passed,
        Order::Late => checker::Order::Late,
        Order::Replay => checker::Order::Replay,
        Order::Marker => checker::Order::Gap,
    };
    let sequence = entry.sequence.get();
    checker::Entry {
        stream: Stream::Events,
        at: u64::MAX,
        name: (entry.entity.as_str().into(), entry.epoch.get(), sequence),
        order,
        from: sequence,
        is_time_out: false,
        payload: id_digest(&String::from_utf8_lossy(&entry.data)),
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use seriatim_checker::{Fate, Wrong};

    use super::*;
    use crate::random::Random;

    #[test]
    fn what_was_accepted_and_is_in_no_stream_is_lost() {
        let load = Load::plan(3, &mut Random::from_seed(1));
        let fates = load.deliveries.iter().map(|_| Fate::Accepted { at: 0 }).collect();
        let latency_us = Histogram::new(3).unwrap();
        let published = Published { latency_us, parked: 0, duplicates: 0, resent: 0, failed: 0, fates };
        let found = judge(&load, &published, &[]);
        assert_eq!(found.len(), load.deliveries.len());
        assert!(found.iter().all(|violation| violation.wrong == Wrong::Lost), "{found:?}");
    }
}
