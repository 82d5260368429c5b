//! Recurrent text classifiers.

use clap::ArgGroup;
use grove::{
    models::{bert::ProblemType, check_finite},
    train::{
        classify::{TextExample, encode_examples},
        data::{LabelledText, labels as labels_of},
    },
};

use crate::{
    labelled::{self, LabelledArgs, SplitArgs, TextProblem},
    language::RnnSizes,
    prelude::*,
    training::{need, new_model, new_tokenizer},
};

/// Default maximum length of a text, in tokens.
pub const MAX_LENGTH: usize = 512;

/// Trains a recurrent text classifier, or uses a trained one.
///
/// Without --tokenizer, a tokenizer is trained on the texts. Texts are batched by length and packed, so that no padding
/// is computed.
#[derive(Parser, Debug)]
#[command(
    allow_negative_numbers = true,
    group = ArgGroup::new("use").args(["evaluate", "predict"]).requires("model"),
    mut_arg("data", |arg| arg.required_unless_present("predict")),
    mut_arg("layers", |arg| arg.help("Number of recurrent layers [default: 1]")),
    mut_arg("hidden", |arg| arg.help("Size of the hidden state in each direction [default: 128]")),
    mut_arg("epochs", |arg| arg.help("Number of passes over the data; may be a fraction [default: 10]")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts per batch")),
    mut_arg("learning_rate", |arg| arg.default_value("2e-3")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
)]
pub struct ClassifyOptions {
    /// Labelled texts.
    #[command(flatten)]
    pub texts: SplitArgs,

    /// Trained model to use: directory, weights file, or hub id
    #[arg(long)]
    pub model: Option<String>,

    /// Print the model's accuracy and loss on the data instead of training
    #[arg(long, requires = "data", conflicts_with_all = ["output", "held_out", "val_fraction", "steps", "epochs"])]
    pub evaluate: bool,

    /// Print the class of this text instead of training; can be given several times
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["data", "output", "steps", "epochs"])]
    pub predict: Vec<String>,

    /// Sizes of a new model.
    #[command(flatten)]
    pub sizes: RnnSizes,

    /// Use a unidirectional network instead of a bidirectional one
    #[arg(long, conflicts_with = "model", help_heading = "Model")]
    pub one_direction: bool,

    /// Dropout rate of all layers
    #[arg(long, default_value_t = 0.3, value_name = "RATE", help_heading = "Model")]
    pub dropout: f64,

    /// Directory or hub id of a tokenizer [default: one trained on the data]
    #[arg(long, value_name = "DIR", conflicts_with = "model", help_heading = "Model")]
    pub tokenizer: Option<PathBuf>,

    /// Vocabulary size of the tokenizer to train; 257 is bytes only, a larger one merges frequent sequences [default: 2048,
    /// or 257 for texts of fewer than 20 characters on average, such as names]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub vocab_size: Option<usize>,

    /// Maximum length of a text in tokens; longer texts are truncated
    #[arg(long, default_value_t = MAX_LENGTH, value_name = "N", help_heading = "Model")]
    pub max_length: usize,

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

impl Command for ClassifyOptions {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        let uses = [("evaluate", self.evaluate), ("predict", !self.predict.is_empty())];
        need("model", self.model.is_some(), uses)?;
        if self.model.is_some() && uses.iter().all(|(_, is_given)| !is_given) {
            return Err(usage(
                "--model is the model of --evaluate or --predict; a recurrent classifier is always trained from scratch",
            ));
        }
        self.run.check()?;
        self.texts.check(&self.run.training, ProblemType::SingleLabel)?;
        if self.texts.labelled.columns.pair_column.is_some() {
            return Err(usage("--pair-column: a recurrent classifier reads single texts; pairs need a BERT"));
        }
        fraction([("dropout", self.dropout)])?;
        at_least_one([("max-length", self.max_length)])?;
        if self.run.jit {
            return Err(usage(
                "--jit is not available here: each combination of lengths of packed texts would be compiled separately",
            ));
        }
        match self.predict.iter().any(|text| text.trim().is_empty()) {
            true => Err(usage("--predict has an empty text")),
            false => self.run.device.spec(),
        }
    }

    /// Trains a classifier, or runs `--evaluate` or `--predict`.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let Some(model) = &self.model else { return self.train::<B>(device) };
        let path = resolve_named(model)?;
        let (model, _) = RnnClassifier::<B>::from_path(&path, device, None)?;
        let tokenizer = Tokenizer::beside(&path)?;
        match self.evaluate {
            true => {
                let reader = TextReader { tokenizer: &tokenizer, config: &model.config, max_length: self.max_length };
                reader.evaluate(&model, &self.texts.labelled, self.run.training.batch_size, self.run.json)
            }
            false => self.print_predictions(&model, &tokenizer),
        }
    }
}

