//! Blending a picture with a poorer version of itself, as Pillow's `ImageEnhance` does.

use image::{Rgb, RgbImage};

use crate::preprocess::luma;

/// `from + factor * (to - from)`, cut off to whole grey levels. A factor over 1 leads beyond `to`.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    let (from, to) = (f32::from(from), f32::from(to));
    // `as` holds the result within 0 to 255.
    (from + factor * (to - from)) as u8
}

fn map(image: &RgbImage, change: impl Fn([u8; 3]) -> [u8; 3]) -> RgbImage {
    let mut changed = image.clone();
    for pixel in changed.pixels_mut() {
        pixel.0 = change(pixel.0);
    }
    changed
}

/// 0 gives black, 1 the picture.
pub(super) fn brightness(image: &RgbImage, factor: f32) -> RgbImage {
    map(image, |pixel| pixel.map(|level| blend(0, level, factor)))
}

/// 0 gives the picture's mean grey, 1 the picture.
pub(super) fn contrast(image: &RgbImage, factor: f32) -> RgbImage {
    let count = image.pixels().len().max(1) as f64;
    let sum: u64 = image.pixels().map(|p| u64::from(luma(p.0))).sum();
    let mean = (sum as f64 / count + 0.5) as u8;
    map(image, |pixel| pixel.map(|level| blend(mean, level, factor)))
}

/// 0 gives a grey picture, 1 the picture.
pub(super) fn saturation(image: &RgbImage, factor: f32) -> RgbImage {
    map(image, |pixel| {
        let grey = luma(pixel);
        pixel.map(|level| blend(grey, level, factor))
    })
}

/// 0 gives a smoothed picture, 1 the picture, more a sharper one.
pub(super) fn sharpness(image: &RgbImage, factor: f32) -> RgbImage {
    let mut sharp = smooth(image);
    for (pixel, original) in sharp.pixels_mut().zip(image.pixels()) {
        for (level, &to) in pixel.0.iter_mut().zip(&original.0) {
            *level = blend(*level, to, factor);
        }
    }
    sharp
}

/// Pillow's `SMOOTH`: each pixel with a weight of 5 and its neighbours with 1. The outermost pixels stay.
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
            // Half of 13 is rounded up by its own half, 6.
            smoothed.put_pixel(x, y, Rgb(sums.map(|sum| ((sum + 6) / 13) as u8)));
        }
    }
    smoothed
}
