//! The command line.

use clap::{ArgGroup, Parser};

use crate::{
    labelled::delimiter,
    prelude::*,
    rnn::sizes::Sizes,
    training::{RunArgs, at_least_one, fraction},
};

/// Passes over the data where nothing else is given.
pub const EPOCHS: f64 = 10.0;

/// Trains a classifier of texts, or uses one.
///
/// A token is a character (to be exact, a byte), unless --vocab-size or --tokenizer asks for more. Texts are batched by
/// length and packed, so that no padding is ever computed.
#[derive(Parser, Debug)]
#[command(
    allow_negative_numbers = true,
    group = ArgGroup::new("use").args(["evaluate", "predict"]).requires("model"),
    mut_arg("layers", |arg| arg.help("Recurrent layers, one above the other [default: 1]")),
    mut_arg("hidden", |arg| arg.help("Size of hidden states in each direction [default: 128]")),
    mut_arg("epochs", |arg| arg.help("Passes over the data, parts of one too [default: 10]")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts of a batch")),
    mut_arg("learning_rate", |arg| arg.default_value("2e-3")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
)]
pub struct ClassifyOptions {
    /// Labelled texts, one a line: the label, a tab, the text; in a .jsonl file {"label": "…", "text": "…"}
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "predict")]
    pub data: Vec<PathBuf>,

    /// Character between the label and the text, or tab; with tabs, quotes mean nothing [default: a tab in .tsv, else a comma]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    pub delimiter: Option<u8>,

    /// Fraction of each class that is held out for the evaluation; with 0 there is none
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION")]
    pub held_out: f64,

    /// Trained model to use: directory, weights file, or hub id
    #[arg(long, requires = "use")]
    pub model: Option<String>,

    /// Do not train: print the model's accuracy and loss on the data
    #[arg(long, conflicts_with_all = ["output", "steps", "epochs"])]
    pub evaluate: bool,

    /// Do not train: print the class of this text; can be given several times
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["data", "output", "steps", "epochs"])]
    pub predict: Vec<String>,

    /// Sizes of a new model.
    #[command(flatten)]
    pub sizes: Sizes,

    /// Read texts from their beginning only, not from both ends
    #[arg(long, conflicts_with = "model", help_heading = "Model")]
    pub one_direction: bool,

    /// Dropout, everywhere
    #[arg(long, default_value_t = 0.3, value_name = "RATE", help_heading = "Model")]
    pub dropout: f64,

    /// Directory of a tokenizer; without it one is learned from the data
    #[arg(long, value_name = "DIR", conflicts_with = "model", help_heading = "Model")]
    pub tokenizer: Option<PathBuf>,

    /// Size of the vocabulary that is learned: 257 is characters, more joins frequent ones
    #[arg(long, default_value_t = 257, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub vocab_size: usize,

    /// Tokens of a text that are read; the rest of a longer one is not
    #[arg(long, default_value_t = 512, value_name = "N", help_heading = "Model")]
    pub max_length: usize,

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

impl ClassifyOptions {
    /// Checks the options alone, before any file is read.
    pub fn check_values(&self) -> Result<(), Exit> {
        self.run.training.check()?;
        self.run.training.check_held_out("held-out", self.held_out)?;
        fraction("dropout", self.dropout)?;
        at_least_one("max-length", self.max_length)?;
        match self.predict.iter().any(|text| text.trim().is_empty()) {
            true => Err(Exit::Usage("--predict is given an empty text".into())),
            false => Ok(()),
        }
    }
}
