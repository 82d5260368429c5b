use burn::tensor::{
    DType,
    activation::{sigmoid, softmax},
};
use grove_backend::Backend;

use super::BatchOptions;
use grove_models::{Result, TextClassifier, bert::ProblemType, largest, vision::Prediction};

/// Returns the labels of texts or of text pairs, most probable first. The labels of a regression keep their order.
///
/// Scores are those of transformers' text-classification pipeline: the sigmoid for a single label (unless
/// `problem_type` is `regression`) and for multi-label classification, else the softmax.
///
/// # Errors
/// A text is empty, the tokenizer is not the model's, or the model's results are not finite.
pub fn classify<B: Backend, M: TextClassifier<B>>(
    model: &M,
    batching: BatchOptions<'_>,
    texts: &[(impl AsRef<str>, Option<impl AsRef<str>>)],
) -> Result<Vec<Vec<Prediction>>> {
    let encode = |batching: &BatchOptions<'_>, (text, pair): &(_, Option<_>)| {
        let (text, pair): (&dyn AsRef<str>, Option<&dyn AsRef<str>>) = (text, pair.as_ref().map(|pair| pair as _));
        batching.encode(text.as_ref(), pair.map(AsRef::as_ref))
    };
    let texts = batching.encode_all(texts, encode)?;
    let (labels, problem) = (model.labels(), model.scored_as()?);
    batching.in_batches(&texts, |texts| {
        let logits = model.logits(&model.texts(texts)?, None).cast(DType::F32); // [b, labels]
        let scores = match problem {
            ProblemType::SingleLabel => softmax(logits, 1),
            ProblemType::MultiLabel => sigmoid(logits),
            ProblemType::Regression => logits,
        };
        let all = BatchOptions::finite(model, scores)?;
        let of = |scores: &[f32]| {
            let order = match problem {
                ProblemType::Regression => (0..labels.len()).collect(),
                _ => largest(scores, labels.len()),
            };
            let label = |class: usize| Prediction { class, label: labels[class].clone(), score: scores[class] };
            order.into_iter().map(label).collect()
        };
        Ok(all.chunks(labels.len()).map(of).collect())
    })
}
