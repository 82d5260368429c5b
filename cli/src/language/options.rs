//! Options of training a language model.

use grove::{layers::lora, models::peft::save_adapters, train::data::records::is_record_file};
use std::fmt::Display;

use crate::{
    prelude::*,
    training::{LoraArgs, need},
};

/// Default context length in tokens, if neither the options nor the model set it.
pub const DEFAULT_CONTEXT: usize = 128;

/// Column of the texts in files of records.
#[derive(Args, Debug)]
pub struct TextColumn {
    /// Column (or JSON field) of the texts in .jsonl and .parquet files [default: text]
    #[arg(long, value_name = "NAME")]
    text_column: Option<String>,
}

impl TextColumn {
    /// Returns the name.
    pub fn name(&self) -> &str {
        self.text_column.as_deref().unwrap_or("text")
    }

    /// Rejects `--text-column` if the data has no files of records. A folder may have some.
    pub fn check<'a>(&self, mut data: impl Iterator<Item = &'a PathBuf>) -> Result<(), Exit> {
        match self.text_column.is_some() && !data.any(|path| path.is_dir() || is_record_file(path)) {
            true => Err(usage("--text-column names a column of .jsonl and .parquet files, but the data has none")),
            false => Ok(()),
        }
    }
}

/// Model, data and hyperparameters.
#[derive(Args, Debug)]
#[command(mut_arg("lora_targets", |arg| {
    arg.help("Linear layers that get an adapter [default: the projections to queries and values]")
}))]
pub struct LanguageArgs {
    /// Text files, .jsonl or .parquet files, or folders of either. A text file is one document, as is each record of the others.
    /// Or one token file, .tokens
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data: Vec<PathBuf>,

    /// Column of files of records.
    #[command(flatten)]
    pub column: TextColumn,

    /// Text for evaluation [default: the last part of --data]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub held_out: Vec<PathBuf>,

    /// Fraction of the data to hold out without --held-out; 0 disables evaluation
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

    /// Frozen parameters and LoRA adapters.
    #[command(flatten)]
    pub lora: LoraArgs,

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
        let of_model = [
            ("evaluate", self.evaluate),
            ("adapter", self.adapter.is_some()),
            ("freeze", !self.lora.freeze.is_empty()),
            ("lora-rank", self.lora.lora_rank.is_some()),
        ];
        need("model", self.model.is_some(), of_model)?;
        self.run.check()?;
        self.run.training.check_val_fraction(self.val_fraction)?;
        check_held_out(&self.held_out)?;
        self.run.training.check_keep(&["loss"])?;
        self.lora.check()?;
        self.column.check(self.data.iter().chain(&self.held_out))?;
        fraction([("dropout", self.dropout.unwrap_or(0.0))])?;
        at_least_one([("context", self.context.unwrap_or(1))])
    }

    /// Returns the data files, by default the text that ships with grove.
    pub fn data(&self) -> Vec<PathBuf> {
        if self.data.is_empty() { vec![shipped("gpt2-austen/held_out.txt")] } else { self.data.clone() }
    }

    /// Returns the model with the adapters of `--lora-rank`, and a filter of the trained leaves; `None` for all parameters.
    ///
    /// - `targets`: linear layers that get an adapter by default
    /// - `prefix`: prefix of all paths, which the options may leave out
    pub fn adapted<B: Backend, M: Tree<B>>(
        &self,
        model: M,
        targets: &[&str],
        prefix: &str,
    ) -> Result<(M, Option<Filter<B>>), Exit> {
        let LoraArgs { freeze, lora_rank, lora_targets, .. } = &self.lora;
        self.lora.check_rank(&model)?;
        let Some(rank) = *lora_rank else {
            let filter = if freeze.is_empty() { None } else { Some(self.lora.unfrozen(&model, prefix)?) };
            return Ok((model, filter));
        };
        if targets.is_empty() && lora_targets.is_empty() {
            return Err(usage(
                "--lora-rank: this model has no default layers for adapters: name its linear layers with --lora-targets",
            ));
        }
        let named = lora_targets.iter().map(String::as_str);
        let targets: Vec<&str> = if lora_targets.is_empty() { targets.to_vec() } else { named.collect() };
        let model = self.lora.with_adapters(model, &targets, rank, Key::new(self.run.seed).fold_in(5))?;
        let filter = self.lora.unfrozen(&model, prefix)? & lora::trainable();
        Ok((model, Some(filter)))
    }

    /// Saves a model with its adapters merged, and the adapters alone in a directory beside it.
    pub fn save_adapted<B: Backend, M: Pretrained<B>>(
        &self,
        model: M,
        prefix: &str,
        directory: &Path,
    ) -> Result<(), ModelError> {
        if self.lora.lora_rank.is_some() {
            let names = M::published_names(model.config());
            let adapters = directory.with_file_name("adapter");
            save_adapters(&model, &names, prefix, self.model.as_deref(), adapters)?;
        }
        lora::merge(model).save_pretrained(directory)
    }

    /// Returns the default number of epochs: `demonstration` for a new model on the text that ships with grove, otherwise 1.
    pub fn epochs(&self, demonstration: f64) -> f64 {
        if self.data.is_empty() && self.model.is_none() { demonstration } else { 1.0 }
    }
}

/// Returns the context length in tokens: `--context`, or the model's maximum, or [`DEFAULT_CONTEXT`].
pub(crate) fn context(context: Option<usize>, most: Option<usize>) -> Result<usize, Exit> {
    match (context, most) {
        (Some(context), Some(most)) if context > most => {
            Err(usage(format!("--context is {context}, but the model has {most} positions")))
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
    for (name, value, has) in sizes {
        if let Some(value) = value.filter(|value| *value != has) {
            return Err(usage(format!("--{name} is {value}, but the run to resume has {has}: leave it out")));
        }
    }
    Ok(())
}
