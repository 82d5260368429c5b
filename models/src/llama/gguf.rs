//! Configurations in GGUF files, and skeletons for their weights, which may be quantized.

use grove_backend::{Backend, InputPrecision, Quantization};
use grove_files::{KnownKeys, RefusedKey};
use grove_layers::{MaybeQuantized, QuantEmbedding, QuantLinear, Quantized};
use grove_weights::{GgufMetadata, GgufValue, NameMap, TensorFiles};
use std::path::Path;

use super::{
    Architecture, Layer, Llama, LlamaConfig,
    gguf_rope::{FREQUENCIES, scaling},
    names::{LINEAR, with_linear},
};
use crate::{
    EndTokens, PretrainedConfig,
    error::{Result, invalid},
    gguf_keys::check_file,
};

/// Returns a key that is refused unless its value is LLaMA's.
const fn unsupported(key: &'static str, neutral: &'static [&'static str]) -> RefusedKey {
    RefusedKey { key, neutral, instead: "a model of this kind has its own architecture, which grove does not have" }
}

/// Metadata keys under the architecture's prefix, from the GGUF specification and llama.cpp. The keys of the whole file
/// are in `gguf_keys.rs`, those of the tokenizer in the crate `grove-text`.
const KEYS: KnownKeys = KnownKeys {
    followed: &[
        "context_length",
        "embedding_length",
        "block_count",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.sliding_window",
        "rope.dimension_count",
        "rope.freq_base",
        "rope.scale_linear",
        "rope.scaling.attn_factor",
        "rope.scaling.factor",
        "rope.scaling.original_context_length",
        "rope.scaling.type",
        "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast",
        "rope.scaling.yarn_beta_slow",
        "rope.scaling.yarn_ext_factor",
        "rope.scaling.yarn_log_multiplier",
    ],
    without_effect: &[
        ("vocab_size", "the embedding has it"),
        ("tensor_data_layout", "converters put the rows of queries and keys in one order"),
        ("rope.scaling.finetuned", "how the model was trained"),
        ("attention.layer_norm_epsilon", "of layer norms, which this model does not have"),
        ("attention.group_norm_epsilon", "of group norms, which this model does not have"),
        ("nextn_predict_layers", "heads for drafts, which are not used"),
        ("expert_weights_scale", "of experts"),
        ("expert_weights_norm", "of experts"),
        ("expert_gating_func", "of experts"),
        ("rope.dimension_count_swa", "of layers with a window of their own"),
    ],
    refused: &[
        unsupported("expert_count", &["0"]),
        unsupported("expert_used_count", &["0"]),
        unsupported("expert_shared_count", &["0"]),
        unsupported("leading_dense_block_count", &["0"]),
        unsupported("use_parallel_residual", &["false"]),
        unsupported("pooling_type", &["0"]),
        unsupported("attention.causal", &["true"]),
        unsupported("attention.scale", &["0.0"]),
        unsupported("attention.output_scale", &["0.0", "1.0"]),
        unsupported("attention.temperature_length", &["0"]),
        unsupported("attention.temperature_scale", &["0.0"]),
        unsupported("attention.clamp_kqv", &["0.0"]),
        unsupported("attention.max_alibi_bias", &["0.0"]),
        unsupported("attention.sliding_window_pattern", &[]),
        unsupported("attention.shared_kv_layers", &["0"]),
        unsupported("attn_logit_softcapping", &["0.0"]),
        unsupported("final_logit_softcapping", &["0.0"]),
        unsupported("logit_scale", &["0.0", "1.0"]),
        unsupported("residual_scale", &["0.0", "1.0"]),
        unsupported("embedding_scale", &["0.0", "1.0"]),
        unsupported("activation_sparsity_scale", &[]),
        unsupported("swin_norm", &["false"]),
        unsupported("interleave_moe_layer_step", &["0"]),
        unsupported("rope.dimension_sections", &[]),
        unsupported("rope.scaling.alpha", &["0.0", "1.0"]),
        unsupported("rope.freq_base_swa", &[]),
    ],
};

/// Refuses metadata that would change results, except that of the tokenizer.
fn check_others(metadata: &GgufMetadata, architecture: &str, file: &Path) -> Result<()> {
    let own = |key: &str| key.strip_prefix(architecture)?.strip_prefix('.').map(str::to_owned);
    KEYS.check(file, &metadata.as_json(own)).or_else(|reason| invalid(format!("{architecture}.{reason}")))?;
    check_file(metadata, architecture, file).or_else(invalid)
}

/// Metadata under the architecture's prefix.
pub(super) struct Keys<'a> {
    metadata: &'a GgufMetadata,
    architecture: &'a str,
}

