//! Classifiers of texts.

use grove::{
    models::{RnnClassifier, RnnClassifierConfig, Tokenizer, bert::TextIds, check_finite},
    prelude::*,
    train::{
        Ended,
        data::{Columns, LabelledText, labels as labels_of, read_labelled},
    },
    weights::FilePatterns,
};
use serde_json::{Map, json};

use super::options::{ClassifyOptions, EPOCHS};
use crate::{
    Exit, failure,
    labelled::{self, Example, Training, examples, hold_out},
    program::Command,
    resolve_named,
    training::{Output, config_json, model_settings, new_model},
    write_json, write_line,
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
        let (model, _) = RnnClassifier::<B>::from_path(&path, device, None).map_err(failure)?;
        let tokenizer = Tokenizer::beside(&path).map_err(failure)?;
        match self.evaluate {
            true => self.print_score(&model, &tokenizer)?,
            false => self.print_predictions(&model, &tokenizer)?,
        }
        Ok(Ended::Finished)
    }
}

impl ClassifyOptions {
    fn train<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let output = Output::open(&self.run, self.training.keep)?;
        let texts = self.read()?;
        let resumed = output.config()?.map(RnnClassifierConfig::from_file).transpose().map_err(failure)?;
        let labels = match &resumed {
            Some(config) => config.labels.clone(),
            None => labels_of(&texts).map_err(failure)?,
        };
        let tokenizer = match output.tokenizer()? {
            Some(tokenizer) => tokenizer,
            None => self.new_tokenizer(&texts)?,
        };
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
        let (training, held_out) =
            hold_out(examples, |example| example.class, option, self.run.seed, ("texts", &self.data))?;
        let config = config_json(&config)?;
        let settings = model_settings(&config)
            .with("max-length", self.max_length)
            .with("dropout", self.dropout)
            .with("one-direction", self.one_direction)
            .with("vocab-size", self.vocab_size);
        let training_of = Training {
            run: &self.run,
            training: &self.training,
            output,
            config,
            tokenizer: &tokenizer,
            epochs: EPOCHS,
            settings,
            trainable: None,
            balance: false,
        };
        let optimizer = |schedule: &_| self.training.optimizer(schedule);
        training_of.run(model, [training, held_out], optimizer, |model| model)
    }

    /// Reads labelled texts: of a table without names the label stands before the text.
    fn read(&self) -> Result<Vec<LabelledText>, Exit> {
        let objects = |file: &std::path::PathBuf| file.extension().is_some_and(|extension| extension == "jsonl");
        let (objects, tables): (Vec<_>, Vec<_>) = self.data.iter().cloned().partition(objects);
        let columns = |text: &str, label: &str| Columns {
            text: text.into(),
            pair: None,
            label: label.into(),
            header: false,
            delimiter: self.delimiter,
        };
        let mut texts = read_labelled(&tables, &columns("2", "1")).map_err(failure)?;
        texts.extend(read_labelled(&objects, &columns("text", "label")).map_err(failure)?);
        Ok(texts)
    }

    /// The tokenizer of a new model: the one that is named, or one learned from the texts.
    fn new_tokenizer(&self, texts: &[LabelledText]) -> Result<Tokenizer, Exit> {
        if let Some(path) = &self.tokenizer {
            return Tokenizer::from_path(path).map_err(failure);
        }
        let texts: Vec<&str> = texts.iter().map(|text| &*text.text).collect();
        Tokenizer::train_bpe(&texts, self.vocab_size).map_err(|error| Exit::Usage(format!("--vocab-size: {error}")))
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

    /// Tokens of a text, at most `--max-length`, each of which the model knows.
    fn tokens(&self, text: &str, tokenizer: &Tokenizer, config: &RnnClassifierConfig) -> Result<Vec<u32>, String> {
        let mut ids = tokenizer.encode(text).map_err(|error| error.to_string())?;
        ids.truncate(self.max_length);
        let known = config.vocab_size;
        match ids.iter().max() {
            None => Err("the tokenizer makes no tokens of this text".into()),
            Some(&id) if id as usize >= known => {
                Err(format!("the tokenizer gives token {id}, and the model has {known}: it belongs to another model"))
            }
            _ => Ok(ids),
        }
    }

    /// Texts as the model reads them.
    fn examples(
        &self,
        texts: Vec<LabelledText>,
        tokenizer: &Tokenizer,
        config: &RnnClassifierConfig,
    ) -> Result<Vec<Example>, Exit> {
        let encode =
            |text: &LabelledText| Ok(TextIds { ids: self.tokens(&text.text, tokenizer, config)?, token_types: vec![] });
        examples(texts, &config.labels, encode)
    }

    /// Does what `--evaluate` asks for.
    fn print_score<B: Backend>(&self, model: &RnnClassifier<B>, tokenizer: &Tokenizer) -> Result<(), Exit> {
        let labels = &model.config.labels;
        let examples = self.examples(self.read()?, tokenizer, &model.config)?;
        let score = labelled::evaluate(model, &examples, self.training.batch_size)?;
        let (texts, accuracy, loss) = (examples.len(), score.confusion.accuracy(), score.loss());
        if self.run.json {
            let recalls = (0..).map(|class| json!(score.confusion.recall(class)));
            let classes: Map<_, _> = labels.iter().cloned().zip(recalls).collect();
            return write_json(&json!({ "accuracy": accuracy, "loss": loss, "texts": texts, "classes": classes }));
        }
        write_line(&format!("{texts} texts, {:.1} % recognised, {loss:.4} nats a text", 100.0 * accuracy))?;
        write_line(&score.confusion.table())
    }

    /// Does what `--predict` asks for.
    fn print_predictions<B: Backend>(&self, model: &RnnClassifier<B>, tokenizer: &Tokenizer) -> Result<(), Exit> {
        let ids = |text: &String| self.tokens(text.trim(), tokenizer, &model.config);
        let ids: Vec<Vec<u32>> = self.predict.iter().map(ids).collect::<Result<_, _>>().map_err(failure)?;
        let predictions = model.predict(&model.pack(&ids).map_err(failure)?);
        check_finite(model, predictions.iter().map(|found| f64::from(found.probability))).map_err(failure)?;
        let both = self.predict.iter().zip(&predictions);
        if self.run.json {
            let predictions: Vec<_> = both
                .map(|(text, found)| json!({ "text": text, "label": found.label, "probability": found.probability }))
                .collect();
            return write_json(&json!({ "predictions": predictions }));
        }
        for (text, predicted) in both {
            write_line(&format!("{}  {:.1} %  {text}", predicted.label, 100.0 * predicted.probability))?;
        }
        Ok(())
    }
}
