//! Heat maps over images.

use image::{Rgb, RgbImage};

use crate::{
    error::{ImageError, Result},
    filter::Filter,
    resize::resize,
};

/// Colours from the lowest to the highest weight: dark blue, purple, red, yellow.
const STOPS: [[f32; 3]; 4] = [[10.0, 10.0, 60.0], [130.0, 20.0, 110.0], [230.0, 60.0, 40.0], [255.0, 240.0, 90.0]];

/// Draws weights over an image as a translucent heat map, such as the attention of a vision transformer to its patches.
///
/// - `weights`: `[rows, columns]` in row-major order, of any scale; the lowest is drawn dark and the highest bright
/// - `shorter`: minimum size of the result's shorter side in pixels; the image is enlarged by an integer factor
///
/// # Errors
/// The number of weights is not `rows * columns`.
pub fn heatmap(image: &RgbImage, weights: &[f32], [rows, columns]: [u32; 2], shorter: u32) -> Result<RgbImage> {
    let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
    let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let level = |weight: &f32| (255.0 * (weight - least) / (most - least).max(1e-12)).round() as u8;
    let levels = weights.iter().flat_map(|weight| [level(weight); 3]).collect();
    let wrong = || ImageError::BadOption(format!("{} weights are not [{rows}, {columns}]", weights.len()));
    let map = RgbImage::from_raw(columns, rows, levels).ok_or_else(wrong)?;
    let scale = shorter.div_ceil(image.width().min(image.height()).max(1)).max(1);
    let (w, h) = (image.width() * scale, image.height() * scale);
    let (mut drawn, map) = (resize(image, w, h, Filter::Bicubic), resize(&map, w, h, Filter::Bicubic));
    for (pixel, weight) in drawn.pixels_mut().zip(map.pixels()) {
        let heat = colour(f32::from(weight.0[0]) / 255.0);
        for (value, heat) in pixel.0.iter_mut().zip(heat) {
            *value = (0.5 * f32::from(*value) + 0.5 * heat).round() as u8;
        }
    }
    Ok(drawn)
}

/// Margin of the colour scale, thickness of its bar, and size of a dot of its numbers, in pixels.
const MARGIN: u32 = 10;
const BAR: u32 = 14;
const DOT: u32 = 3;
/// Columns and rows of a character of the numbers, in dots.
const GLYPH: [u32; 2] = [3, 5];
/// Height of the colour scale in pixels.
const SCALE: u32 = 3 * MARGIN + BAR + GLYPH[1] * DOT;

/// Draws the colour scale of a [`heatmap`] below the map: the colours from the lowest weight, `least`, to the highest, `most`, and
/// both numbers.
pub fn heatmap_scale(map: &RgbImage, least: f32, most: f32) -> RgbImage {
    let (w, h) = map.dimensions();
    let mut drawn = RgbImage::from_pixel(w, h + SCALE, Rgb([255; 3]));
    for (x, y, pixel) in map.enumerate_pixels() {
        drawn.put_pixel(x, y, *pixel);
    }
    let length = w.saturating_sub(2 * MARGIN);
    for x in 0..length {
        let heat = colour(x as f32 / (length.max(2) - 1) as f32).map(|value| value.round() as u8);
        (0..BAR).for_each(|y| drawn.put_pixel(MARGIN + x, h + MARGIN + y, Rgb(heat)));
    }
    let [left, right] = [least, most].map(|weight| format!("{weight:.4}"));
    let top = h + 2 * MARGIN + BAR;
    write(&mut drawn, &left, MARGIN, top);
    let width = right.len() as u32 * (GLYPH[0] + 1) * DOT;
    write(&mut drawn, &right, w.saturating_sub(MARGIN + width), top);
    drawn
}

