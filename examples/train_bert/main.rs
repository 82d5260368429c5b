//! Trains a BERT on text: `cargo run --example train_bert -- --data book.txt --output run`.

#[path = "../common/mod.rs"]
mod common;
mod data;
#[path = "../common/documents.rs"]
mod documents;
#[path = "../common/encoder.rs"]
mod encoder;
mod init;
mod options;
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
