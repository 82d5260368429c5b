//! Text classifiers: data options, training and evaluation.

use grove::{
    distributed::Communicator,
    models::{TextClassifier, bert::ProblemType, check_finite},
    train::{
        ClassifierScore, ValueScore,
        classify::{
            TextExample, TextTarget, TextTask, TrainableTextClassifier, class_weights, fit_texts,
            labels_without_examples, score_texts, score_texts_on, score_values_on, texts_identity,
        },
        data::{
            Columns, Examples, LabelledText, read_labelled, read_multi_labelled, records::is_record_file,
            split_by_class,
        },
    },
};
use std::{collections::HashSet, ffi::OsStr};

use crate::{prelude::*, training::TrainingArgs};

/// Returns true if a file has columns, by its extension.
pub fn is_table(file: &Path) -> bool {
    is_record_file(file) || file.extension().is_some_and(|end| ["csv", "tsv"].map(OsStr::new).contains(&end))
}

/// Columns of text files.
#[derive(Args, Debug)]
pub struct ColumnArgs {
    /// Column (or JSON field) of the texts: a name, or a number from 1
    #[arg(long, default_value = "text", value_name = "NAME", help_heading = "Data")]
    pub text_column: String,

    /// Column of the second text, for pairs of texts
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub pair_column: Option<String>,

    /// Read the first line as data, not as column names; columns are then numbers
    #[arg(long, help_heading = "Data")]
    pub no_header: bool,

    /// Column separator, or tab; tab-separated files have no quoting [default: tab for .tsv, else a comma]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter, help_heading = "Data")]
    pub delimiter: Option<u8>,
}

impl ColumnArgs {
    /// Returns these columns and the column of the labels; unlabelled texts are read without it.
    pub fn with_label(&self, label: &str) -> Columns {
        Columns {
            text: self.text_column.clone(),
            pair: self.pair_column.clone(),
            label: label.into(),
            header: !self.no_header,
            delimiter: self.delimiter,
        }
    }
}

/// Labelled texts of a command that trains or evaluates.
#[derive(Args, Debug)]
pub struct LabelledArgs {
    /// Labelled texts: .csv, .tsv (without quotes), .jsonl or .parquet
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,

    /// Columns of the files.
    #[command(flatten)]
    pub columns: ColumnArgs,

    /// Column of the labels
    #[arg(long, default_value = "label", value_name = "NAME", help_heading = "Data")]
    pub label_column: String,
}

impl LabelledArgs {
    /// Reads labelled texts from files.
    pub fn read(&self, files: &[PathBuf], problem: ProblemType) -> Result<Vec<LabelledText>, Exit> {
        let columns = self.columns.with_label(&self.label_column);
        Ok(match problem {
            ProblemType::MultiLabel => read_multi_labelled(files, &columns)?,
            _ => read_labelled(files, &columns)?,
        })
    }
}

/// Labelled texts of a training command: training data, held-out data and class balancing.
#[derive(Args, Debug)]
pub struct SplitArgs {
    /// Training data.
    #[command(flatten)]
    pub labelled: LabelledArgs,

    /// Labelled texts for evaluation [default: a part of --data]
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub held_out: Vec<PathBuf>,

    /// Fraction of each class to hold out without --held-out; 0 disables evaluation
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: f64,

    /// Weight the classes so that each counts the same in the losses
    #[arg(long, help_heading = "Data")]
    pub balance: bool,
}

/// Training examples and held-out examples.
pub type TextSplit = (Vec<TextExample>, Vec<TextExample>);

impl SplitArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self, training: &TrainingArgs, problem: ProblemType) -> Result<(), Exit> {
        training.check_val_fraction(self.val_fraction)?;
        check_held_out(&self.held_out)?;
        if self.balance && problem != ProblemType::SingleLabel {
            return Err(usage("--balance needs texts with one class each"));
        }
        training.check_keep(match problem {
            ProblemType::SingleLabel => &["loss", "accuracy", "macro_f1"],
            ProblemType::MultiLabel => &["loss", "accuracy", "micro_f1"],
            ProblemType::Regression => &["loss", "mae", "pearson"],
        })
    }

    /// Splits the examples of `--data`, or reads the held-out examples from `--held-out`.
    pub fn split(
        &self,
        examples: Vec<TextExample>,
        problem: ProblemType,
        seed: u64,
        encode: impl FnOnce(Vec<LabelledText>) -> Result<Vec<TextExample>, Exit>,
    ) -> Result<TextSplit, Exit> {
        if !self.held_out.is_empty() {
            return Ok((examples, encode(self.labelled.read(&self.held_out, problem)?)?));
        }
        // Examples without classes are split as one class.
        let class = |example: &TextExample| match example.target {
            TextTarget::Class(class) => class,
            TextTarget::Values(_) => 0,
        };
        hold_out(examples, class, self.val_fraction, seed, ("texts", &self.labelled.data))
    }
}

