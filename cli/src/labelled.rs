//! Classifiers of texts: labelled data, training, evaluation.

use grove::{
    layers::loss::CrossEntropy,
    models::{
        ModelError, RnnClassifier, Tokenizer,
        bert::{BertForSequenceClassification, TextIds},
        check_finite,
    },
    optim::{GradientTransformation, Schedule},
    prelude::*,
    tensor::TensorData,
    train::{
        ClassifierScore, DataIdentity, Ended, Evaluation, Outcome, RunSettings,
        data::{Examples, LabelledText, split_by_class, with_classes},
        fit,
    },
    tree::Filter,
};
use serde_json::{Value, json};
use std::path::PathBuf;

use crate::{
    Exit, failure,
    training::{Output, POOL, RunArgs, Setup, TrainingArgs, evaluation_failed},
};

/// For clap: the character between columns.
pub fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("give one character, such as ';', or tab".into()),
    }
}

/// Names that are told of a list.
const TOLD: usize = 10;

/// Says of which classes an evaluation tells nothing, as none of its examples is of them.
pub fn tell_unheld(labels: &[String], held_out: impl IntoIterator<Item = usize>) {
    let mut held = vec![false; labels.len()];
    for class in held_out {
        if let Some(held) = held.get_mut(class) {
            *held = true;
        }
    }
    // An evaluation set of nothing was requested.
    if !held.contains(&true) {
        return;
    }
    let unheld: Vec<&str> =
        labels.iter().zip(held).filter(|(_, held)| !held).map(|(label, _)| label.as_str()).collect();
    let more = match unheld.len().saturating_sub(TOLD) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if !unheld.is_empty() {
        let named = unheld.iter().take(TOLD).copied().collect::<Vec<_>>().join(", ");
        eprintln!("warning: the evaluation has no example of these classes: {named}{more}");
    }
}

/// A text as a model reads it.
#[derive(Clone)]
pub struct Example {
    /// Its tokens.
    pub text: TextIds,
    /// Index of its label.
    pub class: usize,
}

/// Texts as a model reads them, with the indices of their labels. `encode` says what is wrong with a text.
pub fn examples(
    texts: Vec<LabelledText>,
    labels: &[String],
    mut encode: impl FnMut(&LabelledText) -> Result<TextIds, String>,
) -> Result<Vec<Example>, Exit> {
    let example = |(class, text): (usize, LabelledText)| match encode(&text) {
        Ok(encoded) => Ok(Example { text: encoded, class }),
        Err(reason) => Err(failure(format!("{}: {reason}", text.place))),
    };
    with_classes(texts, labels).map_err(failure)?.into_iter().map(example).collect()
}

/// Splits what is trained on from what is held out of the files: a fraction of each class, by the option of this name.
pub fn hold_out<T>(
    examples: Vec<T>,
    class: impl Fn(&T) -> usize,
    (option, fraction): (&str, f64),
    seed: u64,
    (what, files): (&str, &[PathBuf]),
) -> Result<(Vec<T>, Vec<T>), Exit> {
    let examples = examples.into_iter().map(|example| (class(&example), example)).collect();
    let (training, held_out) = split_by_class(examples, fraction, Key::new(seed).fold_in(4));
    if held_out.is_empty() && fraction > 0.0 {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let place = if files.is_empty() { String::new() } else { files.join(", ") + ": " };
        return Err(failure(format!(
            "{place}{} {what} are too few to hold out {fraction} of each class: give more, or a larger --{option}, or 0",
            training.len(),
        )));
    }
    Ok((training, held_out))
}

/// A classifier of texts.
pub trait TextClassifier<B: Backend>: Pretrained<B> {
    /// True if a text has a type for each of its tokens.
    const TOKEN_TYPES: bool;

    /// Logits of texts, `[b, classes]`. Dropout is applied if a `key` is given.
    fn logits(&self, texts: &[TextIds], key: Option<Key>) -> Result<Tensor<B, 2>, ModelError>;

    /// Names of the classes.
    fn labels(&self) -> &[String];
}

