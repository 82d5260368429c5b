//! Fine-tuning of BERT for classification.

use grove::{
    layers::lora,
    models::{TextClassifier, bert::ProblemType},
    text::Truncation,
    train::{
        classify::{TextExample, encode_examples, encode_multi_label, encode_regression},
        data::{LabelledText, have_labels, labels as labels_of, multi_labels},
    },
    tree::by_path,
};

use crate::{
    bert::Encoder,
    kind::tell_other_head,
    labelled::{self, LabelledArgs, SplitArgs, TextProblem, tell_new_labels},
    prelude::*,
    training::{LoraArgs, with_new_parameters, with_text_rates},
};

/// Default maximum length of a text, in tokens.
const MAX_LENGTH: usize = 128;

/// Fine-tunes a BERT, RoBERTa or DistilBERT to classify texts, or pairs of texts.
///
/// Without arguments, fine-tunes the small model that ships with grove on sample sentences, as a demonstration. The
/// result is a directory that `--example bert -- --task classify` and transformers load. Ctrl-C writes a checkpoint and
/// stops; the same command with --resume continues.
#[derive(Parser, Debug)]
#[command(
    name = "finetune_bert",
    version,
    allow_negative_numbers = true,
    mut_arg("epochs", |arg| arg.help("Number of passes over the data; may be a fraction [default: 3]")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts per batch")),
    mut_arg("learning_rate", with_text_rates),
    mut_arg("schedule", |arg| arg.default_value("linear")),
    mut_arg("final_learning_rate", |arg| arg.default_value("0")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
    mut_arg("data", |arg| arg.help(
        "Labelled texts: .csv, .tsv (without quotes), .jsonl or .parquet [default: sample sentences that ship with grove]"
    )),
    mut_arg("beta2", |arg| arg.default_value("0.999")),
    mut_arg("checkpoint_every", |arg| arg.default_value("500")),
    mut_arg("freeze", |arg| arg.help(
        "Parameters to freeze, as path patterns: \"embeddings.**,encoder.layer.0.**\". New parameters, as of a new head, are \
         trained"
    )),
    mut_arg("lora_rank", |arg| arg.help(
        "Freeze the encoder and train LoRA adapters of this rank, which are merged into the weights at the end"
    )),
    mut_arg("lora_targets", |arg| {
        arg.default_value("encoder.layer.*.attention.query,encoder.layer.*.attention.value")
    }),
)]
pub struct Options {
    /// Labelled texts.
    #[command(flatten)]
    pub texts: SplitArgs,

    /// Print the model's metrics on the data instead of training
    #[arg(long, requires_all = ["model", "data"], conflicts_with_all = ["output", "held_out", "val_fraction", "steps", "epochs", "jit"])]
    pub evaluate: bool,

    /// Problem type: one class, several labels, or a number per text [default: single_label_classification]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Data")]
    pub problem_type: Option<Problem>,

    /// Separator of the labels of a text, for multi_label_classification [default: a comma]
    #[arg(long, value_name = "CHARACTER", requires = "problem_type", help_heading = "Data")]
    pub label_separator: Option<char>,

    /// Labels, in the order of the classes [default: the model's if it has all labels of the data, else those, sorted]
    #[arg(long, value_delimiter = ',', value_name = "NAMES", help_heading = "Data")]
    pub labels: Vec<String>,

    /// Maximum length of a text in tokens; longer texts are truncated [default: 128, or the model's maximum if that is less]
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub max_length: Option<usize>,

    /// Model to fine-tune: directory, weights file, or hub id, such as google-bert/bert-base-uncased
    #[arg(long, help_heading = "Model")]
    pub model: Option<String>,

    /// LoRA adapter (peft) to merge into the model before training: directory or hub id
    #[arg(long, value_name = "DIR|ID", help_heading = "Model")]
    pub adapter: Option<String>,

    /// Frozen parameters and LoRA adapters.
    #[command(flatten)]
    pub lora: LoraArgs,

    /// Layer-wise learning-rate decay: factor for each layer below the head, such as 0.9; 1 disables it
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", help_heading = "Training")]
    pub layer_decay: f64,

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Problem type, with transformers' names.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
#[value(rename_all = "snake_case")]
pub enum Problem {
    /// Each text has one class
    SingleLabelClassification,
    /// Each text has any number of labels
    MultiLabelClassification,
    /// Each text has a number as its target
    Regression,
}

impl From<Problem> for ProblemType {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::SingleLabelClassification => Self::SingleLabel,
            Problem::MultiLabelClassification => Self::MultiLabel,
            Problem::Regression => Self::Regression,
        }
    }
}

