//! Tasks of image classifiers.

use burn::tensor::{Tensor, TensorData};
use grove_backend::Backend;

use grove_models::{
    Result, check_finite,
    vision::{ImageClassifier, Prediction, scored},
};

/// Returns the `k` most likely classes of each image, most likely first. Consecutive images of the same size form one
/// batch.
///
/// - `images`: height and width, and the values `[channels, height, width]` of each image
///
/// # Errors
/// [`ModelError::NotFinite`](grove_models::ModelError::NotFinite).
pub fn classify_images<B: Backend, M: ImageClassifier<B>>(
    model: &M,
    images: &[([usize; 2], Vec<f32>)],
    k: usize,
    device: &B::Device,
) -> Result<Vec<Vec<Prediction>>> {
    let mut found = Vec::with_capacity(images.len());
    for group in images.chunk_by(|a, b| a.0 == b.0) {
        let ([h, w], n) = (group[0].0, group.len());
        let values: Vec<f32> = group.iter().flat_map(|(_, values)| values.iter().copied()).collect();
        let pixels = Tensor::from_data(TensorData::new(values, [n, model.channels(), h, w]), device);
        let of_group = scored(model.logits(pixels), model.labels(), k, model.problem());
        check_finite(model, of_group.iter().flatten().map(|found| f64::from(found.score)))?;
        found.extend(of_group);
    }
    Ok(found)
}
