//! Bar chart of the speeds of all programs.

use plotters::prelude::{
    Color, IntoDrawingArea, IntoFont, PathElement, RGBColor, Rectangle, SVGBackend, Text, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

use grove::train::log::with_dark_colors;

use crate::{markdown::time, results::Results};

const WIDTH: u32 = 960;
/// Left end of the bars, in pixels; `UNIT` is the bar length of the fastest peer.
const LEFT: i32 = 300;
const UNIT: f64 = 260.0;
/// Speed at which bars are cut off, relative to the fastest peer.
const LONGEST: f64 = 2.2;
const BAR: i32 = 10;
const GAP: i32 = 10;
const HEADER: i32 = 60;
/// Palette after Okabe and Ito, which colour-blind readers can distinguish.
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(240, 175, 90),
    RGBColor(204, 121, 167),
    RGBColor(0, 158, 115),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];
const INK: RGBColor = RGBColor(51, 51, 51);

/// Returns the chart of the rows that `shows` selects, as SVG.
pub fn draw(results: &Results, shows: impl Fn(&str) -> bool) -> Result<String, Box<dyn Error>> {
    let rows: Vec<_> = results.rows.iter().filter(|row| shows(&row.name)).collect();
    let mut names: Vec<&str> = Vec::new();
    for column in rows.iter().flat_map(|row| &row.columns) {
        if !names.contains(&&*column.name) {
            names.push(&column.name);
        }
    }
    let heights = rows.iter().map(|row| row.columns.len() as i32 * BAR + GAP);
    let height = HEADER + heights.sum::<i32>() + GAP;
    let mut image = String::new();
    {
        let root = SVGBackend::with_string(&mut image, (WIDTH, height as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        let write = |text: &str, at: (i32, i32), size: u32, side: HPos| {
            let style: TextStyle<'_> = ("sans-serif", size).into_font().color(&INK);
            root.draw(&Text::new(text.to_owned(), at, style.pos(Pos::new(side, VPos::Center))))
        };
        write("Speed, where the fastest peer is 1; longer is faster", (GAP, 18), 17, HPos::Left)?;
        let mut x = GAP;
        for (name, color) in names.iter().zip(COLORS.iter().cycle()) {
            root.draw(&Rectangle::new([(x, 36), (x + 14, 48)], color.filled()))?;
            write(name, (x + 20, 42), 14, HPos::Left)?;
            x += 20 + 8 * name.chars().count() as i32 + 20;
        }
        let mut y = HEADER;
        for row in &rows {
            let middle = y + row.columns.len() as i32 * BAR / 2;
            write(&row.name, (LEFT - 10, middle), 13, HPos::Right)?;
            // Without a peer, speeds are relative to grove.
            let peer = row.fastest_peer().map(|(_, peer)| peer);
            let unit = peer.or_else(|| row.grove()?.measured()).map_or(f64::NAN, |measured| measured.median_seconds);
            for (i, column) in row.columns.iter().enumerate() {
                let y = y + i as i32 * BAR;
                let place = names.iter().position(|name| *name == column.name).unwrap_or_default();
                let Some(seconds) = column.measured().map(|measured| measured.median_seconds) else { continue };
                let speed = unit / seconds;
                if !speed.is_finite() {
                    continue;
                }
                let length = (UNIT * speed.min(LONGEST)) as i32;
                let color = COLORS[place % COLORS.len()];
                root.draw(&Rectangle::new([(LEFT, y), (LEFT + length, y + BAR - 1)], color.filled()))?;
                if column.is_grove {
                    let label = format!("{speed:.2}, {}", time(seconds));
                    write(&label, (LEFT + length + 6, y + BAR / 2), 11, HPos::Left)?;
                }
            }
            y += row.columns.len() as i32 * BAR + GAP;
        }
        let one = LEFT + UNIT as i32;
        root.draw(&PathElement::new([(one, HEADER - 6), (one, height - GAP)], INK.mix(0.5)))?;
        root.present()?;
    }
    Ok(with_dark_colors(image))
}
