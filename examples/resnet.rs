//! Classifies images with a ResNet: `cargo run --example resnet -- --model microsoft/resnet-50 --image cat.jpg`.

use clap::Parser;
use grove::{models::ModelKind, prelude::*};
use grove_cli::{
    Exit,
    arguments::parse_options,
    finish,
    kind::check_kind,
    resolve,
    vision::{ClassifyArgs, classify},
};
use std::process::ExitCode;

/// Classifies images with a ResNet, wide ResNet or ResNeXt of torchvision, timm or transformers.
///
/// Images are JPEG, PNG, WebP, GIF, BMP or TIFF. Without arguments, a small network for handwritten digits, which ships
/// with grove, classifies an example image.
#[derive(Parser, Debug)]
#[command(name = "resnet", version)]
struct Options {
    /// Directory, weights file, or hub id, such as microsoft/resnet-50 or timm/resnet50.a1_in1k [default: a small network
    /// that ships with grove]
    #[arg(long)]
    model: Option<String>,

    #[command(flatten)]
    classify: ClassifyArgs,
}

fn main() -> ExitCode {
    let options = parse_options::<Options>();
    finish(|| grove::run(options.classify.check()?, Run(&options))?)
}

/// The program, generic in the backend.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        let path = resolve(self.0.model.as_deref(), "mnist-resnet")?;
        check_kind(&path, ModelKind::ResNet)?;
        classify::<B, ResNet<B>>(&self.0.classify, &path, &device, |_, _, _| Ok(()))
    }
}
