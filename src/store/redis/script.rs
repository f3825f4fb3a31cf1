//! The scripts, each one atomic step.

use std::sync::LazyLock;

use ::redis::{Cmd, cmd};
use sha1_smol::Sha1;

use crate::store::Layout;

pub struct Script {
    source: &'static str,
    sha: LazyLock<String>,
}

macro_rules! script {
    ($($file:literal),+) => {
        Script {
            source: concat!($(include_str!(concat!("../scripts/", $file))),+),
            sha: LazyLock::new(|| {
                let source = concat!($(include_str!(concat!("../scripts/", $file))),+);
                Sha1::from(source).digest().to_string()
            }),
        }
    };
}

/// Most scripts run the rules: the same files, then what is theirs.
macro_rules! rules {
    ($($file:literal),+) => {
        script!("enter.lua", "clock.lua", "lane.lua", "begin.lua", "release.lua", "wait.lua", "pass.lua", $($file),+)
    };
}

/// The fast path comes first, and returns before the rest is even defined. How events come, and
/// how the fast path appends them, is each layout's own.
macro_rules! admit {
    ($fast:literal, $offers:literal) => {
        script!(
            "enter.lua",
            "admit_predict.lua",
            $fast,
            "clock.lua",
            "lane.lua",
            "begin.lua",
            "release.lua",
            "wait.lua",
            "pass.lua",
            $offers,
            "admit_limits.lua",
            "admit_usual.lua",
            "admit.lua",
            "commit.lua",
            "admit_reply.lua"
        )
    };
}

static ADMIT_ENTRY: Script = admit!("admit_fast_entry.lua", "admit_rows.lua");
static ADMIT_BATCH: Script = admit!("admit_fast_batch.lua", "admit_pairs.lua");

/// The script that admits to a topic of this layout.
pub fn admit(layout: Layout) -> &'static Script {
    match layout {
        Layout::Entry => &ADMIT_ENTRY,
        Layout::Batch => &ADMIT_BATCH,
    }
}

/// What judges a transaction. It is sent by its digest: where nobody knows that, the transaction comes to nothing.
pub static STRAIGHT: Script = script!("straight_plain.lua", "straight.lua");
/// The same for a batch with lanes that wait.
pub static STRAIGHT_WAITING: Script = script!("clock.lua", "straight_waiting.lua", "straight.lua");

/// Time asks often, and nearly always in vain: this one, too, begins with what returns before the rules.
pub static ELAPSE: Script = script!(
    "enter.lua",
    "clock.lua",
    "elapse_idle.lua",
    "lane.lua",
    "begin.lua",
    "release.lua",
    "wait.lua",
    "pass.lua",
    "elapse.lua",
    "commit.lua",
    "elapse_reply.lua"
);
pub static EXTEND: Script = rules!("extend.lua", "commit.lua");
pub static SKIP: Script = rules!("skip.lua", "commit.lua", "skip_reply.lua");
pub static MODE: Script = rules!("mode.lua", "commit.lua", "mode_reply.lua");
pub static ANNOUNCE: Script = rules!("announce.lua");
pub static SWEEP: Script = rules!("sweep.lua");
pub static REPAIR: Script = rules!("repair.lua");
/// No rules, but their policy and clock.
pub static TRIM: Script = script!("enter.lua", "clock.lua", "lane.lua", "begin.lua", "trim.lua");
pub static OPEN_TOPIC: Script = script!("open_topic.lua");
pub static OPEN_PARTITION: Script = script!("open_partition.lua");
pub static RESUME: Script = script!("resume.lua");
pub static GROUP_OPEN: Script = script!("last_id.lua", "group_open.lua");
pub static GROUP_LEASE: Script = script!("group_lease.lua");
pub static GROUP_RELEASE: Script = script!("group_release.lua");
pub static GROUP_COMMIT: Script = script!("group_commit.lua");
pub static GROUP_SWEEP: Script = script!("last_id.lua", "group_sweep.lua");
pub static GROUP_WISH: Script = script!("group_wish.lua");
pub static ATTEND: Script = script!("attend.lua");
pub static BEAT: Script = script!("beat.lua");
pub static LEAD: Script = script!("lead.lua");
pub static LEAVE: Script = script!("leave.lua");

impl Script {
    pub fn source(&self) -> &'static str {
        self.source
    }

    pub fn sha(&self) -> &str {
        &self.sha
    }

    /// Does it bring events?
    pub fn admits(&self) -> bool {
        Layout::ALL.into_iter().any(|layout| std::ptr::eq(self, admit(layout)))
    }

    /// Begins a call with its keys; `args` and `bytes` say what will follow.
    pub fn call(&self, keys: &[&str], args: usize, bytes: usize) -> Cmd {
        const HEAD_BYTES: usize = 512;
        let mut call = Cmd::with_capacity(keys.len() + args + 3, bytes + HEAD_BYTES);
        call.arg("EVALSHA").arg(self.sha.as_str()).arg(keys.len());
        for key in keys {
            call.arg(*key);
        }
        call
    }

    /// The same call with the source in place of its digest, for a server that does
    /// not know the script. Running it makes the script known.
    pub fn with_source(&self, call: &Cmd) -> Cmd {
        let mut whole = cmd("EVAL");
        whole.arg(self.source);
        for argument in call.args_iter().skip(2) {
            match argument {
                ::redis::Arg::Simple(bytes) => whole.arg(bytes),
                _ => unreachable!("a script call has no cursor"),
            };
        }
        whole
    }
}
