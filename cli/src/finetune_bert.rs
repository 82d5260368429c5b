//! Fine-tuning of BERT for classification.

use clap::builder::ArgPredicate;
use grove::{
    layers::lora,
    models::{TextClassifier, Truncation},
    optim::except,
    train::{
        classify::{TextExample, encode_examples},
        data::{Columns, LabelledText, have_labels, labels as labels_of, read_labelled},
    },
    tree::by_path,
};

use crate::{
    bert::Encoder,
    labelled::{self, delimiter, hold_out, tell_new_labels},
    prelude::*,
};

/// Tokens of a text where nothing else is given.
const MAX_LENGTH: usize = 128;

/// Trains a BERT, RoBERTa or DistilBERT to classify texts, or pairs of texts.
///
/// Without arguments it fine-tunes the small model that ships with grove on sentences that ship too, to show what
/// happens. The result is a directory that `--example bert -- --task classify` and transformers load. Ctrl-C ends a run
/// after a checkpoint, and the same command with --resume goes on.
#[derive(Parser, Debug)]
#[command(
    name = "finetune_bert",
    version,
    allow_negative_numbers = true,
    mut_arg("epochs", |arg| arg.help("Passes over the data, parts of one too [default: 3]")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts of a batch")),
    mut_arg("learning_rate", |arg| {
        let given = ArgPredicate::IsPresent;
        arg.default_value_ifs([("lora_rank", given.clone(), "1e-3"), ("model", given, "5e-5")])
            .default_value("1e-3")
            .hide_default_value(true)
            .help("Highest learning rate [default: 5e-5; 1e-3 with --lora-rank, and for the small model that ships]")
    }),
    mut_arg("schedule", |arg| arg.default_value("linear")),
    mut_arg("final_learning_rate", |arg| arg.default_value("0")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
    mut_arg("beta2", |arg| arg.default_value("0.999")),
    mut_arg("checkpoint_every", |arg| arg.default_value("500")),
)]
pub struct Options {
    /// Labelled texts: .csv, .tsv (without quotes) or .jsonl. Without any, sentences that ship with grove
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub data: Vec<PathBuf>,

    /// Labelled texts for the evaluation; without them, some of --data are held out
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub held_out: Vec<PathBuf>,

    /// Fraction of each class that is held out, where --held-out is not given; with 0 there is no evaluation
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION", conflicts_with = "held_out")]
    pub val_fraction: f64,

    /// Do not train: print how well the model classifies the data
    #[arg(long, requires_all = ["model", "data"], conflicts_with_all = ["output", "held_out", "val_fraction", "steps", "epochs", "jit"])]
    pub evaluate: bool,

    /// Column, or JSON field, of the texts: its name, or its number from 1
    #[arg(long, default_value = "text", value_name = "NAME", help_heading = "Data")]
    pub text_column: String,

    /// Column of the second texts, where pairs are classified
    #[arg(long, value_name = "NAME", help_heading = "Data")]
    pub pair_column: Option<String>,

    /// Column of the labels
    #[arg(long, default_value = "label", value_name = "NAME", help_heading = "Data")]
    pub label_column: String,

    /// The first line of the files has no names; columns are given by their numbers
    #[arg(long, help_heading = "Data")]
    pub no_header: bool,

    /// Character between the columns of tables, or tab; with tabs, quotes mean nothing [default: a tab in .tsv, else a comma]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter, help_heading = "Data")]
    pub delimiter: Option<u8>,

    /// The labels, in the order that they are to have; without them, those that occur, sorted
    #[arg(long, value_delimiter = ',', value_name = "NAMES", help_heading = "Data")]
    pub labels: Vec<String>,

    /// Tokens of a text that are read; the rest of a longer one is not [default: 128, or what the model has]
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub max_length: Option<usize>,

    /// Let each class count the same in the loss, however many texts it has
    #[arg(long, help_heading = "Data")]
    pub balance: bool,

    /// Model to fine-tune: directory, weights file, or hub id, such as google-bert/bert-base-uncased
    #[arg(long, help_heading = "Model")]
    pub model: Option<String>,

    /// Adapter of peft (LoRA) that is merged into the model: directory or hub id
    #[arg(long, value_name = "DIR|ID", help_heading = "Model")]
    pub adapter: Option<String>,

