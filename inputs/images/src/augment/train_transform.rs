//! Transform of a training image to a model's input: augmentation and preprocessing.

use image::RgbImage;
use rand::Rng;

use super::{
    Augment, ColorJitter, HorizontalFlip, RandAugment, RandomAffine, RandomCrop, RandomErasing, RandomResizedCrop,
};
use crate::{Preprocessor, error::Result};

/// Geometric part of a [`TrainTransform`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recipe {
    /// No augmentation, only the preprocessing.
    None,
    /// Shifts the preprocessed image by up to a tenth of its longer side: for digits and other images that must not be
    /// flipped.
    Shift,
    /// Shifts the preprocessed image by up to an eighth of its longer side, and flips it with probability 0.5: for
    /// CIFAR.
    ShiftFlip,
    /// [`RandomResizedCrop`] instead of the preprocessing's resize and crop, and a flip with probability 0.5: for
    /// photographs.
    #[default]
    Standard,
    /// As [`Standard`](Self::Standard), followed by [`RandAugment`].
    Rand,
}

/// Random transform of a training image, like timm's `create_transform(is_training=True)`: a recipe, colour jitter, an
/// affine transform, the preprocessing's normalisation, and random erasing.
///
/// ```
/// use grove_images::{Preprocessor, RgbImage, augment::{Recipe, TrainTransform}};
/// use rand::{SeedableRng, rngs::SmallRng};
///
/// let transform = TrainTransform { recipe: Recipe::Rand, erasing: 0.25, ..TrainTransform::default() };
/// let (image, preprocessor) = (RgbImage::new(500, 375), Preprocessor::preset("torchvision")?);
/// let pixels = transform.apply(&image, &preprocessor, [224, 224], &mut SmallRng::seed_from_u64(7))?;
/// assert_eq!(pixels.len(), 3 * 224 * 224);
/// # Ok::<(), grove_images::ImageError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TrainTransform {
    /// Crops, shifts and flips.
    pub recipe: Recipe,
    /// Maximum relative change of brightness, contrast and saturation; 0 for none.
    pub jitter: f64,
    /// Maximum rotation in degrees, with shears and scales of up to a tenth; 0 for none.
    pub affine: f64,
    /// Probability of erasing a rectangle; 0 for none.
    pub erasing: f64,
}

impl TrainTransform {
    /// Returns the transformed image, `[c, h, w]` with the preprocessor's channels.
    ///
    /// # Errors
    /// A field is invalid, or the preprocessor gives images of another size.
    pub fn apply(
        &self,
        image: &RgbImage,
        preprocessor: &Preprocessor,
        [h, w]: [usize; 2],
        rng: &mut (impl Rng + ?Sized),
    ) -> Result<Vec<f32>> {
        let size = [h as u32, w as u32];
        let shifted = |part: u32| RandomCrop::new(size, (size[0].max(size[1]) / part).max(1));
        let flip = HorizontalFlip { p: 0.5 };
        let crop = || RandomResizedCrop { filter: preprocessor.filter, ..RandomResizedCrop::new(size) };
        let (whole, steps) = match self.recipe {
            Recipe::None => (true, Augment::default()),
            Recipe::Shift => (true, Augment::default().then(shifted(10))),
            Recipe::ShiftFlip => (true, Augment::default().then(shifted(8)).then(flip)),
            Recipe::Standard => (false, Augment::default().then(crop()).then(flip)),
            Recipe::Rand => (false, Augment::default().then(crop()).then(flip).then(RandAugment::default())),
        };
        let jitter = self.jitter as f32;
        let steps = if jitter > 0.0 { steps.then(ColorJitter::new(jitter, jitter, jitter, 0.0)) } else { steps };
        let steps = if self.affine > 0.0 { steps.then(RandomAffine::new(self.affine)) } else { steps };
        let view = match whole {
            true => steps.apply(&preprocessor.prepare(image)?, rng)?,
            false => steps.apply(image, rng)?,
        };
        let mut values = preprocessor.normalise(&view)?;
        if self.erasing > 0.0 {
            let erasing = RandomErasing { p: self.erasing, ..RandomErasing::default() };
            erasing.apply(&mut values, [preprocessor.channels(), h, w], rng)?;
        }
        Ok(values)
    }
}
