//! The command line.

use clap::{Parser, ValueEnum};
use grove::images::{Preprocessor, datasets::LabelledImages};

use crate::{prelude::*, training::at_least_one, vision::training::ImageArgs};

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
    /// Data, run and hyperparameters.
    #[command(flatten)]
    pub images: ImageArgs,

    /// Model to evaluate: directory or weights file
    #[arg(long, requires = "evaluate")]
    pub model: Option<String>,

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
    pub fn check_values(&self) -> Result<(), Exit> {
        self.images.check()?;
        for (name, value) in [
            ("image-size", self.image_size.unwrap_or(1)),
            ("patch-size", self.patch_size.unwrap_or(1)),
            ("hidden-size", self.hidden_size),
            ("layers", self.layers),
            ("heads", self.heads),
        ] {
            at_least_one(name, value)?;
        }
        let wrong = |what: String| Err(Exit::Usage(what));
        if self.channels.len() != self.depths.len() {
            let (channels, depths) = (self.channels.len(), self.depths.len());
            return wrong(format!("--channels has {channels} stages, and --depths {depths}: give as many"));
        }
        if !self.hidden_size.is_multiple_of(self.heads) {
            return wrong(format!("--hidden-size {} is not divisible by --heads {}", self.hidden_size, self.heads));
        }
        match self.images.run.training.batch_size {
            1 if self.arch == Arch::Resnet => {
                wrong("--batch-size is 1; batch normalisation needs at least two images".into())
            }
            _ => Ok(()),
        }
    }

    /// Preprocessing of the images: grey ones as MNIST's, others as ImageNet's.
    pub fn preprocessor(&self, data: &LabelledImages) -> Result<Preprocessor, Exit> {
        let size = self.image_size.unwrap_or_else(|| data.size.map_or(64, |[_, h, w]| h.max(w).max(16)));
        let side = u32::try_from(size).map_err(|_| Exit::Usage(format!("--image-size {size} is too large")))?;
        Preprocessor::for_images(data.size, side).map_err(|error| Exit::Usage(format!("--image-size: {error}")))
    }
}
