//! What is measured: each scenario compares a few systems, and varies one thing from the base
//! (in order, one event a message on a stream over TCP, no persistence, layout `entry`, 1,024
//! in flight).

use super::{
    load::{ENDLESS, LIFETIME, Shape},
    pace::Pace,
    pieces::Piece,
    rig::{Layout, Persistence, Transport},
};

/// Events unanswered in a closed loop.
pub const WINDOW: u64 = 1024;
/// The same for JetStream with an expected sequence.
pub const EXPECTED_WINDOW: u64 = 256;
/// Unary calls in flight.
pub const UNARY: usize = 128;
/// Live entities where nothing else is said: 4,096 in each of 16 partitions.
pub const LIVE: u64 = 65_536;
/// Fewer where events come late, so that a late one comes well before it is given up.
const LIVE_LATE: u64 = 16_384;
/// With four events nothing can be eight places late.
const LIFETIME_LATE: u64 = 16;
/// Events of a call whose pieces are looked at.
pub const PIECES_BATCH: usize = 64;
const PER_SECOND: u64 = 20_000;

const BASE: Shape = Shape { live: LIVE, lifetime: LIFETIME, late_percent: 0, zipf: false, seed: 0 };

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum System {
    /// Pipelines of `XADD` on a socket.
    Raw { batch: u64, persistence: Persistence },
    /// One `XADD` an event through redis-rs.
    Direct { pace: Pace },
    /// The sidecar.
    Sidecar(Sidecar),
    /// The store without a sidecar.
    Commit { layout: Layout, batch: usize },
    /// What the store sends, without what judges it.
    Pieces { layout: Layout, upto: Piece },
    /// Deliveries to a worker.
    Consumer { layout: Layout },
    /// A loop of `XREADGROUP` and `XACK`.
    PlainLoop,
    /// What is held in memory.
    Memory { layout: Layout },
    /// NATS JetStream.
    JetStream { guard: Guard },
    /// A program of the kind users write.
    Python,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sidecar {
    pub layout: Layout,
    pub transport: Transport,
    pub persistence: Persistence,
    pub shape: Shape,
    pub how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    Stream(Pace),
    Unary,
}

/// How JetStream recognises what it has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// By an id, for two minutes. Nothing keeps order.
    MessageId,
    /// By the sequence that the subject's last message must have.
    ExpectedSequence,
}

/// A system under the name by which goals and reports know it.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: String,
    pub system: System,
    /// What it is compared with; the scenario's first system if nothing is said.
    pub beside: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub about: &'static str,
    /// Measured unless a selection says otherwise.
    pub is_default: bool,
    pub systems: Vec<Named>,
}

impl Scenario {
    /// What a system is compared with.
    pub fn reference<'a>(&'a self, named: &'a Named) -> &'a str {
        named.beside.as_deref().unwrap_or(&self.systems[0].name)
    }
}

/// Names that goals and the rules for void repetitions refer to.
pub const RAW: &str = "raw XADD";
pub const REDIS_RS: &str = "redis-rs XADD";
pub const ENTRY: &str = "seriatim";
pub const BATCH: &str = "seriatim, layout batch";
pub const MESSAGE_ID: &str = "JetStream, message id";
pub const EXPECTED: &str = "JetStream, expected sequence";
pub const PYTHON: &str = "Python, by hand";
pub const PLAIN_LOOP: &str = "XREADGROUP and XACK";

const BASE_RUN: Sidecar = Sidecar {
    layout: Layout::Entry,
    transport: Transport::Tcp,
    persistence: Persistence::Nothing,
    shape: BASE,
    how: How::Stream(Pace::Closed { window: WINDOW }),
};

fn named(name: impl Into<String>, system: System) -> Named {
    Named { name: name.into(), system, beside: None }
}

fn sidecar(name: impl Into<String>, sidecar: Sidecar) -> Named {
    named(name, System::Sidecar(sidecar))
}

/// In as many pipelines as there are connections, a window altogether.
fn raw(persistence: Persistence) -> Named {
    named(RAW, System::Raw { batch: WINDOW / super::raw::CONNECTIONS as u64, persistence })
}

fn both_layouts(run: Sidecar) -> [Named; 2] {
    [sidecar(ENTRY, run), sidecar(BATCH, Sidecar { layout: Layout::Batch, ..run })]
}

/// All scenarios, with so many live entities in those that do not vary them.
pub fn all(live: u64) -> Vec<Scenario> {
    let mut all = with_usual_load();
    for named in all.iter_mut().flat_map(|scenario| &mut scenario.systems) {
        if let System::Sidecar(sidecar) = &mut named.system
            && sidecar.shape.live == LIVE
        {
            sidecar.shape.live = live;
        }
    }
    all
}

