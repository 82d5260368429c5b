//! Files in Meta's format: `params.json`, and the names of the weights.

use grove_files::{FileError, KnownKeys, RefusedKey, check_keys, printable::excerpt, read_json};
use grove_weights::{NameMap, TensorFiles};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;

use super::{
    LlamaConfig,
    names::{LINEAR, ROTARY, with_linear},
    rope::llama3_scaling,
};
use crate::{
    EndTokens, PretrainedConfig,
    error::{ModelError, Result},
};

/// Workaround for models with another architecture.
const FOR_TRANSFORMERS: &str = "take the model's files for transformers, if its architecture is LLaMA's";

/// Keys of `params.json`: the arguments of Meta's models (llama-models, LLaMA 1 to 4) and of Mistral's.
const KEYS: KnownKeys = KnownKeys {
    followed: &[
        "head_dim",
        "n_layers",
        "n_heads",
        "n_kv_heads",
        "norm_eps",
        "rope_theta",
        "use_scaled_rope",
        "rope_scaling_factor",
        "rope_high_freq_factor",
        "max_position_embeddings",
        "tied_embeddings",
    ],
    without_effect: &[
        ("dim", WIDTHS),
        ("ffn_dim_multiplier", WIDTHS),
        ("ffn_exp", WIDTHS),
        ("hidden_dim", WIDTHS),
        ("multiple_of", WIDTHS),
        ("vocab_size", WIDTHS),
        ("max_batch_size", "a limit of the publisher's own program"),
        ("max_seq_len", "a limit of the publisher's own program"),
        ("model_parallel", "how the publisher's own program divides the weights"),
        ("floor_scale", "of attn_temperature_tuning, which has its own key"),
        ("attn_scale", "of attn_temperature_tuning, which has its own key"),
        ("vision_max_num_chunks", "of a vision model, which has its own keys"),
    ],
    refused: &[
        RefusedKey { key: "quantization_args", neutral: &[], instead: "take the model's files that are not quantized" },
        RefusedKey { key: "quantization", neutral: &[], instead: "take the model's files that are not quantized" },
        RefusedKey { key: "lora_args", neutral: &[], instead: "take the model's files without adapters" },
        RefusedKey { key: "lora", neutral: &[], instead: "take the model's files without adapters" },
        RefusedKey { key: "moe", neutral: &[], instead: "layers of experts are not supported" },
        RefusedKey { key: "moe_args", neutral: &[], instead: "layers of experts are not supported" },
        RefusedKey { key: "model_type", neutral: &["\"transformer\""], instead: FOR_TRANSFORMERS },
        RefusedKey { key: "sliding_window", neutral: &[], instead: FOR_TRANSFORMERS },
        RefusedKey { key: "attention_chunk_size", neutral: &[], instead: FOR_TRANSFORMERS },
        RefusedKey { key: "nope_layer_interval", neutral: &[], instead: FOR_TRANSFORMERS },
        RefusedKey { key: "use_qk_norm", neutral: &["false"], instead: FOR_TRANSFORMERS },
        RefusedKey { key: "attn_temperature_tuning", neutral: &["false"], instead: FOR_TRANSFORMERS },
        RefusedKey { key: "yarn", neutral: &[], instead: FOR_TRANSFORMERS },
        RefusedKey { key: "vision_model", neutral: &[], instead: VISION },
        RefusedKey { key: "vision_args", neutral: &[], instead: VISION },
        RefusedKey { key: "vision_encoder", neutral: &[], instead: VISION },
        RefusedKey { key: "vision_chunk_size", neutral: &["-1"], instead: VISION },
        RefusedKey { key: "vision_num_cross_attention_layers", neutral: &["-1"], instead: VISION },
    ],
};

/// Reason of the keys of sizes.
const WIDTHS: &str = "widths and the vocabulary are read from the weights";

