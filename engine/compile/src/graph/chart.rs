//! Costs as SVG bar charts.

use std::fmt::Write;

use super::{
    Cost, OperationCost, PathCosts,
    cost::{Short, shown},
};

/// Height of a row in pixels.
const ROW: usize = 22;

/// Width of a character of a label in pixels.
const CHARACTER: usize = 8;

/// Width of the longest bar in pixels.
const BAR: usize = 220;

/// Width of a column of bars and their labels in pixels.
const COLUMN: usize = BAR + 130;

/// A column of bars: name, colour, and the value of a row.
struct Column(&'static str, &'static str, fn(&OperationCost) -> u128);

impl Cost {
    /// Returns an SVG image with bars for the FLOPs and the bytes moved of each operation.
    pub fn to_svg(&self) -> String {
        let peak = Short(self.peak_bytes).to_string();
        svg(&format!("Cost by operation, peak memory {} bytes", peak.trim()), &self.by_operation, self.total)
    }
}

impl PathCosts {
    /// Returns an SVG image with bars for each path, as [`Cost::to_svg`].
    pub fn to_svg(&self) -> String {
        let rows: Vec<_> = self.paths.iter().map(|(path, cost)| (shown(path).to_owned(), *cost)).collect();
        svg("Cost by path", &rows, self.total)
    }
}

/// Draws rows with a name and bars for FLOPs and bytes.
fn svg(title: &str, rows: &[(String, OperationCost)], total: OperationCost) -> String {
    let label = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default() * CHARACTER + 24;
    let (width, height) = (label + 2 * COLUMN + 10, (rows.len() + 2) * ROW + 20);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let mut text = |x: usize, row: usize, look: &str, content: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{}\"{look}>{}</text>", row * ROW + 20, escaped(content));
    };
    text(12, 0, " font-weight=\"bold\"", title);
    let columns = [Column("FLOPs", "#4c72b0", |cost| cost.flops), Column("bytes moved", "#dd8452", |cost| cost.bytes)];
    for (i, (name, _)) in rows.iter().enumerate() {
        text(label - 8, i + 2, " text-anchor=\"end\" font-family=\"monospace\"", name);
    }
    for (column, Column(name, _, value)) in columns.iter().enumerate() {
        let x = label + column * COLUMN;
        text(x, 1, " fill=\"#555\"", &format!("{name}, {} in total", Short(value(&total)).to_string().trim()));
    }
    for (column, Column(_, colour, value)) in columns.iter().enumerate() {
        let x = label + column * COLUMN;
        let largest = rows.iter().map(|(_, cost)| value(cost)).max().unwrap_or_default().max(1) as f64;
        let whole = value(&total).max(1) as f64;
        for (i, (_, cost)) in rows.iter().enumerate() {
            let (value, top) = (value(cost), (i + 2) * ROW + 7);
            let length = value as f64 / largest * BAR as f64;
            let (percent, middle) = (value as f64 / whole * 100.0, top + 13);
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{top}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/>\n<text x=\"{:.1}\" \
                 y=\"{middle}\" font-size=\"11\" fill=\"#333\">{} ({percent:.1} %)</text>",
                ROW - 6,
                x as f64 + length + 5.0,
                Short(value).to_string().trim(),
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
