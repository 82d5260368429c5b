use burn::tensor::{Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_layers::loss::CrossEntropy;
use grove_models::{TextClassifier, bert::TextIds};
use grove_optim::GradientTransformation;
use grove_tree::Key;
use std::sync::Arc;

use super::classes_on;
use crate::{
    ClassifierScore, DataIdentity, FitOptions, Fitted, Outcome, Result,
    data::{DataError, Examples, LabelledText, with_classes},
    fit,
};

/// A text as a classifier reads it, and its class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextExample {
    /// Its tokens.
    pub text: TextIds,
    /// Index of its label.
    pub class: usize,
}

/// Encodes labelled texts, with the indices of their labels. `encode` gives the tokens of a text, or says what is wrong
/// with it.
///
/// # Errors
/// The first error of `encode`, with the place of the text; a label that is not in the list.
pub fn encode_examples<E: std::fmt::Display>(
    texts: Vec<LabelledText>,
    labels: &[String],
    mut encode: impl FnMut(&LabelledText) -> Result<TextIds, E>,
) -> Result<Vec<TextExample>, DataError> {
    let example = |(class, text): (usize, LabelledText)| match encode(&text) {
        Ok(text) => Ok(TextExample { text, class }),
        Err(reason) => Err(DataError::other(format!("{}: {reason}", text.place))),
    };
    with_classes(texts, labels)?.into_iter().map(example).collect()
}

/// The number of examples and a digest of what a model reads of them, for the settings of a run.
pub fn texts_identity<B: Backend, M: TextClassifier<B>>(examples: &[TextExample]) -> String {
    let mut identity = DataIdentity::new();
    for TextExample { text, class } in examples {
        identity.add_tokens(&text.ids);
        if M::TOKEN_TYPES {
            identity.add_tokens(&text.token_types);
        }
        identity.add_tokens(&[*class as u32]);
    }
    identity.describe(examples.len(), "texts")
}

/// Loss weight of each class, inversely proportional to the number of its examples, with a mean of 1 per example; the
/// `class_weight="balanced"` of scikit-learn.
///
/// ```
/// # use grove_train::classify::class_weights;
/// assert_eq!(class_weights([0, 0, 0, 1], 2), [4.0 / 6.0, 2.0]);
/// ```
pub fn class_weights(examples: impl IntoIterator<Item = usize>, classes: usize) -> Vec<f32> {
    let (mut counts, mut all) = (vec![0_usize; classes], 0);
    for class in examples {
        counts[class] += 1;
        all += 1;
    }
    counts.into_iter().map(|count| all as f32 / (classes * count.max(1)) as f32).collect()
}

/// Mean cross-entropy of a batch for a train step, in nats. Each text counts by the weight of its class; the batch counts by
/// their sum.
///
/// # Panics
/// If a text is empty or has a token that the model does not have.
pub fn text_loss<B: Backend, M: TextClassifier<B>>(
    model: &M::On<Autodiff<B>>,
    batch: &[TextExample],
    weights: &[f32],
    key: Key,
) -> Outcome<B, M>
where
    M::On<Autodiff<B>>: TextClassifier<Autodiff<B>>,
{
    let texts: Vec<TextIds> = batch.iter().map(|example| example.text.clone()).collect();
    let logits = model.logits(&texts, Some(key)).expect("texts are not empty, and of the model's tokens");
    let device = logits.device();
    let classes: Vec<i64> = batch.iter().map(|example| example.class as i64).collect();
    let each: Vec<f32> = batch.iter().map(|example| weights[example.class]).collect();
    let total: f32 = each.iter().sum();
    let losses = CrossEntropy::default().per_example(logits, classes_on(&classes, &device));
    let each = Tensor::<_, 1>::from_data(TensorData::new(each, [batch.len()]), &device).cast(losses.dtype());
    Outcome::new((losses * each).sum().div_scalar(total)).weight(f64::from(total))
}

/// Scores a model on examples, `batch_size` at once.
///
/// # Errors
/// The model refuses a text.
pub fn score_texts<B: Backend, M: TextClassifier<B>>(
    model: &M,
    examples: &[TextExample],
    batch_size: usize,
) -> Result<ClassifierScore> {
    let mut order: Vec<&TextExample> = examples.iter().collect();
    // Texts of similar length together, for less padding and fewer packed steps.
    order.sort_by_key(|example| example.text.ids.len());
    let mut score = ClassifierScore::new(model.labels());
    for batch in order.chunks(batch_size) {
        let texts: Vec<TextIds> = batch.iter().map(|example| example.text.clone()).collect();
        let logits: Vec<f64> = model.logits(&texts, None)?.into_data().iter().collect();
        for (logits, example) in logits.chunks(model.labels().len()).zip(batch) {
            score.add(logits, example.class);
        }
    }
    Ok(score)
}

/// Trains a text classifier on batches of examples, such as those of [`Examples::bucketed`], and evaluates it on others: `loss`,
/// `accuracy` and `macro_f1`.
///
/// - `weights`: loss weight of each class; see [`class_weights`]
/// - `held_out`: examples for the evaluation, `batch_size` at once
///
/// # Errors
/// As [`fit`]; the model refuses a held-out text.
///
/// # Panics
/// As [`text_loss`].
#[allow(clippy::too_many_arguments)] // Those of `fit`, and the data of the evaluation.
pub fn fit_texts<B, M, T>(
    model: M,
    optimizer: &T,
    data: &Arc<Examples<TextExample, Vec<TextExample>>>,
    weights: &[f32],
    held_out: &[TextExample],
    batch_size: usize,
    key: Key,
    options: &FitOptions<B>,
) -> Result<Fitted<M>>
where
    B: Backend,
    M: TextClassifier<B>,
    M::On<Autodiff<B>>: TextClassifier<Autodiff<B>>,
    T: GradientTransformation<B, M>,
{
    let loss =
        |model: M::On<Autodiff<B>>, batch: &Vec<TextExample>, key: Key| text_loss::<B, M>(&model, batch, weights, key);
    let evaluate = |model: &M| {
        let found = score_texts(model, held_out, batch_size)?;
        let measures = [found.loss(), found.confusion.accuracy(), found.confusion.macro_f1()];
        Ok(["loss", "accuracy", "macro_f1"].map(String::from).into_iter().zip(measures).collect())
    };
    fit(model, optimizer, data, loss, evaluate, key, options)
}
