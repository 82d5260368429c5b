//! Training of BERT as a masked language model.

mod neighbours;

use grove::{
    models::{bert::BertForMaskedLm, check_finite},
    text::TextIds,
    train::{
        DataIdentity, MaskedLmScore, MaskedLmTask,
        data::{Examples, Masking, masked_lm_sequences, read_documents, split_at_random},
        fit_masked_lm, masked_lm_score,
    },
};
use neighbours::with_neighbour_attention;

use crate::{
    bert::Encoder,
    language::{self, LanguageArgs},
    prelude::*,
    training::{Job, new_model, new_tokenizer, with_text_rates},
};

/// Default context length of a new model, in tokens.
const CONTEXT: usize = 128;

/// Linear layers that get an adapter unless the options name others.
const LORA_TARGETS: [&str; 2] = ["bert.encoder.layer.*.attention.query", "bert.encoder.layer.*.attention.value"];

/// Trains a BERT on text as a masked language model, from scratch or from a pretrained model.
///
/// Each line is one text; lines longer than the context are split. Without arguments, trains a tiny model on a text that
/// ships with grove, as a demonstration of half a minute. Ctrl-C writes a checkpoint and stops; the same command with
/// --resume continues.
#[derive(Parser, Debug)]
#[command(
    name = "train_bert",
    version,
    allow_negative_numbers = true,
    mut_arg("data", |arg| arg.help("Text files, .jsonl or .parquet files, or folders of either")),
    mut_arg("held_out", |arg| arg.help("Text for evaluation [default: a random part of --data]")),
    mut_arg("val_fraction", |arg| arg.help(
        "Fraction of the texts to hold out without --held-out; 0 disables evaluation"
    )),
    mut_arg("evaluate", |arg| arg.help(
        "Print the model's loss and accuracy on masked tokens of the data instead of training"
    )),
    mut_arg("model", |arg| arg.help(
        "Model to continue training: directory, weights file, or hub id [default: a new model]"
    )),
    mut_arg("context", |arg| arg.help("Context length in tokens [default: that of --model, else 128]")),
    mut_arg("dropout", |arg| arg.help("Dropout rate of all layers [default: that of --model, else 0.1]")),
    mut_arg("tokenizer", |arg| arg.conflicts_with("model").help(
        "Directory or hub id of a tokenizer for a new model [default: one trained on the data]"
    )),
    mut_arg("vocab_size", |arg| arg.help("Vocabulary size of the tokenizer to train")),
    mut_arg("batch_size", |arg| arg.default_value("32").help("Texts per batch")),
    mut_arg("learning_rate", with_text_rates),
    mut_arg("weight_decay", |arg| arg.default_value("0.01")),
    mut_arg("beta2", |arg| arg.default_value("0.98")),
)]
pub struct Options {
    /// Model, data and hyperparameters.
    #[command(flatten)]
    pub language: LanguageArgs,

    /// Fraction of tokens to mask in training; evaluation always masks 0.15
    #[arg(long, default_value_t = 0.15, value_name = "FRACTION")]
    pub mask: f32,

    /// Number of layers of a new model
    #[arg(long, default_value_t = 2, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub layers: usize,

    /// Width of a new model; its feed-forward layers are four times as wide
    #[arg(long, default_value_t = 128, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub hidden: usize,

    /// Number of attention heads per layer of a new model
    #[arg(long, default_value_t = 4, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    pub heads: usize,
}

/// Model, tokenizer, and the texts for training (or for `--evaluate`) and for the held-out evaluation.
type Prepared<B> = (BertForMaskedLm<B>, Tokenizer, (Vec<TextIds>, Vec<TextIds>));

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.language.check()?;
        fraction([("mask", f64::from(self.mask))])?;
        if self.language.context.is_some_and(|context| context < 3) {
            return Err(usage("--context must be at least 3: two special tokens and one of the text"));
        }
        at_least_one([("layers", self.layers), ("heads", self.heads)])?;
        self.language.run.device.spec()
    }

    /// Trains the model, or evaluates it with `--evaluate`.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let (language, run) = (&self.language, &self.language.run);
        let (output, batch_size) = (run.directory()?, run.training.batch_size);
        let (model, tokenizer, (training, held_out)) = self.prepare::<B>(&output, device)?;
        let masking = Masking { rate: self.mask, ..masking(&tokenizer, &model)? };
        if language.evaluate {
            return print_masked_evaluation(&model, &tokenizer, &training, batch_size, run.json);
        }
        let (key, config) = (Key::new(run.seed), model.bert.config.to_json().into());
        let (model, trainable) = language.adapted(model, &LORA_TARGETS, "bert.")?;
        let settings = language
            .lora
            .settings()
            .with_model(&config)
            .with("mask", self.mask)
            .with("layers", self.layers)
            .with("hidden", self.hidden)
            .with("heads", self.heads)
            .with("vocab-size", language.vocab_size)
            .with_option("context", language.context)
            .with("vocabulary", tokenizer.vocab_size())
            .with("data", DataIdentity::of_texts(&training))
            .with("held-out", DataIdentity::of_texts(&held_out));
        output.begin(&config, Some(&tokenizer))?;
        let counts = [training.len(), held_out.len()];
        let data = Examples::bucketed(training, batch_size, |text| text.ids.len(), key.fold_in(2))?;
        let setup = Setup { run, output, epochs: language.epochs(2.0), settings, trainable };
        let job = setup.job(&model, data, None, ("texts", batch_size), counts)?;
        let optimizer = run.training.optimizer::<B, BertForMaskedLm<B>>(&job.schedule, &model)?;
        let Job { data, settings, .. } = &job;
        let task = MaskedLmTask { masking: &masking, held_out: &held_out, batch_size, jit: run.jit };
        let fitted = fit_masked_lm(model, &optimizer, data, task, job.key, settings)?;
        let (model, summary) = job.save(fitted, |model, directory| language.save_adapted(model, "", directory))?;
        let score = || masked_lm_score(&model, &held_out, &masking, batch_size);
        let accuracy = summary.run.held_out_loss.map(|_| score()).transpose()?.map(|score| score.accuracy);
        summary.report(run, "masked token", ("accuracy", accuracy), |accuracy| {
            format!("{:.1} % of masked tokens", 100.0 * accuracy)
        })
    }
}

