//! Options of training a language model.

use std::fmt::Display;

use crate::prelude::*;

/// Default context length in tokens, if neither the options nor the model set it.
pub const DEFAULT_CONTEXT: usize = 128;

/// Model, data and hyperparameters.
#[derive(Args, Debug)]
pub struct LanguageArgs {
    /// Text files, or folders of .txt files; each file is one document. Or one token file, .tokens
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data: Vec<PathBuf>,

    /// Text for evaluation [default: the last part of --data]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub held_out: Vec<PathBuf>,

    /// Fraction of the data to hold out for evaluation, without --held-out; 0 disables evaluation
    #[arg(long, default_value_t = 0.05, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: f64,

    /// Print the model's loss and perplexity on the data instead of training
    #[arg(long, requires = "model", conflicts_with_all = ["output", "held_out", "val_fraction", "steps", "epochs", "jit"])]
    pub evaluate: bool,

    /// Model to fine-tune: directory, weights file, or hub id [default: a new model]
    #[arg(long, help_heading = "Model")]
    pub model: Option<String>,

    /// LoRA adapter (peft) to merge into the model before training: directory or hub id
    #[arg(long, value_name = "DIR|ID", requires = "model", help_heading = "Model")]
    pub adapter: Option<String>,

    /// Context length in tokens [default: that of the model or --config, else 128]
    #[arg(long, value_name = "N", help_heading = "Model")]
    pub context: Option<usize>,

    /// Dropout rate of all layers [default: that of the model or --config, else 0.1]
    #[arg(long, value_name = "RATE", help_heading = "Model")]
    pub dropout: Option<f64>,

    /// Directory or hub id of a tokenizer [default: the model's; for a new model, one trained on the data]
    #[arg(long, value_name = "DIR", help_heading = "Model")]
    pub tokenizer: Option<PathBuf>,

    /// Vocabulary size of the tokenizer to train, or of a token file
    #[arg(long, default_value_t = 2048, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub vocab_size: usize,

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

impl LanguageArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        self.run.training.check()?;
        self.run.training.check_held_out("val-fraction", self.val_fraction)?;
        self.run.training.check_keep(&["loss"])?;
        fraction([("dropout", self.dropout.unwrap_or(0.0))])?;
        at_least_one([("context", self.context.unwrap_or(1))])
    }

    /// Returns the data files, by default the text that ships with grove.
    pub fn data(&self) -> Vec<PathBuf> {
        if self.data.is_empty() { vec![shipped("gpt2-austen/held_out.txt")] } else { self.data.clone() }
    }

    /// Returns the default number of epochs: `demonstration` for a new model on the text that ships with grove, otherwise 1.
    pub fn epochs(&self, demonstration: f64) -> f64 {
        if self.data.is_empty() && self.model.is_none() { demonstration } else { 1.0 }
    }
}

/// Returns the context length in tokens: `--context`, or the model's maximum, or [`DEFAULT_CONTEXT`].
pub(crate) fn context(asked: Option<usize>, most: Option<usize>) -> Result<usize, Exit> {
    match (asked, most) {
        (Some(context), Some(most)) if context > most => {
            Err(usage(format!("--context is {context}, and the model has {most} positions")))
        }
        (Some(context), _) => Ok(context),
        (None, most) => Ok(most.unwrap_or(DEFAULT_CONTEXT)),
    }
}

/// Returns the configuration of `--config`: a file, or the name of a published size.
pub(super) fn named_config<C: PretrainedConfig>(named: &str) -> Result<C, Exit> {
    if Path::new(named).exists() {
        return Ok(C::from_file(named)?);
    }
    C::preset(named)
        .map_err(|error| usage(format!("--config '{named}' is not a file that exists, nor a published size: {error}")))
}

/// Rejects sizes that differ from those of the run to resume. Each item is the name of an option, its value and the run's value.
/// Some sizes, such as the number of heads, appear in no parameter's shape, so loading the checkpoint would not detect them.
pub(crate) fn check_resumed<T: Display + PartialEq>(
    sizes: impl IntoIterator<Item = (&'static str, Option<T>, T)>,
) -> Result<(), Exit> {
    for (name, asked, has) in sizes {
        if let Some(asked) = asked.filter(|asked| *asked != has) {
            return Err(usage(format!("--{name} is {asked}, and the run to resume has {has}: leave it out")));
        }
    }
    Ok(())
}
