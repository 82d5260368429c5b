//! Classifying images, whichever the model.

use clap::Args;
use grove::{
    images::Preprocessor,
    models::{
        check_finite,
        vision::{ImageClassifier, Prediction, predictions},
    },
    prelude::*,
    tensor::TensorData,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::{io::IsTerminal, path::PathBuf};

use super::{NamedImage, Published, bars::bars, preprocessor_of, read_images};
use crate::{DeviceArgs, Exit, failure, shipped, training::at_least_one, write_json, write_line};

/// Limits of image sizes.
#[derive(Args, Debug, Clone, Copy)]
pub struct SizeArgs {
    /// Most patches of an image for a ViT, whose work grows with the square of their number
    #[arg(long, value_name = "N", default_value_t = 16384)]
    pub max_patches: usize,
}

impl SizeArgs {
    /// Refuses images of a height and width that the model cannot read, or that are beyond the limit.
    pub fn check<B: Backend, M: ImageClassifier<B>>(&self, model: &M, size: [usize; 2]) -> Result<(), String> {
        model.check_size(size, self.max_patches).map_err(|error| {
            let patches = size.iter().all(|&side| side > 0) && model.check_size(size, usize::MAX).is_ok();
            let advice = if patches { "prepare them smaller, or raise --max-patches" } else { "prepare them larger" };
            format!("{error}: {advice}")
        })
    }
}

/// Options of every program that classifies images.
#[derive(Args, Debug)]
pub struct ClassifyArgs {
    /// Images, and folders of images; - is standard input [default: an image that ships with grove]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub image: Vec<PathBuf>,

    /// Number of classes to show for each image
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub top_k: usize,

    /// Images that are looked at together
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub batch_size: usize,

    /// Preprocessing: torchvision, torchvision-v2, vit, timm, timm-imagenet, mnist, cifar10, or a
    /// preprocessor_config.json [default: the files beside the model]
    #[arg(long, value_name = "NAME")]
    pub preprocess: Option<String>,

    /// Limits of image sizes.
    #[command(flatten)]
    pub sizes: SizeArgs,

    /// Device and type.
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl ClassifyArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        at_least_one("top-k", self.top_k)?;
        at_least_one("batch-size", self.batch_size)
    }

    /// The images and folders that are looked at.
    pub fn paths(&self, default: &str) -> Vec<PathBuf> {
        if self.image.is_empty() { vec![shipped(default)] } else { self.image.clone() }
    }
}

/// Classification of one image.
struct Classified {
    name: String,
    found: Vec<Prediction>,
}

/// Loads a model and tells what it takes images for. `look` gets each image that was read, with the model, before it is
/// told.
pub fn classify<B: Backend, M: ImageClassifier<B>>(
    options: &ClassifyArgs,
    published: &Published,
    image: &str,
    device: &B::Device,
    mut look: impl FnMut(&M, &Preprocessor, &NamedImage) -> Result<(), Exit>,
) -> Result<(), Exit> {
    let (model, _) = M::from_path(&published.path, device, Some(options.device.dtype.into())).map_err(failure)?;
    if model.labels().is_empty() {
        let path = published.path.display();
        return Err(failure(format!(
            "{path} has no head that tells classes apart: give it one with `cargo run --example finetune_vision`"
        )));
    }
    let channels = model.channels();
    let preprocessor = preprocessor_of(options.preprocess.as_deref(), &published.directory, channels)?;
    let bar = progress();
    let mut all = Vec::new();
    let skipped = read_images(
        &options.paths(image),
        options.batch_size,
        |done, of| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        },
        |images| {
            let found = batch(&model, &preprocessor, &images, options, device)?;
            for (image, found) in images.into_iter().zip(found) {
                look(&model, &preprocessor, &image)?;
                let classified = Classified { name: image.name, found };
                if !options.json {
                    bar.suspend(|| tell(&classified))?;
                }
                all.push(classified);
            }
            Ok(())
        },
    )?;
    bar.finish_and_clear();
    if options.json {
        let model = published.path.display().to_string();
        return write_json(
            &json!({"model": model, "skipped": skipped, "images": all.iter().map(object).collect::<Vec<_>>()}),
        );
    }
    if skipped > 0 {
        eprintln!("{skipped} images were left out, as they cannot be read");
    }
    Ok(())
}

/// Drawn where a person looks, when there is something to wait for.
fn progress() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len} images, {eta} left");
    ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Classes of images, which are one batch where all come out in one size.
fn batch<B: Backend, M: ImageClassifier<B>>(
    model: &M,
    preprocessor: &Preprocessor,
    images: &[NamedImage],
    options: &ClassifyArgs,
    device: &B::Device,
) -> Result<Vec<Vec<Prediction>>, Exit> {
    let mut pixels: Vec<([usize; 2], Vec<f32>)> = Vec::with_capacity(images.len());
    for image in images {
        let failed = |error| failure(format!("{}: {error}", image.name));
        let prepared = preprocessor.prepare(&image.image).map_err(failed)?;
        let size = [prepared.height() as usize, prepared.width() as usize];
        options.sizes.check(model, size).map_err(|error| failure(format!("{}: {error}", image.name)))?;
        pixels.push((size, preprocessor.normalise(&prepared).map_err(failed)?));
    }
    let mut found = Vec::with_capacity(images.len());
    for group in pixels.chunk_by(|a, b| a.0 == b.0) {
        let ([h, w], n) = (group[0].0, group.len());
        let values: Vec<f32> = group.iter().flat_map(|(_, values)| values.iter().copied()).collect();
        let data = TensorData::new(values, [n, preprocessor.channels(), h, w]);
        let of_group = predictions(model.logits(Tensor::from_data(data, device)), model.labels(), options.top_k);
        let probabilities = of_group.iter().flatten().map(|found| f64::from(found.probability));
        check_finite(model, probabilities).map_err(failure)?;
        found.extend(of_group);
    }
    Ok(found)
}

fn tell(classified: &Classified) -> Result<(), Exit> {
    write_line(&format!("{}\n{}\n", classified.name, bars(&classified.found)))
}

fn object(classified: &Classified) -> Value {
    let prediction = |p: &Prediction| json!({"class": p.class, "label": p.label, "probability": p.probability});
    json!({"image": classified.name, "predictions": classified.found.iter().map(prediction).collect::<Vec<_>>()})
}