/// Workaround for models that see.
const VISION: &str = "models of images and text are not supported; take a model of text";

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
    rope_scaling_factor: Option<f64>,
    rope_high_freq_factor: Option<f64>,
    max_position_embeddings: Option<usize>,
    tied_embeddings: Option<bool>,
}

/// Vocabulary size of LLaMA 3 without special tokens.
const THIRD_VOCABULARY: usize = 128_000;

/// Smallest hidden size at which LLaMA 3.1's rope factor, 8, applies. LLaMA 3.2 (narrower) uses factor 32; its
/// `params.json` does not record the factor.
const SCALED_BY_8: usize = 4096;

/// Reads the configuration of a model in Meta's files.
pub(super) fn read(file: &Path, checkpoint: &TensorFiles) -> Result<LlamaConfig> {
    let fields: Map<String, Value> = read_json(file)?;
    let file_error = |reason: String| ModelError::from(FileError::json(file, reason));
    check_known(&fields).map_err(file_error)?;
    check_keys(&KEYS, file, &fields)?;
    let params: Params = read_json(file)?;
    let shape = |name: &str| match checkpoint.info(name)?.shape[..] {
        [rows, columns] => Ok([rows, columns]),
        _ => Err(file_error(format!("{name} is not a matrix"))),
    };
    let [vocab_size, hidden_size] = shape("tok_embeddings.weight")?;
    let [intermediate_size, _] = shape("layers.0.feed_forward.w1.weight")?;
    // Code LLaMA has a larger rope base than LLaMA 2, but LLaMA 2's vocabulary.
    let third = vocab_size >= THIRD_VOCABULARY;
    let code = !third && params.rope_theta.is_some_and(|base| base > 10_000.0);
    let (first, last) = if third { (128_000, 128_001) } else { (1, 2) };
    let scaling = || {
        let factor = params.rope_scaling_factor.unwrap_or(if hidden_size < SCALED_BY_8 { 32.0 } else { 8.0 });
        llama3_scaling(factor, params.rope_high_freq_factor.unwrap_or(4.0))
    };
    let config = LlamaConfig {
        vocab_size,
        hidden_size,
        intermediate_size,
        num_hidden_layers: params.n_layers,
        num_attention_heads: params.n_heads,
        num_key_value_heads: params.n_kv_heads,
        rms_norm_eps: params.norm_eps,
        rope_theta: params.rope_theta,
        rope_scaling: params.use_scaled_rope.then(scaling),
        head_dim: params.head_dim,
        max_position_embeddings: params.max_position_embeddings.unwrap_or(match () {
            () if params.use_scaled_rope => 131_072,
            () if third => 8192,
            () if code => 16_384,
            () => 4096,
        }),
        tie_word_embeddings: params.tied_embeddings.unwrap_or(!checkpoint.contains("output.weight")),
        bos_token_id: Some(first),
        eos_token_id: EndTokens::One(last),
        ..LlamaConfig::default()
    };
    config.validate().map_err(|error| file_error(error.to_string()))?;
    Ok(config)
}

/// Refuses keys that are not known. These files have no notes of other programs: a key that is new describes another
/// architecture.
fn check_known(fields: &Map<String, Value>) -> std::result::Result<(), String> {
    match fields.iter().find(|(key, value)| !value.is_null() && !KEYS.knows(key)) {
        None => Ok(()),
        Some((key, value)) => Err(format!(
            "{} is {}, an unknown key that could change results; {FOR_TRANSFORMERS}, or remove the key if it changes \
             nothing",
            excerpt(key, 60),
            excerpt(&value.to_string(), 60)
        )),
    }
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
    names
        .alias("tok_embeddings.weight", "embed_tokens.weight")
        .alias("layers.{i}.attention_norm.weight", "layers.{i}.input_layernorm.weight")
        .alias("layers.{i}.ffn_norm.weight", "layers.{i}.post_attention_layernorm.weight")
        .ignore_each(&[("rope.freqs", ROTARY)])
}
