//! A ViT tells what is on images, and where it looked: `cargo run --example vit -- --image cat.jpg --attention seen.png`.

use clap::Parser;
use grove::prelude::*;
use grove_cli::{
    Exit, finish,
    published::Published,
    vision::{ClassifyArgs, attention, classify},
};
use std::{path::PathBuf, process::ExitCode};

/// Tells what is on images with a ViT or a DINOv2 classifier of transformers, timm or torchvision.
///
/// Images are JPEG, PNG, WebP, GIF, BMP or TIFF. Without arguments a small model that ships with grove, trained on
/// handwritten digits, reads one.
#[derive(Parser, Debug)]
#[command(name = "vit", version)]
struct Options {
    /// Directory, weights file, or hub id, such as google/vit-base-patch16-224 or timm/vit_small_patch16_224.augreg_in1k
    /// [default: a small model that ships with grove]
    #[arg(long)]
    model: Option<String>,

    /// Draw over the image where the model looked (attention rollout), as PNG; for one image
    #[arg(long, value_name = "FILE")]
    attention: Option<PathBuf>,

    #[command(flatten)]
    classify: ClassifyArgs,
}

/// The image that ships with grove.
const IMAGE: &str = "images/digit.png";

fn main() -> ExitCode {
    let options = Options::parse();
    finish(|| {
        options.classify.check()?;
        let several = options.classify.image.len() > 1 || options.classify.image.iter().any(|path| path.is_dir());
        if options.attention.is_some() && several {
            return Err(Exit::Usage("--attention draws over one image: give one --image".into()));
        }
        if let Some(file) = &options.attention {
            attention::check(file, &options.classify.paths(IMAGE))?;
        }
        options.classify.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        let Options { model, attention, classify: options } = self.0;
        let published = Published::open(model.as_deref(), "mnist-vit")?;
        classify::<B, Vit<B>>(options, &published, IMAGE, &device, |model, preprocessor, image| match attention {
            Some(file) => attention::draw(model, preprocessor, image, file, &device),
            None => Ok(()),
        })
    }
}
