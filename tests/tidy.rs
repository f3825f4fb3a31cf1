//! The house rules, checked by reading the source: who may import whom, where the clock
//! and Redis may be touched, how long a file may be, and what may not be left behind.
//!
//! All violations are printed at once, one a line, as `path:line: rule: why`. Modules
//! that do not exist yet are named here as well, so that the rules hold from their
//! first line on. What the compiler or clippy can check is not checked here.

#[path = "tidy/imports.rs"]
mod imports;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/text.rs"]
mod text;

use std::{fmt, fs, path::Path};

use source::Source;

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 3] = [".git", "target", "node_modules"];

#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    pub path: String,
    pub line: usize,
    pub rule: &'static str,
    pub why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.why)
    }
}

fn check(source: &Source) -> Vec<Violation> {
    let mut violations = text::check(source);
    violations.extend(imports::check(source));
    violations.sort_by_key(|violation| violation.line);
    violations
}

/// Every text file under `folder`; paths are relative to `root` and use `/`.
fn sources(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
        let entry = entry.expect("a folder of the project can be read");
        let (path, name) = (entry.path(), entry.file_name());
        if SKIPPED.iter().any(|skipped| name == *skipped) {
            continue;
        }
        if path.is_dir() {
            sources(root, &path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let relative = path.strip_prefix(root).expect("it lies under the root");
            found.push(Source::new(&relative.to_string_lossy().replace('\\', "/"), &text));
        }
    }
}

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    sources(root, root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.iter().any(|source| source.path == "src/lib.rs"), "the source was not found");
    let violations: Vec<String> = found.iter().flat_map(check).map(|v| v.to_string()).collect();
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

/// What is wrong with a file of this content, as `line rule`.
#[cfg(test)]
fn wrong(path: &str, text: &str) -> Vec<String> {
    check(&Source::new(path, text)).iter().map(|v| format!("{} {}", v.line, v.rule)).collect()
}

#[test]
fn a_violation_reads_as_path_line_rule_and_why() {
    let source = Source::new("src/store/x.rs", "//! X.\nuse crate::cli::Args;\n");
    let shown: Vec<String> = check(&source).iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["src/store/x.rs:2: imports: store may not import cli (crate::cli::Args)"]);
}
