//! Training and evaluation of text classifiers.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_compile::{Traceable, Traced};
use grove_distributed::Communicator;
use grove_layers::loss::{CrossEntropy, sigmoid_binary_cross_entropy, squared_error};
use grove_models::{TextClassifier, bert::ProblemType};
use grove_optim::{GradientTransformation, device_of};
use grove_text::TextIds;
use grove_tree::{Array, Key, Tree};
use std::sync::Arc;

use super::{TextExample, TextTarget};
use crate::{
    ClassifierScore, Differentiated, FitOptions, Fitted, JitLoss, Outcome, Result, ValueScore, arrays::integers,
    data::Examples, fit, fit_jitted, ranks::or_end,
};

/// Makes a batch of tokenized texts, and of their classes `[b]`, on the model's device.
///
/// ```no_run
/// use grove_models::{Pretrained, bert::BertForSequenceClassification};
/// use grove_train::classify::{TextExample, text_batch};
/// use grove_transform::value_and_grad_with;
/// # type B = burn_flex::Flex;
/// # fn step(examples: &[TextExample]) -> grove_train::Result<()> {
/// let model = BertForSequenceClassification::<B>::from_pretrained("run/model", &Default::default())?;
/// let batch = text_batch(&model, examples)?;
/// let (loss, grads) = value_and_grad_with(&model, &batch, |model, (texts, classes)| {
///     model.loss(&texts, classes.val(), None)
/// });
/// # let _ = (loss, grads);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The model rejects a text.
///
/// # Panics
/// If the target of a text is not a class.
pub fn text_batch<B: Backend, M: TextClassifier<B>>(
    model: &M,
    batch: &[TextExample],
) -> Result<(M::Texts, Array<B, 1, Int>)> {
    let texts = model.texts(&ids(batch))?;
    let classes: Vec<i64> = batch.iter().map(|example| example.class() as i64).collect();
    let classes = integers(classes, &device_of(&texts).unwrap_or_default());
    Ok((texts, classes))
}

/// Targets and loss weights of a batch of texts.
#[derive(Tree, Clone, Debug)]
pub struct TextTargets<B: Backend> {
    /// Index of each text's class, `[b]`, for single-label classification.
    pub classes: Option<Array<B, 1, Int>>,
    /// Value of each label, `[b, labels]`, for multi-label classification and regression.
    pub values: Option<Array<B, 2>>,
    /// Loss weight of each text, `[b]`.
    pub weights: Array<B, 1>,
}

impl<B: Backend> TextTargets<B> {
    /// Returns the targets of a batch, each weighted by its class, and the sum of the weights.
    fn new(batch: &[TextExample], weights: &[f32], device: &B::Device) -> (Self, f64) {
        let (mut classes, mut values, mut all) = (vec![], Vec::<f32>::new(), Vec::<f32>::new());
        for example in batch {
            match &example.target {
                TextTarget::Class(class) => {
                    classes.push(*class as i64);
                    all.push(weights[*class]);
                }
                TextTarget::Values(row) => {
                    values.extend(row);
                    all.push(1.0);
                }
            }
        }
        let (total, b) = (all.iter().sum::<f32>(), batch.len());
        let weights = Array::new(Tensor::from_data(TensorData::new(all, [b]), device));
        let values = (!values.is_empty()).then(|| {
            let labels = values.len() / b;
            Array::new(Tensor::from_data(TensorData::new(values, [b, labels]), device))
        });
        let classes = (!classes.is_empty()).then(|| integers(classes, device));
        (Self { classes, values, weights }, f64::from(total))
    }
}

/// Weighted mean loss of a batch. The loss of a text is the cross-entropy in nats, the mean binary cross-entropy over
/// the labels in nats, or for [`ProblemType::Regression`] the mean squared error.
///
/// # Shapes
/// - logits `[b, labels]`
/// - output `[1]`
///
/// # Panics
/// If the targets do not match the problem type.
pub fn text_loss<B: Backend>(problem: ProblemType, logits: Tensor<B, 2>, targets: &TextTargets<B>) -> Tensor<B, 1> {
    let dtype = logits.dtype();
    let mean_over_labels = |losses: Tensor<B, 2>| losses.mean_dim(1).squeeze_dim(1);
    let losses = match (problem, &targets.classes, &targets.values) {
        (ProblemType::SingleLabel, Some(classes), _) => CrossEntropy::default().per_example(logits, classes.val()),
        (ProblemType::MultiLabel, _, Some(values)) => {
            mean_over_labels(sigmoid_binary_cross_entropy(logits, values.val().cast(dtype)))
        }
        (ProblemType::Regression, _, Some(values)) => mean_over_labels(squared_error(logits, values.val().cast(dtype))),
        _ => panic!("the targets of the texts do not match {problem:?}"),
    };
    let (weights, dtype) = (targets.weights.val(), losses.dtype());
    let total = weights.clone().sum().cast(dtype);
    (losses * weights.cast(dtype)).sum() / total
}

/// Scores a model on examples, in batches of `batch_size`.
///
/// # Errors
/// The model rejects a text.
pub fn score_texts<B: Backend, M: TextClassifier<B>>(
    model: &M,
    examples: &[TextExample],
    batch_size: usize,
) -> Result<ClassifierScore> {
    score_texts_on(&Communicator::single(), model, examples, batch_size)
}

