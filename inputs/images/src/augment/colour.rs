//! Blending of an image with a degraded version of itself, as in Pillow's `ImageEnhance`.

use image::{Rgb, RgbImage};

use crate::preprocess::luma;

/// Computes `from + factor * (to - from)`, truncated to an integer level. A factor over 1 extrapolates beyond `to`.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (f32::from(from), f32::from(to));
    // `as` clamps the result to 0 to 255.
    (from + factor * (to - from)) as u8
}

/// Applies a function to each pixel.
pub(super) fn map(image: &RgbImage, change: impl Fn([u8; 3]) -> [u8; 3]) -> RgbImage {
    let mut changed = image.clone();
    for pixel in changed.pixels_mut() {
        pixel.0 = change(pixel.0);
    }
    changed
}

/// Adjusts the brightness: 0 gives black, 1 the image.
pub(super) fn brightness(image: &RgbImage, factor: f32) -> RgbImage {
    map(image, |pixel| pixel.map(|level| blend(0, level, factor)))
}

/// Adjusts the contrast: 0 gives the image's mean grey, 1 the image.
pub(super) fn contrast(image: &RgbImage, factor: f32) -> RgbImage {
    let count = image.pixels().len().max(1) as f64;
    let sum: u64 = image.pixels().map(|p| u64::from(luma(p.0))).sum();
    let mean = (sum as f64 / count + 0.5) as u8;
    map(image, |pixel| pixel.map(|level| blend(mean, level, factor)))
}

/// Adjusts the saturation: 0 gives a grey image, 1 the image.
pub(super) fn saturation(image: &RgbImage, factor: f32) -> RgbImage {
    map(image, |pixel| {
        let grey = luma(pixel);
        pixel.map(|level| blend(grey, level, factor))
    })
}

/// Adjusts the sharpness: 0 gives a smoothed image, 1 the image, larger factors a sharper one.
pub(super) fn sharpness(image: &RgbImage, factor: f32) -> RgbImage {
    let mut sharp = smooth(image);
    for (pixel, original) in sharp.pixels_mut().zip(image.pixels()) {
        for (level, &to) in pixel.0.iter_mut().zip(&original.0) {
            *level = blend(*level, to, factor);
        }
    }
    sharp
}

/// Applies Pillow's `SMOOTH`: each pixel has weight 5 and its neighbours 1. The outermost pixels are unchanged.
fn smooth(image: &RgbImage) -> RgbImage {
    let (width, height) = image.dimensions();
    let mut smoothed = image.clone();
    for y in 1..height.saturating_sub(1) {
        for x in 1..width.saturating_sub(1) {
            let mut sums = [0u32; 3];
            for (dx, dy) in (0..9).map(|i| (i % 3, i / 3)) {
                let weight = if (dx, dy) == (1, 1) { 5 } else { 1 };
                for (sum, &level) in sums.iter_mut().zip(&image.get_pixel(x + dx - 1, y + dy - 1).0) {
                    *sum += weight * u32::from(level);
                }
            }
            // Integer division with rounding: 6 is half of the divisor 13.
            smoothed.put_pixel(x, y, Rgb(sums.map(|sum| ((sum + 6) / 13) as u8)));
        }
    }
    smoothed
}
