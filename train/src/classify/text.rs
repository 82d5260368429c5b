use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_compile::{Traceable, Traced};
use grove_distributed::Communicator;
use grove_layers::loss::CrossEntropy;
use grove_models::{TextClassifier, bert::TextIds};
use grove_optim::{GradientTransformation, device_of};
use grove_tree::{Array, Key, Tree};
use std::sync::Arc;

use super::classes_on;
use crate::{
    ClassifierScore, DataIdentity, Differentiated, FitOptions, Fitted, JitLoss, Outcome, Result,
    data::{DataError, Examples, LabelledText, with_classes},
    fit, fit_jitted,
    ranks::or_end,
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

/// Classes and loss weights of a batch of texts.
#[derive(Tree, Clone, Debug)]
pub struct TextTargets<B: Backend> {
    /// Index of each text's class, `[b]`.
    pub classes: Array<B, 1, Int>,
    /// Loss weight of each text, `[b]`.
    pub weights: Array<B, 1>,
}

impl<B: Backend> TextTargets<B> {
    /// The targets of examples, each with the weight of its class, and the sum of their weights.
    fn new(batch: &[TextExample], weights: &[f32], device: &B::Device) -> (Self, f64) {
        let classes: Vec<i64> = batch.iter().map(|example| example.class as i64).collect();
        let weights: Vec<f32> = batch.iter().map(|example| weights[example.class]).collect();
        let total = weights.iter().sum::<f32>();
        let weights = Tensor::from_data(TensorData::new(weights, [batch.len()]), device);
        (Self { classes: classes_on(&classes, device), weights: Array::new(weights) }, f64::from(total))
    }
}

/// Mean cross-entropy of a batch, in nats. Each text counts by its weight.
///
/// # Shapes
/// - logits `[b, classes]`
/// - output `[1]`
pub fn text_loss<B: Backend>(logits: Tensor<B, 2>, targets: &TextTargets<B>) -> Tensor<B, 1> {
    let losses = CrossEntropy::default().per_example(logits, targets.classes.val());
    let (weights, dtype) = (targets.weights.val(), losses.dtype());
    let total = weights.clone().sum().cast(dtype);
    (losses * weights.cast(dtype)).sum() / total
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
    score_texts_on(&Communicator::single(), model, examples, batch_size)
}

/// [`score_texts`] by all ranks of a job, among which the batches are divided. Each gets the score of all examples. Where a
/// collective fails it ends the job; see [`Communicator::end_job`].
///
/// # Errors
/// The model refuses a text.
pub fn score_texts_on<B: Backend, M: TextClassifier<B>>(
    ranks: &Communicator,
    model: &M,
    examples: &[TextExample],
    batch_size: usize,
) -> Result<ClassifierScore> {
    let mut order: Vec<&TextExample> = examples.iter().collect();
    // Texts of similar length together, for less padding and fewer packed steps.
    order.sort_by_key(|example| example.text.ids.len());
    let mut score = ClassifierScore::new(model.labels());
    for batch in order.chunks(batch_size).skip(ranks.rank()).step_by(ranks.size()) {
        let texts = model.texts(&ids(batch.iter().copied()))?;
        let logits: Vec<f64> = model.logits(&texts, None).into_data().iter().collect();
        for (logits, example) in logits.chunks(model.labels().len()).zip(batch) {
            score.add(logits, example.class);
        }
    }
    Ok(or_end(score.over(ranks), ranks))
}

/// A text classifier that [`fit_texts`] trains, traced or not: every one that is generic in its backend.
pub trait TrainableTextClassifier<B: Backend>:
    TextClassifier<B, Texts: Traceable<B>>
    + Tree<B, On<Autodiff<B>>: TextClassifier<Autodiff<B>>>
    + Traceable<
        B,
        OnTraced: Tree<
            Traced,
            On<Autodiff<Traced>>: TextClassifier<Autodiff<Traced>, Texts = Differentiated<B, Self::Texts>>,
        >,
    >
{
}

impl<B: Backend, M> TrainableTextClassifier<B> for M where
    M: TextClassifier<B, Texts: Traceable<B>>
        + Tree<B, On<Autodiff<B>>: TextClassifier<Autodiff<B>>>
        + Traceable<
            B,
            OnTraced: Tree<
                Traced,
                On<Autodiff<Traced>>: TextClassifier<Autodiff<Traced>, Texts = Differentiated<B, M::Texts>>,
            >,
        >
{
}

/// Loss and evaluation of [`fit_texts`].
#[derive(Clone, Copy, Debug)]
pub struct TextTask<'a> {
    /// Weight of each class in the training loss and in the evaluation's loss; see [`class_weights`]. A batch counts by the sum of
    /// its texts' weights.
    pub weights: &'a [f32],
    /// Examples for the evaluation.
    pub held_out: &'a [TextExample],
    /// Number of examples of an evaluation at once.
    pub batch_size: usize,
    /// If true, loss and gradient are programs, as with [`fit_jitted`]. Texts are padded to one of few lengths, for which other
    /// dropout is drawn.
    pub jit: bool,
}

/// Trains a text classifier on batches of examples, such as those of [`Examples::bucketed`], and evaluates it on others: `loss`,
/// `accuracy` and `macro_f1`.
///
/// # Errors
/// As [`fit`]; the model refuses a held-out text.
///
/// # Panics
/// If a text is empty or has a token that the model does not have.
pub fn fit_texts<B, M, T>(
    model: M,
    optimizer: &T,
    data: &Arc<Examples<TextExample, Vec<TextExample>>>,
    task: TextTask<'_>,
    key: Key,
    options: &FitOptions<B>,
) -> Result<Fitted<M>>
where
    B: Backend,
    M: TrainableTextClassifier<B>,
    T: GradientTransformation<B, M>,
{
    let TextTask { weights, held_out, batch_size, jit } = task;
    let evaluate = |model: &M| {
        let found = score_texts_on(&options.ranks, model, held_out, batch_size)?;
        let measures = [found.weighted_loss(weights), found.confusion.accuracy(), found.confusion.macro_f1()];
        Ok(["loss", "accuracy", "macro_f1"].map(String::from).into_iter().zip(measures).collect())
    };
    let refused = "texts are not empty, and of the model's tokens";
    if !(jit || B::LAZY) {
        let loss = |model: M::On<Autodiff<B>>, batch: &Vec<TextExample>, key: Key| {
            let logits = model.logits(&model.texts(&ids(batch)).expect(refused), Some(key));
            let (targets, weight) = TextTargets::new(batch, weights, &logits.device());
            Outcome::<B, M>::new(text_loss(logits, &targets)).weight(weight)
        };
        return fit(model, optimizer, data, loss, evaluate, key, options);
    }
    let arrays = |model: &M, batch: &Vec<TextExample>, _| {
        let texts = model.bucketed_texts(&ids(batch)).expect(refused);
        let (targets, weight) = TextTargets::<B>::new(batch, weights, &device_of(&texts).unwrap_or_default());
        ((texts, targets), weight)
    };
    let loss = |model: Differentiated<B, M>, (texts, targets): (_, TextTargets<_>), key| {
        text_loss(model.logits(&texts, Some(key)), &targets)
    };
    fit_jitted::<B, _, _, _, _, _, _, _>(model, optimizer, data, JitLoss { arrays, loss }, evaluate, key, options)
}

/// The tokens of examples.
fn ids<'a>(examples: impl IntoIterator<Item = &'a TextExample>) -> Vec<TextIds> {
    examples.into_iter().map(|example| example.text.clone()).collect()
}
