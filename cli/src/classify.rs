//! `grove classify texts`: text classification with an encoder, a decoder or a recurrent network.

use grove::{
    models::{
        ModelKind, TextClassifier, bert::ProblemType, check_finite, families::WithDecoderClassifier, vision::Prediction,
    },
    tasks::text::{self as tasks, BatchOptions},
    train::data::{TextTable, read_texts},
};
use indicatif::ProgressBar;

use crate::{
    bert::{Encoder, Task, TextArgs, Texts, located, texts},
    kind::{check_head, wrong_kind},
    labelled::{ColumnArgs, is_table},
    prelude::*,
    program::{progress_bar, write_csv},
    rnn,
    training::need,
};

/// Classifies texts, or pairs of texts, with a classifier of any family: BERT, GPT-2, GPT-Neo, LLaMA, a recurrent network.
///
/// Texts come from the command line, from --file or standard input (one per line), or from a column of --data.
#[derive(Parser, Debug)]
#[command(
    mut_arg("texts", |arg| arg.help("Texts to classify; a tab separates a pair").conflicts_with_all(["data", "output"])),
    mut_arg("file", |arg| arg.help("File with one text per line").conflicts_with_all(["data", "output"])),
    mut_arg("max_length", |arg| {
        arg.help("Maximum length of a text in tokens; longer texts are truncated [default: the model's; 512 for a recurrent one]")
    }),
    mut_arg("model", |arg| {
        arg.required(true).help("Directory, weights file, or hub id of a classifier, such as run/model")
    }),
    mut_arg("text_column", |arg| arg.requires("data")),
    mut_arg("pair_column", |arg| arg.requires("data")),
    mut_arg("no_header", |arg| arg.requires("data")),
    mut_arg("delimiter", |arg| arg.requires("data")),
    after_help = "Examples:
  grove classify texts --model run/model \"What a lovely day!\"
  grove classify texts --model run/model --data reviews.csv \\
      --text-column review --output predictions.csv",
)]
pub struct ClassifyTexts {
    /// Texts, model and device.
    #[command(flatten)]
    pub input: TextArgs,

    /// Number of labels to show for each text [default: all]
    #[arg(long, value_name = "N")]
    pub top_k: Option<usize>,

    /// Table of texts: .csv, .tsv (without quotes), .jsonl or .parquet
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub data: Option<PathBuf>,

    /// Columns of the table.
    #[command(flatten)]
    pub columns: ColumnArgs,

    /// Write the table to this CSV file, with added columns
    ///
    /// The columns are label and score. For a multi-label model, label has the labels of at least 0.5, separated by commas, and
    /// each label has a column of scores. For a regression model, score is the predicted value. A new column whose name the
    /// table already has gets the prefix predicted_.
    #[arg(long, value_name = "FILE.csv", requires = "data", conflicts_with = "top_k", help_heading = "Data")]
    pub output: Option<PathBuf>,
}

impl Command for ClassifyTexts {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        if let Some(file) = self.input.file.as_ref().filter(|file| is_table(file)) {
            let named = file.display();
            return Err(usage(format!("--file reads one text per line, but {named} is a table: use --data {named}")));
        }
        let ColumnArgs { text_column, pair_column, no_header, delimiter } = &self.columns;
        let of_table = [
            ("text-column", text_column != "text"),
            ("pair-column", pair_column.is_some()),
            ("no-header", *no_header),
            ("delimiter", delimiter.is_some()),
            ("output", self.output.is_some()),
        ];
        need("data", self.data.is_some(), of_table)?;
        self.input.check(&self.task())
    }

    /// Classifies texts with the model family of the weights.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let path = resolve(self.input.model.as_deref(), "bert-austen")?;
        let kind = ModelKind::of(&path)?;
        let (input, skipped) = match &self.data {
            Some(file) => (Input::of_table(read_texts(file, &self.columns.with_label(""))?), None),
            None => {
                let Texts { texts, skipped } = texts(&self.input, &self.task())?;
                (Input::of_lines(texts), skipped)
            }
        };
        let bar = progress_bar(input.texts.len(), "texts");
        let job = Job::<B> { options: &self.input, path: &path, input: &input, bar: &bar, device };
        let (labels, problem) = match kind {
            ModelKind::Bert => {
                check_head(&path, "classify")?;
                let Encoder { files, tokenizer, .. } =
                    Encoder::open(self.input.model.as_deref(), self.input.inference.adapter.as_deref())?;
                job.classify::<BertForSequenceClassification<B>>(&files, &tokenizer)?
            }
            ModelKind::RnnClassifier => job.recurrent()?,
            kind => match kind.with_decoder_classifier(&job) {
                Ok(labels) => labels?,
                Err(other) => return Err(wrong_kind(&path, other)),
            },
        };
        bar.finish_and_clear();
        if let Some(note) = skipped {
            eprintln!("{note}");
        }
        self.report(&input, &labels, problem)
    }
}