/// Parses a column separator, for clap.
pub fn delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
        _ => Err("give one character, such as ';', or tab".into()),
    }
}

/// Maximum number of names in a message.
const MAX_NAMES: usize = 10;

/// Lists names for a message: the first ones, and the number of the others.
pub fn listed(names: &[&str]) -> String {
    let (named, more) = names.split_at(names.len().min(MAX_NAMES));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    named.join(", ") + &more
}

/// Warns about classes without an example in the evaluation.
pub fn warn_missing_classes(labels: &[String], held_out: impl IntoIterator<Item = usize>) {
    let missing = labels_without_examples(labels, held_out);
    // The evaluation is empty on purpose.
    if missing.is_empty() || missing.len() == labels.len() {
        return;
    }
    tell(format_args!("warning: the evaluation has no example of these classes: {}", listed(&missing)));
}

/// Prints the classes that the model's head gains and loses.
pub fn tell_new_labels(old: &[String], new: &[String]) {
    let list = |labels: &[String], others: &[String]| {
        let labels: Vec<&str> = labels.iter().filter(|label| !others.contains(label)).map(String::as_str).collect();
        (!labels.is_empty()).then(|| listed(&labels))
    };
    match (list(new, old), list(old, new)) {
        (Some(new), None) => tell(format_args!("the head gets new classes: {new}")),
        (Some(new), Some(old)) => tell(format_args!("the head gets new classes: {new}; it loses: {old}")),
        (None, Some(old)) => tell(format_args!("the head loses the classes: {old}")),
        (None, None) => {}
    }
}

/// Splits examples into training and held-out examples. Holds out a fraction of each class, `--val-fraction`. `files` is the source
/// of the examples, for errors.
pub fn hold_out<T>(
    examples: Vec<T>,
    class: impl Fn(&T) -> usize,
    fraction: f64,
    seed: u64,
    (what, files): (&str, &[PathBuf]),
) -> Result<(Vec<T>, Vec<T>), Exit> {
    let classes = examples.iter().map(&class).collect::<HashSet<_>>().len();
    let (training, held_out) = split_by_class(examples, class, fraction, Key::new(seed).fold_in(4));
    if held_out.is_empty() && fraction > 0.0 {
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        let place = if files.is_empty() { String::new() } else { files.join(", ") + ": " };
        return Err(failure(format!(
            "{place}{} {what} of {classes} classes are too few to hold out {fraction} of each class: give more, raise \
             --val-fraction, or set it to 0",
            training.len(),
        )));
    }
    Ok((training, held_out))
}

/// Prints the metrics of a model on examples.
pub fn print_evaluation<B: Backend, M: TextClassifier<B>>(
    model: &M,
    examples: &[TextExample],
    batch_size: usize,
    as_json: bool,
) -> Result<Ended, Exit> {
    let problem = model.problem()?;
    if problem != ProblemType::SingleLabel {
        let score = score_values_on(&Communicator::single(), model, problem, examples, batch_size)?;
        check_finite(model, [score.loss()])?;
        let metrics = score.metrics().into_iter().map(|(name, value)| format!("{} {value:.4}", metric_name(name)));
        let metrics: Vec<String> = metrics.collect();
        let text = format!("{}, {}", counted(score.count(), "text"), metrics.join(", "));
        return report(as_json, &score.json(), &text);
    }
    warn_missing_classes(model.labels(), examples.iter().map(TextExample::class));
    let score = score_texts(model, examples, batch_size)?;
    check_finite(model, [score.loss()])?;
    let (texts, accuracy) = (score.confusion.count(), 100.0 * score.confusion.accuracy());
    let (f1, loss, table) = (100.0 * score.confusion.macro_f1(), score.loss(), score.confusion.table());
    let text = format!(
        "{}, {accuracy:.1} % right, macro F1 {f1:.1} %, {loss:.4} nats a text\n\n{table}",
        counted(texts, "text")
    );
    report(as_json, &json(&score), &text)
}

