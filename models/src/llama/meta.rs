//! Files in Meta's format: `params.json`, and the names of the weights.

use grove_files::{KnownKeys, RefusedKey};
use grove_weights::{NameMap, TensorFiles};
use serde::Deserialize;
use serde_json::json;
use std::path::Path;

use super::{
    LlamaConfig,
    names::{LINEAR, with_linear},
};
use crate::{
    EndTokens, PretrainedConfig,
    error::{ModelError, Result},
    keys::check_keys,
    pretrained::read_json,
};

/// Keys of `params.json`.
const KEYS: KnownKeys = KnownKeys {
    followed: &["n_layers", "n_heads", "n_kv_heads", "norm_eps", "rope_theta", "use_scaled_rope", "head_dim"],
    without_effect: &[
        ("dim", "widths are read from the weights"),
        ("ffn_dim_multiplier", "widths are read from the weights"),
        ("hidden_dim", "widths are read from the weights"),
        ("max_batch_size", "a limit of Meta's own program"),
        ("max_seq_len", "a limit of Meta's own program"),
        ("multiple_of", "widths are read from the weights"),
        ("vocab_size", "it is read from the weights"),
    ],
    refused: &[
        RefusedKey { key: "quantization_args", neutral: &[], instead: "take the model's files that are not quantized" },
        RefusedKey { key: "lora_args", neutral: &[], instead: "take the model's files without adapters" },
        RefusedKey { key: "moe", neutral: &[], instead: "layers of experts are not supported" },
        RefusedKey { key: "sliding_window", neutral: &[], instead: "take the model's files for transformers" },
    ],
};

/// Fields that are used. Widths are read from the weights.
#[derive(Deserialize)]
struct Params {
    head_dim: Option<usize>,
    n_layers: usize,
    n_heads: usize,
    n_kv_heads: Option<usize>,
    norm_eps: f64,
    rope_theta: Option<f64>,
    #[serde(default)]
    use_scaled_rope: bool,
}

/// Vocabulary size of LLaMA 3 without special tokens.
const THIRD_VOCABULARY: usize = 128_000;

/// Smallest hidden size at which LLaMA 3.1's rope factor, 8, applies. LLaMA 3.2 (narrower) uses factor 32;
/// `params.json` does not record the factor.
const SCALED_BY_8: usize = 4096;

/// Reads the configuration of a model in Meta's files.
pub(super) fn read(file: &Path, checkpoint: &TensorFiles) -> Result<LlamaConfig> {
    check_keys(&KEYS, file, &read_json(file)?)?;
    let params: Params = read_json(file)?;
    let wrong = |reason: String| ModelError::Json { file: file.into(), reason };
    let shape = |name: &str| match checkpoint.info(name)?.shape[..] {
        [rows, columns] => Ok([rows, columns]),
        _ => Err(wrong(format!("{name} is no matrix"))),
    };
    let [vocab_size, hidden_size] = shape("tok_embeddings.weight")?;
    let [intermediate_size, _] = shape("layers.0.feed_forward.w1.weight")?;
    // Code LLaMA has a larger rope base than LLaMA 2, but LLaMA 2's vocabulary.
    let third = vocab_size >= THIRD_VOCABULARY;
    let code = !third && params.rope_theta.is_some_and(|base| base > 10_000.0);
    let (first, last) = if third { (128_000, 128_001) } else { (1, 2) };
    let scaling = json!({
        "rope_type": "llama3", "factor": if hidden_size < SCALED_BY_8 { 32.0 } else { 8.0 },
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    });
    let config = LlamaConfig {
        vocab_size,
        hidden_size,
        intermediate_size,
        num_hidden_layers: params.n_layers,
        num_attention_heads: params.n_heads,
        num_key_value_heads: params.n_kv_heads,
        rms_norm_eps: params.norm_eps,
        rope_theta: params.rope_theta,
        rope_scaling: scaling.as_object().cloned().filter(|_| params.use_scaled_rope),
        head_dim: params.head_dim,
        max_position_embeddings: match () {
            () if params.use_scaled_rope => 131_072,
            () if third => 8192,
            () if code => 16_384,
            () => 4096,
        },
        tie_word_embeddings: !checkpoint.contains("output.weight"),
        bos_token_id: Some(first),
        eos_token_id: EndTokens::One(last),
        ..LlamaConfig::default()
    };
    config.validate().map_err(|error| wrong(error.to_string()))?;
    Ok(config)
}

/// Adds the names of Meta's files, which store the rows of queries and keys for interleaved rotary embeddings.
pub(super) fn with_names(mut names: NameMap, config: &LlamaConfig) -> NameMap {
    const META: [&str; 7] = [
        "attention.wq",
        "attention.wk",
        "attention.wv",
        "attention.wo",
        "feed_forward.w1",
        "feed_forward.w3",
        "feed_forward.w2",
    ];
    for (linear, meta) in LINEAR.into_iter().zip(META) {
        names = with_linear(names, &format!("layers.{{i}}.{meta}"), linear, config, true);
    }
    let names = names
        .alias("tok_embeddings.weight", "embed_tokens.weight")
        .alias("layers.{i}.attention_norm.weight", "layers.{i}.input_layernorm.weight")
        .alias("layers.{i}.ffn_norm.weight", "layers.{i}.post_attention_layernorm.weight")
        // Rotary angles follow from the configuration.
        .ignore("rope.freqs");
    match config.tie_word_embeddings {
        true => names.alias("output.weight", "embed_tokens.weight").ignore("output.weight"),
        false => names.alias("output.weight", "lm_head.weight"),
    }
}
