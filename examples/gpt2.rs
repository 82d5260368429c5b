//! GPT-2 continues a text: `cargo run --example gpt2 -- --prompt "The letter was"`.

mod common;
#[path = "common/generation/mod.rs"]
mod generation;

use clap::Parser;
use grove::{
    models::{Gpt2, Gpt2Config},
    prelude::*,
    weights::Wanted,
};
use std::{path::Path, process::ExitCode};

use common::{DeviceArgs, Exit, failure, finish, resolve};
use generation::{GenerationArgs, print_summary};

/// The model where nothing else is given: a small one that grove trained itself, on Jane Austen's novels.
const SHIPPED: &str = "gpt2-austen";

/// Generates text with GPT-2, in any published size.
#[derive(Parser, Debug)]
#[command(name = "gpt2", version)]
struct Options {
    /// Directory, weights file, or hub id (as `openai-community/gpt2`, `gpt2-xl`, `user/model@revision`). Without it,
    /// the small model that ships with grove
    #[arg(long)]
    model: Option<String>,

    #[command(flatten)]
    device: DeviceArgs,

    #[command(flatten)]
    generation: GenerationArgs,

    /// Do not generate: print the table of parameters. No weights are read; a preset's name will do as the model
    #[arg(long, conflicts_with = "score")]
    summary: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    finish(|| {
        options.generation.check()?;
        options.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        let Options { model, device: DeviceArgs { dtype, .. }, generation, summary } = self.0;
        if *summary {
            let skeleton = Gpt2::<B>::skeleton(&config(model.as_deref())?).map_err(failure)?;
            return print_summary(generation, &skeleton);
        }
        let path = resolve(model.as_deref(), SHIPPED, &Wanted::model())?;
        let load = || Ok(Gpt2::<B>::from_path(&path, &device, Some((*dtype).into()))?.0);
        generation::run(generation, &path, load, Gpt2::forward)?;
        if model.is_none() && !generation.score && !generation.json {
            eprintln!("[this was grove's own small model; for the published one: --model openai-community/gpt2]");
        }
        Ok(())
    }
}

/// The sizes of a model that need not be here.
fn config(model: Option<&str>) -> Result<Gpt2Config, Exit> {
    let preset = model.filter(|model| !Path::new(model).exists()).map(Gpt2Config::preset);
    match preset {
        Some(Ok(config)) => Ok(config),
        _ => Gpt2Config::beside(resolve(model, SHIPPED, &Wanted::files(["config.json"]))?).map_err(failure),
    }
}
