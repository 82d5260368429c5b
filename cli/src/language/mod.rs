//! Training language models on text: what the examples for GPT-2 and for recurrent networks have in common.

mod evaluate;
mod gpt2;
mod llama;
mod options;
mod prepare;
mod report;
mod rnn;
mod text;

use grove::{
    models::{Tokenizer, copy_generation_config},
    optim::Schedule,
    prelude::*,
    train::{
        Ended, Evaluation, FitOptions, Fitted, Outcome,
        data::{Data, TokenBatch, TokenStream, TokenWindows},
        fit, token_loss,
    },
};
use indicatif::HumanCount;
use std::{path::Path, sync::Arc};

use crate::{
    Exit, failure,
    training::{Output, model_settings},
};
pub use gpt2::{Gpt2Options, Gpt2Sizes};
pub use llama::{LlamaOptions, LlamaSizes};
pub use options::LanguageArgs;
use prepare::{Prepared, prepare};
pub use rnn::{LmOptions, LmSizes};

/// Interface of language models to the training loop.
pub trait LanguageModel<B: Backend>: CausalLm<B> + Pretrained<B> {
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
    /// The model with this rate of dropout everywhere.
    fn with_dropout(self, rate: f64) -> Self;
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
    let Some((model, job)) = Job::new::<M>(options, sizes, device)? else { return Ok(Ended::Finished) };
    let optimizer = options.training.optimizer::<B, M>(&job.schedule);
    let loss_fn = |model: M::On<Autodiff<B>>, batch: &TokenBatch, key: Key| {
        let loss = model.next_token_loss(batch.inputs(device), batch.targets(device), Some(key));
        Outcome::<B, M>::new(loss).weight(job.tokens(batch))
    };
    let evaluate = |model: &M| Ok(job.evaluate(|ids, targets| model.next_token_loss(ids, targets, None)));
    let fitted = fit(model, &optimizer, &job.data, loss_fn, evaluate, job.key, &job.settings).map_err(failure)?;
    job.report(fitted)
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

/// A run: its data, settings and directory.
pub struct Job<'a, B: Backend> {
    options: &'a LanguageArgs,
    tokenizer: Option<Tokenizer>,
    held_out: Option<TokenStream>,
    output: Option<Output>,
    context: usize,
    device: B::Device,
    /// Windows of the text.
    pub data: Arc<TokenWindows>,
    /// Learning rates.
    pub schedule: Schedule,
    /// Key of the dropout.
    pub key: Key,
    /// Settings of the training loop.
    pub settings: FitOptions<B>,
}

impl<'a, B: Backend> Job<'a, B> {
    /// The model to train and the run, as the options ask. `None` where the model was to be evaluated, which is done.
    pub fn new<M: LanguageModel<B>>(
        options: &'a LanguageArgs,
        sizes: &M::Sizes,
        device: &B::Device,
    ) -> Result<Option<(M, Self)>, Exit> {
        let output = Output::open(&options.run, options.training.keep)?;
        let prepared = prepare::<B, M>(options, sizes, output.as_ref(), device)?;
        let context = context(options, prepared.model.context())?;
        if options.evaluate {
            evaluate::print(options, &prepared.model, &prepared.training, context)?;
            return Ok(None);
        }
        let Prepared { model, tokenizer, training, held_out, source } = prepared;
        let LanguageArgs { run, training: asked, .. } = options;
        let key = Key::new(run.seed);
        let config = serde_json::to_string_pretty(model.config()).map_err(failure)?;
        let made_of = model_settings(&serde_json::from_str(&config).map_err(failure)?)
            .with("context", context)
            .with("vocabulary", model.vocab_size())
            .with("data", text::identity(&training))
            .with_option("held-out", held_out.as_ref().map(text::identity));
        let tokens = HumanCount(training.len() as u64);
        let data = TokenWindows::new(training, context, asked.batch_size, Some(key.fold_in(2))).map_err(failure)?;
        if let Some(held_out) = &held_out {
            evaluate::check("the held-out text", held_out)?;
        }
        let epochs = if options.is_demonstration() { options::DEMONSTRATION_EPOCHS } else { 1.0 };
        let steps = asked.steps(epochs, data.batches_per_epoch())?;
        let schedule = asked.schedule(steps)?;
        let per_batch = (asked.batch_size * context) as u64;
        if let Some(output) = &output {
            output.begin(run, &config, tokenizer.as_ref())?;
            source.map_or(Ok(()), |source| copy_generation_config(source, output.model())).map_err(failure)?;
        }
        let (evaluated, unit) = (held_out.is_some(), ("tokens", per_batch));
        let settings = asked.fit_options(run, output.as_ref(), made_of, steps, evaluated, schedule.clone(), unit)?;
        eprintln!(
            "{} parameters; {tokens} tokens to train on, {} held out; {} steps of {} tokens",
            HumanCount(tree::count_params(&model) as u64),
            HumanCount(held_out.as_ref().map_or(0, |stream| stream.len()) as u64),
            HumanCount(steps),
            HumanCount(per_batch * asked.accumulate as u64),
        );
        let (data, key, device) = (Arc::new(data), key.fold_in(3), device.clone());
        Ok(Some((model, Self { options, tokenizer, held_out, output, context, device, data, schedule, key, settings })))
    }

    /// Number of tokens that are predicted in a batch.
    pub fn tokens(&self, batch: &TokenBatch) -> f64 {
        (batch.rows * (batch.columns - 1)) as f64
    }

    /// Loss and perplexity on the held-out text; empty where there is none.
    pub fn evaluate(&self, loss: impl FnMut(Tensor<B, 2, Int>, Tensor<B, 2, Int>) -> Tensor<B, 1>) -> Evaluation {
        let Some(stream) = &self.held_out else { return Evaluation::new() };
        let batch_size = self.options.training.batch_size;
        let (loss, _) = token_loss(stream, self.context, batch_size, &self.device, loss, |_| ());
        Evaluation::from([("loss".into(), loss), ("perplexity".into(), loss.exp())])
    }

    /// Saves the best model, and tells what came of the run.
    pub fn report<M: LanguageModel<B>>(&self, fitted: Fitted<M>) -> Result<Ended, Exit> {
        report::report(self.options, fitted, self.tokenizer.as_ref(), self.output.as_ref())
    }
}
