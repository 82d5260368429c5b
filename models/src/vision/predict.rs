use burn::tensor::{Tensor, TensorData};
use grove_backend::Backend;
use serde::Serialize;

use super::ImageClassifier;
use crate::{error::Result, finite::check_finite, rank::largest};

/// A class of an image and its probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Its index.
    pub class: usize,
    /// Its name.
    pub label: String,
    /// Its probability, from 0 to 1; all classes sum to 1.
    pub probability: f32,
}

/// Returns the most likely classes of each image, the most likely first.
///
/// - logits: `[b, classes]`
/// - labels: the classes' names, as many
/// - `k`: how many of each, or all if there are fewer
pub fn predictions<B: Backend>(logits: Tensor<B, 2>, labels: &[String], k: usize) -> Vec<Vec<Prediction>> {
    let classes = logits.dims()[1];
    let logits: Vec<f32> = logits.into_data().iter().collect();
    let row = |logits: &[f32]| {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
        let prediction = |class: usize| Prediction {
            class,
            label: labels.get(class).cloned().unwrap_or_else(|| class.to_string()),
            probability: (logits[class] - most).exp() / sum,
        };
        largest(logits, k).into_iter().map(prediction).collect()
    };
    logits.chunks(classes.max(1)).map(row).collect()
}

/// Returns the most likely `k` classes of each image, the most likely first. Images of one size that follow each other are
/// one batch.
///
/// - `images`: height and width, and the values of each, `[channels, height, width]`
///
/// # Errors
/// [`ModelError::NotFinite`](crate::ModelError::NotFinite).
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
        let of_group = predictions(model.logits(pixels), model.labels(), k);
        check_finite(model, of_group.iter().flatten().map(|found| f64::from(found.probability)))?;
        found.extend(of_group);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn the_likeliest_come_first() {
        let logits = Tensor::<Flex, 2>::from_data([[0.0, 3f32.ln(), 0.0], [5.0, 5.0, -1e9]], &Default::default());
        let labels = ["a", "b", "c"].map(str::to_owned);
        let found = predictions(logits, &labels, 2);
        let short =
            |row: &[Prediction]| row.iter().map(|p| (p.class, (p.probability * 100.0).round())).collect::<Vec<_>>();
        assert_eq!(found[0][0].label, "b");
        assert_eq!((short(&found[0]), short(&found[1])), (vec![(1, 60.0), (0, 20.0)], vec![(0, 50.0), (1, 50.0)]));
    }
}
