//! Fine-tuning of BERT for classification.

mod options;

use grove::{
    layers::lora,
    models::{Truncation, bert::BertForSequenceClassification},
    optim::except,
    prelude::*,
    train::{
        Ended, RunSettings,
        data::{LabelledText, labels as labels_of, read_labelled},
    },
    tree::{Filter, by_path},
};
use std::path::PathBuf;

use crate::{
    Exit,
    encoder::Published,
    failure,
    labelled::{self, Example, Training, examples, hold_out},
    program::Command,
    shipped,
    training::{Output, model_settings},
    write_json, write_line,
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
        let output = Output::open(&self.run, self.training.keep)?;
        let published = Published::open(self.model.as_deref())?;
        let texts = self.read(&self.data)?;
        let labels = match output.config()? {
            Some(file) => BertConfig::from_file(file).map_err(failure)?.labels,
            None if self.labels.is_empty() => labels_of(&texts).map_err(failure)?,
            None => self.labels.clone(),
        };
        let training = self.examples(texts, &labels, &published)?;
        let (training, held_out) = match &self.held_out[..] {
            [] => {
                let option = ("val-fraction", self.val_fraction);
                hold_out(training, |example| example.class, option, self.run.seed, ("texts", &self.data))?
            }
            files => (training, self.examples(self.read(files)?, &labels, &published)?),
        };
        let model = self.prepare::<B>(&published, labels, device)?;
        let config = model.bert.config.to_json().into();
        let layers = model.bert.config.num_hidden_layers;
        let training_of = Training {
            run: &self.run,
            training: &self.training,
            output,
            settings: self.settings(model_settings(&config)),
            config,
            tokenizer: &published.tokenizer,
            epochs: options::EPOCHS,
            trainable: Some(self.trainable(&model)?),
            balance: self.balance,
        };
        // The head has depth 0, the last layer 1, the embeddings one more than there are layers.
        let depth = move |path: &str| depth(path, layers);
        let optimizer = |schedule: &_| self.training.optimizer_by_layer(schedule, self.layer_decay, layers + 1, depth);
        training_of.run(model, [training, held_out], optimizer, lora::merge)
    }
}

impl Options {
    /// Reads labelled texts; without files, those that ship.
    fn read(&self, files: &[PathBuf]) -> Result<Vec<LabelledText>, Exit> {
        let demonstration = [shipped("bert-austen/speech.csv")];
        read_labelled(if files.is_empty() { &demonstration } else { files }, &self.columns()).map_err(failure)
    }

    /// Texts as the model reads them. Says how many had to be cut.
    fn examples(
        &self,
        texts: Vec<LabelledText>,
        labels: &[String],
        Published { config, tokenizer, .. }: &Published,
    ) -> Result<Vec<Example>, Exit> {
        let (positions, mut cut) = (config.positions(), 0);
        let most = self.max_length.unwrap_or(MAX_LENGTH.min(positions));
        if most > positions {
            return Err(Exit::Usage(format!("--max-length is {most}, and the model has {positions} positions")));
        }
        let examples = examples(texts, labels, |LabelledText { text, pair, .. }| {
            let encoded = tokenizer.encode_text(text, pair.as_deref(), Some(most), Truncation::LongestFirst);
            let mut encoded = encoded.map_err(|error| error.to_string())?;
            cut += usize::from(encoded.truncated);
            if config.type_vocab_size < 2 {
                encoded.text.token_types.clear();
            }
            Ok(encoded.text)
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
        published: &Published,
        labels: Vec<String>,
        device: &B::Device,
    ) -> Result<Classifier<B>, Exit> {
        // No matrix has a higher rank than its smaller side; a mistyped one would ask for memory without end.
        let width = published.config.hidden_size;
        if let Some(rank) = self.lora_rank.filter(|rank| *rank > width) {
            return Err(Exit::Usage(format!(
                "--lora-rank is {rank}, and the model's matrices have at most rank {width}"
            )));
        }
        let mut config = published.config.clone();
        config.labels = labels;
        config.problem_type = Some("single_label_classification".into());
        let key = Key::new(self.run.seed).fold_in(1);
        let (model, report) =
            Classifier::with_new_head(&published.path, &config, key, device, None).map_err(failure)?;
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
    fn settings(&self, of_model: RunSettings) -> RunSettings {
        of_model
            .with("balance", self.balance)
            .with("freeze", self.freeze.join(","))
            .with_option("lora-rank", self.lora_rank)
            .with_option("lora-alpha", self.lora_alpha)
            .with("lora-targets", self.lora_targets.join(","))
            .with("layer-decay", self.layer_decay)
    }

    /// Does what `--evaluate` asks for.
    fn evaluate<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let published = Published::open(self.model.as_deref())?;
        let dtype = Some(self.run.device.dtype.into());
        let (model, _) = Classifier::<B>::from_path(&published.path, device, dtype).map_err(failure)?;
        let examples = self.examples(self.read(&self.data)?, &published.config.labels, &published)?;
        let score = labelled::evaluate(&model, &examples, self.training.batch_size)?;
        if self.run.json {
            write_json(&labelled::json(&score))?;
            return Ok(Ended::Finished);
        }
        let (texts, accuracy) = (score.confusion.count(), 100.0 * score.confusion.accuracy());
        let (f1, loss) = (100.0 * score.confusion.macro_f1(), score.loss());
        write_line(&format!("{texts} texts, {accuracy:.1} % right, macro F1 {f1:.1} %, {loss:.4} nats a text"))?;
        write_line(&format!("\n{}", score.confusion.table()))?;
        Ok(Ended::Finished)
    }
}

/// Number of layers between a leaf and the head.
fn depth(path: &str, layers: usize) -> usize {
    if path.starts_with("bert.embeddings.") {
        return layers + 1;
    }
    let layer = path.strip_prefix("bert.encoder.layer.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    layer.map_or(0, |layer| layers - layer)
}

#[cfg(test)]
mod tests {
    use super::depth;

    #[test]
    fn depths_below_the_head() {
        let paths = ["head.classifier.weight", "bert.pooler.dense.bias", "bert.encoder.layer.11.output.bias"];
        assert_eq!(paths.map(|path| depth(path, 12)), [0, 0, 1]);
        assert_eq!(depth("bert.encoder.layer.0.attention.query.weight", 12), 12);
        assert_eq!(depth("bert.embeddings.layer_norm.weight", 12), 13);
    }
}
