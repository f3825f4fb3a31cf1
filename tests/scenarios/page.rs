//! What ARCHITECTURE.md says, as far as tests hold it to its word.

use std::{fs, path::PathBuf};

fn page() -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    fs::read_to_string(path).expect("ARCHITECTURE.md is there")
}

/// The cells of all tables whose first column has this title.
fn tables(page: &str, title: &str) -> Vec<Vec<String>> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in page.lines() {
        let Some(cells) = line.strip_prefix('|') else {
            inside = false;
            continue;
        };
        let cells: Vec<String> = cells.split('|').map(|cell| cell.trim().to_owned()).collect();
        if cells[0] == title {
            inside = true;
        } else if inside && !cells[0].starts_with("---") {
            found.push(cells);
        }
    }
    found
}

fn unquoted(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

/// The ids of the rules' rows, in their order.
pub fn rows() -> Vec<String> {
    tables(&page(), "row").iter().map(|cells| unquoted(&cells[0])).collect()
}

/// One line of "Partition of an entity".
pub struct Vector {
    pub entity: String,
    pub hash: String,
    pub of_16: u32,
    pub of_7: u32,
}

pub fn vectors() -> Vec<Vector> {
    let number = |cell: &str| cell.parse().expect("a partition is a number");
    let vector = |cells: &Vec<String>| Vector {
        entity: entity(&unquoted(&cells[0])),
        hash: unquoted(&cells[1]),
        of_16: number(&cells[2]),
        of_7: number(&cells[3]),
    };
    tables(&page(), "entity").iter().map(vector).collect()
}

/// One line of "The schedule's jitter and the rollout's places".
pub struct Spread {
    pub entity: String,
    /// Of 10,000 ms, by attempt.
    pub waits: [u64; 2],
    pub place: u64,
}

pub fn spreads() -> Vec<Spread> {
    let number = |cell: &str| cell.parse().expect("waits and places are numbers");
    let spread = |cells: &Vec<String>| Spread {
        entity: entity(&unquoted(&cells[0])),
        waits: [number(&cells[1]), number(&cells[2])],
        place: number(&cells[3]),
    };
    tables(&page(), "name").iter().map(spread).collect()
}

/// A JSON string, or one and how often it is repeated: `"x" * 256`.
fn entity(cell: &str) -> String {
    let (text, times) = cell.split_once(" * ").unwrap_or((cell, "1"));
    let text: String = serde_json::from_str(text).expect("an entity is written as a JSON string");
    text.repeat(times.parse().expect("a repetition is a number"))
}
