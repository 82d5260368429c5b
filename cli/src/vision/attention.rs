//! A ViT's attention, drawn over the image.

use grove::{
    images::{Filter, Preprocessor, RgbImage, resize},
    models::vit::{Pooling, attention_rollout},
    prelude::*,
    tensor::TensorData,
};
use std::path::{Path, PathBuf};

use crate::{Exit, failure, vision::NamedImage};

/// Pixels of the drawing's shorter side, at least.
const SHORTER: u32 = 448;

/// Refuses a file that cannot be written as a PNG, or that is one of the images that are looked at.
pub fn check(file: &Path, images: &[PathBuf]) -> Result<(), Exit> {
    let named = file.display();
    if !file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png")) {
        return Err(Exit::Usage(format!("--attention writes a PNG: {named} has to end in .png")));
    }
    // A name that does not exist yet is not that of an image; links lead to the same file.
    let Ok(output) = file.canonicalize() else { return Ok(()) };
    if images.iter().any(|image| image.canonicalize().is_ok_and(|image| image == output)) {
        return Err(Exit::Usage(format!("--attention would overwrite the image {named}: name another file")));
    }
    Ok(())
}

/// Writes the image as the model saw it, dark where it did not look.
pub fn draw<B: Backend>(
    model: &Vit<B>,
    preprocessor: &Preprocessor,
    image: &NamedImage,
    file: &Path,
    device: &B::Device,
) -> Result<(), Exit> {
    let failed = |error| failure(format!("{}: {error}", image.name));
    let seen = preprocessor.prepare(&image.image).map_err(failed)?;
    let (w, h) = seen.dimensions();
    let values = preprocessor.normalise(&seen).map_err(failed)?;
    let data = TensorData::new(values, [1, preprocessor.channels(), h as usize, w as usize]);
    let rollout = attention_rollout(&model.attentions(Tensor::from_data(data, device)));
    let (config, t) = (&model.config, rollout.dims()[1]);
    let prefix = config.prefix_tokens();
    let patches = rollout.narrow(2, prefix, t - prefix);
    // Input of the head: the class token, or all patches.
    let rows = match config.pooling {
        Pooling::Class | Pooling::ClassAndMean => patches.narrow(1, 0, 1),
        Pooling::Mean | Pooling::MeanThenNorm => patches.narrow(1, prefix, t - prefix).mean_dim(1),
    };
    let weights: Vec<f32> = rows.into_data().iter().collect();
    let (columns, rows) = (w / config.patch_size as u32, h / config.patch_size as u32);
    let overlay = overlay(&seen, &weights, columns, rows)?;
    save(&overlay, file)
}

fn overlay(seen: &RgbImage, weights: &[f32], columns: u32, rows: u32) -> Result<RgbImage, Exit> {
    let least = weights.iter().copied().fold(f32::INFINITY, f32::min);
    let most = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let level = |weight: &f32| (255.0 * (weight - least) / (most - least).max(1e-12)).round() as u8;
    let levels = weights.iter().flat_map(|weight| [level(weight); 3]).collect();
    let map = RgbImage::from_raw(columns, rows, levels).ok_or_else(|| failure("as many weights as patches"))?;
    let scale = SHORTER.div_ceil(seen.width().min(seen.height()).max(1)).max(1);
    let (w, h) = (seen.width() * scale, seen.height() * scale);
    let (mut image, map) = (resize(seen, w, h, Filter::Bicubic), resize(&map, w, h, Filter::Bicubic));
    for (pixel, weight) in image.pixels_mut().zip(map.pixels()) {
        let weight = f32::from(weight.0[0]) / 255.0;
        let heat = colour(weight);
        for (value, heat) in pixel.0.iter_mut().zip(heat) {
            *value = (0.5 * f32::from(*value) + 0.5 * heat).round() as u8;
        }
    }
    Ok(image)
}

/// From dark blue over red to yellow, as heat is drawn; each channel from 0 to 255.
fn colour(weight: f32) -> [f32; 3] {
    let stops = [[10.0, 10.0, 60.0], [130.0, 20.0, 110.0], [230.0, 60.0, 40.0], [255.0, 240.0, 90.0]];
    let at = weight.clamp(0.0, 1.0) * 3.0;
    let (i, part) = ((at as usize).min(2), at - (at as usize).min(2) as f32);
    [0, 1, 2].map(|c| stops[i][c] * (1.0 - part) + stops[i + 1][c] * part)
}

/// Writes a PNG beside the old file and takes its name at the end.
fn save(image: &RgbImage, file: &Path) -> Result<(), Exit> {
    grove::images::save_png(image, file).map_err(failure)
}
