//! LLaMA, as the loop takes it.

use clap::{Args, Parser};
use grove::{
    models::{Tokenizer, llama::EndTokens},
    prelude::*,
};
use std::path::Path;

use crate::{
    Exit, failure,
    language::{LanguageArgs, LanguageModel},
};

/// Trains a LLaMA on text: a new one of any size, or one that exists.
///
/// Without arguments it trains a tiny model for a minute or two on the text that ships with grove, to show what happens.
/// Ctrl-C ends a run after a checkpoint, and the same command with --resume goes on.
#[derive(Parser, Debug)]
#[command(name = "train_llama", version, allow_negative_numbers = true)]
pub struct LlamaOptions {
    /// Model, data and hyperparameters.
    #[command(flatten)]
    pub language: LanguageArgs,

    /// Sizes of a new model.
    #[command(flatten)]
    pub sizes: LlamaSizes,
}

/// Sizes of a new LLaMA.
#[derive(Args, Debug)]
pub struct LlamaSizes {
    /// Sizes of a new model: a config.json, or a published size such as smollm2-135m; the options below override it
    #[arg(long, value_name = "FILE|NAME", conflicts_with = "model", help_heading = "Model")]
    config: Option<String>,

    /// Number of layers [default: 4, or what --config says]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    layers: Option<usize>,

    /// Heads of queries of a layer [default: 4, or what --config says]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    heads: Option<usize>,

    /// Heads of keys and values, each of which serves as many heads of queries [default: 2, or what --config says]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    kv_heads: Option<usize>,

    /// Width of the model [default: 128, or what --config says]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    hidden_size: Option<usize>,

    /// Width inside the feed-forward layers [default: 352, or what --config says]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    intermediate_size: Option<usize>,
}

/// Access to a size in a configuration.
type Place = fn(&mut LlamaConfig) -> &mut usize;

impl LlamaSizes {
    /// Each size option: its name, its value if given, and its field in a configuration.
    fn asked(&self) -> [(&'static str, Option<usize>, Place); 4] {
        [
            ("layers", self.layers, |config| &mut config.num_hidden_layers),
            ("heads", self.heads, |config| &mut config.num_attention_heads),
            ("hidden-size", self.hidden_size, |config| &mut config.hidden_size),
            ("intermediate-size", self.intermediate_size, |config| &mut config.intermediate_size),
        ]
    }
}

impl<B: Backend> LanguageModel<B> for Llama<B> {
    type Sizes = LlamaSizes;

    fn new_config(
        sizes: &LlamaSizes,
        options: &LanguageArgs,
        tokenizer: Option<&Tokenizer>,
    ) -> Result<LlamaConfig, Exit> {
        let mut config = match &sizes.config {
            None => LlamaConfig {
                hidden_size: 128,
                intermediate_size: 352,
                num_hidden_layers: 4,
                num_attention_heads: 4,
                num_key_value_heads: Some(2),
                max_position_embeddings: 128,
                rms_norm_eps: 1e-5,
                tie_word_embeddings: true,
                ..LlamaConfig::default()
            },
            Some(file) if Path::new(file).exists() => LlamaConfig::from_file(file).map_err(failure)?,
            Some(name) => LlamaConfig::preset(name).map_err(|error| {
                Exit::Usage(format!("--config '{name}' is not a file that exists, nor a published size: {error}"))
            })?,
        };
        for (_, asked, place) in sizes.asked() {
            let place = place(&mut config);
            *place = asked.unwrap_or(*place);
        }
        config.num_key_value_heads = sizes.kv_heads.or(config.num_key_value_heads);
        config.max_position_embeddings = options.context.unwrap_or(config.max_position_embeddings);
        config.vocab_size = tokenizer.map_or(options.vocab_size, Tokenizer::vocab_size);
        config.bos_token_id = tokenizer.and_then(|tokenizer| tokenizer.begin_of_text().or(tokenizer.end_of_text()));
        config.eos_token_id = tokenizer.and_then(Tokenizer::end_of_text).map_or(EndTokens::None, EndTokens::One);
        config.other.insert("architectures".into(), vec![config.model_type.class()].into());
        Ok(config)
    }

    /// The number of heads shows in no shape, so the checkpoint alone would not tell.
    fn resumed_config(sizes: &LlamaSizes, file: &Path) -> Result<LlamaConfig, Exit> {
        let mut config = LlamaConfig::from_file(file).map_err(failure)?;
        let mut asked: Vec<(&str, Option<usize>, usize)> = vec![("kv-heads", sizes.kv_heads, config.n_kv_head())];
        asked.extend(sizes.asked().map(|(name, asked, place)| (name, asked, *place(&mut config))));
        for (name, asked, has) in asked {
            if let Some(asked) = asked.filter(|asked| *asked != has) {
                return Err(Exit::Usage(format!("--{name} is {asked}, and the run to resume has {has}: leave it out")));
            }
        }
        Ok(config)
    }

    fn with_dropout(mut self, rate: f64) -> Self {
        self.config.attention_dropout = rate;
        self
    }
}
