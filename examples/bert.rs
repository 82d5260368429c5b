//! BERT reads texts: `cargo run --example bert -- --task embed --model ./all-MiniLM-L6-v2 "A sentence"`.

use clap::Parser;
use grove::prelude::*;
use grove_cli::{
    Exit,
    bert::{self, Options},
    finish,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    finish(|| {
        options.check()?;
        options.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        bert::run::<B>(self.0, &device)
    }
}
