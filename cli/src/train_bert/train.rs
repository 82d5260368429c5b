//! Training, and evaluation.

use grove::{
    models::{
        ModelError, Tokenizer,
        bert::{BertConfig, BertForMaskedLm, Masking, TextIds},
        check_finite,
    },
    prelude::*,
    train::{
        DataIdentity, Ended, Evaluation, Outcome,
        data::{Data, Examples},
        fit,
    },
};
use indicatif::HumanCount;
use serde_json::json;
use std::{path::Path, sync::Arc};

use crate::{
    Exit,
    documents::documents,
    encoder::Published,
    failure, memory, shipped,
    train_bert::data::{mask, masking, texts},
    train_bert::init,
    train_bert::options::{self, Options},
    training::{Output, POOL, Summary, evaluation_failed, model_settings},
    write_json, write_line,
};

/// Model and data at the start of a run.
struct Prepared<B: Backend> {
    model: BertForMaskedLm<B>,
    tokenizer: Tokenizer,
    masking: Masking,
    training: Vec<TextIds>,
    held_out: Vec<TextIds>,
}

/// Trains a model, or evaluates it, as the options ask.
pub fn run<B: Backend>(options: &Options, device: &B::Device) -> Result<Ended, Exit> {
    let asked = &options.training;
    let output = Output::open(&options.run, asked.keep)?;
    let Prepared { model, tokenizer, masking, training, held_out } = prepare::<B>(options, output.as_ref(), device)?;
    let key = Key::new(options.run.seed);
    if options.evaluate {
        let score = score(&model, &training, &masking, asked.batch_size, device)?;
        check_finite(&model, [score.loss]).map_err(failure)?;
        print_score(options, &score)?;
        return Ok(Ended::Finished);
    }
    let counts = [training.len(), held_out.len()].map(|count| HumanCount(count as u64));
    let config = serde_json::Value::from(model.bert.config.to_json());
    let made_of = model_settings(&config)
        .with("mask", options.mask)
        .with("layers", options.layers)
        .with("hidden", options.hidden)
        .with("heads", options.heads)
        .with("vocab-size", options.vocab_size)
        .with_option("context", options.context)
        .with("vocabulary", tokenizer.vocab_size())
        .with("data", identity(&training))
        .with("held-out", identity(&held_out));
    let collate = |batch: &[&TextIds]| batch.iter().map(|&text| text.clone()).collect::<Vec<_>>();
    let data = Examples::new(training, asked.batch_size, collate).map_err(failure)?;
    let data = data.shuffle(key.fold_in(2)).bucket(|text| text.ids.len(), POOL).map_err(failure)?;
    let data = Arc::new(data);
    let epochs = if options.is_demonstration() { options::DEMONSTRATION_EPOCHS } else { 1.0 };
    let steps = asked.steps(epochs, data.batches_per_epoch())?;
    let schedule = asked.schedule(steps)?;
    let optimizer = asked.optimizer::<B, BertForMaskedLm<B>>(&schedule);
    let loss_fn = |model: BertForMaskedLm<Autodiff<B>>, batch: &Vec<TextIds>, key: Key| {
        let [noise, dropout] = [key.fold_in(0), key.fold_in(1)];
        let masked = mask(&model, batch, &masking, noise, device).expect("tokens are the model's");
        let masked = masked.expect("a text has a token besides those that mark beginning and end");
        let count = masked.tokens.dims()[0];
        let loss = model.loss_at(&masked.texts, masked.positions, masked.tokens, Some(dropout));
        Outcome::<B, BertForMaskedLm<B>>::new(loss).weight(count as f64)
    };
    let evaluate = |model: &BertForMaskedLm<B>| {
        let found = score(model, &held_out, &masking, asked.batch_size, device).map_err(evaluation_failed)?;
        Ok(Evaluation::from([("loss".into(), found.loss), ("accuracy".into(), found.accuracy)]))
    };
    let unit = ("texts", asked.batch_size as u64);
    if let Some(output) = &output {
        let config = serde_json::to_string_pretty(&config).map_err(failure)?;
        output.begin(&options.run, &config, Some(&tokenizer))?;
    }
    let (run, evaluated) = (&options.run, !held_out.is_empty());
    let settings = asked.fit_options(run, output.as_ref(), made_of, steps, evaluated, schedule, unit)?;
    eprintln!(
        "{} parameters; {} texts to train on, {} held out; {} steps of {} texts",
        HumanCount(tree::count_params(&model) as u64),
        counts[0],
        counts[1],
        HumanCount(steps),
        asked.batch_size * asked.accumulate,
    );
    let fitted = fit(model, &optimizer, &data, loss_fn, evaluate, key.fold_in(3), &settings).map_err(failure)?;
    let save = |model: BertForMaskedLm<B>, directory: &Path| model.save_pretrained(directory);
    let (model, summary) = Summary::save(fitted, output.as_ref(), asked.save_dtype, save)?;
    let accuracy = match summary.held_out_loss() {
        Some(_) => Some(score(&model, &held_out, &masking, asked.batch_size, device)?.accuracy),
        None => None,
    };
    if options.run.json {
        write_json(&summary.json("accuracy", accuracy))?;
    } else {
        let measure = accuracy.map(|accuracy| ("accuracy", format!("{:.1} % of masked tokens", 100.0 * accuracy)));
        write_line(&summary.table("masked token", measure))?;
    }
    Ok(summary.ended)
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

/// Loss and accuracy on masked tokens.
struct Score {
    loss: f64,
    accuracy: f64,
    tokens: usize,
}

/// Masks tokens, always the same ones, and counts how many the model restores. It masks as many as the published models
/// were trained with, whatever this one is trained with.
fn score<B: Backend>(
    model: &BertForMaskedLm<B>,
    texts: &[TextIds],
    masking: &Masking,
    batch_size: usize,
    device: &B::Device,
) -> Result<Score, Exit> {
    let masking = &Masking::new(masking.mask, masking.special.clone(), masking.vocab_size);
    let mut order: Vec<&TextIds> = texts.iter().collect();
    // Of similar length together, for less padding.
    order.sort_by_key(|text| text.ids.len());
    let (mut loss, mut right, mut tokens) = (0.0, 0.0, 0);
    for (i, batch) in order.chunks(batch_size).enumerate() {
        let batch: Vec<TextIds> = batch.iter().map(|&text| text.clone()).collect();
        let Some(masked) = mask(model, &batch, masking, Key::new(0).fold_in(i as u32), device)? else { continue };
        let count = masked.tokens.dims()[0];
        let states = model.bert.forward(&masked.texts, None);
        let [b, t, n] = states.dims();
        let logits = model.logits(states.reshape([b * t, n]).select(0, masked.positions)); // [m, vocab_size]
        let likeliest = logits.clone().argmax(1).reshape([count]);
        right += number(likeliest.equal(masked.tokens.clone()).int().sum().float());
        loss += number(grove::layers::loss::cross_entropy(logits, masked.tokens)) * count as f64;
        tokens += count;
    }
    let all = tokens.max(1) as f64;
    Ok(Score { loss: loss / all, accuracy: right / all, tokens })
}

fn number<B: Backend>(x: Tensor<B, 1>) -> f64 {
    x.into_data().iter::<f64>().next().unwrap_or(f64::NAN)
}

/// Does what `--evaluate` asks for.
fn print_score(options: &Options, Score { loss, accuracy, tokens }: &Score) -> Result<(), Exit> {
    if options.run.json {
        return write_json(&json!({ "loss": loss, "accuracy": accuracy, "tokens": tokens }));
    }
    write_line(&format!("{tokens} masked tokens, {loss:.4} nats each, {:.1} % restored", 100.0 * accuracy))
}

/// Model, tokenizer and data, from the options and from the run that is resumed.
fn prepare<B: Backend>(options: &Options, output: Option<&Output>, device: &B::Device) -> Result<Prepared<B>, Exit> {
    let demonstration = [shipped("gpt2-austen/held_out.txt")];
    let data = documents(if options.data.is_empty() { &demonstration } else { &options.data })?;
    let (model, tokenizer) = match &options.model {
        Some(model) => existing(model, device)?,
        None => new(options, &data, output, device)?,
    };
    let model = with_dropout(model, options.dropout);
    let config = &model.bert.config;
    let positions = config.positions();
    let context = match options.context {
        Some(context) if context > positions => {
            return Err(Exit::Usage(format!("--context is {context}, and the model has {positions} positions")));
        }
        asked => asked.unwrap_or(positions),
    };
    let masking = masking(&tokenizer, config, options.mask)?;
    let read = |documents: Vec<String>| texts(&documents, &tokenizer, config, context, &masking);
    let training = read(data)?;
    let (training, held_out) = match &options.held_out[..] {
        [] if options.evaluate => (training, vec![]),
        [] => held_out(training, options),
        files => (training, read(documents(files)?)?),
    };
    Ok(Prepared { model, tokenizer, masking, training, held_out })
}

/// Texts to train on, and some that are held out.
fn held_out(mut texts: Vec<TextIds>, options: &Options) -> (Vec<TextIds>, Vec<TextIds>) {
    let count = (texts.len() as f64 * options.val_fraction) as usize;
    let order = Key::new(options.run.seed).fold_in(4).permutation(texts.len());
    let mut held = vec![false; texts.len()];
    for &i in order.iter().take(count) {
        held[i] = true;
    }
    let mut held = held.into_iter();
    let out = texts.extract_if(.., |_| held.next().unwrap_or(false)).collect();
    (texts, out)
}

/// A model to go on with, and its tokenizer.
fn existing<B: Backend>(model: &str, device: &B::Device) -> Result<(BertForMaskedLm<B>, Tokenizer), Exit> {
    let Published { path, tokenizer, .. } = Published::open(Some(model))?;
    let (model, _) = BertForMaskedLm::from_path(&path, device, None).map_err(failure)?;
    Ok((model, tokenizer))
}

/// A model that knows nothing yet, of the sizes that are asked for or that the resumed run has.
fn new<B: Backend>(
    options: &Options,
    data: &[String],
    output: Option<&Output>,
    device: &B::Device,
) -> Result<(BertForMaskedLm<B>, Tokenizer), Exit> {
    let tokenizer = match (output.map_or(Ok(None), Output::tokenizer)?, &options.tokenizer) {
        (Some(tokenizer), _) => tokenizer,
        (None, Some(path)) => Tokenizer::from_path(path).map_err(failure)?,
        (None, None) => Tokenizer::train_wordpiece(data, options.vocab_size).map_err(|error| match error {
            ModelError::Option { .. } => Exit::Usage(format!("--vocab-size: {error}")),
            error => failure(error),
        })?,
    };
    let config = match output.map_or(Ok(None), Output::config)? {
        Some(file) => BertConfig::from_file(file).map_err(failure)?,
        None => BertConfig {
            vocab_size: tokenizer.vocab_size(),
            hidden_size: options.hidden,
            num_hidden_layers: options.layers,
            num_attention_heads: options.heads,
            intermediate_size: options.hidden.saturating_mul(4),
            max_position_embeddings: options.context.unwrap_or(options::CONTEXT),
            // The published 0.02 is for 768 units; narrower models of that spread take long to begin to learn.
            initializer_range: 0.02 * (768.0 / options.hidden as f64).sqrt(),
            pad_token_id: tokenizer.token_to_id("[PAD]").unwrap_or(0),
            ..BertConfig::default()
        },
    };
    let key = Key::new(options.run.seed).fold_in(1);
    let skeleton = BertForMaskedLm::<B>::skeleton(&config).map_err(|error| Exit::Usage(error.to_string()))?;
    memory::trains::<B>(&options.run.device, &skeleton)?;
    let model = BertForMaskedLm::init(&config, key, device).map_err(|error| Exit::Usage(error.to_string()))?;
    Ok((init::aware_of_neighbours(model), tokenizer))
}

fn with_dropout<B: Backend>(mut model: BertForMaskedLm<B>, rate: Option<f64>) -> BertForMaskedLm<B> {
    if let Some(rate) = rate {
        let config = &mut model.bert.config;
        (config.hidden_dropout_prob, config.attention_probs_dropout_prob) = (rate, rate);
    }
    model
}
