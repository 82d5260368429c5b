//! Classifies images with a ResNet: `cargo run --example resnet -- --model microsoft/resnet-50 --image cat.jpg`.

use clap::Parser;
use grove::{models::ModelKind, prelude::*, train::Ended};
use grove_cli::{
    Exit,
    arguments::parse_options,
    kind::check_kind,
    program::{self, Command},
    resolve,
    vision::{ClassifyArgs, classify, suggest_published},
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
    program::main(&parse_options::<Options>())
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.classify.check()
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let path = resolve(self.model.as_deref(), "mnist-resnet")?;
        check_kind(&path, ModelKind::ResNet)?;
        classify::<B, ResNet<B>>(&self.classify, &path, device, |_, _, _| Ok(()))?;
        suggest_published(self.model.as_deref(), &self.classify, "microsoft/resnet-50");
        Ok(Ended::Finished)
    }
}
