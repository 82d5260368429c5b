//! Training language models on text: what the examples for GPT-2 and for recurrent networks have in common.

#[path = "../documents.rs"]
mod documents;
mod evaluate;
mod options;
mod prepare;
mod report;
mod text;

use grove::{
    models::{ModelError, Tokenizer, copy_generation_config},
    prelude::*,
    train::{
        Ended, Evaluation, Outcome,
        data::{Data, TokenBatch, TokenWindows},
        fit,
    },
};
use indicatif::{HumanCount, ProgressBar};
use std::{path::Path, sync::Arc};

use crate::{
    common::{Exit, failure},
    training::{Output, model_settings},
};
pub use options::LanguageArgs;
use prepare::{Prepared, prepare};

/// Interface of language models to the training loop.
pub trait LanguageModel<B: Backend>: Decoder<B> + Tree<B> {
    /// Its sizes.
    type Config;
    /// The options of the command line that describe a new one.
    type Sizes;

    /// Sizes of a new model for the tokens of a tokenizer, or of `--vocab-size`.
    fn new_config(
        sizes: &Self::Sizes,
        options: &LanguageArgs,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<Self::Config, Exit>;
    /// The sizes of a run that is resumed, unless the options ask for others.
    fn resumed_config(sizes: &Self::Sizes, file: &Path) -> Result<Self::Config, Exit>;
    /// A new model without weights.
    fn skeleton(config: &Self::Config) -> Result<Self, ModelError>;
    fn init(config: &Self::Config, key: Key, device: &B::Device) -> Result<Self, ModelError>;
    fn load(path: &Path, device: &B::Device) -> Result<Self, ModelError>;
    /// Content of `config.json`.
    fn config_json(&self) -> serde_json::Result<String>;
    fn with_dropout(self, rate: f64) -> Self;
    fn save(&self, directory: &Path) -> Result<(), ModelError>;
    /// Mean loss, in nats, of targets `[b, t]` that are the tokens after ids `[b, t]`.
    fn next_token_loss(&self, ids: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1>;
}

/// Trains a model, or evaluates it, as the options ask.
pub fn run<B: Backend, M: LanguageModel<B>>(
    options: &LanguageArgs,
    sizes: &M::Sizes,
    device: &B::Device,
) -> Result<Ended, Exit>
where
    M::On<Autodiff<B>>: LanguageModel<Autodiff<B>>,
{
    let output = Output::open(&options.run, options.training.keep)?;
    let prepared = prepare::<B, M>(options, sizes, output.as_ref(), device)?;
    let context = context(options, prepared.model.context())?;
    if options.evaluate {
        evaluate::print(options, &prepared.model, &prepared.training, context)?;
        return Ok(Ended::Finished);
    }
    train(options, prepared, output, context, device)
}

/// Tokens of a window, given the most that the model can see.
fn context(options: &LanguageArgs, most: Option<usize>) -> Result<usize, Exit> {
    match (options.context, most) {
        (Some(context), Some(most)) if context > most => {
            Err(Exit::Usage(format!("--context is {context}, and the model has {most} positions")))
        }
        (Some(context), _) => Ok(context),
        (None, most) => Ok(most.unwrap_or(options::DEFAULT_CONTEXT)),
    }
}

fn train<B: Backend, M: LanguageModel<B>>(
    options: &LanguageArgs,
    prepared: Prepared<M>,
    output: Option<Output>,
    context: usize,
    device: &B::Device,
) -> Result<Ended, Exit>
where
    M::On<Autodiff<B>>: LanguageModel<Autodiff<B>>,
{
    let Prepared { model, tokenizer, training, held_out, source } = prepared;
    let LanguageArgs { run, training: asked, .. } = options;
    let key = Key::new(run.seed);
    let config = model.config_json().map_err(failure)?;
    let made_of = model_settings(&serde_json::from_str(&config).map_err(failure)?)
        .with("context", context)
        .with("vocabulary", model.vocab_size())
        .with("data", text::identity(&training))
        .with_option("held-out", held_out.as_ref().map(text::identity));
    let tokens = HumanCount(training.len() as u64);
    let data = TokenWindows::new(training, context, asked.batch_size, Some(key.fold_in(2))).map_err(failure)?;
    let data = Arc::new(data);
    if let Some(held_out) = &held_out {
        evaluate::check("the held-out text", held_out)?;
    }
    let epochs = if options.is_demonstration() { options::DEMONSTRATION_EPOCHS } else { 1.0 };
    let steps = asked.steps(epochs, data.batches_per_epoch())?;
    let schedule = asked.schedule(steps)?;
    let optimizer = asked.optimizer::<B, M>(&schedule);
    let loss_fn = |model: M::On<Autodiff<B>>, batch: &TokenBatch, key: Key| {
        let loss = model.next_token_loss(batch.inputs(device), batch.targets(device), Some(key));
        Outcome::<B, M>::new(loss).weight((batch.rows * (batch.columns - 1)) as f64)
    };
    let evaluate = |model: &M| {
        let Some(stream) = &held_out else { return Ok(Evaluation::new()) };
        let (loss, _) = evaluate::mean_loss(model, stream, context, asked.batch_size, &ProgressBar::hidden());
        Ok(Evaluation::from([("loss".into(), loss), ("perplexity".into(), loss.exp())]))
    };
    let per_batch = (asked.batch_size * context) as u64;
    if let Some(output) = &output {
        output.begin(run, &config, tokenizer.as_ref())?;
        source.map_or(Ok(()), |source| copy_generation_config(source, output.model())).map_err(failure)?;
    }
    let unit = ("tokens", per_batch);
    let settings = asked.fit_options(run, output.as_ref(), made_of, steps, held_out.is_some(), schedule, unit)?;
    eprintln!(
        "{} parameters; {tokens} tokens to train on, {} held out; {} steps of {} tokens",
        HumanCount(tree::count_params(&model) as u64),
        HumanCount(held_out.as_ref().map_or(0, |stream| stream.len()) as u64),
        HumanCount(steps),
        HumanCount(per_batch * asked.accumulate as u64),
    );
    let fitted = fit(model, &optimizer, &data, loss_fn, evaluate, key.fold_in(3), &settings).map_err(failure)?;
    report::report(options, fitted, tokenizer.as_ref(), output.as_ref())
}
