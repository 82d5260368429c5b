//! Recurrent classifiers of texts.

use clap::ArgGroup;
use grove::{
    models::{TextClassifier, check_finite},
    train::{
        classify::{TextExample, encode_examples},
        data::{Columns, LabelledText, labels as labels_of, read_labelled},
    },
};
use serde_json::Map;

use crate::{
    labelled::{self, delimiter, hold_out},
    language::RnnSizes,
    prelude::*,
    training::{new_model, new_tokenizer},
};

/// Trains a classifier of texts, or uses one.
///
/// A token is a character (to be exact, a byte), unless --vocab-size or --tokenizer asks for more. Texts are batched by
/// length and packed, so that no padding is ever computed.
#[derive(Parser, Debug)]
#[command(
    allow_negative_numbers = true,
    group = ArgGroup::new("use").args(["evaluate", "predict"]).requires("model"),
    mut_arg("layers", |arg| arg.help("Recurrent layers, one above the other [default: 1]")),
    mut_arg("hidden", |arg| arg.help("Size of hidden states in each direction [default: 128]")),
    mut_arg("epochs", |arg| arg.help("Passes over the data, parts of one too [default: 10]")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts of a batch")),
    mut_arg("learning_rate", |arg| arg.default_value("2e-3")),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
)]
pub struct ClassifyOptions {
    /// Labelled texts, one a line: the label, a tab, the text; in a .jsonl file {"label": "…", "text": "…"}
    #[arg(long, value_name = "FILE", num_args = 1.., required_unless_present = "predict")]
    pub data: Vec<PathBuf>,

    /// Character between the label and the text, or tab; with tabs, quotes mean nothing [default: a tab in .tsv, else a comma]
    #[arg(long, value_name = "CHARACTER", value_parser = delimiter)]
    pub delimiter: Option<u8>,

    /// Fraction of each class that is held out for the evaluation; with 0 there is none
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION")]
    pub held_out: f64,

    /// Trained model to use: directory, weights file, or hub id
    #[arg(long, requires = "use")]
    pub model: Option<String>,

    /// Do not train: print the model's accuracy and loss on the data
    #[arg(long, conflicts_with_all = ["output", "steps", "epochs"])]
    pub evaluate: bool,

    /// Do not train: print the class of this text; can be given several times
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["data", "output", "steps", "epochs"])]
    pub predict: Vec<String>,

    /// Sizes of a new model.
    #[command(flatten)]
    pub sizes: RnnSizes,

    /// Read texts from their beginning only, not from both ends
    #[arg(long, conflicts_with = "model", help_heading = "Model")]
    pub one_direction: bool,

    /// Dropout, everywhere
    #[arg(long, default_value_t = 0.3, value_name = "RATE", help_heading = "Model")]
    pub dropout: f64,

    /// Directory of a tokenizer; without it one is learned from the data
    #[arg(long, value_name = "DIR", conflicts_with = "model", help_heading = "Model")]
    pub tokenizer: Option<PathBuf>,

    /// Size of the vocabulary that is learned: 257 is characters, more joins frequent ones
    #[arg(long, default_value_t = 257, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub vocab_size: usize,

    /// Tokens of a text that are read; the rest of a longer one is not
    #[arg(long, default_value_t = 512, value_name = "N", help_heading = "Model")]
    pub max_length: usize,

    /// Directory, device and hyperparameters of the run.
    #[command(flatten)]
    pub run: RunArgs,
}

impl Command for ClassifyOptions {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.run.training.check()?;
        self.run.training.check_held_out("held-out", self.held_out)?;
        fraction([("dropout", self.dropout)])?;
        at_least_one([("max-length", self.max_length)])?;
        if self.run.jit {
            return Err(usage(
                "--jit does not help here: each list of lengths of packed texts would be a program of its own",
            ));
        }
        match self.predict.iter().any(|text| text.trim().is_empty()) {
            true => Err(usage("--predict is given an empty text")),
            false => self.run.device.spec(),
        }
    }

    /// Trains a classifier, or uses one, as the options ask.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let Some(model) = &self.model else { return self.train::<B>(device) };
        let path = resolve_named(model, &FilePatterns::model())?;
        let (model, _) = RnnClassifier::<B>::from_path(&path, device, None)?;
        let tokenizer = Tokenizer::beside(&path)?;
        match self.evaluate {
            true => self.print_score(&model, &tokenizer),
            false => self.print_predictions(&model, &tokenizer),
        }
    }
}

