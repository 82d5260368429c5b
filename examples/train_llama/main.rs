//! Trains a LLaMA on text: `cargo run --example train_llama -- --data book.txt --output run`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/language/mod.rs"]
mod language;
mod model;
#[path = "../common/training/mod.rs"]
mod training;

use clap::Parser;
use grove::{models::Llama, prelude::*, train::Ended};
use std::process::ExitCode;

use common::Exit;
use language::LanguageArgs;
use training::finish_run;

/// Trains a LLaMA on text: a new one of any size, or one that exists.
///
/// Without arguments it trains a tiny model for a minute or two on the text that ships with grove, to show what happens.
/// Ctrl-C ends a run after a checkpoint, and the same command with --resume goes on.
#[derive(Parser, Debug)]
#[command(name = "train_llama", version, allow_negative_numbers = true)]
struct Options {
    #[command(flatten)]
    language: LanguageArgs,

    #[command(flatten)]
    sizes: model::Sizes,
}

fn main() -> ExitCode {
    let options = Options::parse();
    finish_run(|| {
        options.language.check().map_err(Exit::Usage)?;
        options.language.run.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        language::run::<B, Llama<B>>(&self.0.language, &self.0.sizes, &device)
    }
}
