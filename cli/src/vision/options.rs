//! Options of all commands that train on images.

use grove::images::augment::{Mix, Recipe, TrainTransform};

use super::{EvaluationImages, ImageColumns, ImageEvaluation, SizeArgs, Split};
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
    /// Images: a folder with one folder per class (or with folders train and val of such folders), MNIST's idx files (their
    /// folder, or the file of the images), CIFAR's binary files, or a .parquet file [default: digits that ship with grove]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,

    /// Images for evaluation, in a format of --data [default: the evaluation part of --data, else --val-fraction of it]
    #[arg(long, value_name = "PATH")]
    pub held_out: Option<PathBuf>,

    /// Columns of .parquet files.
    #[command(flatten)]
    pub columns: ImageColumns,

    /// Fraction of each class to hold out if there are no other images for evaluation; 0 disables evaluation [default: 0.1]
    #[arg(long, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: Option<f64>,

    /// Print the metrics of --model instead of training: on --data, on its evaluation part if it has one, or on the images
    /// that --held-out or --val-fraction holds out
    #[arg(long, requires = "model", conflicts_with_all = ["output", "steps", "epochs", "jit"])]
    pub evaluate: bool,

    /// Limits of image sizes.
    #[command(flatten)]
    pub sizes: SizeArgs,

    /// Augmentation of each image
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Changes::Standard, help_heading = "Augmentation")]
    pub augment: Changes,

    /// Mixup: alpha of the beta distribution, such as 0.2; 0 disables it
    #[arg(long, value_name = "ALPHA", default_value_t = 0.0, help_heading = "Augmentation")]
    pub mixup: f64,

    /// CutMix: alpha of the beta distribution, such as 1; 0 disables it
    #[arg(long, value_name = "ALPHA", default_value_t = 0.0, help_heading = "Augmentation")]
    pub cutmix: f64,

    /// Random erasing: probability of erasing a rectangle of an image
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, help_heading = "Augmentation")]
    pub erasing: f64,

    /// Colour jitter: maximum relative change of brightness, contrast and saturation, such as 0.4
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, help_heading = "Augmentation")]
    pub jitter: f64,

    /// Random affine transform: maximum rotation in degrees, with scaling and shear of up to 10 %; 0 disables it
    #[arg(long, value_name = "DEGREES", default_value_t = 0.0, help_heading = "Augmentation")]
    pub affine: f64,

    /// Label smoothing: fraction of the target spread over all classes
    #[arg(long, value_name = "FRACTION", default_value_t = 0.0, help_heading = "Augmentation")]
    pub label_smoothing: f64,

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

impl ImageArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        self.run.check()?;
        check_held_out(&self.held_out)?;
        self.columns.check(self.data.iter().chain(&self.held_out))?;
        fraction([("erasing", self.erasing), ("jitter", self.jitter), ("label-smoothing", self.label_smoothing)])?;
        not_negative([("mixup", self.mixup), ("cutmix", self.cutmix), ("affine", self.affine)])?;
        let training = &self.run.training;
        training.check_keep(&["loss", "accuracy", "macro_f1", "top5"])?;
        // Only the range is checked: with 0, the data can still have an evaluation part.
        fraction([("val-fraction", self.val_fraction())])
    }

    /// Returns the path of the images: `--data`, or the digits that ship with grove.
    pub fn path(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| shipped("digits"))
    }

    /// Fraction of each class that is held out.
    pub fn val_fraction(&self) -> f64 {
        self.val_fraction.unwrap_or(0.1)
    }

    /// Returns the evaluation of `--evaluate`.
    pub fn evaluation(&self) -> Result<ImageEvaluation<'_>, Exit> {
        let images = match self.held_out.is_some() || self.val_fraction.is_some() {
            true => {
                let split = Split::open(self)?;
                EvaluationImages { images: split.held_out.unwrap_or(split.training), part_of: None }
            }
            false => EvaluationImages::open(&self.path(), &self.columns)?,
        };
        let (batch_size, dtype, json) = (self.run.training.batch_size, self.run.device.dtype, self.run.json);
        Ok(ImageEvaluation { images, sizes: &self.sizes, batch_size, dtype, json })
    }

    /// Returns the augmentation as settings of a run.
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

    /// Returns the mixing of images in a batch, or `None` if mixup and CutMix are off.
    pub fn mix(&self) -> Option<Mix> {
        let any = self.mixup > 0.0 || self.cutmix > 0.0;
        any.then(|| Mix { mixup_alpha: self.mixup, cutmix_alpha: self.cutmix, ..Mix::default() })
    }

    /// Returns the random transform of each image.
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
    /// No augmentation
    None,
    /// Shift by up to a tenth
    Shift,
    /// Shift by up to an eighth, and horizontal flip with probability 0.5
    ShiftFlip,
    /// Random resized crop, and horizontal flip with probability 0.5
    Standard,
    /// Standard, followed by RandAugment
    Rand,
}
