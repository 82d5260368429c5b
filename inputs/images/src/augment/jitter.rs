//! Random brightness, contrast, saturation and hue.

use image::RgbImage;
use rand::{Rng, seq::SliceRandom};

use super::{colour, uniform};
use crate::error::{ImageError, Result};

/// Changes brightness, contrast, saturation and hue, in random order (torchvision's `ColorJitter` on Pillow images).
///
/// The first three are multiplied by factors from `max(0, 1 − x) ..= 1 + x`; hue is shifted by `−x ..= x` of the
/// colour circle. A strength of 0 disables that change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ColorJitter {
    /// Strength of the brightness change, 0 or more.
    pub brightness: f32,
    /// Strength of the contrast change, 0 or more.
    pub contrast: f32,
    /// Strength of the saturation change, 0 or more.
    pub saturation: f32,
    /// Strength of the hue change, 0 to 0.5.
    pub hue: f32,
}

impl ColorJitter {
    /// Creates a jitter with these four strengths.
    pub fn new(brightness: f32, contrast: f32, saturation: f32, hue: f32) -> Self {
        Self { brightness, contrast, saturation, hue }
    }

    /// Returns the image with changed colours.
    ///
    /// # Errors
    /// A strength is negative or not finite, or the hue is over 0.5.
    pub fn apply(&self, image: &RgbImage, rng: &mut (impl Rng + ?Sized)) -> Result<RgbImage> {
        let strengths = [self.brightness, self.contrast, self.saturation, self.hue];
        if strengths.iter().any(|s| !s.is_finite() || *s < 0.0) || self.hue > 0.5 {
            let reason = format!("{self:?}: strengths must be 0 or more, and hue at most 0.5");
            return Err(ImageError::BadOption(reason));
        }
        let mut order = [0, 1, 2, 3];
        order.shuffle(rng);
        let mut view = image.clone();
        for which in order {
            let strength = f64::from(strengths[which]);
            if strength == 0.0 {
                continue;
            }
            let factor = uniform((1.0 - strength).max(0.0), 1.0 + strength, rng) as f32;
            view = match which {
                0 => colour::brightness(&view, factor),
                1 => colour::contrast(&view, factor),
                2 => colour::saturation(&view, factor),
                _ => adjust_hue(&view, uniform(-strength, strength, rng)),
            };
        }
        Ok(view)
    }
}

/// Shifts the hue of every pixel by `turn`, −0.5 to 0.5 of the colour circle. Uses Pillow's 8-bit HSV, whose rounding
/// changes an image slightly even for a shift of 0.
pub fn adjust_hue(image: &RgbImage, turn: f64) -> RgbImage {
    let shift = (turn * 255.0) as i32;
    colour::map(image, |pixel| {
        let [h, s, v] = to_hsv(pixel);
        to_rgb([(i32::from(h) + shift).rem_euclid(256) as u8, s, v])
    })
}

fn to_hsv([r, g, b]: [u8; 3]) -> [u8; 3] {
    let (low, high) = (r.min(g).min(b), r.max(g).max(b));
    if low == high {
        return [0, 0, high];
    }
    let range = f32::from(high - low);
    let saturation = range / f32::from(high);
    let distance = |level: u8| f32::from(high - level) / range;
    let sixth = if r == high {
        distance(b) - distance(g)
    } else if g == high {
        2.0 + distance(r) - distance(b)
    } else {
        4.0 + distance(g) - distance(r)
    };
    // Single precision as in Pillow: levels are truncated, so the last bit can matter.
    let hue = ((f64::from(sixth) / 6.0 + 1.0) % 1.0) as f32;
    [(f64::from(hue) * 255.0) as u8, (f64::from(saturation) * 255.0) as u8, high]
}

fn to_rgb([h, s, v]: [u8; 3]) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let sixth = f64::from(h) * 6.0 / 255.0;
    let single = |v: f64| f64::from(v as f32);
    let (part, saturation, value) = (single(sixth - sixth.floor()), single(f64::from(s) / 255.0), f64::from(v));
    let p = (value * (1.0 - saturation)).round() as u8;
    let q = (value * (1.0 - saturation * part)).round() as u8;
    let t = (value * (1.0 - saturation * (1.0 - part))).round() as u8;
    match sixth.floor() as u8 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}
