//! Training of BERT by masked words.

mod init;
mod masked;
mod options;

use grove::{
    models::{
        ModelError, Tokenizer,
        bert::{BertConfig, BertForMaskedLm, TextIds},
        check_finite,
    },
    prelude::*,
    train::{DataIdentity, Ended, Evaluation, Outcome, data::Examples, fit},
};
use serde_json::json;

use crate::{
    Exit,
    documents::documents,
    encoder::Published,
    failure, language,
    program::Command,
    training::{Output, POOL, Setup, evaluation_failed, model_settings, new_model},
    write_json, write_line,
};
use masked::{MaskedTexts, Score};
pub use options::Options;

/// Model, tokenizer and data: what is trained on, or evaluated, and what is held out.
type Prepared<B> = (BertForMaskedLm<B>, Tokenizer, [Vec<TextIds>; 2]);

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.check_values()?;
        self.language.run.device.spec()
    }

    /// Trains a model, or evaluates it, as the options ask.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let language = &self.language;
        let (run, asked) = (&language.run, &language.training);
        let output = Output::open(run, asked.keep)?;
        let (model, tokenizer, [training, held_out]) = self.prepare::<B>(&output, device)?;
        let masking = masked::masking(&tokenizer, &model.bert.config, self.mask)?;
        let score =
            |model: &BertForMaskedLm<B>, texts: &[TextIds]| masked::score(model, texts, &masking, asked.batch_size);
        if language.evaluate {
            let score = score(&model, &training)?;
            check_finite(&model, [score.loss]).map_err(failure)?;
            self.print_score(&score)?;
            return Ok(Ended::Finished);
        }
        let (key, config) = (Key::new(run.seed), model.bert.config.to_json().into());
        let settings = model_settings(&config)
            .with("mask", self.mask)
            .with("layers", self.layers)
            .with("hidden", self.hidden)
            .with("heads", self.heads)
            .with("vocab-size", language.vocab_size)
            .with_option("context", language.context)
            .with("vocabulary", tokenizer.vocab_size())
            .with("data", identity(&training))
            .with("held-out", identity(&held_out));
        output.begin(run, &config, Some(&tokenizer))?;
        let counts = [training.len(), held_out.len()];
        let collate = |batch: &[&TextIds]| batch.iter().map(|&text| text.clone()).collect::<Vec<_>>();
        let data = Examples::new(training, asked.batch_size, collate).map_err(failure)?;
        let data = data.shuffle(key.fold_in(2)).bucket(|text| text.ids.len(), POOL).map_err(failure)?;
        let epochs = if language.is_demonstration() { options::DEMONSTRATION_EPOCHS } else { 1.0 };
        let unit = ("texts", asked.batch_size);
        let (trainable, classes) = (None, None);
        let setup = Setup { run, training: asked, output, data, epochs, settings, trainable, classes, unit, counts };
        let job = setup.job(&model)?;
        let optimizer = asked.optimizer::<B, BertForMaskedLm<B>>(&job.schedule);
        let loss_fn = |model: BertForMaskedLm<Autodiff<B>>, batch: &Vec<TextIds>, key: Key| {
            let [noise, dropout] = [key.fold_in(0), key.fold_in(1)];
            let masked = MaskedTexts::new(&model, batch, &masking, noise).expect("tokens are the model's");
            let masked = masked.expect("a text has a token besides those that mark beginning and end");
            let count = masked.tokens.dims()[0];
            let loss = model.loss_at(&masked.texts, masked.positions, masked.tokens, Some(dropout));
            Outcome::<B, BertForMaskedLm<B>>::new(loss).weight(count as f64)
        };
        let evaluate = |model: &BertForMaskedLm<B>| {
            let found = score(model, &held_out).map_err(evaluation_failed)?;
            Ok(Evaluation::from([("loss".into(), found.loss), ("accuracy".into(), found.accuracy)]))
        };
        let fitted = fit(model, &optimizer, &job.data, loss_fn, evaluate, job.key, &job.settings).map_err(failure)?;
        let (model, summary) = job.save(fitted, |model, directory| model.save_pretrained(directory))?;
        let found = summary.held_out_loss().map(|_| score(&model, &held_out)).transpose()?;
        let accuracy = found.map(|found| found.accuracy);
        if run.json {
            write_json(&summary.json("accuracy", accuracy))?;
        } else {
            let measure = accuracy.map(|accuracy| ("accuracy", format!("{:.1} % of masked tokens", 100.0 * accuracy)));
            write_line(&summary.table("masked token", measure))?;
        }
        Ok(summary.ended)
    }
}

