//! Options and configuration of training a GPT-2.

use grove::models::ModelKind;

use super::{LanguageArgs, LanguageOptions, check_resumed, options::named_config};
use crate::{prelude::*, training::with_text_rates};

/// Trains a GPT-2 on text, from scratch or from a pretrained model.
///
/// Without arguments, trains a tiny model on a text that ships with grove, as a demonstration of a minute or two.
/// Ctrl-C writes a checkpoint and stops; the same command with --resume continues.
#[derive(Parser, Debug)]
#[command(name = "train_gpt2", version, allow_negative_numbers = true, mut_arg("learning_rate", with_text_rates))]
pub struct Gpt2Options {
    /// Model, data and hyperparameters.
    #[command(flatten)]
    pub language: LanguageArgs,

    /// Sizes of a new model: a config.json, or a published size such as gpt2; the following options override it
    #[arg(long, value_name = "FILE|NAME", conflicts_with = "model", help_heading = "Model")]
    config: Option<String>,

    /// Number of blocks [default: that of --config, else 4]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    n_layer: Option<usize>,

    /// Number of attention heads per block [default: that of --config, else 4]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    n_head: Option<usize>,

    /// Width of the model [default: that of --config, else 128]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    n_embd: Option<usize>,
}

impl LanguageOptions for Gpt2Options {
    type Model<B: Backend> = Gpt2<B>;
    type Config = Gpt2Config;

    const KIND: ModelKind = ModelKind::Gpt2;
    const LORA_TARGETS: &'static [&'static str] = &["h.*.attn.c_attn"];
    const PEFT_PREFIX: &'static str = "transformer.";

    fn language(&self) -> &LanguageArgs {
        &self.language
    }

    fn new_config(&self, tokenizer: Option<&Tokenizer>) -> Result<Gpt2Config, Exit> {
        let small = Gpt2Config { n_layer: 4, n_head: 4, n_embd: 128, n_positions: 128, ..Gpt2Config::default() };
        let mut config = self.config.as_deref().map_or(Ok(small), named_config)?;
        config.n_layer = self.n_layer.unwrap_or(config.n_layer);
        config.n_head = self.n_head.unwrap_or(config.n_head);
        config.n_embd = self.n_embd.unwrap_or(config.n_embd);
        config.n_positions = self.language.context.unwrap_or(config.n_positions);
        config.vocab_size = tokenizer.map_or(self.language.vocab_size, Tokenizer::vocab_size);
        let end = tokenizer.and_then(Tokenizer::end_of_text);
        config.eos_token_id = end.into();
        config.bos_token_id = tokenizer.and_then(Tokenizer::begin_of_text).or(end);
        Ok(config)
    }

    fn check_resumed(&self, config: &Gpt2Config) -> Result<(), Exit> {
        check_resumed([
            ("n-layer", self.n_layer, config.n_layer),
            ("n-head", self.n_head, config.n_head),
            ("n-embd", self.n_embd, config.n_embd),
        ])
    }
}
