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