impl<B: Backend> TextClassifier<B> for BertForSequenceClassification<B> {
    const TOKEN_TYPES: bool = true;

    fn logits(&self, texts: &[TextIds], key: Option<Key>) -> Result<Tensor<B, 2>, ModelError> {
        Ok(self.forward(&self.bert.batch(texts)?, key))
    }

    fn labels(&self) -> &[String] {
        &self.bert.config.labels
    }
}

impl<B: Backend> TextClassifier<B> for RnnClassifier<B> {
    const TOKEN_TYPES: bool = false;

    fn logits(&self, texts: &[TextIds], key: Option<Key>) -> Result<Tensor<B, 2>, ModelError> {
        let texts: Vec<Vec<u32>> = texts.iter().map(|text| text.ids.clone()).collect();
        Ok(self.forward(&self.pack(&texts)?, key))
    }

    fn labels(&self) -> &[String] {
        &self.config.labels
    }
}

fn texts_of<'a>(batch: impl IntoIterator<Item = &'a Example>) -> Vec<TextIds> {
    batch.into_iter().map(|example| example.text.clone()).collect()
}

/// Reads all examples, so many at once.
pub fn score<B: Backend, M: TextClassifier<B>>(
    model: &M,
    examples: &[Example],
    batch_size: usize,
) -> Result<ClassifierScore, Exit> {
    let mut order: Vec<&Example> = examples.iter().collect();
    // Of similar length together, for less padding and fewer packed steps.
    order.sort_by_key(|example| example.text.ids.len());
    let mut score = ClassifierScore::new(model.labels());
    for batch in order.chunks(batch_size) {
        let texts = texts_of(batch.iter().copied());
        let logits: Vec<f64> = model.logits(&texts, None).map_err(failure)?.into_data().iter().collect();
        for (logits, example) in logits.chunks(model.labels().len()).zip(batch) {
            score.add(logits, example.class);
        }
    }
    Ok(score)
}

/// As [`score`], of a model that is evaluated only.
pub fn evaluate<B: Backend, M: TextClassifier<B>>(
    model: &M,
    examples: &[Example],
    batch_size: usize,
) -> Result<ClassifierScore, Exit> {
    tell_unheld(model.labels(), examples.iter().map(|example| example.class));
    let score = score(model, examples, batch_size)?;
    check_finite(model, [score.loss()]).map_err(failure)?;
    Ok(score)
}

/// The measures of a classifier of texts, for scripts.
pub fn json(score: &ClassifierScore) -> Value {
    let mut found = score.confusion.json();
    found["loss"] = json!(score.loss());
    found["texts"] = json!(score.confusion.count());
    found
}

/// Identity of the texts.
fn identity<B: Backend, M: TextClassifier<B>>(examples: &[Example]) -> String {
    let mut identity = DataIdentity::new();
    for Example { text, class } in examples {
        identity.add_tokens(&text.ids);
        if M::TOKEN_TYPES {
            identity.add_tokens(&text.token_types);
        }
        identity.add_tokens(&[*class as u32]);
    }
    format!("{} texts ({})", examples.len(), identity.finish())
}

/// Training of a classifier, but for its model and its data.
pub struct Training<'a, B: Backend> {
    /// Directory and device.
    pub run: &'a RunArgs,
    /// Hyperparameters.
    pub training: &'a TrainingArgs,
    /// Directory of the run.
    pub output: Output,
    /// Content of the model's config.json.
    pub config: Value,
    /// Tokenizer that belongs to the model.
    pub tokenizer: &'a Tokenizer,
    /// Passes over the data where the options do not say it.
    pub epochs: f64,
    /// Settings of the run besides the options of every run and the data.
    pub settings: RunSettings,
    /// The leaves that are trained; `None` for all parameters.
    pub trainable: Option<Filter<B>>,
    /// If true, each class counts the same in the loss.
    pub balance: bool,
}

