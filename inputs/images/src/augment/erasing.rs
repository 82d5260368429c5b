//! Erasing a random rectangle.

use rand::{Rng, RngExt};
use rand_distr::StandardNormal;

use super::{is_range, sample_sides};
use crate::error::{ImageError, Result};

/// Random erasing: overwrites a rectangle of the normalised image (Zhong et al. 2017,
/// <https://arxiv.org/abs/1708.04896>; torchvision's `RandomErasing`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomErasing {
    /// Probability of erasing, 0 to 1.
    pub p: f64,
    /// Minimum and maximum area of the rectangle, as fractions of the image's area.
    pub scale: (f64, f64),
    /// Minimum and maximum height ÷ width.
    pub ratio: (f64, f64),
    /// Value of the erased pixels; `None` for standard normal noise. After normalisation, 0 is the mean colour.
    pub value: Option<f32>,
}

impl Default for RandomErasing {
    /// torchvision's defaults: probability 0.5, area 0.02 to 0.33, ratio 0.3 to 3.3, value 0.
    fn default() -> Self {
        Self { p: 0.5, scale: (0.02, 0.33), ratio: (0.3, 3.3), value: Some(0.0) }
    }
}

impl RandomErasing {
    /// Erases in place; `pixels` is `[c, h, w]`.
    ///
    /// # Errors
    /// The length is not `c * h * w`, or a scale or ratio is not positive.
    pub fn apply(&self, pixels: &mut [f32], [c, h, w]: [usize; 3], rng: &mut (impl Rng + ?Sized)) -> Result<()> {
        let needed = c.checked_mul(h).and_then(|n| n.checked_mul(w));
        if needed != Some(pixels.len()) {
            let reason = format!("RandomErasing: {} values are not [{c}, {h}, {w}]", pixels.len());
            return Err(ImageError::BadOption(reason));
        }
        if !is_range(self.scale) || !is_range(self.ratio) {
            return Err(ImageError::BadOption(format!("{self:?}: scale and ratio must be positive and ascending")));
        }
        if rng.random::<f64>() >= self.p || pixels.is_empty() {
            return Ok(());
        }
        for _ in 0..10 {
            let [rows, columns] = sample_sides((h * w) as f64, self.scale, self.ratio, rng).map(|side| side as usize);
            if rows >= h || columns >= w {
                continue;
            }
            let top = rng.random_range(0..=h - rows);
            let left = rng.random_range(0..=w - columns);
            for plane in pixels.chunks_exact_mut(h * w) {
                for row in plane.chunks_exact_mut(w).skip(top).take(rows) {
                    for pixel in &mut row[left..left + columns] {
                        *pixel = self.value.unwrap_or_else(|| rng.sample(StandardNormal));
                    }
                }
            }
            break;
        }
        Ok(())
    }
}
