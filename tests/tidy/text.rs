//! Rules about a file as text: how it opens, how long it is, and what it may not hold.

use super::{Violation, source::Source};

const LINES_MAX: usize = 500;
/// The rules of ordering are read more often than anything else.
const ORDER_LINES_MAX: usize = 400;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 5] = ["util", "helpers", "common", "types", "misc"];

/// What may not be left behind, and what to do instead.
const LEFT_BEHIND: [(&str, &str); 4] = [
    ("#[ignore", "a test runs or is deleted"),
    ("todo!(", "finish it or leave it out"),
    ("unimplemented!(", "finish it or leave it out"),
    ("dbg!(", "remove it"),
];

/// Paths of the machine somebody works on. In halves, or this file would break the rule.
const MACHINE_PATHS: [&str; 2] = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
/// What every key begins with, in halves as well.
const KEY_OPENING: &str = concat!("\"seri", "atim:{");

pub fn check(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut add = |line, rule, why: String| {
        violations.push(Violation { path: source.path.clone(), line, rule, why });
    };
    if is_ours(source) {
        if let Some(why) = wrong_opening(source) {
            add(1, "opening", why.to_owned());
        }
        let (lines, max) = (source.text.lines().count(), lines_max(source));
        if lines > max {
            add(lines, "size", format!("{lines} lines, at most {max}: split it by what it is for"));
        }
        if let Some(name) = empty_name_in_path(&source.path) {
            add(1, "name", format!("{name:?} says nothing: name a module after what it does"));
        }
    }
    for (line, code) in (1..).zip(source.code.lines()) {
        for (needle, why) in LEFT_BEHIND {
            if code.contains(needle) {
                add(line, "left behind", format!("{needle}: {why}"));
            }
        }
        if let Some(name) = declared_module(code).filter(|name| EMPTY_NAMES.contains(name)) {
            add(line, "name", format!("{name:?} says nothing: name a module after what it does"));
        }
    }
    for (line, text) in (1..).zip(source.text.lines()) {
        if MACHINE_PATHS.iter().any(|path| begins_a_path(text, path)) {
            add(line, "machine path", "it exists on one machine only".to_owned());
        }
        if is_ours(source) && source.path != "src/store/keys.rs" && text.contains(KEY_OPENING) {
            add(line, "key", "key names are made in src/store/keys.rs only".to_owned());
        }
    }
    violations
}

/// Rust, Lua and C that we wrote.
fn is_ours(source: &Source) -> bool {
    source.is_rust() || source.is_lua() || source.is_c()
}

fn lines_max(source: &Source) -> usize {
    if source.is_under("src/order/") { ORDER_LINES_MAX } else { LINES_MAX }
}

fn wrong_opening(source: &Source) -> Option<&'static str> {
    if source.is_lua() {
        (!source.text.starts_with("--")).then_some("a script opens with `--`: keys, arguments, reply")
    } else if source.is_c() {
        (!source.text.starts_with("/*")).then_some("a file opens with `/*`: what it is for")
    } else {
        (!source.text.starts_with("//!")).then_some("a file opens with `//!`: what it is for")
    }
}

fn empty_name_in_path(path: &str) -> Option<&str> {
    let name_of = |part: &'_ str| EMPTY_NAMES.into_iter().find(|name| part.split('.').next() == Some(name));
    path.split('/').find_map(name_of)
}

/// The module that a line like `pub mod name;` declares.
fn declared_module(code: &str) -> Option<&str> {
    let words: Vec<&str> = code.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let at = words.iter().position(|word| *word == "mod")?;
    words.get(at + 1).copied()
}

/// Does a path in this line begin so? one with something before it begins otherwise.
fn begins_a_path(line: &str, path: &str) -> bool {
    let continues = |c: char| c.is_alphanumeric() || "._-/})$~*".contains(c);
    line.match_indices(path).any(|(at, _)| !line[..at].ends_with(continues))
}

#[cfg(test)]
mod tests {
    use super::{KEY_OPENING, MACHINE_PATHS};
    use crate::wrong;

    #[test]
    fn a_file_opens_by_saying_what_it_is_for() {
        assert_eq!(wrong("src/a.rs", "fn a() {}\n"), ["1 opening"]);
        assert_eq!(wrong("build.rs", "// Not a module's comment.\n"), ["1 opening"]);
        assert_eq!(wrong("tests/a.rs", ""), ["1 opening"]);
        assert_eq!(wrong("src/store/scripts/a.lua", "return 1\n"), ["1 opening"]);
        assert!(wrong("src/store/scripts/a.lua", "-- One.\nreturn 1\n").is_empty());
        assert_eq!(wrong("tests/a.c", "int a;\n"), ["1 opening"]);
        assert!(wrong("tests/a.c", "/* One. */\nint a;\n").is_empty());
        assert!(wrong("README.md", "seriatim\n").is_empty());
    }

    #[test]
    fn files_are_short_and_those_of_the_rules_shorter() {
        let lines = |count: usize| "//!\n".repeat(count);
        assert!(wrong("src/a.rs", &lines(500)).is_empty() && wrong("src/order/a.rs", &lines(400)).is_empty());
        assert_eq!(wrong("src/a.rs", &lines(501)), ["501 size"]);
        assert_eq!(wrong("src/order/a.rs", &lines(401)), ["401 size"]);
    }

    #[test]
    fn module_names_mean_something() {
        assert_eq!(wrong("src/util.rs", "//! A.\n"), ["1 name"]);
        assert_eq!(wrong("src/store/helpers/a.rs", "//! A.\n"), ["1 name"]);
        assert_eq!(wrong("tests/common/mod.rs", "//! A.\n"), ["1 name"]);
        assert_eq!(wrong("src/a.rs", "//! A.\npub mod types {\n}\nmod misc;\n"), ["2 name", "4 name"]);
        assert!(wrong("src/utility.rs", "//! A.\nmod typeset;\n").is_empty());
    }

    #[test]
    fn nothing_is_left_behind() {
        for code in ["#[ignore]", "#[ignore = \"slow\"]", "todo!()", "unimplemented!(\"x\")", "dbg!(a)"] {
            assert_eq!(wrong("tests/a.rs", &format!("//! A.\n{code}\n")), ["2 left behind"], "{code}");
            assert!(wrong("tests/a.rs", &format!("//! {code}\n")).is_empty(), "{code} in a comment");
        }
    }

    #[test]
    fn machine_paths_stay_out_of_every_text() {
        for path in MACHINE_PATHS {
            assert_eq!(wrong("notes.md", &format!("see\n`{path}a`\n")), ["2 machine path"]);
            assert_eq!(wrong("a.toml", &format!("at = \"{path}a\"\n")), ["1 machine path"]);
            assert!(wrong("notes.md", &format!("some{path}a, ${{HOME}}{path}a\n")).is_empty());
        }
    }

    #[test]
    fn keys_are_named_in_one_file() {
        let text = format!("//! A.\nconst A: &str = {KEY_OPENING}a}}\";\n");
        assert_eq!(wrong("src/store/a.rs", &text), ["2 key"]);
        assert_eq!(wrong("tests/a.rs", &text), ["2 key"]);
        assert!(wrong("src/store/keys.rs", &text).is_empty());
    }
}
