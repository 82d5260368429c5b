//! The command line.

use clap::{Parser, builder::ArgPredicate};
use grove::train::data::Columns;

use crate::{
    labelled::delimiter,
    prelude::*,
    training::{RunArgs, at_least_one, check_layer_decay},
};

/// Passes over the data where nothing else is given.
pub const EPOCHS: f64 = 3.0;

/// Trains a BERT, RoBERTa or DistilBERT to classify texts, or pairs of texts.
///
/// Without arguments it fine-tunes the small model that ships with grove on sentences that ship too, to show what
/// happens. The result is a directory that `--example bert -- --task classify` and transformers load. Ctrl-C ends a run
/// after a checkpoint, and the same command with --resume goes on.
#[derive(Parser, Debug)]
#[command(
    name = "finetune_bert",
    version,
    allow_negative_numbers = true,
    mut_arg("epochs", |arg| arg.help("Passes over the data, parts of one too [default: 3]")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts of a batch")),
    mut_arg("learning_rate", |arg| {
        let given = ArgPredicate::IsPresent;
        arg.default_value_ifs([("lora_rank", given.clone(), "1e-3"), ("model", given, "5e-5")])
            .default_value("1e-3")
            .hide_default_value(true)
            .help("Highest learning rate [default: 5e-5; 1e-3 with --lora-rank, and for the small model that ships]")
    }),
    mut_arg("schedule", |arg| arg.default_value("linear")),
    mut_arg("final_learning_rate", |arg| arg.default_value("0")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
    mut_arg("beta2", |arg| arg.default_value("0.999")),
    mut_arg("checkpoint_every", |arg| arg.default_value("500")),
)]
pub struct Options {
    /// Labelled texts: .csv, .tsv (without quotes) or .jsonl. Without any, sentences that ship with grove
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,

    /// Labelled texts for the evaluation; without them, some of --data are held out
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub held_out: Vec<PathBuf>,

    /// Fraction of each class that is held out, where --held-out is not given; with 0 there is no evaluation
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: f64,

    /// Do not train: print how well the model classifies the data
    #[arg(long, requires_all = ["model", "data"], conflicts_with_all = ["output", "held_out", "val_fraction", "steps", "epochs"])]
    pub evaluate: bool,

    /// Column, or JSON field, of the texts: its name, or its number from 1
    #[arg(long, default_value = "text", value_name = "NAME", help_heading = "Data")]
    pub text_column: String,

    /// Column of the second texts, where pairs are classified
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub pair_column: Option<String>,

    /// Column of the labels
    #[arg(long, default_value = "label", value_name = "NAME", help_heading = "Data")]
    pub label_column: String,

    /// The first line of the files has no names; columns are given by their numbers
    #[arg(long, help_heading = "Data")]
    pub no_header: bool,

    /// Character between the columns of tables, or tab; with tabs, quotes mean nothing [default: a tab in .tsv, else a comma]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter, help_heading = "Data")]
    pub delimiter: Option<u8>,

    /// The labels, in the order that they are to have; without them, those that occur, sorted
    #[arg(long, value_delimiter = ',', value_name = "NAMES", help_heading = "Data")]
    pub labels: Vec<String>,

    /// Tokens of a text that are read; the rest of a longer one is not [default: 128, or what the model has]
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub max_length: Option<usize>,

    /// Let each class count the same in the loss, however many texts it has
    #[arg(long, help_heading = "Data")]
    pub balance: bool,

    /// Model to fine-tune: directory, weights file, or hub id, such as google-bert/bert-base-uncased
    #[arg(long, help_heading = "Model")]
    pub model: Option<String>,

    /// Parts that stay as they are, by path: "embeddings.**,encoder.layer.0.**"
    #[arg(long, value_delimiter = ',', value_name = "PATTERNS", help_heading = "Model")]
    pub freeze: Vec<String>,

    /// Freeze the encoder and train adapters of this rank in it (LoRA), which end up in the weights
    #[arg(long, value_name = "RANK", help_heading = "Model")]
    pub lora_rank: Option<usize>,

    /// Scale of the adapters: their product is multiplied by this over the rank [default: twice the rank]
    #[arg(long, value_name = "ALPHA", requires = "lora_rank", help_heading = "Model")]
    pub lora_alpha: Option<f64>,

    /// Linear maps that get an adapter
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PATTERNS",
        default_value = "encoder.layer.*.attention.query,encoder.layer.*.attention.value",
        help_heading = "Model"
    )]
    pub lora_targets: Vec<String>,

    /// Factor from the learning rate of a layer to that of the layer below it, such as 0.9
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", help_heading = "Training")]
    pub layer_decay: f64,

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

impl Options {
    /// Checks the options alone, before any file is read.
    pub fn check_values(&self) -> Result<(), Exit> {
        self.run.training.check()?;
        self.run.training.check_held_out("val-fraction", self.val_fraction)?;
        check_layer_decay(self.layer_decay)?;
        at_least_one("lora-rank", self.lora_rank.unwrap_or(1))?;
        let wrong = |what: &str| Err(Exit::Usage(what.into()));
        if self.lora_alpha.is_some_and(|alpha| !(alpha > 0.0 && alpha.is_finite())) {
            return wrong("--lora-alpha must be a number greater than 0");
        }
        if self.max_length.is_some_and(|length| length < 3) {
            return wrong(
                "--max-length must leave room for a token between those that mark beginning and end: at least 3",
            );
        }
        match self.labels.iter().enumerate().find(|(i, label)| self.labels[..*i].contains(label)) {
            Some((_, label)) => wrong(&format!("--labels names '{label}' twice")),
            None if self.labels.len() == 1 => wrong("--labels names one label; a classifier needs at least two"),
            None => Ok(()),
        }
    }

    /// Columns of the data files, by their roles.
    pub fn columns(&self) -> Columns {
        Columns {
            text: self.text_column.clone(),
            pair: self.pair_column.clone(),
            label: self.label_column.clone(),
            header: !self.no_header,
            delimiter: self.delimiter,
        }
    }
}
