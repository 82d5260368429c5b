//! Generates text with a recurrent language model: `cargo run --example rnn -- --prompt "The letter was"`.

use clap::Parser;
use grove::{models::family, prelude::*, train::Ended};
use grove_bench::CompareArgs;
use grove_cli::{
    Exit,
    arguments::parse_options,
    generation::decoder::{DecoderArgs, Run},
    program::{self, Command},
};
use std::process::ExitCode;

/// Generates text with a recurrent language model, such as one trained by the example `train_rnn`.
///
/// With --compare, measures the time of recurrent layers instead.
#[derive(Parser, Debug)]
#[command(
    name = "rnn",
    version,
    mut_arg("model", |arg| arg.help("Directory, weights file, or hub id [default: the small model that ships with grove]")),
    mut_arg("summary", |arg| arg.help("Print the table of parameters instead of generating; reads no weights")),
    mut_arg("max_new_tokens", |arg| arg.default_value("400").help("Maximum number of tokens to generate; a token may be a character")),
)]
struct Options {
    #[command(flatten)]
    decoder: DecoderArgs,

    #[command(flatten)]
    compare: CompareArgs,
}

fn main() -> ExitCode {
    program::main(&parse_options::<Options>())
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.compare.check()?;
        self.decoder.check()
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let DecoderArgs { device: device_args, generation, .. } = &self.decoder;
        if self.compare.compare {
            self.compare.run::<B>(device_args.dtype, generation.seed, generation.json, device)?;
            return Ok(Ended::Finished);
        }
        Run { options: &self.decoder, chat: None, file: None, family: family::RnnLm }.run::<B>(device)
    }
}
