//! Tables of text.

use std::collections::BTreeSet;

use indicatif::HumanCount;

use crate::log::Record;

/// Formats a table of names and values, one pair per line, with aligned values. The last line has no line end.
///
/// ```
/// # use grove_train::log::summary_table;
/// let rows = [("steps", "5,000"), ("eval/loss", "2.4021")].map(|(name, value)| (name.into(), value.into()));
/// assert_eq!(summary_table(&rows), "steps      5,000\neval/loss  2.4021");
/// ```
pub fn summary_table(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:<width$}  {value}")).collect();
    lines.join("\n")
}

/// Formats a horizontal bar of block characters, with a resolution of an eighth of a character. Its length is
/// `fraction` (from 0 to 1) times `width` characters.
///
/// ```
/// # use grove_train::log::bar;
/// assert_eq!([bar(1.0, 3), bar(0.5, 3), bar(0.01, 30)], ["███", "█▌", "▎"]);
/// ```
pub fn bar(fraction: f32, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (fraction * width as f32 * 8.0).round().max(0.0) as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Formats a table of records with a header line and one record per line: step, epoch, and the values of these names,
/// or of all names if none are given. A missing value is a dash. The last line has no line end.
///
/// ```
/// # use grove_train::log::{Record, records_table};
/// let records = [Record::new(900, 1.0, 8.0).with("eval/loss", 2.5), Record::new(1800, 2.0, 16.0)];
/// assert_eq!(records_table(&records, &["eval/loss"]), "
///  step   epoch  eval/loss
///   900  1.0000     2.5000
/// 1,800  2.0000          -"[1..]);
/// ```
pub fn records_table(records: &[Record], names: &[&str]) -> String {
    let every: BTreeSet<&str> = records.iter().flat_map(|record| record.values.keys().map(String::as_str)).collect();
    let names: Vec<&str> = if names.is_empty() { every.into_iter().collect() } else { names.to_vec() };
    let mut rows = vec![["step", "epoch"].into_iter().chain(names.iter().copied()).map(String::from).collect()];
    rows.extend(records.iter().map(|record| {
        let values = names.iter().map(|name| record.get(name).map_or("-".into(), number));
        [HumanCount(record.step).to_string(), number(record.epoch)].into_iter().chain(values).collect::<Vec<_>>()
    }));
    let widths: Vec<usize> = (0..names.len() + 2)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        cells.join("  ")
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats a value with about five digits.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => value.to_string(),
        0.0 => "0".into(),
        _ if !(1e-3..1e9).contains(&size) => format!("{value:.2e}"),
        _ if size < 10.0 => format!("{value:.4}"),
        _ if size < 100.0 => format!("{value:.3}"),
        _ if size < 1000.0 => format!("{value:.2}"),
        _ if value < 0.0 => format!("-{}", HumanCount(size.round() as u64)),
        _ => HumanCount(size.round() as u64).to_string(),
    }
}

/// Removes the characters that XML forbids.
pub(crate) fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}')).collect()
}
