//! Training of language models on text, shared by GPT-2, LLaMA and recurrent networks.

mod gpt2;
mod llama;
mod options;
mod prepare;
mod rnn;

use grove::{
    compile::Traceable,
    models::{ModelKind, check_finite, copy_generation_config},
    tasks::generation::complete_text,
    train::{
        Evaluation, Fitted, TrainError,
        data::{TokenBatch, TokenStream, TokenWindows},
        token_loss_on,
    },
};

use crate::{
    prelude::*,
    program::progress_bar,
    ranks::ranks,
    training::{Job, config_json},
};
pub use gpt2::Gpt2Options;
pub use llama::LlamaOptions;
pub use options::LanguageArgs;
pub(crate) use options::{TextColumn, check_resumed, context};
use prepare::{Prepared, prepare};
pub(crate) use prepare::{encode_text, existing_tokenizer};
pub use rnn::{LmOptions, RnnSizes};

/// Options of a command that trains a language model.
pub trait LanguageOptions: Sync {
    /// Model type on a backend.
    type Model<B: Backend>: CausalLm<B>
        + Pretrained<B, Config = Self::Config>
        + Tree<B, On<Autodiff<B>>: CausalLm<Autodiff<B>>>
        + Traceable<B, OnTraced: Tree<Traced, On<Autodiff<Traced>>: CausalLm<Autodiff<Traced>>>>;
    /// Configuration of the model.
    type Config: PretrainedConfig;

    /// Family of the model.
    const KIND: ModelKind;

    /// Linear layers that get an adapter unless the options name others.
    const LORA_TARGETS: &'static [&'static str];

    /// Prefix of the names of peft's adapters, which the published names lack.
    const PEFT_PREFIX: &'static str;

    /// Returns the options shared by all language models.
    fn language(&self) -> &LanguageArgs;

    /// Returns the configuration of a new model, with the vocabulary size of the tokenizer or of `--vocab-size`.
    fn new_config(&self, tokenizer: Option<&Tokenizer>) -> Result<Self::Config, Exit>;

    /// Rejects a run to resume whose sizes differ from those of the options.
    fn check_resumed(&self, config: &Self::Config) -> Result<(), Exit>;
}

impl<O: LanguageOptions> Command for O {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.language().check()?;
        self.language().run.device.spec()
    }

    /// Trains the model, or evaluates it with `--evaluate`.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let options = self.language();
        let args = &options.run;
        let output = args.directory()?;
        let prepared = prepare::<B, O>(self, &output, device)?;
        let context = context(options.context, prepared.model.context())?;
        if options.evaluate {
            let Prepared { model, training, .. } = &prepared;
            return print_evaluation(model, training, context, args.training.batch_size, args.json);
        }
        let (model, run) = LanguageRun::new::<O>(options, prepared, output, context)?;
        let job = &run.job;
        let optimizer = args.training.optimizer::<B, O::Model<B>>(&job.schedule, &model)?;
        let loss = |model: <O::Model<B> as Tree<B>>::On<Autodiff<B>>, batch: &TokenBatch, key: Key| {
            let loss = model.next_token_loss(batch.inputs(device), batch.targets(device), Some(key));
            Outcome::<B, O::Model<B>>::new(loss).weight(predicted(batch))
        };
        let evaluate = |model: &O::Model<B>| run.evaluate(model, device);
        let fitted = match args.jit {
            false => fit(model, &optimizer, &job.data, loss, evaluate, job.key, &job.settings)?,
            true => {
                let arrays = |_: &O::Model<B>, batch: &TokenBatch, _| {
                    let arrays = [batch.inputs(device), batch.targets(device)].map(Array::<B, 2, Int>::new);
                    (arrays, predicted(batch))
                };
                let loss = JitLoss { arrays, loss: traced_loss };
                fit_jitted(model, &optimizer, &job.data, loss, evaluate, job.key, &job.settings)?
            }
        };
        run.report::<O>(fitted)
    }
}

/// Returns the loss of a batch in a trace, from its token ids and targets.
fn traced_loss<M: CausalLm<Autodiff<Traced>>>(
    model: M,
    [ids, targets]: [Array<Autodiff<Traced>, 2, Int>; 2],
    key: Key,
) -> Tensor<Autodiff<Traced>, 1> {
    model.next_token_loss(ids.val(), targets.val(), Some(key))
}

/// Returns the number of tokens predicted in a batch.
fn predicted(batch: &TokenBatch) -> f64 {
    (batch.rows * (batch.columns - 1)) as f64
}

/// Vocabulary size of a byte-level tokenizer without merges: 256 bytes and the end-of-text token.
const CHARACTERS: usize = 257;

/// Data, settings and directory of a run.
struct LanguageRun<'a, B: Backend> {
    options: &'a LanguageArgs,
    tokenizer: Option<Tokenizer>,
    held_out: Option<TokenStream>,
    context: usize,
    /// Training windows, learning-rate schedule and settings of the loop.
    job: Job<B, TokenWindows>,
}

