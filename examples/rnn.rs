//! A recurrent language model continues a text: `cargo run --example rnn -- --prompt "The letter was"`.

use clap::Parser;
use grove::{
    models::{RnnLm, RnnLmConfig},
    prelude::*,
    weights::FilePatterns,
};
use grove_cli::{
    DeviceArgs, Exit, failure, finish,
    generation::{self, GenerationArgs, print_summary},
    resolve,
    rnn::CompareArgs,
};
use std::process::ExitCode;

/// The model where nothing else is given: a small one that grove trained itself, on Jane Austen's novels.
const SHIPPED: &str = "rnn-austen";

/// Generates text with a recurrent language model, such as the example `train_rnn` makes.
///
/// With --compare it times recurrent layers instead.
#[derive(Parser, Debug)]
#[command(
    name = "rnn",
    version,
    mut_arg("max_new_tokens", |arg| arg.default_value("400").help("Most tokens to generate; a token may be a character")),
)]
struct Options {
    /// Directory, weights file, or hub id. Without it, the small model that ships with grove
    #[arg(long)]
    model: Option<String>,

    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    generation: GenerationArgs,

    /// Do not generate: print the table of parameters. No weights are read
    #[arg(long, conflicts_with = "score")]
    summary: bool,

    #[command(flatten)]
    compare: CompareArgs,
}

fn main() -> ExitCode {
    let options = Options::parse();
    finish(|| {
        options.generation.check()?;
        options.compare.check()?;
        options.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        let Options { model, device: DeviceArgs { dtype, .. }, generation, summary, compare } = self.0;
        if compare.compare {
            return compare.run::<B>(*dtype, generation.seed, generation.json, &device);
        }
        if *summary {
            let path = resolve(model.as_deref(), SHIPPED, &FilePatterns::files(["config.json"]))?;
            let config = RnnLmConfig::beside(path).map_err(failure)?;
            let skeleton = RnnLm::<B>::skeleton(&config).map_err(failure)?;
            return print_summary(generation, &skeleton, tree::count_params(&skeleton), None);
        }
        let path = resolve(model.as_deref(), SHIPPED, &FilePatterns::model())?;
        let load = || Ok(RnnLm::<B>::from_path(&path, &device, Some((*dtype).into())).map_err(failure)?.0);
        generation::run(generation, &path, load)
    }
}
