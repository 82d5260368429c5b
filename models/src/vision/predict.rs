use burn::tensor::{Tensor, TensorData};
use grove_backend::Backend;

use super::ImageClassifier;
use crate::{
    error::Result,
    finite::check_finite,
    prediction::{Prediction, scored},
};

/// Returns the `k` most likely classes of each image, most likely first. Consecutive images of the same size form one
/// batch.
///
/// - `images`: height and width, and the values `[channels, height, width]` of each image
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
        let of_group = scored(model.logits(pixels), model.labels(), k, model.problem());
        check_finite(model, of_group.iter().flatten().map(|found| f64::from(found.probability)))?;
        found.extend(of_group);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{prediction::predictions, problem_type::ProblemType};
    use burn_flex::Flex;
    use serde_json::json;

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

    /// Expected: the scores of transformers' image-classification pipeline.
    #[test]
    fn the_problem_type_says_what_logits_are() {
        let scores = |problem: serde_json::Value, classes: usize| {
            let fields = json!({ "problem_type": problem });
            ProblemType::of_fields(fields.as_object().unwrap(), classes)
        };
        let first = |kind: ProblemType| {
            let logits = Tensor::<Flex, 2>::from_data([[3f32.ln(), 0.0]], &Default::default());
            let found = scored(logits, &[], 2, kind);
            found[0].iter().map(|p| (p.probability * 1000.0).round()).collect::<Vec<_>>()
        };
        assert_eq!(first(scores(json!(null), 2).unwrap()), [750.0, 250.0]);
        assert_eq!(first(scores(json!("multi_label_classification"), 2).unwrap()), [750.0, 500.0]);
        assert_eq!(first(scores(json!("regression"), 2).unwrap()), [1099.0, 0.0]);
        assert_eq!(scores(json!(null), 1).unwrap(), ProblemType::MultiLabel);
        let error = scores(json!("ranking"), 2).unwrap_err().to_string();
        assert!(error.contains("problem_type is \"ranking\""), "{error}");
    }
}
