//! Options of every command that trains on images.

use clap::Args;
use std::path::PathBuf;

use super::AugmentArgs;
use crate::{
    Exit,
    training::{RunArgs, TrainingArgs, fraction},
    vision::SizeArgs,
};

/// Data, run and hyperparameters.
#[derive(Args, Debug)]
pub struct ImageArgs {
    /// Images: a folder with one folder for each class (or with such in train and val), MNIST's idx files (a folder of
    /// them, or the one of the images), or CIFAR's binary files. Without any, digits that ship with grove
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,

    /// Images for the evaluation, in the form of --data; without them, those that --data has for it, else some of its own
    #[arg(long, value_name = "PATH")]
    pub held_out: Option<PathBuf>,

    /// Fraction of each class that is held out, where no other data is; with 0 there is no evaluation
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: f64,

    /// Do not train: print how well --model classifies the held-out images
    #[arg(long, requires = "model", conflicts_with_all = ["output", "steps", "epochs"])]
    pub evaluate: bool,

    /// Directory and device of the run.
    #[command(flatten)]
    pub run: RunArgs,

    /// Limits of image sizes.
    #[command(flatten)]
    pub sizes: SizeArgs,

    /// Augmentation of training images.
    #[command(flatten)]
    pub augment: AugmentArgs,

    /// Training hyperparameters.
    #[command(flatten)]
    pub training: TrainingArgs,
}

impl ImageArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        self.training.check()?;
        self.augment.check()?;
        fraction("val-fraction", self.val_fraction)
    }
}