impl ClassifyOptions {
    fn train<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let output = self.run.directory()?;
        let labelled = &self.texts.labelled;
        let texts = labelled.read(&labelled.data, ProblemType::SingleLabel)?;
        let tokenizer = new_tokenizer(output.tokenizer()?, self.tokenizer.as_deref(), || {
            let texts: Vec<&str> = texts.iter().map(|text| &*text.text).collect();
            Tokenizer::train_bpe(&texts, self.vocab_size.unwrap_or_else(|| default_vocab_size(&texts)))
        })?;
        let config = match output.config()? {
            Some(file) => {
                let config = RnnClassifierConfig::from_file(file)?;
                let sizes = [config.num_layers, config.hidden_size, config.embedding_size];
                self.sizes.check_resumed(config.cell, sizes)?;
                config
            }
            None => {
                let hidden_size = self.sizes.hidden.unwrap_or(128);
                RnnClassifierConfig {
                    cell: self.sizes.cell.unwrap_or_default(),
                    vocab_size: tokenizer.vocab_size(),
                    embedding_size: self.sizes.embedding.unwrap_or(hidden_size),
                    hidden_size,
                    num_layers: self.sizes.layers.unwrap_or(1),
                    bidirectional: !self.one_direction,
                    dropout: self.dropout,
                    labels: labels_of(&texts)?,
                    ..RnnClassifierConfig::default()
                }
            }
        };
        let model: RnnClassifier<B> = new_model(&self.run, &config, device)?;
        let reader = TextReader { tokenizer: &tokenizer, config: &config, max_length: self.max_length };
        let split = self
            .texts
            .split(reader.examples(texts)?, ProblemType::SingleLabel, self.run.seed, |texts| reader.examples(texts))?;
        let settings = RunSettings::new()
            .with("max-length", self.max_length)
            .with("dropout", self.dropout)
            .with("one-direction", self.one_direction)
            .with_option("vocab-size", self.vocab_size)
            .with("balance", self.texts.balance);
        let (run, epochs, trainable) = (&self.run, 10.0, None);
        let optimizer = |model: &_, schedule: &_| run.training.optimizer(schedule, model);
        let setup = Setup { run, output, epochs, settings, trainable };
        let problem = TextProblem { kind: ProblemType::SingleLabel, balance: self.texts.balance };
        labelled::train(setup, model, split, problem, &tokenizer, optimizer, |model| model)
    }

    /// Prints the predictions for the texts of `--predict`.
    fn print_predictions<B: Backend>(&self, model: &RnnClassifier<B>, tokenizer: &Tokenizer) -> Result<Ended, Exit> {
        let vocab_size = model.config.vocab_size;
        let ids = |text: &String| Ok(tokenizer.encode_for(text.trim(), self.max_length, vocab_size)?.ids);
        let ids: Vec<Vec<u32>> = self.predict.iter().map(ids).collect::<Result<_, Exit>>()?;
        let predictions = model.predict(&model.pack(&ids)?);
        check_finite(model, predictions.iter().map(|found| f64::from(found.score)))?;
        let results = self.predict.iter().zip(&predictions).map(|(text, found)| {
            let line = format!("{}  {:.1} %  {text}", found.label, 100.0 * found.score);
            (json!({ "text": text, "labels": [found] }), line)
        });
        let (objects, lines): (Vec<_>, Vec<_>) = results.unzip();
        report(self.run.json, &json!({ "texts": objects }), &lines.join("\n"))
    }
}

/// Returns the vocabulary size of the tokenizer for these texts: bytes for names and other short texts, whose letters tell
/// the class, and pieces of words for longer ones, which are learned in fewer steps.
fn default_vocab_size(texts: &[&str]) -> usize {
    let characters: usize = texts.iter().map(|text| text.chars().count()).sum();
    if characters < 20 * texts.len() { 257 } else { 2048 }
}

/// Encodes labelled texts for a recurrent classifier.
pub struct TextReader<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// The model's configuration.
    pub config: &'a RnnClassifierConfig,
    /// Maximum length of a text, in tokens.
    pub max_length: usize,
}

impl TextReader<'_> {
    /// Encodes texts.
    pub fn examples(&self, texts: Vec<LabelledText>) -> Result<Vec<TextExample>, Exit> {
        let encode =
            |text: &LabelledText| self.tokenizer.encode_for(&text.text, self.max_length, self.config.vocab_size);
        Ok(encode_examples(texts, &self.config.labels, encode)?)
    }

    /// Prints the metrics of a classifier on labelled texts.
    pub fn evaluate<B: Backend>(
        &self,
        model: &RnnClassifier<B>,
        labelled: &LabelledArgs,
        batch_size: usize,
        as_json: bool,
    ) -> Result<Ended, Exit> {
        let examples = self.examples(labelled.read(&labelled.data, ProblemType::SingleLabel)?)?;
        labelled::print_evaluation(model, &examples, batch_size, as_json)
    }
}
