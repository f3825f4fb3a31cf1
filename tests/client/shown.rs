//! The README's example is the one in the module's documentation, which is compiled.

const README: &str = include_str!("../../README.md");
const MODULE: &str = include_str!("../../src/client/mod.rs");

#[test]
fn the_readme_shows_what_compiles() {
    let (_, after) = README.split_once("```rust\n").expect("the README has an example");
    let (example, _) = after.split_once("```").unwrap();
    let documented: Vec<&str> = MODULE
        .lines()
        .filter_map(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let documented = documented.join("\n");
    assert!(documented.contains(example.trim_end()), "not in src/client/mod.rs:\n{example}");
}
