//! Training language models on text: what GPT-2, LLaMA and recurrent networks have in common.

mod evaluate;
mod gpt2;
mod llama;
mod options;
mod prepare;
mod rnn;
mod text;

use grove::{
    models::{
        Tokenizer, copy_generation_config, generate,
        generation::{GenerateOptions, Sampling},
    },
    prelude::*,
    train::{
        Ended, Evaluation, Fitted, Outcome,
        data::{TokenBatch, TokenStream, TokenWindows},
        fit, token_loss,
    },
};
use std::path::Path;

use crate::{
    Exit, failure,
    training::{Job, Output, Setup, config_json, model_settings},
    write_json, write_line,
};
pub use gpt2::{Gpt2Options, Gpt2Sizes};
pub use llama::{LlamaOptions, LlamaSizes};
pub use options::LanguageArgs;
pub(crate) use options::{check_resumed, context};
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
    let Some((model, run)) = LanguageRun::new::<M>(options, sizes, device)? else { return Ok(Ended::Finished) };
    let job = &run.job;
    let optimizer = options.training.optimizer::<B, M>(&job.schedule);
    let loss_fn = |model: M::On<Autodiff<B>>, batch: &TokenBatch, key: Key| {
        let loss = model.next_token_loss(batch.inputs(device), batch.targets(device), Some(key));
        Outcome::<B, M>::new(loss).weight(run.tokens(batch))
    };
    let evaluate = |model: &M| Ok(run.evaluate(|ids, targets| model.next_token_loss(ids, targets, None)));
    let fitted = fit(model, &optimizer, &job.data, loss_fn, evaluate, job.key, &job.settings).map_err(failure)?;
    run.report(fitted)
}

/// Tokens of a byte-level tokenizer that has merged nothing: the bytes, and the end of a text.
const CHARACTERS: usize = 257;

/// A run: its data, settings and directory.
pub struct LanguageRun<'a, B: Backend> {
    options: &'a LanguageArgs,
    tokenizer: Option<Tokenizer>,
    held_out: Option<TokenStream>,
    context: usize,
    device: B::Device,
    /// Windows of the text, learning rates, settings of the loop.
    pub job: Job<B, TokenWindows>,
}

impl<'a, B: Backend> LanguageRun<'a, B> {
    /// The model to train and the run, as the options ask. `None` where the model was to be evaluated, which is done.
    pub fn new<M: LanguageModel<B>>(
        options: &'a LanguageArgs,
        sizes: &M::Sizes,
        device: &B::Device,
    ) -> Result<Option<(M, Self)>, Exit> {
        let LanguageArgs { run, training: asked, .. } = options;
        let output = Output::open(run, asked.keep)?;
        let Prepared { model, tokenizer, training, held_out, source } =
            prepare::<B, M>(options, sizes, &output, device)?;
        let context = context(options, model.context())?;
        if options.evaluate {
            evaluate::print(options, &model, &training, context)?;
            return Ok(None);
        }
        let config = config_json(model.config())?;
        let settings = model_settings(&config)
            .with("context", context)
            .with("vocabulary", model.vocab_size())
            .with("data", text::identity(&training))
            .with_option("held-out", held_out.as_ref().map(text::identity));
        let counts = [training.len(), held_out.as_ref().map_or(0, |stream| stream.len())];
        let key = Key::new(run.seed).fold_in(2);
        let data = TokenWindows::new(training, context, asked.batch_size, Some(key)).map_err(failure)?;
        if let Some(held_out) = &held_out {
            evaluate::check("the held-out text", held_out)?;
        }
        output.begin(run, &config, tokenizer.as_ref())?;
        if let (Some(source), Some(directory)) = (source, output.model()) {
            copy_generation_config(source, directory).map_err(failure)?;
        }
        let epochs = if options.is_demonstration() { options::DEMONSTRATION_EPOCHS } else { 1.0 };
        let unit = ("tokens", asked.batch_size * context);
        let (trainable, classes) = (None, None);
        let setup = Setup { run, training: asked, output, data, epochs, settings, trainable, classes, unit, counts };
        let job = setup.job(&model)?;
        Ok(Some((model, Self { options, tokenizer, held_out, context, device: device.clone(), job })))
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
        let (model, summary) = self.job.save(fitted, |model: M, directory| model.save_pretrained(directory))?;
        let perplexity = summary.held_out_loss().map(f64::exp);
        if self.options.run.json {
            write_json(&summary.json("perplexity", perplexity))?;
            return Ok(summary.ended);
        }
        let measure = perplexity.map(|perplexity| ("perplexity", format!("{perplexity:.2}")));
        write_line(&summary.table("token", measure))?;
        if let Some(tokenizer) = self.tokenizer.as_ref().filter(|_| summary.ended != Ended::Interrupted) {
            write_line(&format!("\nIt writes:\n{}", sample(&model, tokenizer, self.options.run.seed)?))?;
        }
        Ok(summary.ended)
    }
}

/// A few lines by the model.
fn sample<B: Backend>(model: &impl CausalLm<B>, tokenizer: &Tokenizer, seed: u64) -> Result<String, Exit> {
    let mut prompt = tokenizer.encode("The").map_err(failure)?;
    // A tokenizer need not have such a word, nor the model so many positions.
    let most = model.context().unwrap_or(usize::MAX);
    prompt.truncate(most - 1);
    if prompt.is_empty() {
        return Ok(String::new());
    }
    // A token of a character model is a letter.
    let length = if tokenizer.vocab_size() <= CHARACTERS { 300 } else { 60 };
    let settings = GenerateOptions {
        max_new_tokens: length.min(most - prompt.len()),
        sampling: Sampling { temperature: 0.8, ..Sampling::default() },
        key: Key::new(seed),
        ..GenerateOptions::default()
    };
    let rows = generate(model, std::slice::from_ref(&prompt), &settings, |_, _| true).map_err(failure)?;
    let ids: Vec<u32> = rows.into_iter().flat_map(|row| prompt.iter().copied().chain(row.ids)).collect();
    tokenizer.decode(&ids).map_err(failure)
}

/// Makes the options of a command that trains a language model a command.
macro_rules! command {
    ($options:ty, $model:ident) => {
        impl $crate::program::Command for $options {
            fn check(&self) -> Result<DeviceSpec, Exit> {
                self.language.check()?;
                self.language.run.device.spec()
            }

            fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
                run::<B, $model<B>>(&self.language, &self.sizes, device)
            }
        }
    };
}

command!(Gpt2Options, Gpt2);
command!(LlamaOptions, Llama);
command!(LmOptions, RnnLm);