impl<'a, B: Backend> LanguageRun<'a, B> {
    /// Returns the model to train and its run.
    fn new<O: LanguageOptions>(
        options: &'a LanguageArgs,
        Prepared { model, tokenizer, training, held_out, source }: Prepared<O::Model<B>>,
        output: RunDirectory,
        context: usize,
    ) -> Result<(O::Model<B>, Self), Exit> {
        let (run, batch_size) = (&options.run, options.run.training.batch_size);
        let config = config_json(model.config())?;
        let (model, trainable) = options.adapted(model, O::LORA_TARGETS, "")?;
        let settings = options
            .lora
            .settings()
            .with_model(&config)
            .with("context", context)
            .with("vocabulary", model.vocab_size())
            .with("data", training.identity())
            .with_option("held-out", held_out.as_ref().map(TokenStream::identity));
        let counts = [training.len(), held_out.as_ref().map_or(0, |stream| stream.len())];
        let key = Key::new(run.seed).fold_in(2);
        let data = TokenWindows::new(training, context, batch_size, Some(key))?;
        if let Some(held_out) = &held_out {
            check_evaluation("the held-out text", held_out)?;
        }
        output.begin(&config, tokenizer.as_ref())?;
        if let (Some(source), Some(directory)) = (source, output.model()) {
            copy_generation_config(source, directory)?;
        }
        let setup = Setup { run, output, epochs: options.epochs(6.0), settings, trainable };
        let job = setup.job(&model, data, None, ("tokens", batch_size * context), counts)?;
        Ok((model, Self { options, tokenizer, held_out, context, job }))
    }

    /// Returns loss and perplexity on the held-out text, or an empty evaluation without one.
    fn evaluate(&self, model: &impl CausalLm<B>, device: &B::Device) -> Result<Evaluation, TrainError> {
        let Some(stream) = &self.held_out else { return Ok(Evaluation::new()) };
        let (ranks, batch_size) = (&self.job.settings.ranks, self.options.run.training.batch_size);
        let loss = |ids, next| model.next_token_loss(ids, next, None);
        let (loss, _) = token_loss_on(ranks, stream, self.context, batch_size, device, loss, |_| ())?;
        Ok(Evaluation::from([("loss".into(), loss), ("perplexity".into(), loss.exp())]))
    }

    /// Saves the model selected by `--keep` and prints the results of the run.
    fn report<O: LanguageOptions>(&self, fitted: Fitted<O::Model<B>>) -> Result<Ended, Exit> {
        let save = |model: O::Model<B>, directory: &Path| self.options.save_adapted(model, O::PEFT_PREFIX, directory);
        let (model, summary) = self.job.save(fitted, save)?;
        let (run, perplexity) = (&self.options.run, summary.run.held_out_loss.map(f64::exp));
        let ended =
            summary.report(run, "token", ("perplexity", perplexity), |perplexity| format!("{perplexity:.2}"))?;
        if let Some(tokenizer) = self.tokenizer.as_ref().filter(|_| ended != Ended::Interrupted && !run.json) {
            // Character models need more tokens for a text of similar length.
            let settings = GenerateOptions {
                max_new_tokens: if tokenizer.vocab_size() <= CHARACTERS { 300 } else { 60 },
                sampling: Sampling { temperature: 0.8, ..Sampling::default() },
                key: Key::new(run.seed),
                ..GenerateOptions::default()
            };
            write_line(&format!("\nIt writes:\n{}", complete_text(&model, tokenizer, "The", &settings)?))?;
        }
        Ok(ended)
    }
}

/// Fails if a text has no token to predict.
fn check_evaluation(what: &str, stream: &TokenStream) -> Result<(), Exit> {
    match stream.len() {
        tokens @ (0 | 1) => Err(failure(format!("{what} has {tokens} tokens, but an evaluation needs at least 2"))),
        _ => Ok(()),
    }
}

/// Prints the loss and perplexity of a model on a text.
pub(crate) fn print_evaluation<B: Backend>(
    model: &impl CausalLm<B>,
    stream: &TokenStream,
    context: usize,
    batch_size: usize,
    json: bool,
) -> Result<Ended, Exit> {
    check_evaluation("the text", stream)?;
    let bar = progress_bar(stream.len() - 1, "tokens");
    let device = model.device();
    let loss = |ids, targets| model.next_token_loss(ids, targets, None);
    let (loss, tokens) =
        token_loss_on(&ranks(), stream, context, batch_size, &device, loss, |tokens| bar.inc(tokens as u64))?;
    bar.finish_and_clear();
    check_finite(model, [loss])?;
    let perplexity = loss.exp();
    let text = format!("{}, {loss:.4} nats a token, perplexity {perplexity:.2}", counted(tokens, "token"));
    report(json, &json!({ "loss": loss, "perplexity": perplexity, "tokens": tokens, "context": context }), &text)
}
