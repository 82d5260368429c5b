//! Trains a GPT-2 on text: `cargo run --example train_gpt2 -- --data book.txt --output run`.

#[path = "../common/mod.rs"]
mod common;
mod options;
mod text;

use clap::Parser;
use grove::{
    models::{
        Gpt2, Gpt2Config, Tokenizer, generate,
        generation::{GenerateOptions, Sampling},
    },
    optim::{Adamw, Schedule, adamw, chain, clip_by_global_norm, matrices, warmup_cosine_decay_schedule},
    prelude::*,
    tensor::FloatDType,
    train::{
        Ended, Evaluation, FitOptions, Fitted, Length, StepOptions, TrainError,
        data::{Data, TokenBatch, TokenStream, TokenWindows, epoch},
        fit,
        log::summary_table,
        stop_on_interrupt,
    },
    weights::{HubOptions, Source, Wanted},
};
use serde_json::json;
use std::{path::PathBuf, process::ExitCode, sync::Arc};

use common::{Dtype, Exit, finish, shipped};
use options::Options;
use text::failure;

fn main() -> ExitCode {
    let options = Options::parse();
    finish(|| {
        options.check().map_err(Exit::Usage)?;
        options.device.spec()?.run(Run(&options))?
    })
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        let options = self.0;
        let (model, tokenizer, training, held_out) = prepare::<B>(options, &device)?;
        let context = options.context.unwrap_or(model.config.n_positions);
        if context > model.config.n_positions {
            let most = model.config.n_positions;
            return Err(Exit::Usage(format!("--context is {context}, and the model has {most} positions")));
        }
        if options.evaluate {
            return print_evaluation(options, &model, training, context);
        }
        train(options, model, tokenizer, training, held_out, context, &device)
    }
}

/// Model, tokenizer, and the tokens to train on and to evaluate with.
#[allow(clippy::type_complexity)]
fn prepare<B: Backend>(
    options: &Options,
    device: &B::Device,
) -> Result<(Gpt2<B>, Option<Tokenizer>, TokenStream, Option<TokenStream>), Exit> {
    let demonstration = [shipped("gpt2-austen/held_out.txt")];
    let data = if options.data.is_empty() { &demonstration[..] } else { &options.data };
    let text = text::read(data)?;
    let held_out = if options.held_out.is_empty() { None } else { Some(text::read(&options.held_out)?) };
    let (model, tokenizer) = match &options.model {
        Some(model) => existing(options, model, device)?,
        None => {
            let tokenizer = tokenizer(options, &text)?;
            (fresh(options, tokenizer.as_ref(), device)?, tokenizer)
        }
    };
    let vocab_size = model.config.vocab_size;
    let stream = |text: text::Text| -> Result<TokenStream, Exit> {
        let stream = text.tokens(tokenizer.as_ref())?;
        match stream.largest() {
            Some(largest) if largest as usize >= vocab_size => {
                Err(failure(format!("the data has token {largest}, and the model's vocabulary {vocab_size} tokens")))
            }
            _ => Ok(stream),
        }
    };
    let (training, held_out) = match held_out {
        Some(held_out) => (stream(text)?, Some(stream(held_out)?)),
        None if options.evaluate || options.held_out_part == 0.0 => (stream(text)?, None),
        None => {
            let (training, held_out) = stream(text)?.split(options.held_out_part).map_err(failure)?;
            (training, Some(held_out))
        }
    };
    Ok((model, tokenizer, training, held_out))
}

/// A model to fine-tune, and its tokenizer.
fn existing<B: Backend>(
    options: &Options,
    model: &str,
    device: &B::Device,
) -> Result<(Gpt2<B>, Option<Tokenizer>), Exit> {
    let source = Source::parse(model).map_err(failure)?;
    let path = source.resolve(&HubOptions::from_env(), &Wanted::model()).map_err(failure)?;
    let (mut model, _) = Gpt2::<B>::from_path(&path, device, None).map_err(failure)?;
    if let Some(dropout) = options.dropout {
        set_dropout(&mut model.config, dropout);
    }
    let directory = if path.is_dir() { &*path } else { path.parent().unwrap_or(&path) };
    let tokenizer = match Tokenizer::from_path(options.tokenizer.as_deref().unwrap_or(directory)) {
        Err(_) if options.data.iter().any(|file| file.extension().is_some_and(|end| end == "tokens")) => None,
        tokenizer => Some(tokenizer.map_err(failure)?),
    };
    Ok((model, tokenizer))
}

/// The tokenizer for a new model: the one that is named, or one learned from the text.
fn tokenizer(options: &Options, text: &text::Text) -> Result<Option<Tokenizer>, Exit> {
    match (&options.tokenizer, text) {
        (Some(path), _) => Tokenizer::from_path(path).map(Some).map_err(failure),
        (None, text::Text::Documents(documents)) => {
            Tokenizer::train_bpe(documents, options.vocab_size).map(Some).map_err(failure)
        }
        (None, text::Text::Tokens(_)) => Ok(None),
    }
}

