//! Rules about who may use whom, found in `use` declarations and in paths within code.
//! Only `src/` is bound by them; tests may touch anything.

use super::{Violation, source::Source};

/// Areas of `src/` and those they may not import. The arrows of the house run from the
/// program down to the rules: main, cli, server, grpc and web, ingest and deliver and
/// operate, store, order.
const MAY_NOT_IMPORT: [(&str, &[&str]); 8] = [
    ("store", &["ingest", "deliver", "operate", "grpc", "web", "server", "cli", "config"]),
    ("ingest", &["deliver", "grpc", "web", "server", "cli"]),
    ("deliver", &["ingest", "grpc", "web", "server", "cli"]),
    ("operate", &["grpc", "web", "server", "cli"]),
    ("grpc", &["server", "cli"]),
    ("web", &["server", "cli"]),
    ("server", &["cli"]),
    ("client", &["server", "web", "ingest", "deliver", "operate", "store", "order", "cli", "config"]),
];

/// What would make the rules impure.
const ORDER_MAY_NOT_USE: [&str; 11] = [
    "tokio",
    "redis",
    "tonic",
    "serde",
    "rand",
    "bytes",
    "std::time",
    "std::net",
    "std::fs",
    "std::thread",
    "std::env",
];

/// The store; and the bench's baselines, which publish and read past it as users would.
const REDIS_IN: [&str; 5] = [
    "src/store/",
    "src/cli/bench/direct.rs",
    "src/cli/bench/delivery.rs",
    "src/cli/bench/memory.rs",
    "src/cli/bench/pieces.rs",
];
const GENERATED_TYPES_IN: [&str; 4] = ["src/grpc/", "src/client/", "src/cli/", "src/lib.rs"];
const CLOCK_READ_IN: [&str; 2] = ["src/clock.rs", "src/cli/"];

pub fn check(source: &Source) -> Vec<Violation> {
    if !source.is_rust() || !source.is_under("src/") {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for Used { line, path } in used_paths(&source.code) {
        for (rule, why) in wrong_with(source, &path) {
            violations.push(Violation { path: source.path.clone(), line, rule, why });
        }
    }
    violations.dedup();
    violations
}

/// A path that the code names.
struct Used {
    line: usize,
    path: String,
}

fn wrong_with(source: &Source, path: &str) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let area = area_of(&source.path);
    let ours = ours(source, path);
    let is_in = |places: &[&str]| places.iter().any(|place| source.is_under(place));

    if area == "order" {
        if ours.as_deref().is_some_and(|module| module != "order") {
            wrong.push(("imports", format!("order imports nothing of ours ({path})")));
        }
        if let Some(banned) = ORDER_MAY_NOT_USE.iter().find(|banned| begins_with(path, banned)) {
            wrong.push(("pure", format!("order is without I/O, clock and randomness: no {banned} ({path})")));
        }
    }
    let may_not =
        MAY_NOT_IMPORT.iter().find(|(name, _)| *name == area).map_or(&[][..], |(_, modules)| modules);
    if let Some(module) = ours.as_deref().filter(|module| may_not.contains(module)) {
        wrong.push(("imports", format!("{area} may not import {module} ({path})")));
    }
    if begins_with(path, "redis") && !is_in(&REDIS_IN) {
        wrong.push(("redis", format!("redis stops at src/store/ ({path})")));
    }
    let is_generated = ours.as_deref() == Some("pb") || begins_with(path, "pb");
    if is_generated && !is_in(&GENERATED_TYPES_IN) {
        wrong.push(("generated", format!("types of the wire stop at src/grpc/ ({path})")));
    }
    let reads_clock = ["Instant::now", "SystemTime::now"].iter().any(|read| ends_with(path, read));
    if reads_clock && !is_in(&CLOCK_READ_IN) {
        wrong
            .push(("clock", format!("the clock is read in src/clock.rs only; time is an argument ({path})")));
    }
    wrong
}

/// `src/store/redis/link.rs` belongs to `store`, `src/clock.rs` to `clock`.
fn area_of(path: &str) -> &str {
    let inside = path.strip_prefix("src/").unwrap_or(path);
    inside.split(['/', '.']).next().unwrap_or(inside)
}

