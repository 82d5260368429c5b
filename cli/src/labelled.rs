//! Classifiers of texts: training, evaluation, and what is told of their data.

use grove::{
    models::{TextClassifier, check_finite},
    train::{
        ClassifierScore,
        classify::{
            TextExample, TextTask, TrainableTextClassifier, class_weights, fit_texts, labels_without_examples,
            score_texts, score_texts_on, texts_identity,
        },
        data::{Examples, split_by_class},
    },
};

use crate::prelude::*;

/// For clap: the character between columns.
pub fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("give one character, such as ';', or tab".into()),
    }
}

/// Names that are told of a list.
pub const TOLD: usize = 10;

/// Says of which classes an evaluation tells nothing, as none of its examples is of them.
pub fn tell_unheld(labels: &[String], held_out: impl IntoIterator<Item = usize>) {
    let unheld = labels_without_examples(labels, held_out);
    // An evaluation set of nothing was requested.
    if unheld.is_empty() || unheld.len() == labels.len() {
        return;
    }
    let (named, more) = unheld.split_at(unheld.len().min(TOLD));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    let named = named.join(", ");
    tell(format_args!("warning: the evaluation has no example of these classes: {named}{more}"));
}

/// Says which classes of a model's head are new, and which it has no longer.
pub fn tell_new_labels(old: &[String], new: &[String]) {
    let list = |labels: &[String], others: &[String]| {
        let labels: Vec<&str> = labels.iter().filter(|label| !others.contains(label)).map(String::as_str).collect();
        let more = labels.len().saturating_sub(TOLD);
        let named = labels[..labels.len() - more].join(", ");
        (!labels.is_empty()).then(|| if more > 0 { format!("{named} and {more} more") } else { named })
    };
    match (list(new, old), list(old, new)) {
        (Some(new), None) => tell(format_args!("the head gets new classes: {new}")),
        (Some(new), Some(old)) => tell(format_args!("the head gets new classes: {new}; it loses: {old}")),
        (None, Some(old)) => tell(format_args!("the head loses the classes: {old}")),
        (None, None) => {}
    }
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

/// The score of a model that is evaluated only.
pub fn evaluate<B: Backend, M: TextClassifier<B>>(
    model: &M,
    examples: &[TextExample],
    batch_size: usize,
) -> Result<ClassifierScore, Exit> {
    tell_unheld(model.labels(), examples.iter().map(|example| example.class));
    let score = score_texts(model, examples, batch_size)?;
    check_finite(model, [score.loss()])?;
    Ok(score)
}

/// The measures of a classifier of texts, for scripts.
pub fn json(score: &ClassifierScore) -> Value {
    let mut found = score.json();
    found["texts"] = json!(score.confusion.count());
    found
}

/// Trains a model and tells how well it does. With `balance` each class counts the same in the loss; `finished` is the model as
/// it is saved.
pub fn train<B, M, T>(
    mut setup: Setup<'_, B>,
    model: M,
    (training, held_out): (Vec<TextExample>, Vec<TextExample>),
    tokenizer: &Tokenizer,
    balance: bool,
    optimizer: impl FnOnce(&M, &Schedule) -> T,
    finished: impl FnOnce(M) -> M,
) -> Result<Ended, Exit>
where
    B: Backend,
    M: TrainableTextClassifier<B>,
    T: GradientTransformation<B, M>,
{
    let (run, labels) = (setup.run, model.labels().len());
    let (key, batch_size) = (Key::new(run.seed), run.training.batch_size);
    tell_unheld(model.labels(), held_out.iter().map(|example| example.class));
    let config = model.published_config()?.into();
    setup.output.begin(&config, Some(tokenizer))?;
    let [data, other] = [&training, &held_out].map(|examples| texts_identity::<B, M>(examples));
    setup.settings = setup.settings.with_model(&config).with("data", data).with("held-out", other);
    let classes = training.iter().map(|example| example.class);
    let weights = if balance { class_weights(classes, labels) } else { vec![1.0; labels] };
    let counts = [training.len(), held_out.len()];
    let data = Examples::bucketed(training, batch_size, |example| example.text.ids.len(), key.fold_in(2))?;
    let job = setup.job(&model, data, Some(labels), ("texts", batch_size), counts)?;
    let optimizer = optimizer(&model, &job.schedule);
    let task = TextTask { weights: &weights, held_out: &held_out, batch_size, jit: run.jit };
    let fitted = fit_texts(model, &optimizer, &job.data, task, job.key, &job.settings)?;
    let (model, summary) = job.save(fitted, |model: M, directory| finished(model).save_pretrained(directory))?;
    let found = if held_out.is_empty() { None } else { Some(score_texts_on(&ranks(), &model, &held_out, batch_size)?) };
    let scripts = [("evaluation", found.as_ref().map(json).into())];
    summary.report_classifier(run, &job.output, found.as_ref(), ("text", 1), scripts)
}
