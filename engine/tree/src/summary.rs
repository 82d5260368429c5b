use grove_backend::Backend;
use std::fmt::Write as _;

use crate::{AnyArray, Path, Tree};

/// Counts the parameters: elements of floating-point leaves outside `#[tree(buffer)]`, present or absent. Saturates at
/// `usize::MAX`.
pub fn count_params<B: Backend, T: Tree<B>>(tree: &T) -> usize {
    let mut count = 0_usize;
    let mut add = |path: &Path, leaf: &AnyArray<B>| {
        if leaf.dtype().is_float() && !path.is_buffer() {
            count = count.saturating_add(leaf.len());
        }
    };
    tree.visit(&mut Path::root(), &mut add);
    count
}

/// Returns the size of all leaves in bytes, present or absent. Saturates at `usize::MAX`.
pub fn count_bytes<B: Backend, T: Tree<B>>(tree: &T) -> usize {
    let mut bytes = 0_usize;
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| bytes = bytes.saturating_add(bytes_of(leaf)));
    bytes
}

fn bytes_of<B: Backend>(leaf: &AnyArray<B>) -> usize {
    leaf.len().saturating_mul(leaf.dtype().size())
}

/// Returns a table with one line per leaf (path, type, elements) and a line of totals. Works on skeletons too.
pub fn summary<B: Backend, T: Tree<B>>(tree: &T) -> String {
    let mut rows = Vec::new();
    let (mut params, mut buffers, mut bytes) = (0_usize, 0_usize, 0_usize);
    let mut add = |path: &Path, leaf: &AnyArray<B>| {
        let role = if path.is_buffer() { " (buffer)" } else { "" };
        rows.push((path.to_string(), leaf.to_string(), format!("{}{role}", thousands(leaf.len()))));
        bytes = bytes.saturating_add(bytes_of(leaf));
        let sum = if path.is_buffer() || !leaf.dtype().is_float() { &mut buffers } else { &mut params };
        *sum = sum.saturating_add(leaf.len());
    };
    tree.visit(&mut Path::root(), &mut add);
    let width = |column: fn(&(String, String, String)) -> &String| {
        rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0)
    };
    let (paths, types, counts) = (width(|row| &row.0), width(|row| &row.1), width(|row| &row.2));
    let mut table = String::new();
    for (path, ty, count) in &rows {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{path:<paths$}  {ty:<types$}  {count:>counts$}");
    }
    let _ = write!(table, "{} parameters", thousands(params));
    if buffers > 0 {
        let _ = write!(table, ", {} elements of state", thousands(buffers));
    }
    let _ = write!(table, ", {}", size(bytes));
    table
}

/// Formats `1234567` as `1,234,567`.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of bytes in the largest unit that gives a value of at least one.
fn size(bytes: usize) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}
