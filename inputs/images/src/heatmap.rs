//! Heat maps over images.

use image::RgbImage;

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
}
