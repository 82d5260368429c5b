//! Trains a LLaMA on text: `cargo run --example train_llama -- --data book.txt --output run`.

use clap::Parser;
use grove::{models::Llama, prelude::*, train::Ended};
use grove_cli::{
    Exit,
    language::{self, LlamaOptions},
    training::finish_run,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = LlamaOptions::parse();
    finish_run(|| {
        options.language.check().map_err(Exit::Usage)?;
        options.language.run.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a LlamaOptions);

impl Program for Run<'_> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        language::run::<B, Llama<B>>(&self.0.language, &self.0.sizes, &device)
    }
}