    /// Parts that stay as they are, by path: "embeddings.**,encoder.layer.0.**"
    #[arg(long, value_delimiter = ',', value_name = "PATTERNS", help_heading = "Model")]
    pub freeze: Vec<String>,

    /// Freeze the encoder and train adapters of this rank in it (LoRA), which end up in the weights
    #[arg(long, value_name = "RANK", help_heading = "Model")]
    pub lora_rank: Option<usize>,

    /// Scale of the adapters: their product is multiplied by this over the rank [default: twice the rank]
    #[arg(long, value_name = "ALPHA", requires = "lora_rank", help_heading = "Model")]
    pub lora_alpha: Option<f64>,

    /// Linear maps that get an adapter
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "PATTERNS",
        default_value = "encoder.layer.*.attention.query,encoder.layer.*.attention.value",
        help_heading = "Model"
    )]
    pub lora_targets: Vec<String>,

    /// Factor from the learning rate of a layer to that of the layer below it, such as 0.9
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", help_heading = "Training")]
    pub layer_decay: f64,

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

type Classifier<B> = BertForSequenceClassification<B>;

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.run.training.check()?;
        self.run.training.check_held_out("val-fraction", self.val_fraction)?;
        check_layer_decay(self.layer_decay)?;
        at_least_one([("lora-rank", self.lora_rank.unwrap_or(1))])?;
        if self.lora_alpha.is_some_and(|alpha| !(alpha > 0.0 && alpha.is_finite())) {
            return Err(usage("--lora-alpha must be a number greater than 0"));
        }
        if self.max_length.is_some_and(|length| length < 3) {
            return Err(usage(
                "--max-length must leave room for a token between those that mark beginning and end: at least 3",
            ));
        }
        match self.labels.iter().enumerate().find(|(i, label)| self.labels[..*i].contains(label)) {
            Some((_, label)) => Err(usage(format!("--labels names '{label}' twice"))),
            None if self.labels.len() == 1 => Err(usage("--labels names one label; a classifier needs at least two")),
            None => self.run.device.spec(),
        }
    }

    /// Trains a classifier, or evaluates it, as the options ask.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        if self.evaluate {
            return self.evaluate::<B>(device);
        }
        let output = self.run.directory()?;
        let encoder = Encoder::open(self.model.as_deref())?;
        let texts = self.read(&self.data)?;
        let labels = match output.config()? {
            Some(file) => BertConfig::from_file(file)?.labels,
            // A model that knows all of them keeps its own.
            None if self.labels.is_empty() && have_labels(&texts, &encoder.config.labels) => {
                encoder.config.labels.clone()
            }
            None if self.labels.is_empty() => labels_of(&texts)?,
            None => self.labels.clone(),
        };
        let training = self.examples(texts, &labels, &encoder)?;
        let split = match &self.held_out[..] {
            [] => {
                let option = ("val-fraction", self.val_fraction);
                hold_out(training, |example| example.class, option, self.run.seed, ("texts", &self.data))?
            }
            files => (training, self.examples(self.read(files)?, &labels, &encoder)?),
        };
        let model = self.prepare::<B>(&encoder, labels, device)?;
        let (run, epochs, trainable) = (&self.run, 3.0, Some(self.trainable(&model)?));
        let optimizer = |model: &Classifier<B>, schedule: &_| {
            run.training.optimizer_by_layer(schedule, model, self.layer_decay, Classifier::depth)
        };
        let settings = RunSettings::new()
            .with("balance", self.balance)
            .with("freeze", self.freeze.join(","))
            .with_option("lora-rank", self.lora_rank)
            .with_option("lora-alpha", self.lora_alpha)
            .with("lora-targets", self.lora_targets.join(","))
            .with("layer-decay", self.layer_decay);
        let setup = Setup { run, output, epochs, settings, trainable };
        labelled::train(setup, model, split, &encoder.tokenizer, self.balance, optimizer, lora::merge)
    }
}

impl Options {
    /// Reads labelled texts; without files, those that ship.
    fn read(&self, files: &[PathBuf]) -> Result<Vec<LabelledText>, Exit> {
        let demonstration = [shipped("bert-austen/speech.csv")];
        let columns = Columns {
            text: self.text_column.clone(),
            pair: self.pair_column.clone(),
            label: self.label_column.clone(),
            header: !self.no_header,
            delimiter: self.delimiter,
        };
        Ok(read_labelled(if files.is_empty() { &demonstration } else { files }, &columns)?)
    }

