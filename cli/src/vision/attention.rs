//! A ViT's attention, drawn over the image.

use grove::{
    images::{Preprocessor, heatmap, save_png},
    tensor::TensorData,
};

use crate::{prelude::*, vision::NamedImage};

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
    let failed = |error| image.failed(error);
    let seen = preprocessor.prepare(&image.image).map_err(failed)?;
    let (w, h) = seen.dimensions();
    let values = preprocessor.normalise(&seen).map_err(failed)?;
    let data = TensorData::new(values, [1, preprocessor.channels(), h as usize, w as usize]);
    let weights: Vec<f32> = model.attention_map(Tensor::from_data(data, device)).into_data().iter().collect();
    let patch = model.config.patch_size as u32;
    Ok(save_png(&heatmap(&seen, &weights, [h / patch, w / patch], SHORTER)?, file)?)
}