/// Returns the masking of the BERT paper, with the tokenizer's mask token.
fn masking<B: Backend>(tokenizer: &Tokenizer, model: &BertForMaskedLm<B>) -> Result<Masking, Exit> {
    let mask = tokenizer.mask_token().ok_or_else(|| failure("the tokenizer has neither [MASK] nor <mask>"))?;
    Ok(Masking::new(mask, tokenizer.special_tokens(), model.bert.config.vocab_size))
}

/// Prints the loss and accuracy of a model on masked tokens of texts.
pub fn print_masked_evaluation<B: Backend>(
    model: &BertForMaskedLm<B>,
    tokenizer: &Tokenizer,
    texts: &[TextIds],
    batch_size: usize,
    json: bool,
) -> Result<Ended, Exit> {
    let masking = masking(tokenizer, model)?;
    let MaskedLmScore { loss, accuracy, tokens } = masked_lm_score(model, texts, &masking, batch_size)?;
    check_finite(model, [loss])?;
    let (count, restored) = (counted(tokens, "masked token"), 100.0 * accuracy);
    let text = format!("{count}, {loss:.4} nats each, {restored:.1} % restored");
    report(json, &json!({ "loss": loss, "accuracy": accuracy, "tokens": tokens }), &text)
}

impl Options {
    /// Loads model, tokenizer and data, from the options and from the run to resume.
    fn prepare<B: Backend>(&self, output: &RunDirectory, device: &B::Device) -> Result<Prepared<B>, Exit> {
        let language = &self.language;
        let data = read_documents(&language.data(), language.column.name())?;
        let (mut model, tokenizer) = match &language.model {
            Some(model) => {
                let Encoder { files, tokenizer, .. } = Encoder::open(Some(model), language.adapter.as_deref())?;
                (files.load(device, None)?.0, tokenizer)
            }
            None => self.new_model(&data, output, device)?,
        };
        if let Some(rate) = language.dropout {
            model.bert = model.bert.with_dropout(rate);
        }
        let config = &model.bert.config;
        let context = language::context(language.context, Some(config.positions()))?;
        let read = |documents: &[String]| masked_lm_sequences(documents, &tokenizer, config, context);
        let training = read(&data)?;
        let split = match &language.held_out[..] {
            [] if language.evaluate => (training, vec![]),
            [] => split_at_random(training, language.val_fraction, Key::new(language.run.seed).fold_in(4)),
            files => (training, read(&read_documents(files, language.column.name())?)?),
        };
        Ok((model, tokenizer, split))
    }

    /// Initialises a model with the sizes of the run to resume or of the options.
    fn new_model<B: Backend>(
        &self,
        data: &[String],
        output: &RunDirectory,
        device: &B::Device,
    ) -> Result<(BertForMaskedLm<B>, Tokenizer), Exit> {
        let language = &self.language;
        let learn = || Tokenizer::train_wordpiece(data, language.vocab_size);
        let tokenizer = new_tokenizer(output.tokenizer()?, language.tokenizer.as_deref(), learn)?;
        let config = match output.config()? {
            Some(file) => BertConfig::from_file(file)?,
            None => BertConfig {
                vocab_size: tokenizer.vocab_size(),
                hidden_size: self.hidden,
                num_hidden_layers: self.layers,
                num_attention_heads: self.heads,
                intermediate_size: self.hidden.saturating_mul(4),
                max_position_embeddings: language.context.unwrap_or(CONTEXT),
                // The published 0.02 is for width 768. With it, the loss of narrower models falls only after many steps.
                initializer_range: 0.02 * (768.0 / self.hidden as f64).sqrt(),
                pad_token_id: tokenizer.token_to_id("[PAD]").unwrap_or(0),
                ..BertConfig::default()
            },
        };
        Ok((with_neighbour_attention(new_model(&language.run, &config, device)?), tokenizer))
    }
}
