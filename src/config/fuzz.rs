//! Files, variables and flags as a person may write them by mistake. A file is its author's
//! own, so what is said about it may quote its lines, and grows with them.

use super::{
    Config, ConfigError, Overrides,
    load::{load, overlay, table_of},
};
use crate::{
    fuzz::{Seen, cases, damaged_text, index, pick, text},
    store::{lists_text, policy_text},
};

const FILE: &str = include_str!("../../deploy/seriatim.toml");
/// What one byte may become when it is quoted.
const ESCAPED_MAX: usize = 10;
/// What it takes to list the keys there are.
const KEYS_BYTES: usize = 2_000;
/// Lines that a case's file has, of those that are more than comments.
const LINES: usize = 40;

fn check(read: Result<Config, ConfigError>, quoted: usize) -> bool {
    match read {
        Ok(config) => {
            let written = toml::to_string(&config).expect("a configuration can be written");
            let read = overlay(table_of(&written, "itself").unwrap(), &Overrides::default());
            assert_eq!(read.as_ref(), Ok(&config));
            for (name, topic) in &config.topics {
                let policy = topic.spec(name).expect("it was validated").policy;
                assert!(!policy_text(&policy).contains('\n') && !lists_text(&policy).contains('\n'));
            }
            let _ = (config.fleet.forget_after_ms(), config.fleet.lead_ms());
            true
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && said.len() < ESCAPED_MAX * quoted + KEYS_BYTES, "{said}");
            false
        }
    }
}

#[test]
fn files() {
    let lines: Vec<&str> = FILE.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let mut seen = Seen::default();
    cases("configuration, files", |random| {
        let from = index(random, lines.len());
        // A key belongs to the section above it.
        let section = lines[..from].iter().rfind(|line| line.starts_with('['));
        let part = section.into_iter().chain(&lines[from..(from + LINES).min(lines.len())]);
        let valid = part.map(|line| format!("{line}\n")).collect::<String>();
        let file = damaged_text(random, valid);
        let read = table_of(&file, "file").and_then(|table| overlay(table, &Overrides::default()));
        seen.count(check(read, file.len()));
    });
    seen.check("configuration, files");
}

#[test]
fn variables_and_flags() {
    const KEYS: [(&str, &str); 8] = [
        ("threads", "2"),
        ("store.url", "redis://one:1"),
        ("limits.event_bytes", "1000"),
        ("limits.request_bytes", "10000000"),
        ("fleet.orphan_threshold_ms", "90000"),
        ("topics.jobs.partitions", "4"),
        ("topics.jobs.gap_waits_ms", "[10, 20]"),
        ("topics.jobs.terminal_types", "[\"done\"]"),
    ];
    let mut seen = Seen::default();
    cases("configuration, flags", |random| {
        let (key, value) = *pick(random, &KEYS);
        let value = if index(random, 9) == 0 { text(random) } else { damaged_text(random, value) };
        let key = if index(random, 9) == 0 { damaged_text(random, key) } else { key.to_owned() };
        let quoted = key.len() + value.len();
        let name = format!("SERIATIM__{}", key.to_uppercase().replace('.', "__"));
        let both = [
            Overrides { flags: vec![(key, value.clone())], ..Overrides::default() },
            Overrides { environment: vec![(name, value)], ..Overrides::default() },
        ];
        both.iter().for_each(|overrides| seen.count(check(load(None, overrides), quoted)));
    });
    seen.check("configuration, flags");
}
