use burn::tensor::{Tensor, TensorData};
use grove_backend::Backend;

use super::ImageClassifier;
use crate::{
    error::Result,
    finite::check_finite,
    prediction::{Prediction, predictions},
};

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
