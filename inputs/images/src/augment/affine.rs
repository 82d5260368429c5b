//! Affine transformations with nearest-neighbour sampling.

use image::{Rgb, RgbImage, imageops};

/// Samples each pixel at `(a·x + b·y + c, d·x + e·y + f)`, in Pillow's fixed-point arithmetic with 16 fractional bits.
/// Pixels outside the image are `fill`.
pub(super) fn affine(image: &RgbImage, [a, b, c, d, e, f]: [f64; 6], fill: [u8; 3]) -> RgbImage {
    let (width, height) = image.dimensions();
    // `as` saturates values beyond 64 bits.
    let fixed = |v: f64| (v * 65536.0 + 0.5).floor() as i64;
    let (across, down) = ([fixed(a), fixed(d)], [fixed(b), fixed(e)]);
    // The centre of the first pixel.
    let start = [fixed(c + a * 0.5 + b * 0.5), fixed(f + d * 0.5 + e * 0.5)];
    let at = |i: usize, x: u32, y: u32| {
        start[i]
            .saturating_add(down[i].saturating_mul(i64::from(y)))
            .saturating_add(across[i].saturating_mul(i64::from(x)))
            >> 16
    };
    RgbImage::from_fn(width, height, |x, y| {
        let inside = |i: usize, side: u32| u32::try_from(at(i, x, y)).ok().filter(|&place| place < side);
        match (inside(0, width), inside(1, height)) {
            (Some(x), Some(y)) => *image.get_pixel(x, y),
            _ => Rgb(fill),
        }
    })
}

/// Shears horizontally: row y moves by `amount · y`; the top row is fixed.
pub(super) fn shear_x(image: &RgbImage, amount: f64, fill: [u8; 3]) -> RgbImage {
    affine(image, [1.0, amount, 0.0, 0.0, 1.0, 0.0], fill)
}

/// Shears vertically: column x moves by `amount · x`; the leftmost column is fixed.
pub(super) fn shear_y(image: &RgbImage, amount: f64, fill: [u8; 3]) -> RgbImage {
    affine(image, [1.0, 0.0, 0.0, amount, 1.0, 0.0], fill)
}

/// Translates to the right and down.
pub(super) fn translate(image: &RgbImage, right: f64, down: f64, fill: [u8; 3]) -> RgbImage {
    affine(image, [1.0, 0.0, -right, 0.0, 1.0, -down], fill)
}

/// Rotates counterclockwise about the centre by `degrees`.
pub(super) fn rotate(image: &RgbImage, degrees: f64, fill: [u8; 3]) -> RgbImage {
    let (width, height) = image.dimensions();
    // Multiples of 90 degrees that only move pixels are exact.
    match degrees.rem_euclid(360.0) {
        0.0 => return image.clone(),
        180.0 => return imageops::rotate180(image),
        90.0 if width == height => return imageops::rotate270(image),
        270.0 if width == height => return imageops::rotate90(image),
        _ => {}
    }
    let angle = -degrees.rem_euclid(360.0).to_radians();
    let (sin, cos) = angle.sin_cos();
    let (x, y) = (f64::from(width) / 2.0, f64::from(height) / 2.0);
    affine(image, [cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y], fill)
}