/// Texts, or pairs of texts, to classify.
struct Input {
    texts: Vec<(String, Option<String>)>,
    /// Location of each text, such as a line of a file.
    places: Vec<String>,
    /// Table of the texts, if they come from `--data`.
    table: Option<TextTable>,
}

impl Input {
    fn of_table(table: TextTable) -> Self {
        let texts = table.texts.iter().map(|text| (text.text.clone(), text.pair.clone())).collect();
        Self { texts, places: table.texts.iter().map(|text| text.place.to_string()).collect(), table: Some(table) }
    }

    /// Splits texts at tabs into pairs. Each line comes with its location.
    fn of_lines(lines: Vec<(String, String)>) -> Self {
        let pair = |text: String| match text.split_once('\t') {
            Some((first, second)) => (first.to_owned(), Some(second.to_owned())),
            None => (text, None),
        };
        let (texts, places): (Vec<_>, Vec<_>) = lines.into_iter().unzip();
        Self { texts: texts.into_iter().map(pair).collect(), places, table: None }
    }
}

/// Texts to classify with a model.
struct Job<'a, B: Backend> {
    options: &'a TextArgs,
    /// Directory or file of the model.
    path: &'a Path,
    input: &'a Input,
    bar: &'a ProgressBar,
    device: &'a B::Device,
}

/// Labels of each text, the most probable first, and the kind of their scores.
type Labels = Result<(Vec<Vec<Prediction>>, ProblemType), Exit>;

impl<B: Backend> Job<'_, B> {
    fn classify<M: TextClassifier<B>>(&self, files: &ModelFiles, tokenizer: &Tokenizer) -> Labels {
        let Self { options, input, .. } = self;
        let (model, _) = files.load::<B, M>(self.device, options.inference.dtype())?;
        let most = options.max_length.unwrap_or(usize::MAX).min(model.position_limit().unwrap_or(usize::MAX));
        let classified = |count: usize| self.bar.inc(count as u64);
        let batching = BatchOptions {
            batch_size: options.batch_size,
            progress: Some(&classified),
            ..BatchOptions::new(tokenizer, most)
        };
        let texts: Vec<_> = input.texts.iter().map(|(text, pair)| (&**text, pair.as_deref())).collect();
        let labels = tasks::classify(&model, batching, &texts).map_err(|error| located(&error, &input.places))?;
        Ok((labels, model.scored_as()?))
    }

    fn recurrent(&self) -> Labels {
        let Self { options, path, input, .. } = self;
        if options.inference.adapter.is_some() {
            return Err(usage("--adapter: a recurrent classifier has no adapters"));
        }
        let (model, _) = RnnClassifier::<B>::from_path(path, self.device, options.inference.dtype())?;
        let (tokenizer, most) = (Tokenizer::beside(path)?, options.max_length.unwrap_or(rnn::MAX_LENGTH));
        let encode = |((text, pair), place): (&(String, Option<String>), &String)| match pair {
            Some(_) => Err(failure(format!("{place}: a recurrent classifier reads single texts, not pairs"))),
            None => match tokenizer.encode_for(text, most, model.config.vocab_size) {
                Ok(text) => Ok(text.ids),
                Err(error) => Err(failure(format!("{place}: {error}"))),
            },
        };
        let ids: Vec<Vec<u32>> = input.texts.iter().zip(&input.places).map(encode).collect::<Result<_, Exit>>()?;
        let mut all = vec![];
        for batch in ids.chunks(options.batch_size) {
            let predictions = model.predict_top(&model.pack(batch)?, usize::MAX);
            check_finite(&model, predictions.iter().flatten().map(|found| f64::from(found.score)))?;
            all.extend(predictions);
            self.bar.inc(batch.len() as u64);
        }
        Ok((all, ProblemType::SingleLabel))
    }
}

