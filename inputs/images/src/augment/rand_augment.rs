//! RandAugment: a few random operations with the same magnitude.

use image::RgbImage;
use rand::{Rng, RngExt};

use super::ops::{Op, apply_op};
use crate::error::{ImageError, Result};

/// Number of magnitudes.
const BINS: f64 = 31.0;

/// RandAugment: `num_ops` random operations of [`Op::ALL`], each with magnitude `magnitude` (Cubuk et al. 2019,
/// <https://arxiv.org/abs/1909.13719>, in torchvision's variant). The sign of signed operations is random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandAugment {
    /// Number of operations, applied one after the other.
    pub num_ops: usize,
    /// Magnitude, 0 (no change) to 30 (strongest).
    pub magnitude: u32,
    /// Colour of pixels outside the image.
    pub fill: [u8; 3],
}

impl Default for RandAugment {
    /// torchvision's defaults: 2 operations of magnitude 9, black fill.
    fn default() -> Self {
        Self { num_ops: 2, magnitude: 9, fill: [0; 3] }
    }
}

impl RandAugment {
    /// Returns an augmented image.
    ///
    /// # Errors
    /// The magnitude is over 30.
    pub fn apply(&self, image: &RgbImage, rng: &mut (impl Rng + ?Sized)) -> Result<RgbImage> {
        if f64::from(self.magnitude) >= BINS {
            return Err(ImageError::BadOption(format!("RandAugment: magnitude {} is not 0 to 30", self.magnitude)));
        }
        let mut view = image.clone();
        for _ in 0..self.num_ops {
            let op = Op::ALL[rng.random_range(0..Op::ALL.len())];
            let (strength, either_way) = self.strength(op, &view);
            let strength = if either_way && rng.random::<bool>() { -strength } else { strength };
            view = apply_op(&view, op, strength, self.fill);
        }
        Ok(view)
    }

    /// Returns the argument of an operation for this magnitude, and true if its sign is random.
    pub fn strength(&self, op: Op, image: &RgbImage) -> (f64, bool) {
        let part = f64::from(self.magnitude) / (BINS - 1.0);
        match op {
            Op::Identity | Op::AutoContrast | Op::Equalize => (0.0, false),
            Op::ShearX | Op::ShearY => (0.3 * part, true),
            Op::TranslateX => (150.0 / 331.0 * f64::from(image.width()) * part, true),
            Op::TranslateY => (150.0 / 331.0 * f64::from(image.height()) * part, true),
            Op::Rotate => (30.0 * part, true),
            Op::Brightness | Op::Color | Op::Contrast | Op::Sharpness => (0.9 * part, true),
            Op::Posterize => (8.0 - (4.0 * part).round_ties_even(), false),
            Op::Solarize => (255.0 * (1.0 - part), false),
        }
    }
}
