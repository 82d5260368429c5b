//! Random augmentation of training images. Randomness comes from the caller's generator: the same seed gives the same
//! images.

mod affine;
mod colour;
mod crop;
mod erasing;
mod histogram;
mod jitter;
mod mix;
mod ops;
mod rand_augment;
mod random_affine;
mod train_transform;

use image::{RgbImage, imageops};
use rand::{Rng, RngExt};

use crate::error::Result;

pub use crop::{RandomCrop, RandomResizedCrop};
pub use erasing::RandomErasing;
pub use jitter::{ColorJitter, adjust_hue};
pub use mix::{Mix, Mixed, Rect};
pub use ops::{Op, apply_op};
pub use rand_augment::RandAugment;
pub use random_affine::RandomAffine;
pub use train_transform::{Recipe, TrainTransform};

/// Random horizontal flip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HorizontalFlip {
    /// Probability of flipping, 0 to 1.
    pub p: f64,
}

impl HorizontalFlip {
    /// Returns the image or its mirror image.
    pub fn apply(&self, image: RgbImage, rng: &mut (impl Rng + ?Sized)) -> RgbImage {
        if rng.random::<f64>() < self.p { imageops::flip_horizontal(&image) } else { image }
    }
}

/// One step of an [`Augment`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Step {
    /// See [`RandomResizedCrop`].
    ResizedCrop(RandomResizedCrop),
    /// See [`RandomCrop`].
    Crop(RandomCrop),
    /// See [`HorizontalFlip`].
    Flip(HorizontalFlip),
    /// See [`ColorJitter`].
    Jitter(ColorJitter),
    /// See [`RandAugment`].
    RandAugment(RandAugment),
    /// See [`RandomAffine`].
    Affine(RandomAffine),
}

macro_rules! step_from {
    ($($variant:ident($step:ty)),*) => {$(
        impl From<$step> for Step {
            fn from(step: $step) -> Self {
                Self::$variant(step)
            }
        }
    )*};
}
step_from!(
    ResizedCrop(RandomResizedCrop),
    Crop(RandomCrop),
    Flip(HorizontalFlip),
    Jitter(ColorJitter),
    RandAugment(RandAugment),
    Affine(RandomAffine)
);

/// A sequence of augmentations. The result is the input of
/// [`Preprocessor::normalise`](crate::Preprocessor::normalise).
///
/// ```
/// use grove_images::{RgbImage, augment::{Augment, ColorJitter}};
/// use rand::{SeedableRng, rngs::SmallRng};
///
/// let augment = Augment::training([224, 224]).then(ColorJitter::new(0.4, 0.4, 0.4, 0.1));
/// let image = RgbImage::new(500, 375);
/// let view = augment.apply(&image, &mut SmallRng::seed_from_u64(7))?;
/// assert_eq!(view.dimensions(), (224, 224));
/// # Ok::<(), grove_images::ImageError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Augment {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Augment {
    /// The usual augmentation for training on ImageNet: a [`RandomResizedCrop`] to `size`, `[height, width]`, and a
    /// horizontal flip with probability 0.5.
    pub fn training(size: [u32; 2]) -> Self {
        Self::default().then(RandomResizedCrop::new(size)).then(HorizontalFlip { p: 0.5 })
    }

    /// Adds a step at the end.
    pub fn then(mut self, step: impl Into<Step>) -> Self {
        self.steps.push(step.into());
        self
    }

    /// Applies the steps.
    ///
    /// # Errors
    /// A step has invalid fields, or does not fit the image (a [`RandomCrop`] that is larger than the image).
    pub fn apply(&self, image: &RgbImage, rng: &mut (impl Rng + ?Sized)) -> Result<RgbImage> {
        // If the first step crops, the whole image need not be copied.
        let mut steps = self.steps.iter();
        let mut view = match self.steps.first() {
            Some(Step::ResizedCrop(step)) => {
                steps.next();
                step.apply(image, rng)?
            }
            _ => image.clone(),
        };
        for step in steps {
            view = match step {
                Step::ResizedCrop(step) => step.apply(&view, rng)?,
                Step::Crop(step) => step.apply(&view, rng)?,
                Step::Flip(step) => step.apply(view, rng),
                Step::Jitter(step) => step.apply(&view, rng)?,
                Step::RandAugment(step) => step.apply(&view, rng)?,
                Step::Affine(step) => step.apply(&view, rng)?,
            };
        }
        Ok(view)
    }
}

/// Returns true if a range of areas or aspect ratios is positive and ascending.
fn is_range((low, high): (f64, f64)) -> bool {
    low > 0.0 && low <= high && high.is_finite()
}

/// Samples the sides `[a, b]` of a rectangle, rounded. The fraction of `area` is uniform within `scale`, and `a / b` is
/// uniform within `ratio` on a logarithmic axis.
fn sample_sides(area: f64, scale: (f64, f64), ratio: (f64, f64), rng: &mut (impl Rng + ?Sized)) -> [f64; 2] {
    let area = area * uniform(scale.0, scale.1, rng);
    let ratio = uniform(ratio.0.ln(), ratio.1.ln(), rng).exp();
    [area * ratio, area / ratio].map(|square| square.sqrt().round_ties_even())
}

/// Samples uniformly from `low..=high`; returns `low` if they are equal.
pub(crate) fn uniform(low: f64, high: f64, rng: &mut (impl Rng + ?Sized)) -> f64 {
    low + (high - low) * rng.random::<f64>()
}
