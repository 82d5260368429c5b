//! Trains a GPT-2 on text: `cargo run --example train_gpt2 -- --data book.txt --output run`.

#[path = "../common/mod.rs"]
mod common;
mod evaluate;
mod options;
mod output;
mod prepare;
mod report;
mod text;

use clap::Parser;
use grove::{
    models::Gpt2,
    optim::{Adamw, Schedule, adamw, chain, clip_by_global_norm, matrices, warmup_cosine_decay_schedule},
    prelude::*,
    tensor::FloatDType,
    train::{
        Ended, Evaluation, FitOptions, Length, StepOptions,
        data::{Data, TokenBatch, TokenWindows},
        fit, stop_on_interrupt,
    },
};
use indicatif::{HumanCount, ProgressBar};
use std::{process::ExitCode, sync::Arc};

use common::{Dtype, Exit, finish};
use options::Options;
use output::Output;
use prepare::{Prepared, prepare};
use text::failure;

/// Exit status of a program that was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let options = Options::parse();
    let mut interrupted = false;
    let status = finish(|| {
        options.check().map_err(Exit::Usage)?;
        interrupted = options.device.spec()?.run(Run(&options))?? == Ended::Interrupted;
        Ok(())
    });
    if interrupted { ExitCode::from(INTERRUPTED) } else { status }
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        let options = self.0;
        let output = Output::open(options)?;
        let prepared = prepare::<B>(options, output.as_ref(), &device)?;
        let most = prepared.model.config.n_positions;
        let context = options.context.unwrap_or(most);
        if context > most {
            return Err(Exit::Usage(format!("--context is {context}, and the model has {most} positions")));
        }
        if options.evaluate {
            evaluate::print(options, &prepared.model, &prepared.training, context)?;
            return Ok(Ended::Finished);
        }
        train(options, prepared, output, context, &device)
    }
}

fn train<B: Backend>(
    options: &Options,
    prepared: Prepared<B>,
    output: Option<Output>,
    context: usize,
    device: &B::Device,
) -> Result<Ended, Exit> {
    let Prepared { model, tokenizer, training, held_out } = prepared;
    let key = Key::new(options.seed);
    let tokens = HumanCount(training.len() as u64);
    let data = TokenWindows::new(training, context, options.batch_size, Some(key.fold_in(2))).map_err(failure)?;
    let data = Arc::new(data);
    if let Some(held_out) = &held_out {
        evaluate::check("the held-out text", held_out)?;
    }
    let steps = length(options).steps(data.batches_per_epoch(), options.accumulate).map_err(failure)?;
    let schedule = learning_rate(options, steps)?;
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
    let evaluate = |model: &Gpt2<B>| {
        let Some(stream) = &held_out else { return Ok(Evaluation::new()) };
        let (loss, _) = evaluate::mean_loss(model, stream, context, options.batch_size, &ProgressBar::hidden());
        Ok(Evaluation::from([("loss".into(), loss), ("perplexity".into(), loss.exp())]))
    };
    let evaluate_every = options.evaluate_every.unwrap_or((steps / 10).max(1));
    let tokens_per_batch = (options.batch_size * context) as u64;
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
        unit: Some(("tokens", tokens_per_batch)),
        stop: Some(stop_on_interrupt().map_err(failure)?),
        progress: true,
    };
    if let Some(output) = &output {
        output.begin(&model.config, tokenizer.as_ref())?;
    }
    eprintln!(
        "{} parameters; {tokens} tokens to train on, {} held out; {} steps of {} tokens",
        HumanCount(grove::tree::count_params(&model) as u64),
        HumanCount(held_out.as_ref().map_or(0, |stream| stream.len()) as u64),
        HumanCount(steps),
        HumanCount(tokens_per_batch * options.accumulate as u64),
    );
    let fitted = fit(model, &optimizer, &data, loss_fn, evaluate, key.fold_in(3), &settings).map_err(failure)?;
    let ended = fitted.ended;
    report::report(options, fitted, tokenizer.as_ref(), output.as_ref())?;
    Ok(ended)
}

fn length(options: &Options) -> Length {
    let epochs = if options.is_demonstration() { options::DEMONSTRATION_EPOCHS } else { 1.0 };
    options.steps.map_or(Length::Epochs(options.epochs.unwrap_or(epochs)), Length::Steps)
}

/// Up in a straight line, down along half a cosine.
fn learning_rate(options: &Options, steps: u64) -> Result<Schedule, Exit> {
    let warmup = options.warmup.unwrap_or((steps / 20).min(1000));
    if warmup >= steps && warmup > 0 {
        return Err(Exit::Usage(format!("--warmup is {warmup}; it must be less than all steps, which are {steps}")));
    }
    let peak = options.learning_rate;
    Ok(warmup_cosine_decay_schedule(0.0, peak, warmup, steps, peak * options.final_learning_rate))
}

/// The type of the loss's numbers, where it is not the model's own.
fn compute(dtype: Dtype) -> Option<FloatDType> {
    match dtype {
        Dtype::F32 => None,
        Dtype::F16 => Some(FloatDType::F16),
        Dtype::Bf16 => Some(FloatDType::BF16),
    }
}
