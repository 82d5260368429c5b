//! Classifies images with a ViT, and shows its attention: `cargo run --example vit -- --image cat.jpg --attention
//! seen.png`.

use clap::Parser;
use grove::{
    images::{Preprocessor, heatmap, heatmap_scale, save_png},
    models::ModelKind,
    prelude::*,
    tensor::TensorData,
    train::Ended,
};
use grove_cli::{
    Exit,
    arguments::parse_options,
    kind::check_kind,
    program::{self, Command},
    resolve, usage,
    vision::{ClassifyArgs, NamedImage, classify, suggest_published},
};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Classifies images with a ViT or a DINOv2 classifier of transformers, timm or torchvision.
///
/// Images are JPEG, PNG, WebP, GIF, BMP or TIFF. Without arguments, a small model for handwritten digits, which ships
/// with grove, classifies an example image.
#[derive(Parser, Debug)]
#[command(name = "vit", version)]
struct Options {
    /// Directory, weights file, or hub id, such as google/vit-base-patch16-224 or timm/vit_small_patch16_224.augreg_in1k
    /// [default: a small model that ships with grove]
    #[arg(long)]
    model: Option<String>,

    /// Write a PNG of the image with the model's attention (attention rollout); for a single image
    #[arg(long, value_name = "FILE")]
    attention: Option<PathBuf>,

    #[command(flatten)]
    classify: ClassifyArgs,
}

fn main() -> ExitCode {
    program::main(&parse_options::<Options>())
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        let device = self.classify.check()?;
        let Some(file) = &self.attention else { return Ok(device) };
        let paths = self.classify.paths();
        if paths.len() > 1 || paths.iter().any(|path| path.is_dir()) {
            return Err(usage("--attention needs exactly one --image"));
        }
        check_attention(file, &paths)?;
        Ok(device)
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let Self { model, attention, classify: options } = self;
        let path = resolve(model.as_deref(), "mnist-vit")?;
        check_kind(&path, ModelKind::Vit)?;
        classify::<B, Vit<B>>(options, &path, device, |model, preprocessor, image| match attention {
            Some(file) => draw_attention(model, preprocessor, image, file, device),
            None => Ok(()),
        })?;
        suggest_published(model.as_deref(), options, "google/vit-base-patch16-224");
        Ok(Ended::Finished)
    }
}

/// Minimum length of the shorter side of the heat map, in pixels.
const SHORTER: u32 = 448;

/// Returns an error if the file is not named .png, or is one of the input images.
fn check_attention(file: &Path, images: &[PathBuf]) -> Result<(), Exit> {
    let named = file.display();
    if !file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png")) {
        return Err(usage(format!("--attention writes a PNG file: {named} must end in .png")));
    }
    // A file that does not exist yet cannot be an input image. Canonical paths resolve links.
    let Ok(output) = file.canonicalize() else { return Ok(()) };
    if images.iter().any(|image| image.canonicalize().is_ok_and(|image| image == output)) {
        return Err(usage(format!("--attention would overwrite the image {named}: name another file")));
    }
    Ok(())
}

/// Writes the preprocessed image, darkened where the attention is low, and the scale of the colours below it.
fn draw_attention<B: Backend>(
    model: &Vit<B>,
    preprocessor: &Preprocessor,
    image: &NamedImage,
    file: &Path,
    device: &B::Device,
) -> Result<(), Exit> {
    let failed = |error| image.failed(error);
    let seen = preprocessor.prepare(&image.image).map_err(failed)?;
    let (w, h) = seen.dimensions();
    let values = preprocessor.normalise(&seen).map_err(failed)?;
    let data = TensorData::new(values, [1, preprocessor.channels(), h as usize, w as usize]);
    let weights: Vec<f32> = model.attention_map(Tensor::from_data(data, device)).into_data().iter().collect();
    let patch = model.config.patch_size as u32;
    let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
    let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let map = heatmap(&seen, &weights, [h / patch, w / patch], SHORTER)?;
    save_png(&heatmap_scale(&map, least, most), file)?;
    eprintln!(
        "the attention map is in {}; weights of the patches: {least:.4} (dark) to {most:.4} (bright)",
        file.display()
    );
    Ok(())
}
