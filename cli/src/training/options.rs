//! Options of every training run.

use std::fmt::Display;

use clap::{Arg, builder::ArgPredicate};
use grove::train::KeepModel;

use super::optimizer::{Given, Optimizer};
use crate::prelude::*;

/// Sets the defaults of `--learning-rate` for a model of texts: transformers' for the weights of `--model`, and a higher
/// one for adapters and for a new or small model.
pub fn with_text_rates(learning_rate: Arg) -> Arg {
    let given = ArgPredicate::IsPresent;
    learning_rate
        .default_value_ifs([("lora_rank", given.clone(), "1e-3"), ("model", given, "5e-5")])
        .hide_default_value(true)
        .help("Peak learning rate [default: 5e-5; 1e-3 with --lora-rank or without --model]")
}

/// Directory, device and hyperparameters of a run.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Directory for checkpoints, logs and the trained model [default: nothing is saved]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Resume the run in --output, or start it if there is none; pass the same options as before
    #[arg(long, requires = "output")]
    pub resume: bool,

    /// Resume the run in --output even if its options, seed or data differ
    #[arg(long, requires = "output")]
    pub resume_anyway: bool,

    /// Compile loss and gradients, once for each batch shape
    #[arg(long)]
    pub jit: bool,

    /// Random seed of the initial weights, the order of the data, and dropout
    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Print one JSON object at the end
    #[arg(long)]
    pub json: bool,

    /// Training hyperparameters.
    #[command(flatten)]
    pub training: TrainingArgs,

    /// Device and type.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Rejects the options that are given without the one that they need. clap's `requires` does so too, but not beside an option
/// that excludes the needed one.
pub fn need<'a>(needed: &str, is_given: bool, options: impl IntoIterator<Item = (&'a str, bool)>) -> Result<(), Exit> {
    match options.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) if !is_given => Err(usage(format!("--{option} needs --{needed}"))),
        _ => Ok(()),
    }
}

impl RunArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        let given = &self.training.given;
        let of_output = [
            ("resume", self.resume),
            ("resume-anyway", self.resume_anyway),
            ("checkpoint-every", given.has("checkpoint_every")),
            ("keep-checkpoints", given.has("keep_checkpoints")),
            ("save-dtype", given.has("save_dtype")),
        ];
        need("output", self.output.is_some(), of_output)?;
        self.training.check()
    }

    /// Opens the directory of `--output` on all ranks, and locks it until the program ends. Without `--output`, nothing is saved.
    pub fn directory(&self) -> Result<RunDirectory, Exit> {
        RunDirectory::open_on(&ranks(), self.output.clone(), self.resumes())
            .map_err(|error| failure(format!("--output: {error}")))
    }

    /// Returns true if an existing run is resumed.
    pub fn resumes(&self) -> bool {
        self.resume || self.resume_anyway
    }
}

/// Training hyperparameters.
#[derive(Args, Debug)]
pub struct TrainingArgs {
    #[command(flatten)]
    pub(super) given: Given,

    /// Number of optimizer steps, instead of --epochs
    #[arg(long, value_name = "N", conflicts_with = "epochs", help_heading = "Training")]
    pub steps: Option<u64>,

    /// Number of passes over the data; may be a fraction [default: 1]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub epochs: Option<f64>,

    /// Sequences per batch
    #[arg(long, default_value_t = 16, value_name = "N", help_heading = "Training")]
    pub batch_size: usize,

    /// Gradient accumulation: batches per optimizer step
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Training")]
    pub accumulate: usize,

    /// Optimizer, such as lion, muon or sgd, or a FILE.json with its learning rate and hyperparameters [default: adamw]
    #[arg(long, value_name = "NAME|FILE", help_heading = "Training")]
    pub optimizer: Option<Optimizer>,

    /// Peak learning rate
    #[arg(long, default_value_t = 1e-3, value_name = "RATE", help_heading = "Training")]
    pub learning_rate: f64,

    /// Learning-rate decay after the warm-up
    #[arg(long, value_enum, value_name = "NAME", default_value_t = Decay::Cosine, help_heading = "Training")]
    pub schedule: Decay,

    /// Final learning rate, as a fraction of the peak
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION", help_heading = "Training")]
    pub final_learning_rate: f64,

    /// Steps of linear warm-up from 0 [default: 5 % of all steps, at most 1000]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub warmup: Option<u64>,

    /// Weight decay of matrices; other optimizers than AdamW have their own default
    #[arg(long, default_value_t = 0.1, value_name = "RATE", help_heading = "Training")]
    pub weight_decay: f64,

    /// beta2 of AdamW and its relatives: decay rate of the second moment
    #[arg(long, default_value_t = 0.99, value_name = "B", help_heading = "Training")]
    pub beta2: f64,

    /// Maximum global norm of the gradient; 0 disables clipping
    #[arg(long, default_value_t = 1.0, value_name = "NORM", help_heading = "Training")]
    pub clip: f64,

    /// Maximum number of consecutive non-finite steps to skip [default: end the run at the first]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub skip_non_finite: Option<u64>,

    /// Decay of an exponential moving average of the model, such as 0.999; the average is evaluated and saved
    #[arg(long, value_name = "DECAY", help_heading = "Training")]
    pub ema: Option<f64>,

    /// Steps between evaluations [default: 10 % of all steps]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub evaluate_every: Option<u64>,

    /// Stop after N evaluations without a better metric of --keep
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub patience: Option<u64>,

    /// Steps between checkpoints
    #[arg(long, default_value_t = 200, value_name = "N", requires = "output", help_heading = "Training")]
    pub checkpoint_every: u64,

