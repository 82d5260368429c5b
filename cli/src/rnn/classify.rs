//! Classifiers of texts.

use grove::{
    models::{TextClassifier, check_finite},
    train::{
        RunSettings,
        classify::{TextExample, encode_examples},
        data::{Columns, LabelledText, labels as labels_of, read_labelled},
    },
    weights::FilePatterns,
};
use serde_json::Map;

use super::options::{ClassifyOptions, EPOCHS};
use crate::{
    labelled::{self, hold_out},
    prelude::*,
    resolve_named,
    training::{Setup, new_model, new_tokenizer},
};

impl Command for ClassifyOptions {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.check_values()?;
        self.run.device.spec()
    }

    /// Trains a classifier, or uses one, as the options ask.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let Some(model) = &self.model else { return self.train::<B>(device) };
        let path = resolve_named(model, &FilePatterns::model())?;
        let (model, _) = RnnClassifier::<B>::from_path(&path, device, None)?;
        let tokenizer = Tokenizer::beside(&path)?;
        match self.evaluate {
            true => self.print_score(&model, &tokenizer)?,
            false => self.print_predictions(&model, &tokenizer)?,
        }
        Ok(Ended::Finished)
    }
}

impl ClassifyOptions {
    fn train<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let output = self.run.directory()?;
        let texts = self.read()?;
        let resumed = output.config()?.map(RnnClassifierConfig::from_file).transpose()?;
        let labels = match &resumed {
            Some(config) => config.labels.clone(),
            None => labels_of(&texts)?,
        };
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
            None => self.new_config(labels, &tokenizer),
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
        let (run, epochs, trainable) = (&self.run, EPOCHS, None);
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

    fn new_config(&self, labels: Vec<String>, tokenizer: &Tokenizer) -> RnnClassifierConfig {
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
    fn print_score<B: Backend>(&self, model: &RnnClassifier<B>, tokenizer: &Tokenizer) -> Result<(), Exit> {
        let examples = self.examples(self.read()?, tokenizer, &model.config)?;
        let score = labelled::evaluate(model, &examples, self.run.training.batch_size)?;
        let (texts, accuracy, loss) = (examples.len(), score.confusion.accuracy(), score.loss());
        let recalls = (0..).map(|class| json!(score.confusion.recall(class)));
        let classes: Map<_, _> = model.labels().iter().cloned().zip(recalls).collect();
        let recognised = 100.0 * accuracy;
        let table = score.confusion.table();
        report(
            self.run.json,
            &json!({ "accuracy": accuracy, "loss": loss, "texts": texts, "classes": classes }),
            &format!("{texts} texts, {recognised:.1} % recognised, {loss:.4} nats a text\n{table}"),
        )
    }

    /// Does what `--predict` asks for.
    fn print_predictions<B: Backend>(&self, model: &RnnClassifier<B>, tokenizer: &Tokenizer) -> Result<(), Exit> {
        let vocab_size = model.config.vocab_size;
        let ids = |text: &String| Ok(tokenizer.encode_for(text.trim(), self.max_length, vocab_size)?.ids);
        let ids: Vec<Vec<u32>> = self.predict.iter().map(ids).collect::<Result<_, Exit>>()?;
        let predictions = model.predict(&model.pack(&ids)?);
        check_finite(model, predictions.iter().map(|found| f64::from(found.probability)))?;
        let both = || self.predict.iter().zip(&predictions);
        let objects: Vec<_> = both()
            .map(|(text, found)| json!({ "text": text, "label": found.label, "probability": found.probability }))
            .collect();
        let lines: Vec<String> = both()
            .map(|(text, found)| format!("{}  {:.1} %  {text}", found.label, 100.0 * found.probability))
            .collect();
        report(self.run.json, &json!({ "predictions": objects }), &lines.join("\n"))
    }
}
