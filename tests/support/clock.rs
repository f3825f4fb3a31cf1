//! A process whose wall clock a test owns, most of the time a real redis-server.
//!
//! A test of what happens after an hour, or when a clock is set back, can neither wait
//! that long nor set the machine's clock. `clock_shim.c` is preloaded into the server and
//! reads its wall clock from a file, which this type writes: a write to a file is seen
//! by everyone who has mapped it. It is for Linux, as all tests of real processes are.
//!
//! The clock may stand still; the server's event loop goes on by the monotonic clock,
//! and serves everybody as always. But Redis counts much by the wall clock, and that
//! stands still with it. So says the source of 7.0.15; `tests/clock.rs` shows it for
//! timeouts and expiry:
//!
//! - A blocked client (XREAD BLOCK, BLPOP, WAIT) is not released by its timeout. A step
//!   that goes past the timeout releases it within a tenth of a second. A step back, also
//!   that of `run_free`, makes it wait longer by as much.
//! - Keys do not expire; idle times of consumers and pending entries do not grow.
//! - CLIENT PAUSE does not end; idle clients and lost replicas are not disconnected.
//! - Nothing is saved after some seconds, and `appendfsync everysec` does not sync.
//! - SLOWLOG, LATENCY and the statistics of commands see 0 microseconds. A step during
//!   a command counts as time that it took.
//!
//! The limit on the time of a script, and DEBUG SLEEP, are by real time.

use std::{
    env,
    fs::{self, DirBuilder, File},
    ops::Deref,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    time::SystemTime,
};

use seriatim::cli::PrivateRedis;

const SHIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/clock_shim.c");

/// Where the file's two numbers are, in bytes.
const FROZEN_US: u64 = 0;
const OFFSET_US: u64 = 8;

/// The wall clock of whatever is started with its [`environment`](ProcessClock::environment).
pub struct ProcessClock {
    /// Locked from reading a number to writing it.
    file: Mutex<File>,
    folder: PathBuf,
}

impl ProcessClock {
    /// For now it is the real one.
    pub fn new() -> Self {
        let name = format!("seriatim-clock-{:016x}", seriatim::random::Random::from_system().draw());
        let folder = env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&folder).unwrap();
        let file = File::create_new(folder.join("clock")).unwrap();
        file.write_all_at(&[0; 16], 0).unwrap();
        // From here on the folder is removed, whatever fails.
        let clock = ProcessClock { file: Mutex::new(file), folder };
        compile(&clock.folder.join("clock.so"));
        clock
    }

    pub fn environment(&self) -> [(String, String); 2] {
        let path = |name: &str| self.folder.join(name).display().to_string();
        [("LD_PRELOAD".into(), path("clock.so")), ("SERIATIM_CLOCK".into(), path("clock"))]
    }

    /// The loader only warns of a library that it does not find.
    pub fn assert_owned(&self, pid: u32) {
        let loaded = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        let wanted = self.folder.display();
        assert!(loaded.contains("/clock.so"), "{pid} has not loaded {wanted}/clock.so: a space in it?");
    }

    /// The clock stands still at this moment until the next call.
    pub fn freeze_at(&self, unix_ms: u64) {
        let us = i64::try_from(unix_ms).ok().and_then(|ms| ms.checked_mul(1_000)).expect("a moment of ours");
        assert!(us > 0, "0 means that the clock is not frozen");
        write(&self.file.lock().unwrap(), FROZEN_US, us);
    }

    /// Sets the clock forward, or back, by so much; one that is frozen stays so.
    pub fn step(&self, ms: i64) {
        let file = self.file.lock().unwrap();
        let at = if read(&file, FROZEN_US) == 0 { OFFSET_US } else { FROZEN_US };
        assert!(wall_us(&file) + ms * 1_000 > 0, "the clock would be before 1970");
        write(&file, at, read(&file, at) + ms * 1_000);
    }

    /// The clock goes on: it is the real one again, plus the steps made while it was not
    /// frozen.
    pub fn run_free(&self) {
        write(&self.file.lock().unwrap(), FROZEN_US, 0);
    }

    /// What this wall clock says, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        wall_us(&self.file.lock().unwrap()) as u64 / 1_000
    }
}

impl Drop for ProcessClock {
    /// A server that still runs keeps what it has mapped.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// That of a redis-server.
pub struct RedisClock(ProcessClock);

impl RedisClock {
    /// A server whose clock is, for now, the real one; `extra` are its further arguments.
    pub fn server(extra: &[&str]) -> (RedisClock, PrivateRedis) {
        let clock = ProcessClock::new();
        let wrapper = clock.folder.join("redis-server");
        write_wrapper(&wrapper, &super::redis_program());
        let redis = PrivateRedis::start(&wrapper, extra).expect("redis-server starts with its clock");
        clock.assert_owned(redis.pid());
        (RedisClock(clock), redis)
    }
}

impl Deref for RedisClock {
    type Target = ProcessClock;

    fn deref(&self) -> &ProcessClock {
        &self.0
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the wall clock")]
fn wall_us(file: &File) -> i64 {
    let frozen_us = read(file, FROZEN_US);
    if frozen_us != 0 {
        return frozen_us;
    }
    let real = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    real.as_micros() as i64 + read(file, OFFSET_US)
}

fn read(file: &File, at: u64) -> i64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at).unwrap();
    i64::from_ne_bytes(bytes)
}

fn write(file: &File, at: u64, us: i64) {
    file.write_all_at(&us.to_ne_bytes(), at).unwrap();
}

fn compile(library: &Path) {
    let compiler = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(library).arg(SHIM).output();
    let made = compiler.expect("a C compiler, cc, is needed to give redis-server a clock of its own");
    assert!(made.status.success(), "{SHIM} does not compile:\n{}", String::from_utf8_lossy(&made.stderr));
}

/// Only the server gets the library, not the shell that guards it. The script is written
/// by a process of its own: a file that is open for writing cannot be executed, and
/// whatever another test starts at this moment would hold ours open.
fn write_wrapper(wrapper: &Path, program: &Path) {
    let script = r#"#!/bin/sh
        here=${0%/*}
        exec env LD_PRELOAD="$here/clock.so" SERIATIM_CLOCK="$here/clock" "#;
    let script = format!("{script}'{}' \"$@\"", program.display());
    let write = r#"printf '%s\n' "$1" >"$0" && chmod 700 "$0""#;
    let status = Command::new("sh").args(["-c", write]).arg(wrapper).arg(script).status();
    assert!(status.unwrap().success(), "{} is written", wrapper.display());
}