impl<B: Backend> Training<'_, B> {
    /// Trains the model and tells how well it does. `finished` is the model as it is saved.
    pub fn run<M, T>(
        self,
        model: M,
        [training, held_out]: [Vec<Example>; 2],
        optimizer: impl FnOnce(&Schedule) -> T,
        finished: impl FnOnce(M) -> M,
    ) -> Result<Ended, Exit>
    where
        M: TextClassifier<B>,
        M::On<Autodiff<B>>: TextClassifier<Autodiff<B>>,
        T: GradientTransformation<B, M>,
    {
        let Self { run, training: asked, output, config, tokenizer, epochs, settings, trainable, balance } = self;
        let (key, batch_size, classes) = (Key::new(run.seed), asked.batch_size, model.labels().len());
        tell_unheld(model.labels(), held_out.iter().map(|example| example.class));
        output.begin(run, &config, Some(tokenizer))?;
        let settings = settings.with("data", identity::<B, M>(&training)).with("held-out", identity::<B, M>(&held_out));
        let (counts, weights) = ([training.len(), held_out.len()], weights(&training, classes, balance));
        let collate = |batch: &[&Example]| batch.iter().map(|&example| example.clone()).collect::<Vec<_>>();
        let data = Examples::new(training, batch_size, collate).map_err(failure)?;
        let data = data.shuffle(key.fold_in(2)).bucket(|example| example.text.ids.len(), POOL).map_err(failure)?;
        let (unit, classes) = (("texts", batch_size), Some(classes));
        let setup = Setup { run, training: asked, output, data, epochs, settings, trainable, classes, unit, counts };
        let job = setup.job(&model)?;
        let optimizer = optimizer(&job.schedule);
        let loss_fn =
            |model: M::On<Autodiff<B>>, batch: &Vec<Example>, key: Key| loss::<B, M>(&model, batch, &weights, key);
        let evaluate = |model: &M| {
            let found = score(model, &held_out, batch_size).map_err(evaluation_failed)?;
            let measures = [found.loss(), found.confusion.accuracy(), found.confusion.macro_f1()];
            Ok(["loss", "accuracy", "macro_f1"].map(String::from).into_iter().zip(measures).collect::<Evaluation>())
        };
        let fitted = fit(model, &optimizer, &job.data, loss_fn, evaluate, job.key, &job.settings).map_err(failure)?;
        let (model, summary) = job.save(fitted, |model: M, directory| finished(model).save_pretrained(directory))?;
        let found = if held_out.is_empty() { None } else { Some(score(&model, &held_out, batch_size)?) };
        let scripts = [("evaluation", found.as_ref().map(json).into())];
        summary.report_classifier(run, &job.output, found.as_ref(), ("text", 1), scripts)
    }
}

/// Loss weight of each class: 1 for all, or inversely proportional to the number of its texts, with a mean of 1 per
/// text.
fn weights(examples: &[Example], classes: usize, balance: bool) -> Vec<f32> {
    let counts = (0..classes).map(|class| examples.iter().filter(|example| example.class == class).count());
    let weight = |count: usize| examples.len() as f32 / (classes * count.max(1)) as f32;
    counts.map(|count| if balance { weight(count) } else { 1.0 }).collect()
}

/// Mean loss of the texts, each counting what its class does, and by how much that is.
fn loss<B: Backend, M: TextClassifier<B>>(
    model: &M::On<Autodiff<B>>,
    batch: &[Example],
    weights: &[f32],
    key: Key,
) -> Outcome<B, M>
where
    M::On<Autodiff<B>>: TextClassifier<Autodiff<B>>,
{
    let logits = model.logits(&texts_of(batch), Some(key)).expect("texts are not empty, and of the model's tokens");
    let (count, device) = (batch.len(), logits.device());
    let classes: Vec<i64> = batch.iter().map(|example| example.class as i64).collect();
    let each: Vec<f32> = batch.iter().map(|example| weights[example.class]).collect();
    let total: f32 = each.iter().sum();
    let classes = Tensor::<_, 1, Int>::from_data(TensorData::new(classes, [count]), &device);
    let losses = CrossEntropy::default().per_example(logits, classes);
    let each = Tensor::<_, 1>::from_data(TensorData::new(each, [count]), &device).cast(losses.dtype());
    Outcome::new((losses * each).sum().div_scalar(total)).weight(f64::from(total))
}
