//! What hot functions cost, in instructions: the same on a busy machine and on an idle one. Only in tests.
//!
//! A test starts itself again under valgrind, twice, the second time with twice as many rounds: the difference is what
//! the rounds cost, without the process around them. A figure that is exceeded fails; so does one that has become far
//! too generous, because what was won can be lost again unnoticed.

use std::{env, hint::black_box, process::Command};

use crate::{
    order::{Entity, Epoch, Event, Position, Sequence},
    store::{Offer, Payload},
};

/// Says to a child how many rounds it is to do.
const ROUNDS: &str = "SERIATIM_COST_ROUNDS";
/// So few, because each costs fifty times what it does by itself.
const FEW: u64 = 20;
/// Compilers and libraries differ a little; what is found may be so much above the figure, in a hundred.
const ABOVE_PERCENT: u64 = 10;
/// And so much below.
const BELOW_PERCENT: u64 = 25;
/// Events of a batch in these tests.
pub const EVENTS: u64 = 64;

/// Fails if a round takes more instructions than it took; `test` is the path of the test that calls this.
pub fn is_still<T>(test: &str, took: u64, mut round: impl FnMut() -> T) {
    if let Ok(rounds) = env::var(ROUNDS) {
        for _ in 0..rounds.parse().expect("this module wrote it") {
            black_box(round());
        }
        return;
    }
    let takes = (instructions(test, 2 * FEW) - instructions(test, FEW)) / FEW;
    println!("{test}: {takes} instructions a round, {took} before");
    assert!(
        takes * 100 <= took * (100 + ABOVE_PERCENT),
        "{test} takes {takes} instructions a round and took {took}: make it as cheap as it was, or say why not where \
         the figure stands"
    );
    assert!(
        takes * 100 >= took * (100 - BELOW_PERCENT),
        "{test} takes {takes} instructions a round and took {took}: well done; write the new figure"
    );
}

/// Of a whole process.
fn instructions(test: &str, rounds: u64) -> u64 {
    let mut child = Command::new("valgrind");
    child.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    child.arg(env::current_exe().expect("this is a program")).args([test, "--exact", "--test-threads=1"]);
    let output = child.env(ROUNDS, rounds.to_string()).output();
    let output =
        output.expect("valgrind is needed: run `make test`, which installs it (scripts/install-tools)");
    let said = String::from_utf8_lossy(&output.stderr);
    let collected =
        said.lines().find_map(|line| line.split_once("Collected : ")).map(|(_, count)| count.trim());
    let collected = collected.and_then(|count| count.parse().ok());
    assert!(output.status.success(), "{test} under valgrind: {said}");
    collected.unwrap_or_else(|| panic!("valgrind said nothing about {test}: {said}"))
}

/// Events of as many entities, each in its turn; a fourth of them first ones, a fourth last ones.
pub fn offers() -> Vec<(Offer, u64)> {
    let offer = |number: u64| {
        let event = Event {
            epoch: Epoch::new(0).unwrap(),
            position: Position::Given(Sequence::new(number % 4).unwrap()),
            terminal: number % 4 == 3,
            payload: Payload { kind: "running".into(), attrs: "{}".into(), data: vec![b'x'; 300].into() },
        };
        (
            Offer { entity: Entity::new(&format!("8b2f1c9e-5d7a-4f30-9c61-{number:012}")).unwrap(), event },
            number,
        )
    };
    (0..EVENTS).map(offer).collect()
}
