//! Options and configuration of training a LLaMA.

use grove::models::ModelKind;

use super::{LanguageArgs, LanguageOptions, check_resumed, options::named_config};
use crate::{prelude::*, training::with_text_rates};

/// Trains a LLaMA on text, from scratch or from a pretrained model.
///
/// Without arguments, trains a tiny model on a text that ships with grove, as a demonstration of a minute or two.
/// Ctrl-C writes a checkpoint and stops; the same command with --resume continues.
#[derive(Parser, Debug)]
#[command(name = "train_llama", version, allow_negative_numbers = true, mut_arg("learning_rate", with_text_rates))]
pub struct LlamaOptions {
    /// Model, data and hyperparameters.
    #[command(flatten)]
    pub language: LanguageArgs,

    /// Sizes of a new model: a config.json, or a published size such as smollm2-135m; the following options override it
    #[arg(long, value_name = "FILE|NAME", conflicts_with = "model", help_heading = "Model")]
    config: Option<String>,

    /// Number of layers [default: that of --config, else 4]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    layers: Option<usize>,

    /// Number of query heads per layer [default: that of --config, else 4]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    heads: Option<usize>,

    /// Number of key-value heads per layer; must divide the number of query heads [default: that of --config, else 2]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    kv_heads: Option<usize>,

    /// Width of the model [default: that of --config, else 128]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    hidden_size: Option<usize>,

    /// Hidden width of the feed-forward layers [default: that of --config, else 352]
    #[arg(long, value_name = "N", conflicts_with = "model", help_heading = "Model")]
    intermediate_size: Option<usize>,
}

impl LanguageOptions for LlamaOptions {
    type Model<B: Backend> = Llama<B>;
    type Config = LlamaConfig;

    const KIND: ModelKind = ModelKind::Llama;
    const LORA_TARGETS: &'static [&'static str] = &["layers.*.self_attn.q_proj", "layers.*.self_attn.v_proj"];
    const PEFT_PREFIX: &'static str = "";

    fn language(&self) -> &LanguageArgs {
        &self.language
    }

    fn new_config(&self, tokenizer: Option<&Tokenizer>) -> Result<LlamaConfig, Exit> {
        let small = LlamaConfig {
            hidden_size: 128,
            intermediate_size: 352,
            num_hidden_layers: 4,
            num_attention_heads: 4,
            num_key_value_heads: Some(2),
            max_position_embeddings: 128,
            rms_norm_eps: 1e-5,
            tie_word_embeddings: true,
            ..LlamaConfig::default()
        };
        let mut config = self.config.as_deref().map_or(Ok(small), named_config)?;
        config.num_hidden_layers = self.layers.unwrap_or(config.num_hidden_layers);
        config.num_attention_heads = self.heads.unwrap_or(config.num_attention_heads);
        config.hidden_size = self.hidden_size.unwrap_or(config.hidden_size);
        config.intermediate_size = self.intermediate_size.unwrap_or(config.intermediate_size);
        config.num_key_value_heads = self.kv_heads.or(config.num_key_value_heads);
        config.max_position_embeddings = self.language.context.unwrap_or(config.max_position_embeddings);
        config.vocab_size = tokenizer.map_or(self.language.vocab_size, Tokenizer::vocab_size);
        config.bos_token_id = tokenizer.and_then(|tokenizer| tokenizer.begin_of_text().or(tokenizer.end_of_text()));
        config.eos_token_id = tokenizer.and_then(Tokenizer::end_of_text).into();
        config.other.insert("architectures".into(), vec![config.model_type.causal_lm()].into());
        Ok(config)
    }

    fn check_resumed(&self, config: &LlamaConfig) -> Result<(), Exit> {
        check_resumed([
            ("kv-heads", self.kv_heads, config.n_kv_head()),
            ("layers", self.layers, config.num_hidden_layers),
            ("heads", self.heads, config.num_attention_heads),
            ("hidden-size", self.hidden_size, config.hidden_size),
            ("intermediate-size", self.intermediate_size, config.intermediate_size),
        ])
    }
}
