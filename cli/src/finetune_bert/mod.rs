//! Fine-tuning of BERT for classification.

mod options;

use grove::{
    layers::lora,
    models::{ModelError, TextClassifier, Truncation},
    optim::except,
    train::{
        RunSettings,
        classify::{TextExample, encode_examples},
        data::{LabelledText, labels as labels_of, read_labelled},
    },
    tree::{Filter, by_path},
};

use crate::{
    labelled::{self, hold_out},
    prelude::*,
    published::Encoder,
    training::Setup,
};
pub use options::Options;

/// Tokens of a text where nothing else is given.
const MAX_LENGTH: usize = 128;

type Classifier<B> = BertForSequenceClassification<B>;

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.check_values()?;
        self.run.device.spec()
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
        let (run, epochs, trainable) = (&self.run, options::EPOCHS, Some(self.trainable(&model)?));
        let optimizer = |model: &Classifier<B>, schedule: &_| {
            run.training.optimizer_by_layer(schedule, model, self.layer_decay, Classifier::depth)
        };
        let setup = Setup { run, output, epochs, settings: self.settings(), trainable };
        labelled::train(setup, model, split, &encoder.tokenizer, self.balance, optimizer, lora::merge)
    }
}

impl Options {
    /// Reads labelled texts; without files, those that ship.
    fn read(&self, files: &[PathBuf]) -> Result<Vec<LabelledText>, Exit> {
        let demonstration = [shipped("bert-austen/speech.csv")];
        Ok(read_labelled(if files.is_empty() { &demonstration } else { files }, &self.columns())?)
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
            return Err(Exit::Usage(format!("--max-length is {most}, and the model has {positions} positions")));
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
            eprintln!("{cut} texts are cut, as they are longer than --max-length");
        }
        Ok(examples)
    }

    /// The published encoder with a head for these labels, the model's own where it has one for as many, and with adapters
    /// where they are asked for.
    fn prepare<B: Backend>(
        &self,
        encoder: &Encoder,
        labels: Vec<String>,
        device: &B::Device,
    ) -> Result<Classifier<B>, Exit> {
        // No matrix has a higher rank than its smaller side; a mistyped one would ask for memory without end.
        let width = encoder.config.hidden_size;
        if let Some(rank) = self.lora_rank.filter(|rank| *rank > width) {
            return Err(Exit::Usage(format!(
                "--lora-rank is {rank}, and the model's matrices have at most rank {width}"
            )));
        }
        let mut config = encoder.config.clone();
        config.labels = labels;
        config.problem_type = Some("single_label_classification".into());
        let key = Key::new(self.run.seed).fold_in(1);
        let (model, report) = Classifier::with_new_head(&encoder.path, &config, key, device, None)?;
        let missing = report.missing.iter().map(|missing| &*missing.path);
        let new: Vec<&str> = missing.chain(report.mismatched.iter().map(|other| &*other.path)).collect();
        if !new.is_empty() {
            eprintln!("new, as the checkpoint does not have them: {}", new.join(", "));
        }
        let Some(rank) = self.lora_rank else { return Ok(model) };
        let alpha = self.lora_alpha.unwrap_or(2.0 * rank as f64);
        let bert = lora::add(model.bert, &self.lora_targets, rank, alpha, key.fold_in(1));
        Ok(Classifier {
            bert: bert.map_err(|error| Exit::Usage(format!("--lora-targets: {error}")))?,
            head: model.head,
        })
    }

    /// The leaves that are trained: all but what is frozen, and with adapters those, the pooler and the head.
    fn trainable<B: Backend>(&self, model: &Classifier<B>) -> Result<Filter<B>, Exit> {
        let freeze = except(model, &self.freeze, "bert.").map_err(|error| Exit::Usage(format!("--freeze {error}")))?;
        Ok(match self.lora_rank {
            Some(_) => freeze & (lora::trainable() | by_path("head.**") | by_path("bert.pooler.**").optional()),
            None => freeze,
        })
    }

    /// Settings of the run besides the options of every run.
    fn settings(&self) -> RunSettings {
        RunSettings::new()
            .with("balance", self.balance)
            .with("freeze", self.freeze.join(","))
            .with_option("lora-rank", self.lora_rank)
            .with_option("lora-alpha", self.lora_alpha)
            .with("lora-targets", self.lora_targets.join(","))
            .with("layer-decay", self.layer_decay)
    }

    /// Does what `--evaluate` asks for.
    fn evaluate<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let encoder = Encoder::open(self.model.as_deref())?;
        let dtype = Some(self.run.device.dtype.into());
        let (model, _) = Classifier::<B>::from_path(&encoder.path, device, dtype)?;
        let examples = self.examples(self.read(&self.data)?, &encoder.config.labels, &encoder)?;
        let score = labelled::evaluate(&model, &examples, self.run.training.batch_size)?;
        let (texts, accuracy) = (score.confusion.count(), 100.0 * score.confusion.accuracy());
        let (f1, loss, table) = (100.0 * score.confusion.macro_f1(), score.loss(), score.confusion.table());
        let text =
            format!("{texts} texts, {accuracy:.1} % right, macro F1 {f1:.1} %, {loss:.4} nats a text\n\n{table}");
        report(self.run.json, &labelled::json(&score), &text)?;
        Ok(Ended::Finished)
    }
}
