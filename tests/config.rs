//! The configuration reference, `deploy/seriatim.toml`, against the code: the same
//! keys, the same defaults, and a comment above each key.

use std::{collections::BTreeSet, path::Path};

use seriatim::config::{Config, Overrides, load};
use toml::{Table, Value};

const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/seriatim.toml");

#[test]
fn the_reference_says_exactly_the_defaults() {
    let config = load(Some(Path::new(REFERENCE)), &Overrides::default()).expect("the reference is sound");
    assert_eq!(config, Config::default());
}

/// Absent keys would load as well, with their defaults: so the text is read too.
#[test]
fn every_key_is_there_and_explained() {
    let defaults = Table::try_from(Config::default()).expect("the defaults are a table");
    let mut wanted = BTreeSet::new();
    collect_keys("", &defaults, &mut wanted);
    let text = std::fs::read_to_string(REFERENCE).expect("the reference is there");
    let found = keys_with_comments(&text);
    let named: BTreeSet<String> = found.iter().map(|(key, _)| key.clone()).collect();
    assert_eq!(named, wanted, "left: the keys of the reference, right: those of the code");
    let unexplained: Vec<_> = found.iter().filter(|(_, comment)| !is_explained(comment)).collect();
    assert!(unexplained.is_empty(), "not explained: {unexplained:#?}");
}

/// Meaning comes first by habit; the other three are words that can be looked for.
fn is_explained(comment: &str) -> bool {
    ["Default:", "Cost", "Danger"].iter().all(|word| comment.contains(word))
}

fn collect_keys(section: &str, table: &Table, keys: &mut BTreeSet<String>) {
    for (name, value) in table {
        let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        match value {
            Value::Table(inner) => collect_keys(&key, inner, keys),
            _ => drop(keys.insert(key)),
        }
    }
}

/// Each key with the comment block directly above it.
fn keys_with_comments(text: &str) -> Vec<(String, String)> {
    let (mut section, mut comment, mut found) = (String::new(), String::new(), Vec::new());
    for line in text.lines() {
        if let Some(said) = line.strip_prefix('#') {
            comment.push_str(said);
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some((key, _)) = line.split_once(" = ") {
            found.push((format!("{section}{key}"), comment.clone()));
        }
        comment.clear();
    }
    found
}