impl<B: Backend> WithDecoderClassifier<B> for &Job<'_, B> {
    type Output = Labels;

    fn run<M: TextClassifier<B>>(self) -> Labels {
        let files = self.options.inference.files(self.path)?;
        self.classify::<M>(&files, &Tokenizer::beside(files.tokenizer())?)
    }
}

impl ClassifyTexts {
    fn task(&self) -> Task {
        Task::Classify { top_k: self.top_k }
    }

    /// Prints the labels, or writes the table with the prediction of each row.
    fn report(&self, input: &Input, labels: &[Vec<Prediction>], problem: ProblemType) -> Result<Ended, Exit> {
        let shown = self.top_k.unwrap_or(usize::MAX);
        let first = |labels: &[Prediction]| labels[..labels.len().min(shown)].to_vec();
        let line = |(text, pair): &(String, Option<String>)| match pair {
            Some(pair) => format!("{text}\t{pair}"),
            None => text.clone(),
        };
        let texts = input.texts.iter().map(line).zip(labels);
        let objects = texts.clone().map(|(text, labels)| json!({ "text": text, "labels": first(labels) }));
        let mut object = json!({ "texts": objects.collect::<Vec<_>>() });
        if let (Some(file), Some(table)) = (&self.output, &input.table) {
            write_predictions(file, table, labels, problem)?;
            object["output"] = json!(file);
            let written = format!("{} has {}", file.display(), counted(labels.len(), "prediction"));
            return report(self.input.inference.json, &object, &written);
        }
        let lines = texts.flat_map(|(text, labels)| {
            let line = |label: Prediction| format!("  {:6.3}  {}", label.score, label.label);
            std::iter::once(text).chain(first(labels).into_iter().map(line))
        });
        report(self.input.inference.json, &object, &lines.collect::<Vec<_>>().join("\n"))
    }
}

/// Minimum probability of a label in a multi-label prediction.
const THRESHOLD: f32 = 0.5;

/// Returns the names of the columns with the predictions. A name that the table already has gets the prefix
/// `predicted_`.
fn prediction_columns(existing: &[String], labels: &[Prediction], problem: ProblemType) -> Vec<String> {
    let mut labels: Vec<&Prediction> = labels.iter().collect();
    labels.sort_by_key(|label| label.class);
    let names = labels.iter().map(|label| &*label.label);
    let columns: Vec<&str> = match problem {
        ProblemType::SingleLabel => vec!["label", "score"],
        ProblemType::MultiLabel => std::iter::once("label").chain(names).collect(),
        ProblemType::Regression if labels.len() == 1 => vec!["score"],
        ProblemType::Regression => names.collect(),
    };
    let exists = |name: &str| existing.iter().any(|column| column == name);
    let free = |name: &str| if exists(name) { format!("predicted_{name}") } else { name.to_owned() };
    columns.into_iter().map(free).collect()
}

/// Returns the cells of a text's predictions. `labels` are sorted by decreasing probability.
fn prediction_cells(labels: &[Prediction], problem: ProblemType) -> Vec<String> {
    let mut by_class: Vec<&Prediction> = labels.iter().collect();
    by_class.sort_by_key(|label| label.class);
    let scores = by_class.iter().map(|label| label.score.to_string());
    match problem {
        ProblemType::SingleLabel => {
            labels.first().map_or_else(Vec::new, |best| vec![best.label.clone(), best.score.to_string()])
        }
        ProblemType::MultiLabel => {
            let above = labels.iter().filter(|label| label.score >= THRESHOLD).map(|label| &*label.label);
            std::iter::once(above.collect::<Vec<_>>().join(",")).chain(scores).collect()
        }
        ProblemType::Regression => scores.collect(),
    }
}

/// Writes the rows of a table, each with its predictions.
fn write_predictions(
    file: &Path,
    table: &TextTable,
    labels: &[Vec<Prediction>],
    problem: ProblemType,
) -> Result<(), Exit> {
    let width = table.cells.iter().map(Vec::len).max().unwrap_or(0);
    let names = match table.names.is_empty() {
        true => (1..=width).map(|number| number.to_string()).collect(),
        false => table.names.clone(),
    };
    let width = width.max(names.len());
    let padded = |cells: &[String]| {
        let missing = width - cells.len();
        cells.iter().cloned().chain(std::iter::repeat_n(String::new(), missing)).collect::<Vec<_>>()
    };
    let columns = labels.first().map_or_else(Vec::new, |labels| prediction_columns(&names, labels, problem));
    let rows = table.cells.iter().zip(labels);
    let rows = rows.map(|(cells, labels)| [padded(cells), prediction_cells(labels, problem)].concat());
    write_csv(file, [padded(&names), columns].concat(), rows)
}