fn with_usual_load() -> Vec<Scenario> {
    let closed = Pace::Closed { window: WINDOW };
    let base = [raw(Persistence::Nothing), named(REDIS_RS, System::Direct { pace: closed })];
    let peers = [
        named(MESSAGE_ID, System::JetStream { guard: Guard::MessageId }),
        named(EXPECTED, System::JetStream { guard: Guard::ExpectedSequence }),
        named(PYTHON, System::Python),
    ];
    vec![
        Scenario {
            name: "base",
            about: "events in order, 1,024 in flight, beside what people would do otherwise",
            is_default: true,
            systems: base.into_iter().chain(both_layouts(BASE_RUN)).chain(peers).collect(),
        },
        Scenario {
            name: "commit",
            about: "the store alone, 16, 64 and 256 events a call, four calls in flight",
            is_default: true,
            systems: [16, 64, 256].into_iter().flat_map(commit).collect(),
        },
        Scenario {
            name: "pieces",
            about: "what the store sends for 64 events a call, piece by piece, until all of it is there",
            is_default: true,
            systems: pieces(),
        },
        Scenario {
            name: "late",
            about: "1, 10 and 50 % of the events 1 to 8 places late, 16 events an entity",
            is_default: true,
            systems: [0, 1, 10, 50].into_iter().map(late).collect(),
        },
        Scenario {
            name: "entities",
            about: "more and more live entities",
            is_default: true,
            systems: [10_000, 1_000, 100_000, 1_000_000].into_iter().map(entities).collect(),
        },
        Scenario {
            name: "zipf",
            about: "one entity in 65,536 has 9 % of the events, the next half of that, and so on",
            is_default: true,
            systems: vec![
                sidecar("evenly", BASE_RUN),
                sidecar(
                    "zipf",
                    Sidecar { shape: Shape { zipf: true, lifetime: ENDLESS, ..BASE }, ..BASE_RUN },
                ),
            ],
        },
        Scenario {
            name: "transport",
            about: "the same over a Unix domain socket, and with one unary call an event, 128 in flight",
            is_default: true,
            systems: vec![
                sidecar("stream, TCP", BASE_RUN),
                sidecar("stream, UDS", Sidecar { transport: Transport::Uds, ..BASE_RUN }),
                sidecar("unary, TCP", Sidecar { how: How::Unary, ..BASE_RUN }),
                sidecar("unary, UDS", Sidecar { how: How::Unary, transport: Transport::Uds, ..BASE_RUN }),
            ],
        },
        persistent("everysec", "Redis with appendfsync everysec", Persistence::Everysec, true),
        persistent("always", "Redis with appendfsync always", Persistence::Always, false),
        open_loop(
            "latency",
            "an open loop at 20,000 events/s, latency from when each was due",
            PER_SECOND,
            true,
        ),
        open_loop("slow", "the same at 5,000 events/s", PER_SECOND / 4, false),
        open_loop("fast", "the same at 60,000 events/s", 3 * PER_SECOND, false),
        Scenario {
            name: "delivery",
            about: "deliveries to a worker, beside a plain loop that keeps order with one consumer",
            is_default: true,
            systems: vec![
                named(PLAIN_LOOP, System::PlainLoop),
                named(ENTRY, System::Consumer { layout: Layout::Entry }),
                named(BATCH, System::Consumer { layout: Layout::Batch }),
            ],
        },
        Scenario {
            name: "memory",
            about: "what 100,000 open entities take, in Redis and in the sidecar",
            is_default: true,
            systems: vec![
                named(ENTRY, System::Memory { layout: Layout::Entry }),
                named(BATCH, System::Memory { layout: Layout::Batch }),
            ],
        },
    ]
}

fn commit(batch: usize) -> [Named; 3] {
    let raw = System::Raw { batch: batch as u64, persistence: Persistence::Nothing };
    let ours = |layout| System::Commit { layout, batch };
    let systems = [(RAW, raw), (ENTRY, ours(Layout::Entry)), (BATCH, ours(Layout::Batch))];
    let beside = Some(format!("{RAW} {batch}"));
    systems.map(|(name, system)| Named { beside: beside.clone(), ..named(format!("{name} {batch}"), system) })
}