/// Writes a number, its upper left corner at a pixel. Parts outside of the image are left out.
fn write(image: &mut RgbImage, number: &str, left: u32, top: u32) {
    let (w, h) = image.dimensions();
    for (i, character) in (0..).zip(number.chars()) {
        for (row, dots) in (0..).zip(glyph(character)) {
            for column in (0..GLYPH[0]).filter(|column| dots >> (GLYPH[0] - 1 - column) & 1 == 1) {
                let (x, y) = (left + (i * (GLYPH[0] + 1) + column) * DOT, top + row * DOT);
                let dot = (y..(y + DOT).min(h)).flat_map(|y| (x..(x + DOT).min(w)).map(move |x| (x, y)));
                dot.for_each(|(x, y)| image.put_pixel(x, y, Rgb([40; 3])));
            }
        }
    }
}

/// Returns the dots of a character of a number, row by row.
fn glyph(character: char) -> [u8; 5] {
    match character {
        '0' => [0b111, 0b101, 0b101, 0b101, 0b111],
        '1' => [0b010, 0b110, 0b010, 0b010, 0b111],
        '2' => [0b111, 0b001, 0b111, 0b100, 0b111],
        '3' => [0b111, 0b001, 0b111, 0b001, 0b111],
        '4' => [0b101, 0b101, 0b111, 0b001, 0b001],
        '5' => [0b111, 0b100, 0b111, 0b001, 0b111],
        '6' => [0b111, 0b100, 0b111, 0b101, 0b111],
        '7' => [0b111, 0b001, 0b010, 0b010, 0b010],
        '8' => [0b111, 0b101, 0b111, 0b101, 0b111],
        '9' => [0b111, 0b101, 0b111, 0b001, 0b111],
        '-' => [0, 0, 0b111, 0, 0],
        '.' => [0, 0, 0, 0, 0b010],
        _ => [0; 5],
    }
}

/// Returns the colour of a weight from 0 to 1; each channel is from 0 to 255.
fn colour(weight: f32) -> [f32; 3] {
    let at = weight.clamp(0.0, 1.0) * 3.0;
    let i = (at as usize).min(2);
    let part = at - i as f32;
    [0, 1, 2].map(|c| STOPS[i][c] * (1.0 - part) + STOPS[i + 1][c] * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_weight_is_brightest() {
        let drawn = heatmap(&RgbImage::new(4, 2), &[0.2, 0.4], [1, 2], 8).expect("two weights");
        assert_eq!(drawn.dimensions(), (16, 8));
        assert_eq!((drawn.get_pixel(0, 0).0, drawn.get_pixel(15, 7).0), ([5, 5, 30], [128, 120, 45]));
        assert!(heatmap(&RgbImage::new(4, 2), &[0.2], [1, 2], 8).is_err());
    }

    #[test]
    fn the_scale_has_both_colours_and_both_numbers() {
        let map = RgbImage::from_pixel(448, 300, Rgb([9; 3]));
        let drawn = |least, most| heatmap_scale(&map, least, most);
        let image = drawn(0.001, 0.25);
        assert_eq!((image.dimensions(), image.get_pixel(447, 299).0), ((448, 300 + SCALE), [9; 3]));
        let bar = 300 + MARGIN;
        assert_eq!(image.get_pixel(MARGIN, bar).0.map(f32::from), STOPS[0]);
        assert_eq!(image.get_pixel(447 - MARGIN, bar).0.map(f32::from), STOPS[3]);
        assert_ne!(image, drawn(0.002, 0.25));
        assert_ne!(image, drawn(0.001, 0.75));
        // 0.0010: four zeros of 12 dots, a point and a one of 8; the upper left dot of the first zero.
        let ink = |image: &RgbImage, x: std::ops::Range<u32>| {
            image
                .enumerate_pixels()
                .filter(|(at, y, pixel)| x.contains(at) && *y > bar + BAR && pixel.0 == [40; 3])
                .count()
        };
        assert_eq!(ink(&image, 0..224), (4 * 12 + 1 + 8) * (DOT * DOT) as usize);
        assert_eq!(image.get_pixel(MARGIN, 300 + 2 * MARGIN + BAR).0, [40; 3]);
        assert_eq!(
            heatmap_scale(&RgbImage::new(5, 5), -1.0, 1.0).dimensions(),
            (5, 5 + SCALE),
            "a map of a few pixels"
        );
    }
}
