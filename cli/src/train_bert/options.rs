//! The command line.

use clap::Parser;
use std::path::PathBuf;

use crate::training::{RunArgs, TrainingArgs, at_least_one, fraction};

/// Passes over the text that ships with grove.
pub const DEMONSTRATION_EPOCHS: f64 = 2.0;

/// Tokens that a new model sees at once.
pub const CONTEXT: usize = 128;

/// Trains a BERT on text as a masked language model: a new one of any size, or one that exists.
///
/// Each line is a text; of those that are too long each part is. Without arguments it trains a tiny model for half a
/// minute on the text that ships with grove, to show what happens. Ctrl-C ends a run after a checkpoint, and the same
/// command with --resume goes on.
#[derive(Parser, Debug)]
#[command(
    name = "train_bert",
    version,
    allow_negative_numbers = true,
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts of a batch")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
    mut_arg("beta2", |arg| arg.default_value("0.98")),
)]
pub struct Options {
    /// Text files, or folders of .txt files
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data: Vec<PathBuf>,

    /// Text for the evaluation; without it, some of the texts are held out
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub held_out: Vec<PathBuf>,

    /// Fraction of the texts that is held out, where --held-out is not given; with 0 there is no evaluation
    #[arg(long, default_value_t = 0.05, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: f64,

    /// Fraction of the tokens that is masked in training; an evaluation masks 0.15
    #[arg(long, default_value_t = 0.15, value_name = "FRACTION")]
    pub mask: f32,

    /// Do not train: print the model's loss and accuracy on the masked tokens of the data
    #[arg(long, requires = "model", conflicts_with_all = ["output", "held_out", "val_fraction", "steps", "epochs"])]
    pub evaluate: bool,

    /// Directory and device of the run.
    #[command(flatten)]
    pub run: RunArgs,

    /// Model to train on: directory, weights file, or hub id. Without it, a new one is made
    #[arg(long, help_heading = "Model")]
    pub model: Option<String>,

    /// Tokens that the model sees at once [default: 128, or what --model has]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub context: Option<usize>,

    /// Layers of a new model
    #[arg(long, default_value_t = 2, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub layers: usize,

    /// Width of a new model; the feed-forward layers are four times as wide
    #[arg(long, default_value_t = 128, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub hidden: usize,

    /// Attention heads of a new model's layers
    #[arg(long, default_value_t = 4, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub heads: usize,

    /// Dropout, everywhere [default: 0.1, or what --model has]
    #[arg(long, value_name = "RATE", help_heading = "Model")]
    pub dropout: Option<f64>,

    /// Directory of a tokenizer; without it a new model learns one from the data
    #[arg(long, value_name = "DIR", conflicts_with = "model", help_heading = "Model")]
    pub tokenizer: Option<PathBuf>,

    /// Size of the vocabulary that is learned
    #[arg(long, default_value_t = 2048, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub vocab_size: usize,

    /// Training hyperparameters.
    #[command(flatten)]
    pub training: TrainingArgs,
}

impl Options {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), String> {
        self.training.check()?;
        fraction("val-fraction", self.val_fraction)?;
        fraction("dropout", self.dropout.unwrap_or(0.0))?;
        fraction("mask", f64::from(self.mask))?;
        if self.context.is_some_and(|context| context < 3) {
            return Err(
                "--context must leave room for a token between those that mark beginning and end: at least 3".into()
            );
        }
        at_least_one("layers", self.layers as u64)?;
        at_least_one("heads", self.heads as u64)?;
        match self.training.patience.is_some() && self.val_fraction == 0.0 {
            true => Err("--patience needs an evaluation, and --val-fraction is 0".into()),
            false => Ok(()),
        }
    }

    /// True if the run is the demonstration on the text that ships with grove.
    pub fn is_demonstration(&self) -> bool {
        self.data.is_empty() && self.model.is_none()
    }
}