impl Options {
    /// Does what `--evaluate` asks for.
    fn print_score(&self, Score { loss, accuracy, tokens }: &Score) -> Result<(), Exit> {
        if self.language.run.json {
            return write_json(&json!({ "loss": loss, "accuracy": accuracy, "tokens": tokens }));
        }
        write_line(&format!("{tokens} masked tokens, {loss:.4} nats each, {:.1} % restored", 100.0 * accuracy))
    }

    /// Reads what the options and the run that is resumed name.
    fn prepare<B: Backend>(&self, output: &Output, device: &B::Device) -> Result<Prepared<B>, Exit> {
        let language = &self.language;
        let data = documents(&language.data())?;
        let (mut model, tokenizer) = match &language.model {
            Some(model) => {
                let Published { path, tokenizer, .. } = Published::open(Some(model))?;
                (BertForMaskedLm::from_path(&path, device, None).map_err(failure)?.0, tokenizer)
            }
            None => self.new_model(&data, output, device)?,
        };
        let config = &mut model.bert.config;
        if let Some(rate) = language.dropout {
            (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (rate, rate);
        }
        let context = language::context(language, Some(config.positions()))?;
        let read = |documents: Vec<String>| masked::texts(&documents, &tokenizer, config, context);
        let training = read(data)?;
        let split = match &language.held_out[..] {
            [] if language.evaluate => [training, vec![]],
            [] => self.hold_out(training),
            files => [training, read(documents(files)?)?],
        };
        Ok((model, tokenizer, split))
    }

    /// Texts to train on, and some that are held out.
    fn hold_out(&self, mut texts: Vec<TextIds>) -> [Vec<TextIds>; 2] {
        let count = (texts.len() as f64 * self.language.val_fraction) as usize;
        let order = Key::new(self.language.run.seed).fold_in(4).permutation(texts.len());
        let mut held = vec![false; texts.len()];
        for &i in order.iter().take(count) {
            held[i] = true;
        }
        let mut held = held.into_iter();
        let out = texts.extract_if(.., |_| held.next().unwrap_or(false)).collect();
        [texts, out]
    }

    /// A model that knows nothing yet, of the sizes that are asked for or that the resumed run has.
    fn new_model<B: Backend>(
        &self,
        data: &[String],
        output: &Output,
        device: &B::Device,
    ) -> Result<(BertForMaskedLm<B>, Tokenizer), Exit> {
        let tokenizer = match (output.tokenizer()?, &self.language.tokenizer) {
            (Some(tokenizer), _) => tokenizer,
            (None, Some(path)) => Tokenizer::from_path(path).map_err(failure)?,
            (None, None) => {
                Tokenizer::train_wordpiece(data, self.language.vocab_size).map_err(|error| match error {
                    ModelError::Option { .. } => Exit::Usage(format!("--vocab-size: {error}")),
                    error => failure(error),
                })?
            }
        };
        let config = match output.config()? {
            Some(file) => BertConfig::from_file(file).map_err(failure)?,
            None => BertConfig {
                vocab_size: tokenizer.vocab_size(),
                hidden_size: self.hidden,
                num_hidden_layers: self.layers,
                num_attention_heads: self.heads,
                intermediate_size: self.hidden.saturating_mul(4),
                max_position_embeddings: self.language.context.unwrap_or(options::CONTEXT),
                // The published 0.02 is for 768 units; narrower models of that spread take long to begin to learn.
                initializer_range: 0.02 * (768.0 / self.hidden as f64).sqrt(),
                pad_token_id: tokenizer.token_to_id("[PAD]").unwrap_or(0),
                ..BertConfig::default()
            },
        };
        Ok((init::aware_of_neighbours(new_model(&self.language.run, &config, device)?), tokenizer))
    }
}

/// Identity of the texts.
fn identity(texts: &[TextIds]) -> String {
    let mut identity = DataIdentity::new();
    for text in texts {
        identity.add_tokens(&text.ids);
        identity.add_tokens(&text.token_types);
    }
    format!("{} texts ({})", texts.len(), identity.finish())
}