#[cfg(test)]
mod tests {
    use grove::train::data::Columns;

    use super::*;

    /// The files determine that the model is a decoder. Expected: transformers' pipeline, by tools/fixtures/sequence_classification.py.
    #[test]
    fn classifies_with_a_decoder() {
        let folder = Path::new("../models/tests/fixtures/sequence_classification/text");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [input, output] = ["in.csv", "out.csv"].map(|name| directory.path().join(name));
        let expected: Value =
            serde_json::from_slice(&std::fs::read(folder.join("scores.json")).expect("a file")).expect("JSON");
        let texts: Vec<&str> = expected["texts"].as_array().expect("texts").iter().filter_map(Value::as_str).collect();
        std::fs::write(&input, format!("text\n{}\n", [texts[0], texts[1]].join("\n"))).expect("written");
        let word = |path: &Path| path.display().to_string();
        let (model, input) = (word(folder), word(&input));
        let words = ["texts", "--model", &model, "--data", &input, "--json", "--output", &word(&output)];
        let options = ClassifyTexts::try_parse_from(words).expect("options");
        let ended = options.run::<Flex>(&Default::default());
        assert!(matches!(ended, Ok(Ended::Finished)), "{:?}", ended.err());
        let written = std::fs::read_to_string(&output).expect("a table");
        for (line, labels) in written.lines().skip(1).zip(expected["scores"]["none"].as_array().expect("scores")) {
            let [_, label, score] = line.split(',').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let apart = score.parse::<f64>().expect("a number") - labels[0]["score"].as_f64().expect("a number");
            assert!(label == labels[0]["label"] && apart.abs() < 1e-4, "{line}");
        }
        assert_eq!(written.lines().count(), 3, "{written}");
    }

    #[test]
    fn rejects_a_table_as_a_file_of_texts() {
        let parse =
            |file| ClassifyTexts::try_parse_from(["classify", "--model", "m", "--file", file]).expect("options");
        assert!(parse("lines.txt").check().is_ok());
        let Err(Exit::Usage(message)) = parse("reviews.csv").check() else { panic!("refused") };
        assert!(message.contains("--data reviews.csv"), "{message}");
    }

    #[test]
    fn writes_predictions_beside_the_cells_of_the_table() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [input, output] = ["in.csv", "out.csv"].map(|name| directory.path().join(name));
        std::fs::write(&input, "id,text\n7,\"good, very\"\n9,bad,more\n").expect("written");
        let table = read_texts(&input, &Columns::default()).expect("readable");
        let label = |class, score| Prediction { class, label: ["joy", "fear"][class].into(), score };
        // The most probable first, whatever its class.
        let labels = [vec![label(1, 0.75), label(0, 0.5)], vec![label(0, 0.25), label(1, 0.125)]];
        let written = |labels: &[Vec<Prediction>], problem| {
            write_predictions(&output, &table, labels, problem).expect("written");
            let written = std::fs::read_to_string(&output).expect("a table");
            written.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            written(&labels, ProblemType::SingleLabel),
            ["id,text,,label,score", "7,\"good, very\",,fear,0.75", "9,bad,more,joy,0.25"]
        );
        assert_eq!(
            written(&labels, ProblemType::MultiLabel),
            ["id,text,,label,joy,fear", "7,\"good, very\",,\"fear,joy\",0.5,0.75", "9,bad,more,,0.25,0.125"]
        );
        assert_eq!(
            written(&labels, ProblemType::Regression),
            ["id,text,,joy,fear", "7,\"good, very\",,0.5,0.75", "9,bad,more,0.25,0.125"]
        );
        let existing = ["label", "joy"].map(str::to_owned);
        assert_eq!(prediction_columns(&existing, &labels[0], ProblemType::SingleLabel), ["predicted_label", "score"]);
        assert_eq!(
            prediction_columns(&existing, &labels[0], ProblemType::MultiLabel),
            ["predicted_label", "predicted_joy", "fear"]
        );
        let single = labels.map(|labels| labels[..1].to_vec());
        assert_eq!(
            written(&single, ProblemType::Regression),
            ["id,text,,score", "7,\"good, very\",,0.75", "9,bad,more,0.25"]
        );
    }
}
