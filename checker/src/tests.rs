//! The judge must see each kind of wrong, and nothing where all is well.

use super::*;

fn name(sequence: u64) -> Name {
    ("e".into(), 0, sequence)
}

fn entry(sequence: u64, order: Order, at: u64) -> Entry {
    Entry {
        stream: Stream::Events,
        at,
        name: name(sequence),
        order,
        from: sequence,
        is_time_out: order == Order::Gap,
        payload: if order == Order::Gap { 0 } else { 100 + sequence },
    }
}

fn sent(sequence: u64, at: u64) -> Sent {
    Sent { name: name(sequence), payload: 100 + sequence, at, fate: Fate::Accepted { at: at + 1 } }
}

fn run(sequence: u64, order: Order, started: u64) -> Run {
    Run {
        worker: 1,
        partition: 0,
        term: 10,
        name: name(sequence),
        from: sequence,
        order,
        entry: Some((sequence, 0)),
        payload: if order == Order::Gap { 0 } else { 100 + sequence },
        started,
        done: Some(started + 1),
        is_nacked: false,
        answer: Some(Answer::Stored),
        killed: None,
    }
}

/// 0, 1, a gap for 2, 3: sent, appended, handled.
fn good() -> (Evidence, Rules) {
    let evidence = Evidence {
        sent: vec![sent(0, 0), sent(1, 1), sent(3, 2)],
        entries: vec![
            entry(0, Order::Strict, 1),
            entry(1, Order::Strict, 2),
            entry(2, Order::Gap, 900),
            entry(3, Order::Strict, 900),
        ],
        runs: vec![
            run(0, Order::Strict, 10),
            run(1, Order::Strict, 20),
            run(2, Order::Gap, 30),
            run(3, Order::Strict, 40),
        ],
        leftovers: Vec::new(),
    };
    let rules = Rules { is_final: true, has_workers: true, gap_wait_min: 500, ..Rules::default() };
    (evidence, rules)
}

/// What the judge says of the good run once something in it was changed.
fn said(change: impl FnOnce(&mut Evidence, &mut Rules)) -> Vec<Wrong> {
    let (mut evidence, mut rules) = good();
    change(&mut evidence, &mut rules);
    judge(&evidence, &rules).iter().map(|violation| violation.wrong).collect()
}

#[test]
fn where_all_is_well_nothing_is_said() {
    assert_eq!(said(|_, _| {}), []);
}

#[test]
fn what_is_wrong_in_a_stream_is_seen() {
    let is = |wrong: Wrong, change: fn(&mut Evidence, &mut Rules)| {
        assert!(said(change).contains(&wrong), "{wrong:?}: {:?}", said(change));
    };
    is(Wrong::Lost, |e, _| drop(e.entries.remove(3)));
    is(Wrong::Duplicated, |e, _| e.entries.push(entry(1, Order::Strict, 950)));
    is(Wrong::Duplicated, |e, _| {
        e.entries.push(Entry { stream: Stream::Late, ..entry(1, Order::Late, 950) });
    });
    is(Wrong::Reordered, |e, _| e.entries.swap(0, 1));
    is(Wrong::Reordered, |e, _| {
        e.entries.insert(1, Entry { name: ("e".into(), 1, 0), ..entry(0, Order::Strict, 1) });
    });
    is(Wrong::UnmarkedGap, |e, _| drop(e.entries.remove(2)));
    is(Wrong::FalseGap, |e, _| e.entries[2].from = 1);
    is(Wrong::FalseGap, |e, _| e.sent.push(sent(2, 5)));
    is(Wrong::FalseGap, |_, r| r.gap_wait_min = 1_000);
    is(Wrong::Invented, |e, _| e.entries[1].payload = 7);
    is(Wrong::Stuck, |e, _| e.leftovers.push("something waits".into()));
}

#[test]
fn what_is_wrong_with_workers_is_seen() {
    let is = |wrong: Wrong, change: fn(&mut Evidence, &mut Rules)| {
        assert!(said(change).contains(&wrong), "{wrong:?}: {:?}", said(change));
    };
    is(Wrong::Lost, |e, _| drop(e.runs.remove(3)));
    is(Wrong::Lost, |e, _| e.runs[3].is_nacked = true);
    is(Wrong::Duplicated, |e, _| e.runs.push(run(3, Order::Strict, 50)));
    is(Wrong::Reordered, |e, _| e.runs.swap(0, 1));
    is(Wrong::Reordered, |e, _| {
        e.runs[1].answer = Some(Answer::Fenced);
        e.runs.push(run(1, Order::Strict, 50));
    });
    is(Wrong::UnmarkedGap, |e, _| drop(e.runs.remove(2)));
    is(Wrong::Overlap, |e, _| e.runs[0].done = Some(25));
    is(Wrong::Invented, |e, _| e.runs[0].payload = 7);
    is(Wrong::FencedAck, |e, _| e.runs[1].term = 11);
    is(Wrong::FencedAck, |e, r| {
        r.suspended = true;
        e.runs[1].term = 11;
        e.runs[0].done = Some(25);
    });
    is(Wrong::FencedAck, |e, _| e.runs[2].worker = 2);
}

#[test]
fn what_may_happen_is_not_held_against_anybody() {
    // An answer that was not heard, and the same again from the next owner.
    let again = |e: &mut Evidence, _: &mut Rules| {
        e.runs[3].answer = None;
        e.runs.push(Run { term: 11, worker: 2, ..run(3, Order::Strict, 50) });
    };
    assert_eq!(said(again), []);
    // A worker that was killed while it handled something.
    let killed = |e: &mut Evidence, _: &mut Rules| {
        (e.runs[3].done, e.runs[3].killed, e.runs[3].answer) = (None, Some(45), None);
        e.runs.push(Run { term: 11, worker: 2, ..run(3, Order::Strict, 50) });
    };
    assert_eq!(said(killed), []);
    // Late, beside; and what was never accepted need not be there.
    let late = |e: &mut Evidence, _: &mut Rules| {
        e.sent.push(sent(2, 950));
        e.entries.push(Entry { stream: Stream::Late, ..entry(2, Order::Late, 951) });
        e.sent.push(Sent { fate: Fate::Rejected, ..sent(9, 950) });
        e.sent.push(Sent { fate: Fate::Unknown, ..sent(8, 950) });
    };
    assert_eq!(said(late), []);
}
