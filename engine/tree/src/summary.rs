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

/// Returns a table with one line per leaf (path, type, elements) and a line of totals. Consecutive elements of a sequence
/// that have the same leaves, such as the blocks of a model, share their lines: `h.0-11.attn.weight`. Works on skeletons
/// too.
///
/// ```
/// use grove_tree::{Array, summary};
/// # type B = burn_flex::Flex;
///
/// let layer = || (Array::<B, 2>::absent([4, 2]), Array::<B, 1>::absent([2]));
/// let table = "0-2.0  f32[4,2]  3 x 8\n0-2.1  f32[2]    3 x 2\n30 parameters, 120 B";
/// assert_eq!(summary(&vec![layer(), layer(), layer()]), table);
/// ```
pub fn summary<B: Backend, T: Tree<B>>(tree: &T) -> String {
    let mut rows = Vec::new();
    let (mut params, mut buffers, mut bytes) = (0_usize, 0_usize, 0_usize);
    let mut add = |path: &Path, leaf: &AnyArray<B>| {
        let role = if path.is_buffer() { " (buffer)" } else { "" };
        let segments = path.to_string().split('.').map(str::to_owned).collect();
        rows.push(Row { segments, about: [leaf.to_string(), format!("{}{role}", thousands(leaf.len()))], times: 1 });
        bytes = bytes.saturating_add(bytes_of(leaf));
        let sum = if path.is_buffer() || !leaf.dtype().is_float() { &mut buffers } else { &mut params };
        *sum = sum.saturating_add(leaf.len());
    };
    tree.visit(&mut Path::root(), &mut add);
    let rows: Vec<[String; 3]> = fold(&rows, 0).into_iter().map(Row::cells).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (paths, types, counts) = (width(0), width(1), width(2));
    let mut table = String::new();
    for [path, ty, count] in &rows {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "{path:<paths$}  {ty:<types$}  {count:>counts$}");
    }
    let _ = write!(table, "{} parameters", thousands(params));
    if buffers > 0 {
        let _ = write!(table, ", {} elements of state", thousands(buffers));
    }
    let _ = write!(table, ", {}", format_bytes(bytes));
    table
}

/// A line of the table: a leaf, or the same leaf of consecutive elements of sequences.
#[derive(Clone)]
struct Row {
    segments: Vec<String>,
    /// Type and number of elements of a leaf.
    about: [String; 2],
    /// Number of leaves.
    times: usize,
}

impl Row {
    fn cells(self) -> [String; 3] {
        let [ty, count] = self.about;
        let count = if self.times > 1 { format!("{} x {count}", self.times) } else { count };
        [self.segments.join("."), ty, count]
    }
}

/// Joins the rows of consecutive elements of sequences that have the same leaves. Segments before `depth` are joined
/// already.
fn fold(rows: &[Row], depth: usize) -> Vec<Row> {
    let is_index = |segment: &String| segment.parse::<usize>().is_ok();
    let mut folded = Vec::new();
    let mut rest = rows;
    while let Some(first) = rest.first() {
        let Some(k) = (depth..first.segments.len()).find(|k| is_index(&first.segments[*k])) else {
            folded.push(first.clone());
            rest = &rest[1..];
            continue;
        };
        let in_sequence =
            |row: &Row| row.segments.get(k).is_some_and(is_index) && row.segments[..k] == first.segments[..k];
        let length = rest.iter().take_while(|row| in_sequence(row)).count();
        let elements: Vec<&[Row]> = rest[..length].chunk_by(|a, b| a.segments[k] == b.segments[k]).collect();
        let same = |a: &[Row], b: &[Row]| {
            let inner = |row: &Row| (row.segments[k + 1..].to_vec(), row.about.clone());
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| inner(a) == inner(b))
        };
        for run in elements.chunk_by(|a, b| same(a, b)) {
            let (begin, end) = (&run[0][0].segments[k], &run[run.len() - 1][0].segments[k]);
            let index = if run.len() > 1 { format!("{begin}-{end}") } else { begin.clone() };
            folded.extend(fold(run[0], k + 1).into_iter().map(|mut row| {
                row.segments[k].clone_from(&index);
                row.times *= run.len();
                row
            }));
        }
        rest = &rest[length..];
    }
    folded
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
///
/// ```
/// let sizes = [512, 3 << 9, 1 << 20, 3 << 30].map(grove_tree::format_bytes);
/// assert_eq!(sizes, ["512 B", "1.5 KiB", "1.0 MiB", "3.0 GiB"]);
/// ```
pub fn format_bytes(bytes: usize) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", units[unit]) }
}
