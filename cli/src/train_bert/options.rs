//! The command line.

use clap::Parser;

use crate::{
    language::LanguageArgs,
    prelude::*,
    training::{at_least_one, fraction},
};

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
    mut_arg("data", |arg| arg.help("Text files, or folders of .txt files")),
    mut_arg("held_out", |arg| arg.help("Text for the evaluation; without it, some of the texts are held out")),
    mut_arg("val_fraction", |arg| arg.help(
        "Fraction of the texts that is held out, where --held-out is not given; with 0 there is no evaluation"
    )),
    mut_arg("evaluate", |arg| arg.help(
        "Do not train: print the model's loss and accuracy on the masked tokens of the data"
    )),
    mut_arg("model", |arg| arg.help(
        "Model to train on: directory, weights file, or hub id. Without it, a new one is made"
    )),
    mut_arg("context", |arg| arg.help("Tokens that the model sees at once [default: 128, or what --model has]")),
    mut_arg("dropout", |arg| arg.help("Dropout, everywhere [default: 0.1, or what --model has]")),
    mut_arg("tokenizer", |arg| arg.conflicts_with("model").help(
        "Directory of a tokenizer; without it a new model learns one from the data"
    )),
    mut_arg("vocab_size", |arg| arg.help("Size of the vocabulary that is learned")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts of a batch")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
    mut_arg("beta2", |arg| arg.default_value("0.98")),
)]
pub struct Options {
    /// Model, data and hyperparameters.
    #[command(flatten)]
    pub language: LanguageArgs,

    /// Fraction of the tokens that is masked in training; an evaluation masks 0.15
    #[arg(long, default_value_t = 0.15, value_name = "FRACTION")]
    pub mask: f32,

    /// Layers of a new model
    #[arg(long, default_value_t = 2, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub layers: usize,

    /// Width of a new model; the feed-forward layers are four times as wide
    #[arg(long, default_value_t = 128, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub hidden: usize,

    /// Attention heads of a new model's layers
    #[arg(long, default_value_t = 4, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub heads: usize,
}

impl Options {
    /// Checks the options alone, before any file is read.
    pub fn check_values(&self) -> Result<(), Exit> {
        self.language.check()?;
        fraction("mask", f64::from(self.mask))?;
        if self.language.context.is_some_and(|context| context < 3) {
            return Err(Exit::Usage(
                "--context must leave room for a token between those that mark beginning and end: at least 3".into(),
            ));
        }
        at_least_one("layers", self.layers)?;
        at_least_one("heads", self.heads)
    }
}