fn pieces() -> Vec<Named> {
    let mut systems =
        vec![named(RAW, System::Raw { batch: PIECES_BATCH as u64, persistence: Persistence::Nothing })];
    for (name, layout) in [(ENTRY, Layout::Entry), (BATCH, Layout::Batch)] {
        for upto in Piece::ALL {
            systems
                .push(named(format!("{}: {}", layout.name(), upto.name()), System::Pieces { layout, upto }));
        }
        systems.push(named(name, System::Commit { layout, batch: PIECES_BATCH }));
    }
    systems
}

fn late(percent: u64) -> Named {
    let name = if percent == 0 { "in order".to_owned() } else { format!("{percent} % late") };
    let shape = Shape { live: LIVE_LATE, lifetime: LIFETIME_LATE, late_percent: percent, ..BASE };
    sidecar(name, Sidecar { shape, ..BASE_RUN })
}

fn entities(live: u64) -> Named {
    let name = format!("{} live entities", super::super::output::grouped(live));
    sidecar(name, Sidecar { shape: Shape { live, ..BASE }, ..BASE_RUN })
}

fn persistent(
    name: &'static str,
    about: &'static str,
    persistence: Persistence,
    is_default: bool,
) -> Scenario {
    let ours = both_layouts(Sidecar { persistence, ..BASE_RUN });
    Scenario { name, about, is_default, systems: [raw(persistence)].into_iter().chain(ours).collect() }
}

fn open_loop(name: &'static str, about: &'static str, per_second: u64, is_default: bool) -> Scenario {
    let pace = Pace::Open { per_second };
    let ours = both_layouts(Sidecar { how: How::Stream(pace), ..BASE_RUN });
    let systems = [named(REDIS_RS, System::Direct { pace })].into_iter().chain(ours).collect();
    Scenario { name, about, is_default, systems }
}

impl System {
    /// The layout that the store must know for it.
    pub fn layout(&self) -> Option<Layout> {
        match self {
            System::Sidecar(Sidecar { layout, .. })
            | System::Commit { layout, .. }
            | System::Consumer { layout }
            | System::Memory { layout } => Some(*layout),
            System::Raw { .. }
            | System::Direct { .. }
            | System::Pieces { .. }
            | System::PlainLoop
            | System::JetStream { .. }
            | System::Python => None,
        }
    }

    /// About how many seconds a run takes that measures for so long.
    pub fn about_seconds(&self, measured: f64) -> f64 {
        const START: f64 = 1.0;
        const EVENTS_PER_SECOND: f64 = 100_000.0;
        let before = match self {
            System::Sidecar(sidecar) if sidecar.shape.lifetime != ENDLESS => {
                sidecar.shape.live as f64 * (sidecar.shape.lifetime - 1) as f64 / 2.0 / EVENTS_PER_SECOND
            }
            System::Memory { .. } | System::Consumer { .. } | System::PlainLoop => 3.0,
            _ => 0.0,
        };
        // What was published is read back in about half the time.
        let read_back = if self.layout().is_some() { before + measured / 2.0 } else { 0.0 };
        START + before + 1.25 * measured + read_back
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_every_scenario_has_something_to_compare() {
        let all = all(LIVE);
        assert_eq!(all.iter().map(|scenario| scenario.name).collect::<HashSet<_>>().len(), all.len());
        for Scenario { name, systems, .. } in all {
            let names: HashSet<_> = systems.iter().map(|named| &named.name).collect();
            assert!(names.len() == systems.len() && systems.len() > 1, "{name}");
        }
    }

    #[test]
    fn live_entities_can_be_chosen_where_they_are_not_what_varies() {
        let live = |all: Vec<Scenario>, name: &str| -> Vec<u64> {
            let scenario = all.into_iter().find(|scenario| scenario.name == name).unwrap();
            let of = |named: Named| match named.system {
                System::Sidecar(sidecar) => Some(sidecar.shape.live),
                _ => None,
            };
            scenario.systems.into_iter().filter_map(of).collect()
        };
        assert_eq!(live(all(LIVE), "base"), [LIVE, LIVE]);
        assert_eq!(live(all(500), "base"), [500, 500]);
        assert_eq!(live(all(500), "entities"), live(all(LIVE), "entities"));
    }

    /// 3 repetitions of 2 seconds on two cores.
    #[test]
    fn the_default_selection_takes_less_than_half_an_hour() {
        let selected = all(LIVE).into_iter().filter(|scenario| scenario.is_default);
        let seconds =
            selected.flat_map(|scenario| scenario.systems).map(|named| named.system.about_seconds(2.0));
        let all = 3.0 * seconds.sum::<f64>();
        assert!(all < 1800.0, "{all}");
    }
}
