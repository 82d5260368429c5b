//! Trains recurrent networks: `cargo run --example train_rnn -- lm --data book.txt --output run`.

use clap::{Args, Parser, Subcommand};
use grove_cli::{DeviceArgs, arguments::parse_options, language::LmOptions, program, rnn::ClassifyOptions};
use std::process::ExitCode;

/// Trains recurrent networks: LSTM, GRU and plain cells.
///
/// Without a subcommand, it trains a small model for half a minute on the text that ships with grove, as a
/// demonstration. Ctrl-C ends a run with a checkpoint; the same command with --resume continues it.
#[derive(Parser, Debug)]
#[command(name = "train_rnn", version, args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    task: Option<Task>,

    #[command(flatten)]
    demonstration: Demonstration,
}

#[derive(Subcommand, Debug)]
enum Task {
    /// Train a language model, which the example `rnn` uses to generate text
    Lm(Box<LmOptions>),
    /// Train a text classifier
    Classify(Box<ClassifyOptions>),
}

/// Options of the demonstration.
#[derive(Args, Debug)]
struct Demonstration {
    #[command(flatten)]
    device: DeviceArgs,

    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

impl From<Demonstration> for Task {
    fn from(Demonstration { device, json }: Demonstration) -> Self {
        let sizes =
            ["lm", "--layers", "1", "--hidden", "128", "--batch-size", "8", "--epochs", "2", "--learning-rate", "5e-3"];
        let mut options = LmOptions::parse_from(sizes);
        (options.language.run.device, options.language.run.json) = (device, json);
        Self::Lm(Box::new(options))
    }
}

fn main() -> ExitCode {
    let Options { task, demonstration } = parse_options::<Options>();
    match task.unwrap_or_else(|| demonstration.into()) {
        Task::Lm(options) => program::main(&*options),
        Task::Classify(options) => program::main(&*options),
    }
}