/// Returns the readable name of a metric.
fn metric_name(metric: &str) -> &str {
    match metric {
        "mae" => "mean absolute error",
        "pearson" => "Pearson correlation",
        "micro_f1" => "micro F1",
        "accuracy" => "exact matches",
        other => other,
    }
}

/// Returns the metrics of a text classifier as JSON.
pub fn json(score: &ClassifierScore) -> Value {
    let mut metrics = score.json();
    metrics["texts"] = json!(score.confusion.count());
    metrics
}

/// Problem type of a training run and its class balancing.
pub struct TextProblem {
    /// Problem type.
    pub kind: ProblemType,
    /// If true, weights the classes so that each counts the same in the losses.
    pub balance: bool,
}

/// Trains a model and prints its metrics. `finished` converts the trained model to the model that is saved.
pub fn train<B, M, T>(
    mut setup: Setup<'_, B>,
    model: M,
    (training, held_out): TextSplit,
    TextProblem { kind: problem, balance }: TextProblem,
    tokenizer: &Tokenizer,
    optimizer: impl FnOnce(&M, &Schedule) -> Result<T, Exit>,
    finished: impl FnOnce(M) -> M,
) -> Result<Ended, Exit>
where
    B: Backend,
    M: TrainableTextClassifier<B>,
    T: GradientTransformation<B, M>,
{
    let (run, labels) = (setup.run, model.labels().len());
    let (key, batch_size) = (Key::new(run.seed), run.training.batch_size);
    let classes = |examples: &[TextExample]| -> Vec<usize> {
        if problem == ProblemType::SingleLabel { examples.iter().map(TextExample::class).collect() } else { vec![] }
    };
    if problem == ProblemType::SingleLabel {
        warn_missing_classes(model.labels(), classes(&held_out));
    }
    let config = model.published_config()?.into();
    setup.output.begin(&config, Some(tokenizer))?;
    let [data, other] = [&training, &held_out].map(|examples| texts_identity::<B, M>(examples));
    setup.settings = setup.settings.with_model(&config).with("data", data).with("held-out", other);
    let weights = if balance { class_weights(classes(&training), labels) } else { vec![1.0; labels] };
    let counts = [training.len(), held_out.len()];
    let data = Examples::bucketed(training, batch_size, |example| example.text.ids.len(), key.fold_in(2))?;
    let job = setup.job(
        &model,
        data,
        (problem != ProblemType::Regression).then_some(labels),
        ("texts", batch_size),
        counts,
    )?;
    let optimizer = optimizer(&model, &job.schedule)?;
    let task = TextTask { problem, weights: &weights, held_out: &held_out, batch_size, jit: run.jit };
    let fitted = fit_texts(model, &optimizer, &job.data, task, job.key, &job.settings)?;
    let (model, summary) = job.save(fitted, |model: M, directory| finished(model).save_pretrained(directory))?;
    if problem != ProblemType::SingleLabel {
        let score = match held_out.is_empty() {
            true => None,
            false => Some(score_values_on(&ranks(), &model, problem, &held_out, batch_size)?),
        };
        let metrics = score.iter().flat_map(|score| score.metrics().into_iter().skip(1));
        let rows = metrics.map(|(name, value)| (metric_name(name).to_owned(), format!("{value:.4}")));
        let unit = if problem == ProblemType::Regression { "" } else { "label" };
        let scripts = [("evaluation", score.as_ref().map(ValueScore::json).into())];
        return summary.report_rows(run, scripts, unit, rows.collect());
    }
    let found = if held_out.is_empty() { None } else { Some(score_texts_on(&ranks(), &model, &held_out, batch_size)?) };
    let scripts = [("evaluation", found.as_ref().map(json).into())];
    summary.report_classifier(run, &job.output, found.as_ref(), ("text", 1), scripts)
}
