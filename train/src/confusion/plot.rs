//! SVG image of a confusion matrix.

use plotters::{
    drawing::IntoDrawingArea,
    element::{Rectangle, Text},
    prelude::SVGBackend,
    style::{
        Color, FontTransform, IntoFont, RGBColor, TextStyle, WHITE,
        text_anchor::{HPos, Pos, VPos},
    },
};
use std::error::Error;
use unicode_width::UnicodeWidthChar;

use super::shortened;
use crate::log::{INK, printable, with_dark_colors};

/// Colour of a cell with all examples of its row. Other cells let the background through.
const FULL: RGBColor = RGBColor(0, 114, 178);
/// Space for the title and the name of an axis, and the margin, in pixels.
const TITLE: i32 = 36;
const AXIS: i32 = 28;
const MARGIN: i32 = 16;
/// Minimum width of the image: that of the title.
const WIDTH: i32 = 220;
/// Space between a name and the cells, in pixels.
const GAP: i32 = 8;
/// Total size of the cells, and the minimum and maximum size of a cell, in pixels.
const CELLS: i32 = 800;
const SMALLEST: i32 = 12;
const LARGEST: i32 = 110;
/// Minimum size of a cell that shows its count, and of one that shows its percentage too, in pixels.
const WITH_NUMBER: i32 = 26;
const WITH_PERCENTAGE: i32 = 40;
/// Maximum length of a name, in characters, before it is shortened.
const LETTERS: usize = 30;

pub(super) fn svg(labels: &[String], counts: &[Vec<usize>]) -> Result<String, Box<dyn Error>> {
    let n = labels.len() as i32;
    let cell = (CELLS / n.max(1)).clamp(SMALLEST, LARGEST);
    let letters = (cell * 2 / 5).clamp(9, 18);
    let longest = labels.iter().map(|label| width(&short(label))).fold(0.0, f64::max);
    let names = (longest * f64::from(letters)).ceil() as i32 + 2 * GAP;
    let (left, top) = (MARGIN + AXIS + names, TITLE + AXIS + names);
    let size = ((left + n * cell + MARGIN).max(WIDTH) as u32, (top + n * cell + MARGIN) as u32);
    let mut image = String::new();
    {
        let root = SVGBackend::with_string(&mut image, size).into_drawing_area();
        root.fill(&WHITE)?;
        let sized = |letters: i32, color: &RGBColor, horizontal: HPos| {
            let style: TextStyle<'static> = ("sans-serif", letters).into_font().color(color);
            style.pos(Pos::new(horizontal, VPos::Center))
        };
        let style = |color: &RGBColor, horizontal: HPos| sized(letters, color, horizontal);
        // Vertical, so that names fit narrow columns.
        let upright = |letters: i32, horizontal: HPos| {
            let font = ("sans-serif", letters).into_font().transform(FontTransform::Rotate270);
            let style: TextStyle<'static> = font.color(&INK);
            style.pos(Pos::new(horizontal, VPos::Center))
        };
        let write = |text: String, at: (i32, i32), style: TextStyle<'static>| root.draw(&Text::new(text, at, style));
        let middle = n * cell / 2;
        write("Confusion matrix".into(), (MARGIN, TITLE / 2), sized(18, &INK, HPos::Left))?;
        write("predicted class".into(), (left + middle, TITLE + AXIS / 2), sized(14, &INK, HPos::Center))?;
        write("actual class".into(), (MARGIN + AXIS / 2, top + middle), upright(14, HPos::Center))?;
        for (row, label) in (0..).zip(labels) {
            let middle = row * cell + cell / 2;
            write(short(label), (left - GAP, top + middle), style(&INK, HPos::Right))?;
            write(short(label), (left + middle, top - GAP), upright(letters, HPos::Left))?;
        }
        for (row, counts) in (0..).zip(counts) {
            let all: usize = counts.iter().sum();
            for (column, &count) in (0..).zip(counts) {
                let part = if all == 0 { 0.0 } else { count as f64 / all as f64 };
                let (x, y) = (left + column * cell, top + row * cell);
                root.draw(&Rectangle::new([(x, y), (x + cell - 1, y + cell - 1)], FULL.mix(part).filled()))?;
                root.draw(&Rectangle::new([(x, y), (x + cell - 1, y + cell - 1)], INK.mix(0.15)))?;
                if cell >= WITH_NUMBER && count > 0 {
                    let ink = if part > 0.5 { &WHITE } else { &INK };
                    let with_percentage = cell >= WITH_PERCENTAGE;
                    let height = if with_percentage { cell * 2 / 5 } else { cell / 2 };
                    let count = count.to_string();
                    let fitting = (0.9 * f64::from(cell) / width(&count)) as i32;
                    write(count, (x + cell / 2, y + height), sized(letters.min(fitting), ink, HPos::Center))?;
                    if with_percentage {
                        let percentage = format!("{:.0} %", 100.0 * part);
                        write(
                            percentage,
                            (x + cell / 2, y + cell * 7 / 10),
                            sized((letters * 2 / 3).max(9), ink, HPos::Center),
                        )?;
                    }
                }
            }
        }
        root.present()?;
    }
    Ok(with_dark_colors(image))
}

/// Estimates the width of a text, relative to the size of the font. Fonts without serifs differ; this is a wide one.
fn width(text: &str) -> f64 {
    let width_of = |letter: char| match letter {
        'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | ' ' | '.' | ',' | ':' | ';' | '\'' | '(' | ')' | '-' | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1.0,
        'A'..='Z' => 0.76,
        letter if letter.width() == Some(2) => 1.0,
        _ => 0.64,
    };
    text.chars().map(width_of).sum()
}

/// Shortens a name and removes characters that XML forbids.
fn short(label: &str) -> String {
    printable(&shortened(label, LETTERS + 1))
}
