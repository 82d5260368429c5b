//! The command line.

use clap::{Parser, ValueEnum};
use grove::images::{Filter, IMAGENET_MEAN, IMAGENET_STD, Preprocessor, Resize, datasets::LabelledImages};
use std::path::PathBuf;

use crate::{
    Exit, failure,
    training::{RunArgs, TrainingArgs, at_least_one},
    vision::SizeArgs,
    vision::training::{AugmentArgs, HeldOutArgs},
};

/// Passes over the data where nothing else is given.
pub const EPOCHS: f64 = 10.0;

/// Trains a ResNet or a ViT from scratch to tell classes of images apart.
///
/// Without arguments it trains a small ResNet on 8x8 handwritten digits that ship with grove. The result is a directory
/// that `--example resnet` or `--example vit` loads. Ctrl-C ends a run after a checkpoint, and the same command with
/// --resume goes on.
#[derive(Parser, Debug)]
#[command(
    name = "train_vision",
    version,
    allow_negative_numbers = true,
    mut_arg("epochs", |arg| arg.help("Passes over the data, parts of one too [default: 10]")),
    mut_arg("batch_size", |arg| arg.default_value("64").help("Images of a batch")),
    mut_arg("learning_rate", |arg| arg.default_value("2e-3")),
    mut_arg("final_learning_rate", |arg| arg.default_value("0.01")),
    mut_arg("weight_decay", |arg| arg.default_value("0.05")),
    mut_arg("beta2", |arg| arg.default_value("0.999")),
    mut_arg("augment", |arg| arg.default_value("shift")),
    mut_arg("checkpoint_every", |arg| arg.default_value("500")),
)]
pub struct Options {
    /// Images: a folder with one folder for each class (or with such in train and val), MNIST's idx files (a folder of
    /// them, or the one of the images), or CIFAR's binary files. Without any, digits that ship with grove
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,

    /// Held-out images.
    #[command(flatten)]
    pub held_out: HeldOutArgs,

    /// Do not train: print how well --model classifies the held-out images
    #[arg(long, requires = "model", conflicts_with_all = ["output", "steps", "epochs"])]
    pub evaluate: bool,

    /// Model to evaluate: directory or weights file
    #[arg(long, requires = "evaluate")]
    pub model: Option<String>,

    /// Directory and device of the run.
    #[command(flatten)]
    pub run: RunArgs,

    /// Architecture of the model
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Arch::Resnet, help_heading = "Model")]
    pub arch: Arch,

    /// Height and width of the images, in pixels [default: the data's, at least 16, or 64 where they differ]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub image_size: Option<usize>,

    /// Channels of the ResNet's stages
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", default_value = "16,32,64", help_heading = "Model")]
    pub channels: Vec<usize>,

    /// Blocks of the ResNet's stages
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", default_value = "2,2,2", help_heading = "Model")]
    pub depths: Vec<usize>,

    /// Height and width of the ViT's patches, in pixels [default: what makes seven or eight of them]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub patch_size: Option<usize>,

    /// Width of the ViT's states
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Model")]
    pub hidden_size: usize,

    /// Blocks of the ViT
    #[arg(long, value_name = "N", default_value_t = 6, help_heading = "Model")]
    pub layers: usize,

    /// Attention heads of a block of the ViT
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Model")]
    pub heads: usize,

    /// Input of the ViT's head
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Pool::Mean, help_heading = "Model")]
    pub pool: Pool,

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

/// Architecture of the model.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// Residual network of basic blocks
    Resnet,
    /// Vision transformer
    Vit,
}

/// Input of the ViT's head.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// The mean of all patches; the model is saved as timm names things
    Mean,
    /// A class token; the model is saved as transformers names things
    Class,
}

impl Options {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), String> {
        self.training.check()?;
        self.augment.check()?;
        self.held_out.check()?;
        at_least_one("image-size", self.image_size.unwrap_or(1) as u64)?;
        at_least_one("patch-size", self.patch_size.unwrap_or(1) as u64)?;
        at_least_one("hidden-size", self.hidden_size as u64)?;
        at_least_one("layers", self.layers as u64)?;
        at_least_one("heads", self.heads as u64)?;
        if self.channels.len() != self.depths.len() {
            let (channels, depths) = (self.channels.len(), self.depths.len());
            return Err(format!("--channels has {channels} stages, and --depths {depths}: give as many"));
        }
        if !self.hidden_size.is_multiple_of(self.heads) {
            return Err(format!("--hidden-size {} is not divisible by --heads {}", self.hidden_size, self.heads));
        }
        match self.training.batch_size {
            1 if self.arch == Arch::Resnet => {
                Err("--batch-size is 1; batch normalisation needs at least two images".into())
            }
            _ => Ok(()),
        }
    }

    /// Preprocessing of the images: grey ones as MNIST's, others as ImageNet's.
    pub fn preprocessor(&self, data: &LabelledImages) -> Result<Preprocessor, Exit> {
        let size = self.image_size.unwrap_or_else(|| data.size.map_or(64, |[_, h, w]| h.max(w).max(16)));
        let side = u32::try_from(size).map_err(|_| Exit::Usage(format!("--image-size {size} is too large")))?;
        let grey = data.size.is_some_and(|[channels, ..]| channels == 1);
        let base = Preprocessor::preset(if grey { "mnist" } else { "torchvision" }).map_err(failure)?;
        let exact = Resize::Exact { height: side, width: side };
        // Photographs keep their proportions; images of a set are whole as they are.
        let (resize, crop) = match data.size {
            Some(_) => (exact, None),
            None => (Resize::Shorter(side.saturating_add(side / 8)), Some([side, side])),
        };
        let (mean, std) = match grey {
            true => (base.mean.clone(), base.std.clone()),
            false => (IMAGENET_MEAN.to_vec(), IMAGENET_STD.to_vec()),
        };
        let preprocessor = Preprocessor { resize, crop, mean, std, filter: Filter::Bilinear, ..base };
        preprocessor.check().map_err(|error| Exit::Usage(format!("--image-size: {error}")))?;
        Ok(preprocessor)
    }
}