type Classifier<B> = BertForSequenceClassification<B>;

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.run.check()?;
        let problem = self.problem();
        self.texts.check(&self.run.training, problem)?;
        if self.label_separator.is_some() && problem != ProblemType::MultiLabel {
            return Err(usage("--label-separator needs --problem-type multi_label_classification"));
        }
        if problem == ProblemType::Regression && !self.labels.is_empty() {
            return Err(usage("--labels names classes, but --problem-type is regression: leave one of them out"));
        }
        check_layer_decay(self.layer_decay)?;
        self.lora.check()?;
        if self.max_length.is_some_and(|length| length < 3) {
            return Err(usage("--max-length must be at least 3: two special tokens and one of the text"));
        }
        match self.labels.iter().enumerate().find(|(i, label)| self.labels[..*i].contains(label)) {
            Some((_, label)) => Err(usage(format!("--labels names '{label}' twice"))),
            None if self.labels.len() == 1 && problem == ProblemType::SingleLabel => {
                Err(usage("--labels names one label; a classifier needs at least two"))
            }
            None => self.run.device.spec(),
        }
    }

    /// Trains the classifier, or evaluates it with `--evaluate`.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        if self.evaluate {
            return self.evaluate::<B>(device);
        }
        let output = self.run.directory()?;
        let encoder = Encoder::open(self.model.as_deref(), self.adapter.as_deref())?;
        let problem = self.problem();
        let texts = self.read(problem)?;
        let labels = match output.config()? {
            Some(file) => BertConfig::from_file(file)?.labels,
            None => self.new_labels(&texts, &encoder)?,
        };
        let reader = TextReader::of(&encoder, self.max_length);
        let targets = Targets { problem, labels: &labels, separator: self.separator() };
        let training = reader.examples(texts, &targets)?;
        let split = self.texts.split(training, problem, self.run.seed, |texts| reader.examples(texts, &targets))?;
        let (model, new) = self.prepare::<B>(&encoder, labels, device)?;
        let (run, epochs, trainable) = (&self.run, 3.0, Some(self.trainable(&model, &new)?));
        let optimizer = |model: &Classifier<B>, schedule: &_| {
            run.training.optimizer_by_layer(schedule, model, self.layer_decay, Classifier::depth)
        };
        let settings = self
            .lora
            .settings()
            .with("problem-type", problem.name())
            .with("balance", self.texts.balance)
            .with("layer-decay", self.layer_decay);
        let setup = Setup { run, output, epochs, settings, trainable };
        let problem = TextProblem { kind: problem, balance: self.texts.balance };
        labelled::train(setup, model, split, problem, &encoder.tokenizer, optimizer, lora::merge)
    }
}

impl Options {
    fn problem(&self) -> ProblemType {
        self.problem_type.map_or(ProblemType::SingleLabel, ProblemType::from)
    }

    fn separator(&self) -> char {
        self.label_separator.unwrap_or(',')
    }

    /// Reads the training data, by default the sentences that ship with grove.
    fn read(&self, problem: ProblemType) -> Result<Vec<LabelledText>, Exit> {
        let demonstration = [shipped("bert-austen/speech.csv")];
        let LabelledArgs { data, .. } = &self.texts.labelled;
        self.texts.labelled.read(if data.is_empty() { &demonstration } else { data }, problem)
    }

    /// Returns the labels of a new run.
    fn new_labels(&self, texts: &[LabelledText], encoder: &Encoder) -> Result<Vec<String>, Exit> {
        let problem = self.problem();
        if problem == ProblemType::Regression {
            return Ok(vec!["LABEL_0".into()]);
        }
        if !self.labels.is_empty() {
            return Ok(self.labels.clone());
        }
        if problem == ProblemType::MultiLabel {
            return Ok(multi_labels(texts, self.separator())?);
        }
        // A model that has all labels of the data keeps its own list and head.
        if have_labels(texts, &encoder.config.labels) {
            return Ok(encoder.config.labels.clone());
        }
        let labels = labels_of(texts)?;
        let is_number = |label: &String| label.parse::<f64>().is_ok_and(|value| value.fract() != 0.0);
        if self.problem_type.is_none() && labels.len() > 2 && labels.iter().any(is_number) {
            let [first, second, ..] = &labels[..] else { return Ok(labels) };
            return Err(failure(format!(
                "the labels are numbers, such as {first} and {second}: --problem-type regression predicts them, and \
                 --problem-type single_label_classification treats each as a class"
            )));
        }
        Ok(labels)
    }

    /// Loads the pretrained encoder with a head for `labels`, which keeps the model's weights for the labels that it has, and with
    /// LoRA adapters for `--lora-rank`. Also returns path patterns of the new parameters, whose values are random.
    fn prepare<B: Backend>(
        &self,
        encoder: &Encoder,
        labels: Vec<String>,
        device: &B::Device,
    ) -> Result<(Classifier<B>, Vec<String>), Exit> {
        let mut config = encoder.config.clone();
        config.labels = labels;
        config.problem_type = Some(self.problem().name().into());
        let key = Key::new(self.run.seed).fold_in(1);
        let (model, report) = Classifier::with_new_head_of(&encoder.files, &config, key, device, None)?;
        self.lora.check_rank(&model)?;
        let missing = report.missing.iter().map(|missing| &*missing.path);
        let mut new: Vec<String> =
            missing.chain(report.mismatched.iter().map(|other| &*other.path)).map(String::from).collect();
        tell_other_head(&encoder.path);
        if !new.is_empty() {
            tell(format_args!("parameters with new, random values: {}", new.join(", ")));
        }
        if encoder.config.labels != config.labels && !new.iter().any(|path| path.starts_with("head.")) {
            tell_new_labels(&encoder.config.labels, &config.labels);
            new.push("head.**".into());
        }
        let Some(rank) = self.lora.lora_rank else { return Ok((model, new)) };
        let bert = self.lora.with_adapters(model.bert, &self.lora.lora_targets, rank, key.fold_in(1))?;
        Ok((Classifier { bert, head: model.head }, new))
    }