/// A new model.
fn fresh<B: Backend>(options: &Options, tokenizer: Option<&Tokenizer>, device: &B::Device) -> Result<Gpt2<B>, Exit> {
    let mut config = match &options.config {
        Some(name) if !std::path::Path::new(name).exists() => Gpt2Config::preset(name).map_err(failure)?,
        Some(file) => Gpt2Config::from_file(file).map_err(failure)?,
        None => Gpt2Config { n_layer: 4, n_head: 4, n_embd: 128, n_positions: 128, ..Gpt2Config::default() },
    };
    config.n_layer = options.n_layer.unwrap_or(config.n_layer);
    config.n_head = options.n_head.unwrap_or(config.n_head);
    config.n_embd = options.n_embd.unwrap_or(config.n_embd);
    config.n_positions = options.context.unwrap_or(config.n_positions);
    config.vocab_size = tokenizer.map_or(options.vocab_size, Tokenizer::vocab_size);
    config.eos_token_id = tokenizer.and_then(Tokenizer::end_of_text);
    config.bos_token_id = config.eos_token_id;
    if let Some(dropout) = options.dropout {
        set_dropout(&mut config, dropout);
    }
    Gpt2::init(&config, Key::new(options.seed).fold_in(1), device).map_err(failure)
}

fn set_dropout(config: &mut Gpt2Config, rate: f64) {
    (config.embd_pdrop, config.attn_pdrop, config.resid_pdrop) = (rate, rate, rate);
}

/// Mean loss, in nats, of every token of a stream after the first, and the number of those tokens.
fn held_out_loss<B: Backend>(
    model: &Gpt2<B>,
    stream: &TokenStream,
    context: usize,
    batch_size: usize,
) -> Result<(f64, usize), TrainError> {
    let windows = TokenWindows::new(stream.clone(), context, batch_size, None)?;
    let device = grove::models::Decoder::device(model);
    let (mut sum, mut count) = (0.0, 0);
    for batch in epoch(&windows, 0) {
        let batch: TokenBatch = batch?;
        let tokens = batch.rows * (batch.columns - 1);
        let loss = model.next_token_loss(batch.inputs(&device), batch.targets(&device), None);
        sum += loss.into_data().iter::<f64>().next().unwrap_or(f64::NAN) * tokens as f64;
        count += tokens;
    }
    Ok((sum / count as f64, count))
}

fn print_evaluation<B: Backend>(
    options: &Options,
    model: &Gpt2<B>,
    stream: TokenStream,
    context: usize,
) -> Result<(), Exit> {
    let (loss, tokens) = held_out_loss(model, &stream, context, options.batch_size).map_err(failure)?;
    let perplexity = loss.exp();
    if options.json {
        println!("{}", json!({ "loss": loss, "perplexity": perplexity, "tokens": tokens }));
    } else {
        println!("{tokens} tokens, {loss:.4} nats a token, perplexity {perplexity:.2}");
    }
    Ok(())
}

fn train<B: Backend>(
    options: &Options,
    model: Gpt2<B>,
    tokenizer: Option<Tokenizer>,
    training: TokenStream,
    held_out: Option<TokenStream>,
    context: usize,
    device: &B::Device,
) -> Result<(), Exit> {
    let key = Key::new(options.seed);
    let tokens = training.len();
    let data = TokenWindows::new(training, context, options.batch_size, Some(key.fold_in(2))).map_err(failure)?;
    let data = Arc::new(data);
    let length = match (options.steps, options.epochs) {
        (Some(steps), _) => Length::Steps(steps),
        (None, Some(epochs)) => Length::Epochs(epochs),
        (None, None) => Length::Epochs(1.0),
    };
    let steps = steps(length, data.batches_per_epoch() / options.accumulate);
    let schedule = learning_rate(options, steps);
    let optimizer = chain((
        (options.clip > 0.0).then(|| clip_by_global_norm::<B>(options.clip)),
        adamw(
            schedule.clone(),
            Adamw {
                b2: options.beta2.into(),
                weight_decay: options.weight_decay.into(),
                mask: Some(matrices()),
                ..Adamw::default()
            },
        ),
    ));
    let loss_fn = |model: Gpt2<Autodiff<B>>, batch: &TokenBatch, key: Key| {
        model.next_token_loss(batch.inputs(device), batch.targets(device), Some(key))
    };
    let evaluate = |model: &Gpt2<B>| -> Result<Evaluation, TrainError> {
        let Some(stream) = &held_out else { return Ok(Evaluation::new()) };
        let (loss, _) = held_out_loss(model, stream, context, options.batch_size)?;
        Ok(Evaluation::from([("loss".into(), loss), ("perplexity".into(), loss.exp())]))
    };
    let evaluate_every = options.evaluate_every.unwrap_or((steps / 10).max(1));
    let settings = FitOptions {
        length: Length::Steps(steps),
        accumulate: options.accumulate,
        step: StepOptions { compute: compute(options.device.dtype), ..StepOptions::default() },
        loss_scaling: options.device.dtype == Dtype::F16,
        ema: options.ema,
        evaluate_every: if held_out.is_some() { evaluate_every } else { 0 },
        patience: options.patience,
        log_every: options.log_every,
        checkpoint_every: options.checkpoint_every,
        keep: options.keep,
        directory: options.output.clone(),
        resume: options.resume,
        learning_rate: Some(schedule),
        unit: Some(("tokens", (options.batch_size * context) as u64)),
        stop: Some(stop_on_interrupt().map_err(failure)?),
        progress: !options.json,
    };
    eprintln!("{} parameters, {tokens} tokens, {steps} steps", grove::tree::count_params(&model));
    if let (Some(output), Some(tokenizer)) = (&options.output, &tokenizer) {
        tokenizer.save(output.join("model")).map_err(failure)?;
    }
    let fitted = fit(model, &optimizer, &data, loss_fn, evaluate, key.fold_in(3), &settings).map_err(failure)?;
    report(options, fitted, tokenizer.as_ref())
}