impl ClassifyOptions {
    fn train<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let output = self.run.directory()?;
        let texts = self.read()?;
        let resumed = output.config()?.map(RnnClassifierConfig::from_file).transpose()?;
        let labels = if resumed.is_none() { labels_of(&texts)? } else { vec![] };
        let tokenizer = new_tokenizer(output.tokenizer()?, self.tokenizer.as_deref(), || {
            let texts: Vec<&str> = texts.iter().map(|text| &*text.text).collect();
            Tokenizer::train_bpe(&texts, self.vocab_size)
        })?;
        let config = match resumed {
            Some(config) => {
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
                    labels,
                    ..RnnClassifierConfig::default()
                }
            }
        };
        let model: RnnClassifier<B> = new_model(&self.run, &config, device)?;
        let examples = self.examples(texts, &tokenizer, &config)?;
        let option = ("held-out", self.held_out);
        let split = hold_out(examples, |example| example.class, option, self.run.seed, ("texts", &self.data))?;
        let settings = RunSettings::new()
            .with("max-length", self.max_length)
            .with("dropout", self.dropout)
            .with("one-direction", self.one_direction)
            .with("vocab-size", self.vocab_size);
        let (run, epochs, trainable) = (&self.run, 10.0, None);
        let optimizer = |_: &_, schedule: &_| run.training.optimizer(schedule);
        let setup = Setup { run, output, epochs, settings, trainable };
        labelled::train(setup, model, split, &tokenizer, false, optimizer, |model| model)
    }

    /// Reads labelled texts: of a table without names the label stands before the text.
    fn read(&self) -> Result<Vec<LabelledText>, Exit> {
        let objects = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "jsonl");
        let (objects, tables): (Vec<_>, Vec<_>) = self.data.iter().cloned().partition(objects);
        let columns = |text: &str, label: &str| Columns {
            text: text.into(),
            pair: None,
            label: label.into(),
            header: false,
            delimiter: self.delimiter,
        };
        let mut texts = read_labelled(&tables, &columns("2", "1"))?;
        texts.extend(read_labelled(&objects, &columns("text", "label"))?);
        Ok(texts)
    }

    /// Texts as the model reads them.
    fn examples(
        &self,
        texts: Vec<LabelledText>,
        tokenizer: &Tokenizer,
        config: &RnnClassifierConfig,
    ) -> Result<Vec<TextExample>, Exit> {
        let encode = |text: &LabelledText| tokenizer.encode_for(&text.text, self.max_length, config.vocab_size);
        Ok(encode_examples(texts, &config.labels, encode)?)
    }

    /// Does what `--evaluate` asks for.
    fn print_score<B: Backend>(&self, model: &RnnClassifier<B>, tokenizer: &Tokenizer) -> Result<Ended, Exit> {
        let examples = self.examples(self.read()?, tokenizer, &model.config)?;
        let score = labelled::evaluate(model, &examples, self.run.training.batch_size)?;
        let (texts, accuracy, loss) = (examples.len(), score.confusion.accuracy(), score.loss());
        let recalls = (0..).map(|class| json!(score.confusion.recall(class)));
        let classes: Map<_, _> = model.labels().iter().cloned().zip(recalls).collect();
        let (recognised, table) = (100.0 * accuracy, score.confusion.table());
        let text = format!("{texts} texts, {recognised:.1} % recognised, {loss:.4} nats a text\n{table}");
        let object = json!({ "accuracy": accuracy, "loss": loss, "texts": texts, "classes": classes });
        report(self.run.json, &object, &text)
    }

    /// Does what `--predict` asks for.
    fn print_predictions<B: Backend>(&self, model: &RnnClassifier<B>, tokenizer: &Tokenizer) -> Result<Ended, Exit> {
        let vocab_size = model.config.vocab_size;
        let ids = |text: &String| Ok(tokenizer.encode_for(text.trim(), self.max_length, vocab_size)?.ids);
        let ids: Vec<Vec<u32>> = self.predict.iter().map(ids).collect::<Result<_, Exit>>()?;
        let predictions = model.predict(&model.pack(&ids)?);
        check_finite(model, predictions.iter().map(|found| f64::from(found.probability)))?;
        let told = self.predict.iter().zip(&predictions).map(|(text, found)| {
            let line = format!("{}  {:.1} %  {text}", found.label, 100.0 * found.probability);
            (json!({ "text": text, "label": found.label, "probability": found.probability }), line)
        });
        let (objects, lines): (Vec<_>, Vec<_>) = told.unzip();
        report(self.run.json, &json!({ "predictions": objects }), &lines.join("\n"))
    }
}
