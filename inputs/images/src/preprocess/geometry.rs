//! Position of the crop, and resizing of only the pixels that the crop keeps.

use image::{Rgb, RgbImage, imageops};

use super::{Preprocessor, Resize};
use crate::convention::ResampleCompat;
use crate::decode::Limits;
use crate::error::{ImageError, Result};
use crate::resize::{Region, resize_region};

pub(super) fn prepare(preprocessor: &Preprocessor, image: &RgbImage) -> Result<RgbImage> {
    preprocessor.check()?;
    let (width, height) = image.dimensions();
    if width == 0 || height == 0 {
        return Err(ImageError::BadOption(format!("an image of {width}×{height} pixels cannot be prepared")));
    }
    let resized = resized_size(preprocessor.resize, [height, width]);
    let size = match preprocessor.crop {
        Some(crop) => crop.map(u64::from),
        None => resized,
    };
    let most = Limits::default().max_pixels;
    if size[0].saturating_mul(size[1]) > most {
        let [h, w] = size;
        let advice = "crop it, or resize to an exact size";
        return Err(ImageError::BadOption(format!(
            "{width}×{height} pixels would become {w}×{h}, over {most}: {advice}"
        )));
    }
    let convention = preprocessor.convention;
    let (rows, columns) = (Span::new(resized[0], size[0], convention), Span::new(resized[1], size[1], convention));
    let region = Region { left: columns.from, top: rows.from, width: columns.count, height: rows.count };
    let cropped = resize_region(image, resized, region, preprocessor.filter, convention);
    if [u64::from(rows.count), u64::from(columns.count)] == size {
        return Ok(cropped);
    }
    let mut framed = RgbImage::from_pixel(size[1] as u32, size[0] as u32, Rgb(preprocessor.fill));
    imageops::replace(&mut framed, &cropped, i64::from(columns.border), i64::from(rows.border));
    Ok(framed)
}

/// Returns `[height, width]` after the resize and before the crop.
fn resized_size(resize: Resize, [height, width]: [u32; 2]) -> [u64; 2] {
    // The arithmetic of torchvision and timm, in the same order, so that the same values are rounded.
    let longer = |n: u32, long: u32, short: u32| (u64::from(n) * u64::from(long)) / u64::from(short);
    let scaled = |ratio: f64| [height, width].map(|side| (f64::from(side) / ratio).round_ties_even().max(1.0) as u64);
    match resize {
        Resize::None => [height, width].map(u64::from),
        Resize::Exact { height, width } => [height, width].map(u64::from),
        Resize::Shorter(n) if width <= height => [longer(n, height, width), u64::from(n)],
        Resize::Shorter(n) => [u64::from(n), longer(n, width, height)],
        Resize::Cover { height: h, width: w } => {
            scaled((f64::from(height) / f64::from(h)).min(f64::from(width) / f64::from(w)))
        }
        Resize::Within { height: h, width: w } => {
            scaled((f64::from(height) / f64::from(h)).max(f64::from(width) / f64::from(w)))
        }
    }
}

/// Range of one side that a centre crop keeps, and the padding before it.
struct Span {
    from: u64,
    count: u32,
    border: u32,
}

impl Span {
    fn new(have: u64, want: u64, convention: ResampleCompat) -> Self {
        if have < want {
            return Self { from: 0, count: have as u32, border: ((want - have) / 2) as u32 };
        }
        let over = have - want;
        // Half of an odd number, n + 1/2, is rounded to even.
        let up = convention == ResampleCompat::Torchvision && over % 4 == 3;
        Self { from: over / 2 + u64::from(up), count: want as u32, border: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_halves_like_python() {
        // int(round(n / 2)) of Python: 0.5 → 0, 1.5 → 2, 2.5 → 2, 3.5 → 4; int(n / 2): 0, 1, 2, 3.
        let from = |over: u64, convention| Span::new(224 + over, 224, convention).from;
        assert_eq!([1, 3, 5, 7].map(|over| from(over, ResampleCompat::Torchvision)), [0, 2, 2, 4]);
        assert_eq!([1, 3, 5, 7].map(|over| from(over, ResampleCompat::Transformers)), [0, 1, 2, 3]);
        assert_eq!([2, 4].map(|over| from(over, ResampleCompat::Torchvision)), [1, 2]);
    }

    #[test]
    fn the_longer_side_is_cut_off() {
        // The shorter side is 427: int(256 * 640 / 427) = 383, not int(256 * 427 / 640).
        assert_eq!(resized_size(Resize::Shorter(256), [427, 640]), [256, 383]);
        assert_eq!(resized_size(Resize::Shorter(256), [640, 427]), [383, 256]);
        assert_eq!(resized_size(Resize::Shorter(256), [2, 30000]), [256, 3_840_000]);
    }
}
