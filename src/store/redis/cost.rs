//! What a batch costs on its way to Redis and back, in instructions.

use std::sync::{Arc, Mutex};

use ::redis::Value;

use super::{
    Opened, Straight, encode,
    known::{Known, Tokens},
    reply, straight,
};
use crate::{
    cost::{EVENTS, is_still, offers},
    order::Policy,
    store::{Batch, Layout, Numbering, PartitionId, TopicSpec, keys::PartitionKeys},
};

pub(super) fn opened(layout: Layout) -> Opened {
    let topic = TopicSpec {
        name: "jobs".into(),
        partitions: 1,
        layout,
        numbering: Numbering::Producer,
        policy: Policy::default(),
    };
    let keys = PartitionKeys::new(&PartitionId { topic: "jobs".into(), index: 0 });
    let (header, channel) = ("w4|p1|g0123456789abcdef|-".to_owned(), "probes".to_owned());
    let (foreign, calm, known) = (Mutex::default(), Mutex::default(), Mutex::new(Known::new(1, 1)));
    Opened { topic: Arc::new(topic), keys, channel, header, foreign, calm, known }
}

#[test]
fn a_batch_is_formed() {
    let offers = offers();
    is_still("store::redis::cost::a_batch_is_formed", 49_000, || Batch::form(offers.clone()));
}

#[test]
fn a_batch_becomes_a_script_call() {
    let (batch, opened) = (Batch::form(offers()).0, opened(Layout::Entry));
    is_still("store::redis::cost::a_batch_becomes_a_script_call", 274_000, || {
        encode::admit(&opened, batch.offers(), None, "").get_packed_command()
    });
}

#[test]
fn a_batch_becomes_a_transaction_of_many_entries() {
    let (batch, opened, tokens) = (Batch::form(offers()).0, opened(Layout::Entry), Tokens::new(1));
    is_still("store::redis::cost::a_batch_becomes_a_transaction_of_many_entries", 338_000, || {
        let straightened = straight::straighten(Straight::Always, &opened, &batch, &tokens, Vec::new);
        straightened.expect("it is in order").0
    });
}

#[test]
fn a_batch_becomes_a_transaction_of_one_entry() {
    let (batch, opened, tokens) = (Batch::form(offers()).0, opened(Layout::Batch), Tokens::new(1));
    is_still("store::redis::cost::a_batch_becomes_a_transaction_of_one_entry", 221_000, || {
        let straightened = straight::straighten(Straight::Always, &opened, &batch, &tokens, Vec::new);
        straightened.expect("it is in order").0
    });
}

#[test]
fn ids_become_decisions() {
    let batch = Batch::form(offers()).0;
    let ids: Vec<Value> =
        (0..EVENTS).map(|n| Value::BulkString(format!("1794927602461-{n}").into_bytes())).collect();
    is_still("store::redis::cost::ids_become_decisions", 80_000, || {
        reply::released(ids.clone(), batch.offers(), Layout::Entry).expect("they are ids")
    });
}