impl Keys<'_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    /// Returns the value of a key; for a list of one value per layer, their common value.
    fn value<T: PartialEq>(
        &self,
        name: &str,
        kind: &str,
        of: impl Fn(&GgufValue<'_>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(found) = self.metadata.get(&self.key(name)) else { return Ok(None) };
        let value = match found {
            GgufValue::Array(list) => {
                let mut values = list.iter().map(|value| of(&value));
                let first = values.next().flatten();
                let all_alike = values.all(|value| value == first);
                first.filter(|_| all_alike)
            }
            single => of(&single),
        };
        match value {
            Some(value) => Ok(Some(value)),
            None => {
                invalid(format!("{} is {}; it must be {kind}, the same in all layers", self.key(name), found.as_json()))
            }
        }
    }

    pub(super) fn size(&self, name: &str) -> Result<Option<usize>> {
        self.value(name, "a whole number", |value| usize::try_from(value.integer()?).ok())
    }

    fn needed(&self, name: &str) -> Result<usize> {
        self.size(name)?.map_or_else(|| invalid(format!("the file does not say {}", self.key(name))), Ok)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<f64>> {
        let of = |value: &GgufValue<'_>| value.float().or(value.integer().map(|number| number as f64));
        self.value(name, "a finite number", |value| of(value).filter(|number| number.is_finite()))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<String>> {
        self.value(name, "a text", |value| value.string().map(str::to_owned))
    }
}

/// Reads the configuration of a model in a GGUF file.
pub(super) fn read(file: &Path, metadata: &GgufMetadata, checkpoint: &TensorFiles) -> Result<LlamaConfig> {
    let architecture = metadata.string("general.architecture").unwrap_or_default();
    let model_type = match architecture {
        "llama" => Architecture::Llama,
        "qwen2" => Architecture::Qwen2,
        "qwen3" => Architecture::Qwen3,
        other => {
            let known = "llama, qwen2 and qwen3 are read";
            return invalid(format!("the file has a model of architecture '{other}'; {known}"));
        }
    };
    check_others(metadata, architecture, file)?;
    let keys = Keys { metadata, architecture };
    let heads = keys.needed("attention.head_count")?;
    let hidden_size = keys.needed("embedding_length")?;
    let positions = keys.needed("context_length")?;
    let vocab_size = checkpoint.info("token_embd.weight")?.shape.first().copied().unwrap_or(0);
    let token = |name: &str| metadata.integer(&format!("tokenizer.ggml.{name}_token_id")).map(|id| id as u32);
    let mut ends: Vec<u32> = ["eos", "eot", "eom"].into_iter().filter_map(token).collect();
    ends.dedup();
    let head_dim = keys.size("attention.key_length")?;
    // Mistral's files name the architecture `llama` and have a window.
    let window = keys.size("attention.sliding_window")?.filter(|&window| window > 0);
    let config = LlamaConfig {
        model_type: if window.is_some() && model_type == Architecture::Llama {
            Architecture::Mistral
        } else {
            model_type
        },
        vocab_size,
        hidden_size,
        intermediate_size: keys.needed("feed_forward_length")?,
        num_hidden_layers: keys.needed("block_count")?,
        num_attention_heads: heads,
        num_key_value_heads: Some(keys.size("attention.head_count_kv")?.unwrap_or(heads)),
        head_dim,
        max_position_embeddings: positions,
        rms_norm_eps: keys.number("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-6),
        rope_theta: keys.number("rope.freq_base")?,
        rope_scaling: scaling(&keys, checkpoint, head_dim.unwrap_or(hidden_size / heads.max(1)) / 2)?,
        tie_word_embeddings: !checkpoint.contains("output.weight"),
        attention_bias: model_type == Architecture::Llama && checkpoint.contains("blk.0.attn_q.bias"),
        sliding_window: window,
        bos_token_id: token("bos"),
        eos_token_id: EndTokens::Any(ends),
        ..LlamaConfig::default()
    };
    config.validate()?;
    for name in ["rope.dimension_count", "attention.value_length"] {
        if let Some(size) = keys.size(name)?.filter(|size| *size != config.head_dim()) {
            let head = config.head_dim();
            return invalid(format!(
                "{} is {size}, and heads are {head} wide; only whole heads are supported",
                keys.key(name)
            ));
        }
    }
    Ok(config)
}

/// Adds the names of GGUF files. Those of LLaMA and Mistral store the rows of queries and keys for interleaved rotary
/// embeddings.
pub(super) fn with_names(mut names: NameMap, config: &LlamaConfig) -> NameMap {
    const GGUF: [&str; 7] = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let interleaved = matches!(config.model_type, Architecture::Llama | Architecture::Mistral);
    for (linear, gguf) in LINEAR.into_iter().zip(GGUF) {
        names = with_linear(names, &format!("blk.{{i}}.{gguf}"), linear, config, interleaved);
    }
    names
        .alias("token_embd.weight", "embed_tokens.weight")
        .alias("token_embd.weight", "embed_tokens.blocks")
        .alias("blk.{i}.attn_norm.weight", "layers.{i}.input_layernorm.weight")
        .alias("blk.{i}.attn_q_norm.weight", "layers.{i}.self_attn.q_norm.weight")
        .alias("blk.{i}.attn_k_norm.weight", "layers.{i}.self_attn.k_norm.weight")
        .alias("blk.{i}.ffn_norm.weight", "layers.{i}.post_attention_layernorm.weight")
        .alias("output_norm.weight", "norm.weight")
        .ignore_each(&[(FREQUENCIES, "factors of rotary angles, which are read with the configuration")])
}

/// Returns the quantization of a tensor in a file, if the backend keeps the tensor quantized.
fn stored_quantization<B: Backend>(names: &NameMap, checkpoint: &TensorFiles, path: &str) -> Option<Quantization> {
    let (_, info) = names.published(checkpoint, &format!("{path}.blocks"))?;
    Quantization::from_name(info.quantized?.name()).filter(|_| B::MIXED_DTYPE_WEIGHTS && !B::LAZY)
}

impl<B: Backend> Llama<B> {
    /// Replaces matrices that are quantized in the file by skeletons of quantized blocks, if the backend supports them.
    pub(super) fn quantized_as(mut self, checkpoint: &TensorFiles, names: &NameMap) -> Self {
        let projection = |map: &mut QuantLinear<B>, path: String| {
            let MaybeQuantized::Dense(dense) = map else { return };
            let [inputs, outputs] = dense.weight.shape();
            if let Some(kind) = stored_quantization::<B>(names, checkpoint, &path) {
                let bias = dense.bias.take();
                *map = MaybeQuantized::Quantized(Quantized { bias, ..Quantized::absent(outputs, inputs, kind) });
            }
        };
        let table = |table: &mut QuantEmbedding<B>, path: &str| {
            let MaybeQuantized::Dense(dense) = table else { return };
            let [symbols, size] = dense.weight.shape();
            if let Some(kind) = stored_quantization::<B>(names, checkpoint, path) {
                *table = MaybeQuantized::Quantized(Quantized::absent(symbols, size, kind));
            }
        };
        table(&mut self.embed_tokens, "embed_tokens");
        if let Some(head) = &mut self.lm_head {
            table(head, "lm_head");
        }
        for (i, layer) in self.layers.iter_mut().enumerate() {
            for (map, name) in projections(layer) {
                projection(map, format!("layers.{i}.{name}"));
            }
        }
        self
    }

    /// Makes quantized layers round their inputs to 8 bits. Returns `None` if no layer is quantized.
    pub(super) fn rounding_activations(mut self) -> Option<Self> {
        let mut is_quantized = false;
        let mut round = |weights: Option<&mut Quantized<B>>| {
            if let Some(weights) = weights {
                weights.precision = InputPrecision::Int8;
                is_quantized = true;
            }
        };
        round(self.embed_tokens.quantized_mut());
        if let Some(head) = &mut self.lm_head {
            round(head.quantized_mut());
        }
        for layer in &mut self.layers {
            for (projection, _) in projections(layer) {
                round(projection.quantized_mut());
            }
        }
        is_quantized.then_some(self)
    }
}

/// Returns the projections of a layer, each with its path.
fn projections<B: Backend>(layer: &mut Layer<B>) -> [(&mut QuantLinear<B>, &'static str); 7] {
    let (attn, mlp) = (&mut layer.self_attn, &mut layer.mlp);
    [
        (&mut attn.q_proj, "self_attn.q_proj"),
        (&mut attn.k_proj, "self_attn.k_proj"),
        (&mut attn.v_proj, "self_attn.v_proj"),
        (&mut attn.o_proj, "self_attn.o_proj"),
        (&mut mlp.gate_proj, "mlp.gate_proj"),
        (&mut mlp.up_proj, "mlp.up_proj"),
        (&mut mlp.down_proj, "mlp.down_proj"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys that gguf-py knows under an architecture's prefix. Fixture: tools/fixtures/config_keys.py.
    #[test]
    fn keys_of_language_models_are_accounted_for() {
        let of_other_architectures = [
            "features_length",
            "embedding_length_out",
            "expert_feed_forward_length",
            "expert_shared_feed_forward_length",
            "expert_chunk_feed_forward_length",
            "expert_group_count",
            "expert_group_used_count",
            "expert_group_scale",
            "experts_per_group",
            "moe_every_n_layers",
            "moe_latent_size",
            "n_deepstack_layers",
            "decoder_start_token_id",
            "decoder_block_count",
            "router_logit_softcapping",
            "rescale_every_n_layers",
            "time_mix_extra_dim",
            "time_decay_extra_dim",
            "token_shift_count",
            "full_attention_interval",
            "altup.active_idx",
            "altup.num_inputs",
            "embedding_length_per_layer_input",
            "swiglu_clamp_exp",
            "swiglu_clamp_shexp",
            "{dense}_feat_in",
            "{dense}_feat_out",
            "attention.group_norm_groups",
            "attention.q_lora_rank",
            "attention.kv_lora_rank",
            "attention.decay_lora_rank",
            "attention.iclr_lora_rank",
            "attention.value_residual_mix_lora_rank",
            "attention.gate_lora_rank",
            "attention.relative_buckets_count",
            "attention.key_length_mla",
            "attention.value_length_mla",
            "attention.key_length_swa",
            "attention.value_length_swa",
        ];
        for key in crate::keys::of_transformers("GGUF") {
            let known = KEYS.knows(&key) || of_other_architectures.contains(&&*key);
            assert!(known, "nothing is said of {key}");
        }
    }
}
