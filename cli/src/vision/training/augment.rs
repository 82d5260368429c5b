//! Random augmentation of training images.

use clap::{Args, ValueEnum};
use grove::{
    images::{
        ImageError, Preprocessor, RgbImage,
        augment::{
            Augment, ColorJitter, HorizontalFlip, Mix, RandAugment, RandomAffine, RandomCrop, RandomErasing,
            RandomResizedCrop,
        },
    },
    train::RunSettings,
};

use crate::{
    Exit,
    training::{fraction, not_negative},
};

/// Random augmentation of training images.
#[derive(Args, Debug, Clone)]
pub struct AugmentArgs {
    /// Augmentation of each image
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Changes::Standard, help_heading = "Augmentation")]
    pub augment: Changes,

    /// Blend images of a batch: both parameters of the beta distribution, such as 0.2; 0 does not (mixup)
    #[arg(long, value_name = "ALPHA", default_value_t = 0.0, help_heading = "Augmentation")]
    pub mixup: f64,

    /// Put parts of images into others: both parameters of the beta distribution, such as 1; 0 does not (CutMix)
    #[arg(long, value_name = "ALPHA", default_value_t = 0.0, help_heading = "Augmentation")]
    pub cutmix: f64,

    /// Probability that a part of an image is erased
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, help_heading = "Augmentation")]
    pub erasing: f64,

    /// Largest relative change of brightness, contrast and saturation, such as 0.4
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, help_heading = "Augmentation")]
    pub jitter: f64,

    /// Largest rotation of images in degrees; they are stretched and sheared by up to a tenth, too
    #[arg(long, value_name = "DEGREES", default_value_t = 0.0, help_heading = "Augmentation")]
    pub affine: f64,

    /// Fraction of a label that is spread over all classes
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, help_heading = "Augmentation")]
    pub label_smoothing: f64,
}

/// Augmentation of each image.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Nothing
    None,
    /// It is shifted by up to a tenth
    Shift,
    /// It is shifted by up to an eighth, and half are mirrored
    ShiftFlip,
    /// A part of random size and shape is cut out, and half are mirrored
    Standard,
    /// As standard, and then RandAugment: two of fourteen changes
    Rand,
}

impl AugmentArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        fraction("erasing", self.erasing)?;
        fraction("jitter", self.jitter)?;
        fraction("label-smoothing", self.label_smoothing)?;
        not_negative("mixup", self.mixup)?;
        not_negative("cutmix", self.cutmix)?;
        not_negative("affine", self.affine)
    }

    /// The settings of a run that are here.
    pub fn run_settings(&self) -> RunSettings {
        RunSettings::new()
            .with("augment", format!("{:?}", self.augment).to_lowercase())
            .with("mixup", self.mixup)
            .with("cutmix", self.cutmix)
            .with("erasing", self.erasing)
            .with("jitter", self.jitter)
            .with("affine", self.affine)
            .with("label-smoothing", self.label_smoothing)
    }

    /// Mixing of batches; `None` for none.
    pub fn mix(&self) -> Option<Mix> {
        let any = self.mixup > 0.0 || self.cutmix > 0.0;
        any.then(|| Mix { mixup_alpha: self.mixup, cutmix_alpha: self.cutmix, ..Mix::default() })
    }

    /// An image as the model sees it in training, `[c, h, w]` of the size.
    pub fn apply(
        &self,
        image: &RgbImage,
        preprocessor: &Preprocessor,
        [h, w]: [usize; 2],
        rng: &mut grove::tree::KeyRng,
    ) -> Result<Vec<f32>, ImageError> {
        let size = [h as u32, w as u32];
        let shifted = |part: u32| RandomCrop::new(size, (size[0].max(size[1]) / part).max(1));
        let cut = || RandomResizedCrop { filter: preprocessor.filter, ..RandomResizedCrop::new(size) };
        let (whole, steps) = match self.augment {
            Changes::None => (true, Augment::default()),
            Changes::Shift => (true, Augment::default().then(shifted(10))),
            Changes::ShiftFlip => (true, Augment::default().then(shifted(8)).then(HorizontalFlip { p: 0.5 })),
            Changes::Standard => (false, Augment::default().then(cut()).then(HorizontalFlip { p: 0.5 })),
            Changes::Rand => {
                let steps = Augment::default().then(cut()).then(HorizontalFlip { p: 0.5 });
                (false, steps.then(RandAugment::default()))
            }
        };
        let jitter = self.jitter as f32;
        let steps = if jitter > 0.0 { steps.then(ColorJitter::new(jitter, jitter, jitter, 0.0)) } else { steps };
        let steps = if self.affine > 0.0 { steps.then(RandomAffine::new(self.affine)) } else { steps };
        let seen = match whole {
            true => steps.apply(&preprocessor.prepare(image)?, rng)?,
            false => steps.apply(image, rng)?,
        };
        let mut values = preprocessor.normalise(&seen)?;
        if self.erasing > 0.0 {
            let erasing = RandomErasing { p: self.erasing, ..RandomErasing::default() };
            erasing.apply(&mut values, [preprocessor.channels(), h, w], rng)?;
        }
        Ok(values)
    }
}