/// The top module of this crate that the path leads into, if it is a path of ours.
fn ours(source: &Source, path: &str) -> Option<String> {
    let mut module = modules_of(&source.path);
    let mut parts = path.split("::").peekable();
    match *parts.peek()? {
        "crate" | "seriatim" => {
            parts.next();
            module.clear();
        }
        "self" | "super" => {
            while let Some(part) = parts.next_if(|part| *part == "self" || *part == "super") {
                if part == "super" {
                    module.pop();
                }
            }
        }
        _ => return None,
    }
    module.into_iter().chain(parts).next().map(str::to_owned)
}

/// The modules a file lies in; `mod.rs` and the crate's roots are their folder.
fn modules_of(path: &str) -> Vec<&str> {
    let inside = path.strip_prefix("src/").unwrap_or(path).trim_end_matches(".rs");
    let mut modules: Vec<&str> = inside.split('/').collect();
    if matches!(modules.last(), Some(&"mod" | &"lib" | &"main")) {
        modules.pop();
    }
    modules
}

fn begins_with(path: &str, opening: &str) -> bool {
    path.strip_prefix(opening).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn ends_with(path: &str, ending: &str) -> bool {
    path.strip_suffix(ending).is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
}

/// All paths of the code: declared ones in full, however they are grouped, and those
/// written where they are used.
fn used_paths(code: &str) -> Vec<Used> {
    let mut used = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let rest = &code[at..];
        let length = rest.find(|c: char| !is_of_path(c)).unwrap_or(rest.len());
        let (word, line) = (&rest[..length], 1 + code[..at].matches('\n').count());
        if word == "use" {
            let end = rest.find(';').unwrap_or(rest.len());
            // `use` within an inline module: `super` is the file itself.
            let is_inline = !code[..at].ends_with('\n') && code[..at].lines().last().is_some_and(is_indented);
            expand(&rest[length..end], "", line, &mut |line, path| {
                let path =
                    if is_inline { path.strip_prefix("super::").unwrap_or(&path).to_owned() } else { path };
                used.push(Used { line, path });
            });
            at += end;
        } else {
            if word.contains("::") {
                used.push(Used { line, path: word.trim_matches(':').to_owned() });
            }
            at += length.max(rest.chars().next().map_or(1, char::len_utf8));
        }
    }
    used
}

fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == ':'
}

fn is_indented(line: &str) -> bool {
    line.starts_with(' ')
}

/// Tells every path of a tree like `a::{b, c::{d, e as f}}`, with the line it ends on.
fn expand(tree: &str, before: &str, line: usize, tell: &mut impl FnMut(usize, String)) {
    let mut line = line;
    for branch in branches(tree) {
        let blank = branch.len() - branch.trim_start().len();
        line += branch[..blank].matches('\n').count();
        let name = branch.trim().trim_start_matches("::");
        if let Some((opening, inner)) = name.split_once('{') {
            let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
            expand(inner, &format!("{before}{}", opening.trim()), line, tell);
        } else if !name.is_empty() {
            let name = name.split_whitespace().next().unwrap_or(name);
            tell(line, format!("{before}{name}"));
        }
        line += branch[blank..].matches('\n').count();
    }
}