fn steps(length: Length, steps_per_epoch: usize) -> u64 {
    match length {
        Length::Steps(steps) => steps,
        Length::Epochs(epochs) => ((epochs * steps_per_epoch as f64).ceil() as u64).max(1),
    }
}

/// Up in a straight line, down along half a cosine.
fn learning_rate(options: &Options, steps: u64) -> Schedule {
    let warmup = options.warmup.unwrap_or((steps / 20).min(1000));
    let peak = options.learning_rate;
    warmup_cosine_decay_schedule(0.0, peak, warmup, steps, peak * options.final_learning_rate)
}

/// The type of the loss's numbers, where it is not the model's own.
fn compute(dtype: Dtype) -> Option<FloatDType> {
    match dtype {
        Dtype::F32 => None,
        Dtype::F16 => Some(FloatDType::F16),
        Dtype::Bf16 => Some(FloatDType::BF16),
    }
}

/// Saves the model, and tells what came of the run.
fn report<B: Backend>(options: &Options, fitted: Fitted<Gpt2<B>>, tokenizer: Option<&Tokenizer>) -> Result<(), Exit> {
    let (steps, seconds, ended) = (fitted.steps, fitted.seconds, fitted.ended);
    let best = fitted.best.as_ref().map(|(_, step, loss)| (*step, *loss));
    let model = fitted.into_model();
    let directory: Option<PathBuf> = options.output.as_ref().map(|output| output.join("model"));
    if let Some(directory) = directory.as_ref().filter(|_| ended != Ended::Interrupted) {
        let dtype = compute(options.save_dtype).unwrap_or(FloatDType::F32);
        grove::tree::cast(model.clone(), dtype).save_pretrained(directory).map_err(failure)?;
    }
    if options.json {
        let (step, loss) = best.unzip();
        println!(
            "{}",
            json!({
                "steps": steps, "seconds": seconds, "ended": format!("{ended:?}").to_lowercase(),
                "best_step": step, "held_out_loss": loss, "perplexity": loss.map(f64::exp), "model": directory,
            })
        );
        return Ok(());
    }
    let mut rows = vec![("steps".to_owned(), steps.to_string()), ("time".to_owned(), format!("{seconds:.0} s"))];
    if let Some((step, loss)) = best {
        rows.push(("held-out loss".into(), format!("{loss:.4} nats a token, at step {step}")));
        rows.push(("perplexity".into(), format!("{:.2}", loss.exp())));
    }
    match (&directory, ended) {
        (Some(_), Ended::Interrupted) => rows.push(("stopped".into(), "go on with the same command and --resume".into())),
        (Some(directory), _) => rows.push(("model".into(), directory.display().to_string())),
        (None, _) => rows.push(("model".into(), "not kept; --output DIR keeps it".into())),
    }
    println!("{}", summary_table(&rows));
    if let Some(tokenizer) = tokenizer.filter(|_| ended != Ended::Interrupted) {
        println!("\nIt writes:\n{}", sample(&model, tokenizer, options.seed)?);
    }
    Ok(())
}

/// A few lines by the model.
fn sample<B: Backend>(model: &Gpt2<B>, tokenizer: &Tokenizer, seed: u64) -> Result<String, Exit> {
    let prompt = tokenizer.encode("The ").map_err(failure)?;
    let settings = GenerateOptions {
        max_new_tokens: 60.min(model.config.n_positions.saturating_sub(prompt.len())).max(1),
        sampling: Sampling { temperature: 0.8, ..Sampling::default() },
        key: Key::new(seed),
        ..GenerateOptions::default()
    };
    let rows = generate(model, std::slice::from_ref(&prompt), &settings, |_, _| true).map_err(failure)?;
    let ids: Vec<u32> = rows.into_iter().flat_map(|row| prompt.iter().copied().chain(row.ids)).collect();
    tokenizer.decode(&ids).map_err(failure)
}