    /// Texts as the model reads them. Says how many had to be cut.
    fn examples(
        &self,
        texts: Vec<LabelledText>,
        labels: &[String],
        Encoder { config, tokenizer, .. }: &Encoder,
    ) -> Result<Vec<TextExample>, Exit> {
        let (positions, mut cut) = (config.positions(), 0);
        let most = self.max_length.unwrap_or(MAX_LENGTH.min(positions));
        if most > positions {
            return Err(usage(format!("--max-length is {most}, and the model has {positions} positions")));
        }
        let examples = encode_examples(texts, labels, |LabelledText { text, pair, .. }| {
            let mut encoded = tokenizer.encode_text(text, pair.as_deref(), Some(most), Truncation::LongestFirst)?;
            cut += usize::from(encoded.truncated);
            if config.type_vocab_size < 2 {
                encoded.text.token_types.clear();
            }
            Ok::<_, ModelError>(encoded.text)
        })?;
        if cut > 0 {
            tell(format_args!("{cut} texts are cut, as they are longer than --max-length"));
        }
        Ok(examples)
    }

    /// The published encoder with a head for these labels, with the model's own weights for those that it knows, and with
    /// adapters where they are asked for.
    fn prepare<B: Backend>(
        &self,
        encoder: &Encoder,
        labels: Vec<String>,
        device: &B::Device,
    ) -> Result<Classifier<B>, Exit> {
        // No matrix has a higher rank than its smaller side; a mistyped one would ask for memory without end.
        let width = encoder.config.hidden_size;
        if let Some(rank) = self.lora_rank.filter(|rank| *rank > width) {
            return Err(usage(format!("--lora-rank is {rank}, and the model's matrices have at most rank {width}")));
        }
        let mut config = encoder.config.clone();
        config.labels = labels;
        config.problem_type = Some("single_label_classification".into());
        let key = Key::new(self.run.seed).fold_in(1);
        let files = with_adapter(&encoder.path, self.adapter.as_deref())?;
        let (model, report) = Classifier::with_new_head_of(&files, &config, key, device, None)?;
        let missing = report.missing.iter().map(|missing| &*missing.path);
        let new: Vec<&str> = missing.chain(report.mismatched.iter().map(|other| &*other.path)).collect();
        if !new.is_empty() {
            tell(format_args!("new, as the checkpoint does not have them: {}", new.join(", ")));
        } else {
            tell_new_labels(&encoder.config.labels, &config.labels);
        }
        let Some(rank) = self.lora_rank else { return Ok(model) };
        let alpha = self.lora_alpha.unwrap_or(2.0 * rank as f64);
        let bert = lora::add(model.bert, &self.lora_targets, rank, alpha, key.fold_in(1));
        let bert = bert.map_err(|error| usage(format!("--lora-targets: {error}")))?;
        Ok(Classifier { bert, head: model.head })
    }

    /// The leaves that are trained: all but what is frozen, and with adapters those, the pooler and the head.
    fn trainable<B: Backend>(&self, model: &Classifier<B>) -> Result<Filter<B>, Exit> {
        let freeze = except(model, &self.freeze, "bert.").map_err(|error| usage(format!("--freeze {error}")))?;
        Ok(match self.lora_rank {
            Some(_) => freeze & (lora::trainable() | by_path("head.**") | by_path("bert.pooler.**").optional()),
            None => freeze,
        })
    }

    /// Does what `--evaluate` asks for.
    fn evaluate<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let encoder = Encoder::open(self.model.as_deref())?;
        let dtype = Some(self.run.device.dtype.into());
        let files = with_adapter(&encoder.path, self.adapter.as_deref())?;
        let (model, _) = files.load::<B, Classifier<B>>(device, dtype)?;
        let examples = self.examples(self.read(&self.data)?, &encoder.config.labels, &encoder)?;
        let score = labelled::evaluate(&model, &examples, self.run.training.batch_size)?;
        let (texts, accuracy) = (score.confusion.count(), 100.0 * score.confusion.accuracy());
        let (f1, loss, table) = (100.0 * score.confusion.macro_f1(), score.loss(), score.confusion.table());
        let text =
            format!("{texts} texts, {accuracy:.1} % right, macro F1 {f1:.1} %, {loss:.4} nats a text\n\n{table}");
        report(self.run.json, &labelled::json(&score), &text)
    }
}