    /// Number of checkpoints to keep; older ones are deleted
    #[arg(long, default_value_t = 2, value_name = "N", requires = "output", help_heading = "Training")]
    pub keep_checkpoints: usize,

    /// Model to save: last, or best:METRIC for a metric of the evaluation, such as best:accuracy
    #[arg(long, default_value_t, value_name = "MODEL", value_parser = keep_model, help_heading = "Training")]
    pub keep: KeepModel,

    /// Steps between log records [default: a tenth of all steps, at most 10]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub log_every: Option<u64>,

    /// Type of the weights in the saved model
    #[arg(
        long,
        value_enum,
        default_value_t = Dtype::F32,
        value_name = "TYPE",
        requires = "output",
        help_heading = "Training"
    )]
    pub save_dtype: Dtype,
}

/// Parses a value of `--keep`.
fn keep_model(text: &str) -> Result<KeepModel, String> {
    match text.parse::<usize>() {
        Ok(count) => {
            Err(format!("it names the model to save; --keep-checkpoints {count} is the number of checkpoints"))
        }
        Err(_) => text.parse(),
    }
}

/// Learning-rate decay.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decay {
    /// Half a cosine
    Cosine,
    /// Linear decay
    Linear,
    /// No decay
    Constant,
}

impl TrainingArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        let positive = [("learning-rate", self.learning_rate), ("epochs", self.epochs.unwrap_or(1.0))];
        check(positive, |value| value > 0.0 && value.is_finite(), "a number greater than 0")?;
        self.check_optimizer()?;
        fraction([("beta2", self.beta2), ("ema", self.ema.unwrap_or(0.0))])?;
        if let (Some(warmup), Some(steps)) = (self.warmup, self.steps)
            && warmup >= steps
            && warmup > 0
        {
            return Err(usage(format!("--warmup is {warmup}; it must be less than --steps, {steps}")));
        }
        at_least_one([
            ("batch-size", self.batch_size),
            ("accumulate", self.accumulate),
            ("log-every", self.log_every.unwrap_or(1) as usize),
            ("checkpoint-every", self.checkpoint_every as usize),
            ("keep-checkpoints", self.keep_checkpoints),
            ("steps", self.steps.unwrap_or(1) as usize),
            ("evaluate-every", self.evaluate_every.unwrap_or(1) as usize),
            ("patience", self.patience.unwrap_or(1) as usize),
            ("skip-non-finite", self.skip_non_finite.unwrap_or(1) as usize),
        ])?;
        let (decay, last) = (self.weight_decay, self.final_learning_rate);
        not_negative([("weight-decay", decay), ("clip", self.clip), ("final-learning-rate", last)])
    }

    /// Checks that `--keep` names a metric of the command's evaluation.
    pub fn check_keep(&self, metrics: &[&str]) -> Result<(), Exit> {
        let keep = self.keep;
        match keep == KeepModel::Last || metrics.contains(&keep.metric()) {
            true => Ok(()),
            false => {
                let choices: Vec<String> = metrics.iter().map(|metric| format!("best:{metric}")).collect();
                Err(usage(format!("--keep is {keep}; it must be last, or one of {}", choices.join(", "))))
            }
        }
    }

    /// Checks the held-out fraction of the data against `--patience` and `--keep`.
    pub fn check_val_fraction(&self, held_out: f64) -> Result<(), Exit> {
        fraction([("val-fraction", held_out)])?;
        match self.keep {
            _ if held_out > 0.0 => Ok(()),
            _ if self.patience.is_some() => Err(usage("--patience needs an evaluation, but --val-fraction is 0")),
            KeepModel::Last | KeepModel::Lowest("loss") => Ok(()),
            keep => Err(usage(format!("--keep {keep} needs an evaluation, but --val-fraction is 0"))),
        }
    }
}

/// Rejects options with an invalid value. `must` describes the valid values.
fn check<T: Display + Copy>(
    options: impl IntoIterator<Item = (&'static str, T)>,
    valid: impl Fn(T) -> bool,
    must: &str,
) -> Result<(), Exit> {
    match options.into_iter().find(|(_, value)| !valid(*value)) {
        Some((name, value)) => Err(usage(format!("--{name} is {value}; it must be {must}"))),
        None => Ok(()),
    }
}

/// Rejects values that are negative or not finite.
pub fn not_negative(options: impl IntoIterator<Item = (&'static str, f64)>) -> Result<(), Exit> {
    check(options, |value| value >= 0.0 && value.is_finite(), "a number, at least 0")
}

/// Rejects values outside `0.0..1.0`.
pub fn fraction(options: impl IntoIterator<Item = (&'static str, f64)>) -> Result<(), Exit> {
    check(options, |value| (0.0..1.0).contains(&value), "at least 0 and less than 1")
}

/// Rejects a fraction as a file of `--held-out`.
pub fn check_held_out<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Exit> {
    let is_number = |file: &Path| file.to_str().is_some_and(|name| name.parse::<f64>().is_ok());
    match files.into_iter().find(|file| is_number(file) && !file.exists()) {
        Some(file) => Err(usage(format!(
            "--held-out names files, but {0} is none; to hold out a part of --data, give --val-fraction {0}",
            file.display()
        ))),
        None => Ok(()),
    }
}

/// Rejects values of 0.
pub fn at_least_one(options: impl IntoIterator<Item = (&'static str, usize)>) -> Result<(), Exit> {
    check(options, |value| value > 0, "at least 1")
}

/// Rejects a `--layer-decay` outside `(0, 1]`.
pub fn check_layer_decay(value: f64) -> Result<(), Exit> {
    check([("layer-decay", value)], |value| value > 0.0 && value <= 1.0, "greater than 0 and at most 1")
}
