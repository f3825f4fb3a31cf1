//! Inputs that nobody would send on purpose, for every decoder. Only in tests.
//!
//! Random bytes are refused by the first look of most decoders, so what is tried is nearly
//! right: a valid input in which a few things are changed. A case is made from its seed
//! alone; one that fails prints the command that repeats it. Each decoder's cases are in a
//! file `fuzz.rs` beside it.

use std::{env, fs};

use crate::random::Random;

/// Cases of each decoder, unless `SERIATIM_FUZZ_RUNS` says otherwise.
const RUNS: u64 = 10_000;
/// What cases make grow the whole process by, at most: no input makes a decoder take more.
const MEMORY_GROWTH_MAX_KIB: u64 = 256 << 10;
/// Characters of what is said about an input that is refused.
pub const MESSAGE_CHARS_MAX: usize = 1_000;

/// Where numbers break: ends of types, and 2^53, where ours end.
const EDGES: [&str; 16] = [
    "0",
    "1",
    "-1",
    "+1",
    "00",
    "",
    "65536",
    "4294967295",
    "4294967296",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999",
];

/// What separates and ends things in our texts, and what is no text at all.
const PIECES: [&[u8]; 27] = [
    b":",
    b";",
    b",",
    b"-",
    b"|",
    b"!",
    b" ",
    b"\n",
    b"\0",
    b"\xff",
    b"\xc3",
    "\u{e9}".as_bytes(),
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b"=",
    b"#",
    b".",
    b"k1,1,1",
    b";m3-4",
    b"seriatim.",
    b"\\u0000",
    b"\x80\x80\x80\x01",
    b"null",
];

/// Runs a case many times, each time with other randomness.
pub fn cases(what: &str, mut case: impl FnMut(&mut Random)) {
    let (start, runs) =
        (number_from_env("SERIATIM_FUZZ_SEED", 1), number_from_env("SERIATIM_FUZZ_RUNS", RUNS));
    let before = peak_memory_kib();
    for seed in start..start + runs {
        let mut repeat = Repeat { what, seed };
        case(&mut Random::from_seed(seed));
        repeat.seed = 0;
    }
    // Threads are counted late: a peak may be told a little lower than before.
    let grown = peak_memory_kib().saturating_sub(before);
    println!("fuzz {what}: {runs} cases from seed {start}, the peak of memory grew by {grown} KiB");
    assert!(grown <= MEMORY_GROWTH_MAX_KIB, "{what}: memory grew by {grown} KiB");
}

/// Says how a case is repeated if it panics.
struct Repeat<'a> {
    what: &'a str,
    /// 0 once it is over.
    seed: u64,
}

impl Drop for Repeat<'_> {
    fn drop(&mut self) {
        let Repeat { what, seed } = self;
        if *seed != 0 {
            println!(
                "{what}: repeat with SERIATIM_FUZZ_SEED={seed} SERIATIM_FUZZ_RUNS=1 cargo test --lib fuzz"
            );
        }
    }
}

fn number_from_env(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
}

fn peak_memory_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("there is a proc file system");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("the peak is told");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("it is a number")
}

/// Whoever is refused is told why, in bounded words.
pub fn check_message(message: &str) {
    let chars = message.chars().count();
    assert!(!message.trim().is_empty(), "refused without a word");
    assert!(
        chars <= MESSAGE_CHARS_MAX,
        "refused with {chars} characters: {}",
        message.chars().take(80).collect::<String>()
    );
}

/// How often inputs were taken and refused. A decoder that only ever does one of the two is
/// not tried by its cases.
#[derive(Default)]
pub struct Seen {
    taken: u64,
    refused: u64,
}

impl Seen {
    pub fn count(&mut self, is_taken: bool) {
        *(if is_taken { &mut self.taken } else { &mut self.refused }) += 1;
    }

    pub fn check(&self, what: &str) {
        let Seen { taken, refused } = self;
        println!("fuzz {what}: {taken} taken, {refused} refused");
        // One case that is repeated sees one of the two.
        assert!(taken + refused < RUNS || (*taken > 0 && *refused > 0), "{what}: the cases are blind");
    }
}

pub fn percent(random: &mut Random, chance: u64) -> bool {
    random.below(100) < chance
}

pub fn index(random: &mut Random, length: usize) -> usize {
    usize::try_from(random.below(length as u64)).expect("it is an index")
}

pub fn pick<'a, T>(random: &mut Random, choices: &'a [T]) -> &'a T {
    &choices[index(random, choices.len())]
}

/// A number of any size: small ones as often as huge ones.
pub fn number(random: &mut Random) -> u64 {
    let bits = random.below(64);
    random.draw() >> bits
}

/// A number that an epoch or a sequence can be.
pub fn small_number(random: &mut Random) -> u64 {
    number(random) & crate::order::NUMBER_MAX
}

/// Any text, mostly short.
pub fn text(random: &mut Random) -> String {
    let mut bytes = Vec::new();
    for _ in 0..random.below(6) {
        match random.below(3) {
            0 => bytes.extend(*pick(random, &PIECES)),
            1 => bytes.extend_from_slice(pick(random, &EDGES).as_bytes()),
            _ => bytes.extend((0..random.below(9)).map(|_| b"abcxyz019"[index(random, 9)])),
        }
    }
    if percent(random, 1) {
        bytes = bytes.repeat(1 + index(random, 2_000));
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A valid input, hardly changed to much.
pub fn damaged(random: &mut Random, valid: impl Into<Vec<u8>>) -> Vec<u8> {
    let mut bytes = valid.into();
    for _ in 0..random.below(5) {
        damage(random, &mut bytes);
    }
    bytes
}

/// The same of a text, which stays one.
pub fn damaged_text(random: &mut Random, valid: impl Into<Vec<u8>>) -> String {
    String::from_utf8_lossy(&damaged(random, valid)).into_owned()
}

fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    let at = index(random, bytes.len() + 1);
    let end = at + index(random, (bytes.len() - at).min(16) + 1);
    match random.below(9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        1 if at < bytes.len() => bytes[at] = random.draw() as u8,
        2 => drop(bytes.splice(at..at, pick(random, &PIECES).iter().copied())),
        3 => drop(bytes.splice(at..end, pick(random, &PIECES).iter().copied())),
        4 => drop(bytes.drain(at..end)),
        5 => drop(bytes.splice(at..at, bytes[at..end].to_vec())),
        6 => bytes.truncate(at),
        7 if percent(random, 5) => drop(bytes.splice(at..at, bytes[at..end].repeat(4_000))),
        _ => other_number(random, bytes),
    }
}

/// Puts a number that breaks things in the place of one that is there.
fn other_number(random: &mut Random, bytes: &mut Vec<u8>) {
    let begins: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at].is_ascii_digit() && (*at == 0 || !bytes[*at - 1].is_ascii_digit()))
        .collect();
    if begins.is_empty() {
        return;
    }
    let at = *pick(random, &begins);
    let length = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    bytes.splice(at..at + length, pick(random, &EDGES).bytes());
}