    /// Returns the filter of the trained leaves: all except the frozen ones, and with `--lora-rank` only the adapters, the pooler
    /// and the head. New parameters are always trained, because their values are random.
    fn trainable<B: Backend>(&self, model: &Classifier<B>, new: &[String]) -> Result<Filter<B>, Exit> {
        let trained = self.lora.unfrozen(model, "bert.")?;
        let trained = match self.lora.lora_rank {
            Some(_) => trained & (lora::trainable() | by_path("head.**") | by_path("bert.pooler.**").optional()),
            None => trained,
        };
        Ok(with_new_parameters(model, trained, new))
    }

    /// Prints the evaluation of `--evaluate`.
    fn evaluate<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let encoder = Encoder::open(self.model.as_deref(), self.adapter.as_deref())?;
        let (model, _) = encoder.files.load::<B, Classifier<B>>(device, Some(self.run.device.dtype.into()))?;
        let reader = TextReader::of(&encoder, self.max_length);
        let (labelled, batch_size) = (&self.texts.labelled, self.run.training.batch_size);
        reader.evaluate(&model, labelled, self.label_separator, batch_size, self.run.json)
    }
}

/// Targets of labelled texts.
pub struct Targets<'a> {
    /// Problem type.
    pub problem: ProblemType,
    /// Labels of the model.
    pub labels: &'a [String],
    /// Separator of the labels of a text.
    pub separator: char,
}

/// Encodes labelled texts for an encoder or a decoder.
pub struct TextReader<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Maximum length of a text that the model reads, in tokens, if there is one.
    pub positions: Option<usize>,
    /// True if the model has token types.
    pub token_types: bool,
    /// Value of `--max-length`.
    pub max_length: Option<usize>,
}

impl<'a> TextReader<'a> {
    /// Creates a reader for a BERT.
    pub fn of(encoder: &'a Encoder, max_length: Option<usize>) -> Self {
        let Encoder { config, tokenizer, .. } = encoder;
        Self { tokenizer, positions: Some(config.positions()), token_types: config.type_vocab_size > 1, max_length }
    }

    /// Prints the metrics of a classifier on labelled texts.
    pub fn evaluate<B: Backend, M: TextClassifier<B>>(
        self,
        model: &M,
        labelled: &LabelledArgs,
        separator: Option<char>,
        batch_size: usize,
        json: bool,
    ) -> Result<Ended, Exit> {
        let problem = model.problem()?;
        if separator.is_some() && problem != ProblemType::MultiLabel {
            return Err(usage("--label-separator: the model gives each text one label"));
        }
        let targets = Targets { problem, labels: model.labels(), separator: separator.unwrap_or(',') };
        let texts = labelled.read(&labelled.data, problem)?;
        let examples = Self { positions: model.position_limit(), ..self }.examples(texts, &targets)?;
        labelled::print_evaluation(model, &examples, batch_size, json)
    }

    /// Encodes texts and prints the number of truncated texts.
    pub fn examples(&self, texts: Vec<LabelledText>, targets: &Targets<'_>) -> Result<Vec<TextExample>, Exit> {
        let (positions, mut cut) = (self.positions.unwrap_or(usize::MAX), 0);
        let most = self.max_length.unwrap_or(MAX_LENGTH.min(positions));
        if most > positions {
            return Err(usage(format!("--max-length is {most}, but the model has {positions} positions")));
        }
        let encode = |LabelledText { text, pair, .. }: &LabelledText| {
            let mut encoded =
                self.tokenizer.encode_text(text, pair.as_deref(), Some(most), Truncation::LongestFirst)?;
            cut += usize::from(encoded.truncated);
            if !self.token_types {
                encoded.text.token_types.clear();
            }
            Ok::<_, ModelError>(encoded.text)
        };
        let examples = match targets.problem {
            ProblemType::SingleLabel => encode_examples(texts, targets.labels, encode),
            ProblemType::MultiLabel => encode_multi_label(texts, targets.labels, targets.separator, encode),
            ProblemType::Regression => encode_regression(texts, encode),
        }?;
        if cut > 0 {
            let are = if cut == 1 { "is" } else { "are" };
            tell(format_args!("{} {are} truncated to {most} tokens (--max-length)", counted(cut, "text")));
        }
        Ok(examples)
    }
}
