//! How commands show things: tables, JSON, progress.

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// One JSON object on one line.
pub fn print_json(value: &impl Serialize) {
    println!("{}", serde_json::to_string(value).expect("our own types are always JSON"));
}

/// Rows under a head; the first column to the left, the others to the right.
pub fn print_table(head: &[&str], rows: &[Vec<String>]) {
    print!("{}", table(head, rows));
}

/// The same as a text.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let shown = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        shown.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    line(&head) + &rows.iter().map(|row| line(row)).collect::<String>()
}

/// 1234567 as 1,234,567.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// A bar on standard error; nothing where that is not a terminal, or not wanted.
pub fn progress(total: Option<u64>, what: &str, wanted: bool) -> ProgressBar {
    if !wanted {
        return ProgressBar::hidden();
    }
    let (bar, template) = match total {
        Some(total) => {
            (ProgressBar::new(total), "{msg:<12} [{bar:40}] {human_pos}/{human_len}  {per_sec}  {eta}")
        }
        None => (ProgressBar::no_length(), "{msg:<12} {human_pos}  {per_sec}  {elapsed}"),
    };
    let style = ProgressStyle::with_template(template).expect("the template is our own");
    bar.with_style(style.progress_chars("=> ")).with_message(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
