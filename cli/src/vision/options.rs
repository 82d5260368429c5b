//! Options of every command that trains on images.

use grove::images::augment::{Mix, Recipe, TrainTransform};

use super::{EvaluationImages, ImageEvaluation, SizeArgs, Split};
use crate::prelude::*;

/// Data, run and hyperparameters.
#[derive(Args, Debug)]
#[command(
    mut_arg("final_learning_rate", |arg| arg.default_value("0.01")),
    mut_arg("weight_decay", |arg| arg.default_value("0.05")),
    mut_arg("beta2", |arg| arg.default_value("0.999")),
    mut_arg("checkpoint_every", |arg| arg.default_value("500")),
)]
pub struct ImageArgs {
    /// Images: a folder with one folder for each class (or with such in train and val), MNIST's idx files (a folder of
    /// them, or the one of the images), or CIFAR's binary files. Without any, digits that ship with grove
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,

    /// Images for the evaluation, in the form of --data; without them, those that --data has for it, else some of its own
    #[arg(long, value_name = "PATH")]
    pub held_out: Option<PathBuf>,

    /// Fraction of each class that is held out if no other data is; with 0 there is no evaluation [default: 0.1]
    #[arg(long, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: Option<f64>,

    /// Do not train: print how well --model classifies all images of --data, or its evaluation part if it has one; with
    /// --held-out or --val-fraction those that are held out
    #[arg(long, requires = "model", conflicts_with_all = ["output", "steps", "epochs", "jit"])]
    pub evaluate: bool,

    /// Limits of image sizes.
    #[command(flatten)]
    pub sizes: SizeArgs,

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

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

impl ImageArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        self.run.training.check()?;
        fraction([("erasing", self.erasing), ("jitter", self.jitter), ("label-smoothing", self.label_smoothing)])?;
        not_negative([("mixup", self.mixup), ("cutmix", self.cutmix), ("affine", self.affine)])?;
        let training = &self.run.training;
        training.check_keep(&["loss", "accuracy", "macro_f1", "top5"])?;
        // The data may have an evaluation part of its own.
        fraction([("val-fraction", self.val_fraction())])
    }

    /// Path of the images: that of `--data`, or the digits that ship with grove.
    pub fn path(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| shipped("digits"))
    }

    /// Fraction of each class that is held out.
    pub fn val_fraction(&self) -> f64 {
        self.val_fraction.unwrap_or(0.1)
    }

    /// The evaluation of `--evaluate`.
    pub fn evaluation(&self) -> Result<ImageEvaluation<'_>, Exit> {
        let images = match self.held_out.is_some() || self.val_fraction.is_some() {
            true => {
                let split = Split::open(self)?;
                EvaluationImages { images: split.held_out.unwrap_or(split.training), part_of: None }
            }
            false => EvaluationImages::open(&self.path())?,
        };
        let (batch_size, dtype, json) = (self.run.training.batch_size, self.run.device.dtype, self.run.json);
        Ok(ImageEvaluation { images, sizes: &self.sizes, batch_size, dtype, json })
    }

    /// Augmentation among the settings of a run.
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

    /// Transform of each image.
    pub fn transform(&self) -> TrainTransform {
        let recipe = match self.augment {
            Changes::None => Recipe::None,
            Changes::Shift => Recipe::Shift,
            Changes::ShiftFlip => Recipe::ShiftFlip,
            Changes::Standard => Recipe::Standard,
            Changes::Rand => Recipe::Rand,
        };
        TrainTransform { recipe, jitter: self.jitter, affine: self.affine, erasing: self.erasing }
    }
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
