//! Trains a classifier of images from scratch: `cargo run --example train_vision -- --arch vit --data images --output run`.

use clap::Parser;
use grove::{prelude::*, train::Ended};
use grove_cli::{
    Exit,
    train_vision::{self, Options},
    training::finish_run,
};
use std::process::ExitCode;

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
        train_vision::run::<B>(self.0, &device)
    }
}