/// Splits at the commas that are not within inner braces.
fn branches(tree: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0, 0, Vec::new());
    for (at, c) in tree.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&tree[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tree[from..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrong;

    /// What is wrong with this code in that file; the code begins on line 2.
    fn wrong_in(path: &str, code: &str) -> Vec<String> {
        wrong(path, &format!("//! A.\n{code}\n"))
    }

    #[test]
    fn grouped_declarations_are_found_in_full_and_on_their_line() {
        let code = "use std::{\n    fmt,\n    time::{self, Instant as I},\n};\nlet a = b::C::d();";
        let used: Vec<_> =
            used_paths(code).iter().map(|used| format!("{} {}", used.line, used.path)).collect();
        assert_eq!(used, ["2 std::fmt", "3 std::time::self", "3 std::time::Instant", "5 b::C::d"]);
    }

    #[test]
    fn order_imports_nothing_of_ours() {
        assert_eq!(
            wrong_in("src/order/a.rs", "use crate::{\n    order::Lane,\n    store::Store,\n};"),
            ["4 imports"]
        );
        assert_eq!(wrong_in("src/order/a.rs", "use super::super::metrics::Count;"), ["2 imports"]);
        assert_eq!(wrong_in("src/order/mod.rs", "use super::clock;"), ["2 imports"]);
        assert_eq!(wrong_in("src/order/a.rs", "fn a(b: crate::metrics::Count) {}"), ["2 imports"]);
        let allowed = "use super::lane::Lane;\nuse crate::order::Verdict;\nmod tests {\n    use super::*;\n}";
        assert!(wrong_in("src/order/a.rs", allowed).is_empty());
        assert!(wrong_in("src/order/mod.rs", "mod tests {\n    use super::*;\n}").is_empty());
    }

    #[test]
    fn order_is_pure() {
        for banned in ORDER_MAY_NOT_USE.iter().filter(|banned| **banned != "redis") {
            assert_eq!(wrong_in("src/order/a.rs", &format!("use {banned}::A;")), ["2 pure"], "{banned}");
            assert_eq!(
                wrong_in("src/order/a.rs", &format!("let a = {banned}::a();")),
                ["2 pure"],
                "{banned}"
            );
        }
        assert_eq!(wrong_in("src/order/a.rs", "use std::{fmt, fs};"), ["2 pure"]);
        assert!(wrong_in("src/order/a.rs", "use std::{fmt, sync::Arc};\nlet bytes = a.bytes();").is_empty());
    }

    #[test]
    fn imports_run_downwards_only() {
        for (area, modules) in MAY_NOT_IMPORT {
            for module in modules {
                let code = format!("use crate::{module}::A;");
                assert_eq!(wrong_in(&format!("src/{area}/a.rs"), &code), ["2 imports"], "{area} {module}");
                assert_eq!(wrong_in(&format!("src/{area}.rs"), &code), ["2 imports"], "{area} {module}");
            }
        }
        assert_eq!(wrong_in("src/store/redis/a.rs", "use super::super::super::cli::A;"), ["2 imports"]);
        assert!(wrong_in("src/ingest/a.rs", "use crate::{order::A, store::B};").is_empty());
        assert!(wrong_in("src/cli/a.rs", "use crate::{server::A, grpc::B};").is_empty());
    }

    #[test]
    fn redis_stops_at_the_store() {
        assert_eq!(wrong_in("src/ingest/a.rs", "use redis::Value;"), ["2 redis"]);
        assert_eq!(wrong_in("src/cli/a.rs", "let a = ::redis::cmd(b);"), ["2 redis"]);
        assert_eq!(wrong_in("src/order/a.rs", "use redis::Value;"), ["2 pure", "2 redis"]);
        assert!(wrong_in("src/store/redis/a.rs", "use ::redis::{Cmd, Value};").is_empty());
        assert!(wrong_in("src/ingest/a.rs", "// not redis::Value\nuse crate::store::redis::A;").is_empty());
        assert!(wrong_in("tests/a.rs", "use redis::Value;").is_empty());
        for baseline in &REDIS_IN[1..] {
            assert!(wrong_in(baseline, "use redis::Value;").is_empty(), "{baseline}");
        }
        assert_eq!(wrong_in("src/cli/bench/publish.rs", "use redis::Value;"), ["2 redis"]);
    }

    #[test]
    fn generated_types_stop_at_the_wire() {
        for code in ["use crate::pb::Event;", "let a = pb::Event::default();", "use crate::{pb, clock};"] {
            assert_eq!(wrong_in("src/ingest/a.rs", code), ["2 generated"], "{code}");
            for allowed in ["src/grpc/a.rs", "src/client/a.rs", "src/cli/a.rs", "src/lib.rs"] {
                assert!(wrong_in(allowed, code).is_empty(), "{code} in {allowed}");
            }
        }
    }

    #[test]
    fn the_clock_is_read_in_one_place() {
        let reads = [
            "Instant::now()",
            "std::time::Instant::now()",
            "tokio::time::Instant::now()",
            "SystemTime::now()",
        ];
        for read in reads {
            let code = format!("let a = {read};");
            assert_eq!(wrong_in("src/ingest/a.rs", &code), ["2 clock"], "{read}");
            assert!(wrong_in("src/clock.rs", &code).is_empty() && wrong_in("src/cli/a.rs", &code).is_empty());
        }
        assert!(wrong_in("src/ingest/a.rs", "fn a(now: std::time::Instant) {}").is_empty());
    }
}