/// [`score_texts`] distributed over all ranks of a job: each rank scores its share of the batches and gets the score of
/// all examples. A failed collective ends the job; see [`Communicator::end_job`].
///
/// # Errors
/// The model rejects a text.
pub fn score_texts_on<B: Backend, M: TextClassifier<B>>(
    ranks: &Communicator,
    model: &M,
    examples: &[TextExample],
    batch_size: usize,
) -> Result<ClassifierScore> {
    let mut order: Vec<&TextExample> = examples.iter().collect();
    // Batching texts of similar length reduces padding and the number of packed steps.
    order.sort_by_key(|example| example.text.ids.len());
    let mut score = ClassifierScore::new(model.labels());
    for_logits(model, &order, batch_size, ranks, |logits, example| score.add(logits, example.class()))?;
    Ok(or_end(score.over(ranks), ranks))
}

/// Scores a model of multi-label classification or regression on examples, as [`score_texts_on`] does.
///
/// # Errors
/// The model rejects a text.
pub fn score_values_on<B: Backend, M: TextClassifier<B>>(
    ranks: &Communicator,
    model: &M,
    problem: ProblemType,
    examples: &[TextExample],
    batch_size: usize,
) -> Result<ValueScore> {
    let order: Vec<&TextExample> = examples.iter().collect();
    let mut score = ValueScore::new(problem);
    for_logits(model, &order, batch_size, ranks, |logits, example| {
        if let TextTarget::Values(values) = &example.target {
            score.add(logits, values);
        }
    })?;
    Ok(or_end(score.over(ranks), ranks))
}

/// Calls `each` with the logits of each example of this rank.
fn for_logits<B: Backend, M: TextClassifier<B>>(
    model: &M,
    examples: &[&TextExample],
    batch_size: usize,
    ranks: &Communicator,
    mut each: impl FnMut(&[f64], &TextExample),
) -> Result<()> {
    for batch in examples.chunks(batch_size).skip(ranks.rank()).step_by(ranks.size()) {
        let texts = model.texts(&ids(batch.iter().copied()))?;
        let logits: Vec<f64> = model.logits(&texts, None).into_data().iter().collect();
        for (logits, example) in logits.chunks(model.labels().len()).zip(batch) {
            each(logits, example);
        }
    }
    Ok(())
}

/// Text classifier that [`fit_texts`] can train, eagerly or traced. Implemented for every classifier that is generic in
/// its backend.
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
    /// Problem type, which the targets of all examples match.
    pub problem: ProblemType,
    /// Weight of each class in the training and evaluation losses; see [`class_weights`](super::class_weights). `fit`
    /// weights a batch by the sum of the weights of its texts.
    pub weights: &'a [f32],
    /// Evaluation examples.
    pub held_out: &'a [TextExample],
    /// Evaluation batch size.
    pub batch_size: usize,
    /// If true, the loss and its gradient are compiled, as in [`fit_jitted`]. Texts are padded to a few fixed lengths,
    /// so that few programs are compiled; the dropout masks differ from those of the eager loop.
    pub jit: bool,
}

/// Trains a text classifier on batches of examples, such as those of [`Examples::bucketed`], and evaluates it on
/// held-out examples with the metrics `loss`, `accuracy` and `macro_f1`; for other problem types with those of
/// [`ValueScore::metrics`].
///
/// # Errors
/// As [`fit`]; the model rejects a text: it is empty, or has a token outside the model's vocabulary.
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
    let TextTask { problem, weights, held_out, batch_size, jit } = task;
    for batch in data.items().chunks(batch_size.max(1)) {
        model.texts(&ids(batch))?;
    }
    let evaluate = |model: &M| {
        let metrics = match problem {
            ProblemType::SingleLabel => {
                let found = score_texts_on(&options.ranks, model, held_out, batch_size)?;
                let (accuracy, macro_f1) = (found.confusion.accuracy(), found.confusion.macro_f1());
                vec![("loss", found.weighted_loss(weights)), ("accuracy", accuracy), ("macro_f1", macro_f1)]
            }
            _ => score_values_on(&options.ranks, model, problem, held_out, batch_size)?.metrics(),
        };
        Ok(metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    };
    let refused = "the model has accepted all texts";
    if !(jit || B::LAZY) {
        let loss = |model: M::On<Autodiff<B>>, batch: &Vec<TextExample>, key: Key| {
            let logits = model.logits(&model.texts(&ids(batch)).expect(refused), Some(key));
            let (targets, weight) = TextTargets::new(batch, weights, &logits.device());
            Outcome::<B, M>::new(text_loss(problem, logits, &targets)).weight(weight)
        };
        return fit(model, optimizer, data, loss, evaluate, key, options);
    }
    let arrays = |model: &M, batch: &Vec<TextExample>, _| {
        let texts = model.bucketed_texts(&ids(batch)).expect(refused);
        let (targets, weight) = TextTargets::<B>::new(batch, weights, &device_of(&texts).unwrap_or_default());
        ((texts, targets), weight)
    };
    let loss = |model: Differentiated<B, M>, (texts, targets): (_, TextTargets<_>), key| {
        text_loss(problem, model.logits(&texts, Some(key)), &targets)
    };
    fit_jitted::<B, _, _, _, _, _, _, _>(model, optimizer, data, JitLoss { arrays, loss }, evaluate, key, options)
}

/// Returns the tokens of examples.
fn ids<'a>(examples: impl IntoIterator<Item = &'a TextExample>) -> Vec<TextIds> {
    examples.into_iter().map(|example| example.text.clone()).collect()
}
