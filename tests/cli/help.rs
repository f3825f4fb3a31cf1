//! `--help` of every command: it is there, and every flag has a text.

use crate::program::run;

#[test]
fn every_command_explains_itself_and_its_flags() {
    let mut explained = Vec::new();
    explain(&[], &mut explained);
    for known in [
        "",
        "serve",
        "demo",
        "bench",
        "publish",
        "verify",
        "topic list",
        "topic show",
        "topic delete",
        "doctor",
    ] {
        assert!(explained.iter().any(|path| path == known), "{known:?} is not among {explained:?}");
    }
}

/// Checks a command and all below it.
fn explain(path: &[&str], explained: &mut Vec<String>) {
    explained.push(path.join(" "));
    let help = run(&[path, &["--help"]].concat()).with(0).stdout;
    assert!(help.lines().next().is_some_and(|line| !line.starts_with("Usage")), "{path:?} says what it does");
    for (section, entries) in sections(&help) {
        for Entry { name, text } in entries {
            assert!(!text.is_empty(), "{path:?}: {name} has no help");
            if section == "Commands:" && name != "help" {
                explain(&[path, &[name.as_str()]].concat(), explained);
            }
        }
    }
}

struct Entry {
    /// The command, argument, or flag with its value.
    name: String,
    text: String,
}

/// The indented lists of a help text, under their titles.
fn sections(help: &str) -> Vec<(String, Vec<Entry>)> {
    let mut sections: Vec<(String, Vec<Entry>)> = Vec::new();
    for line in help.lines() {
        if line.ends_with(':') && !line.starts_with(' ') {
            sections.push((line.to_owned(), Vec::new()));
            continue;
        }
        let Some((_, entries)) = sections.last_mut() else { continue };
        let indentation = line.len() - line.trim_start().len();
        if (2..=6).contains(&indentation) {
            let (name, text) = line.trim().split_once("  ").unwrap_or((line.trim(), ""));
            entries.push(Entry { name: name.to_owned(), text: without_notes(text) });
        } else if let Some(entry) = entries.last_mut().filter(|_| indentation > 6) {
            entry.text.push_str(&without_notes(line));
        }
    }
    sections
}

/// Without what is there even if nobody wrote a text.
fn without_notes(text: &str) -> String {
    let text = text.trim();
    if text.starts_with("[default:") { String::new() } else { text.to_owned() }
}

#[test]
fn a_flag_without_help_is_found() {
    let help =
        "Does.\n\nUsage: x\n\nOptions:\n      --a <A>  [default: 1]\n      --b\n          Text\n  -c  Text\n";
    let found = sections(help);
    let texts: Vec<(&str, &str)> = found[0].1.iter().map(|e| (e.name.as_str(), e.text.as_str())).collect();
    assert_eq!(texts, [("--a <A>", ""), ("--b", "Text"), ("-c", "Text")]);
}
