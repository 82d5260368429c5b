//! The command line.

use clap::{Parser, builder::ArgPredicate};

use crate::{
    prelude::*,
    training::{at_least_one, check_layer_decay},
    vision::training::ImageArgs,
};

/// Passes over the data where nothing else is given.
pub const EPOCHS: f64 = 5.0;

/// Name for all parts but the head in `--freeze`.
pub const BACKBONE: &str = "backbone";

/// Fine-tunes a ResNet, a ViT or a DINOv2 on images of classes of one's own.
///
/// Without arguments it teaches the small network that ships with grove, trained on MNIST's digits, the 8x8 digits that
/// ship too. The result is a directory that `--example resnet` or `--example vit` loads, and the library whose names the
/// model came with. Ctrl-C ends a run after a checkpoint, and the same command with --resume goes on.
#[derive(Parser, Debug)]
#[command(
    name = "finetune_vision",
    version,
    allow_negative_numbers = true,
    mut_arg("evaluate", |arg| {
        arg.requires("data").help("Do not train: print how well the model classifies the held-out images")
    }),
    mut_arg("epochs", |arg| arg.help("Passes over the data, parts of one too [default: 5]")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Images of a batch")),
    mut_arg("learning_rate", |arg| arg.default_value("5e-4")),
    mut_arg("final_learning_rate", |arg| arg.default_value("0.01")),
    mut_arg("weight_decay", |arg| arg.default_value("0.05")),
    mut_arg("beta2", |arg| arg.default_value("0.999")),
    mut_arg("checkpoint_every", |arg| arg.default_value("500")),
    mut_arg("augment", |arg| {
        arg.default_value_if("data", ArgPredicate::IsPresent, "standard").default_value("shift").hide_default_value(true).help(
            "What is done to each image [default: standard; shift for the digits that ship]",
        )
    }),
)]
pub struct Options {
    /// Data, run and hyperparameters.
    #[command(flatten)]
    pub images: ImageArgs,

    /// Preprocessing: a name, as for --example resnet, or a preprocessor_config.json [default: the files beside the
    /// model]
    #[arg(long, value_name = "NAME")]
    pub preprocess: Option<String>,

    /// Height and width of the images, in pixels, in place of what the preprocessing says
    #[arg(long, value_name = "N")]
    pub image_size: Option<u32>,

    /// Model to fine-tune: directory, weights file, or hub id, such as microsoft/resnet-50 or google/vit-base-patch16-224
    #[arg(long, help_heading = "Model")]
    pub model: Option<String>,

    /// Give the model a new head even where it has one for these classes
    #[arg(long, help_heading = "Model")]
    pub new_head: bool,

    /// Parts that stay as they are: backbone (all but the head), or paths such as "stem.**,stages.0.**"
    #[arg(long, value_delimiter = ',', value_name = "PATTERNS", help_heading = "Model")]
    pub freeze: Vec<String>,

    /// Factor from the learning rate of a layer to that of the layer below it, such as 0.8
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", help_heading = "Training")]
    pub layer_decay: f64,
}

impl Options {
    /// Checks the options alone, before any file is read.
    pub fn check_values(&self) -> Result<(), Exit> {
        self.images.check()?;
        at_least_one("image-size", self.image_size.unwrap_or(1) as usize)?;
        check_layer_decay(self.layer_decay)
    }

    /// True if only the head is trained.
    pub fn freezes_backbone(&self) -> bool {
        self.freeze.iter().any(|pattern| pattern == BACKBONE)
    }
}
