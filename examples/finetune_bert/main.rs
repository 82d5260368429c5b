//! Fine-tunes a BERT on labelled texts: `cargo run --example finetune_bert -- --model DIR --data reviews.csv --output run`.

#[path = "../common/mod.rs"]
mod common;
mod data;
#[path = "../common/encoder.rs"]
mod encoder;
#[path = "../common/labelled/mod.rs"]
mod labelled;
mod model;
mod optimizer;
mod options;
mod report;
mod train;
#[path = "../common/training/mod.rs"]
mod training;

use clap::Parser;
use grove::{prelude::*, train::Ended};
use std::process::ExitCode;

use common::Exit;
use options::Options;
use training::finish_run;

fn main() -> ExitCode {
    let options = Options::parse();
    finish_run(|| {
        options.check().map_err(Exit::Usage)?;
        options.run.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        train::run::<B>(self.0, &device)
    }
}
