use grove_weights::{NameMap, Step};

use super::{LlamaConfig, gguf, meta};
use crate::names::linear_names;

/// Returns the names of published files: those of transformers, with or without the prefix `model.`, and those of
/// Meta and GGUF.
pub fn published_names(config: &LlamaConfig) -> NameMap {
    let mut names = NameMap::new().prefix("model.").rule("model.embed_tokens.weight", "embed_tokens.weight");
    names = match config.tie_word_embeddings {
        // Some files contain only the output layer.
        true => names.alias("lm_head.weight", "embed_tokens.weight").ignore_each(&[("lm_head.weight", TIED)]),
        false => names.rule("lm_head.weight", "lm_head.weight"),
    };
    for linear in LINEAR {
        names = linear_names(names, &format!("model.layers.{{i}}.{linear}"), &format!("layers.{{i}}.{linear}"));
    }
    names = names
        .rule("model.layers.{i}.self_attn.q_norm.weight", "layers.{i}.self_attn.q_norm.weight")
        .rule("model.layers.{i}.self_attn.k_norm.weight", "layers.{i}.self_attn.k_norm.weight")
        .rule("model.layers.{i}.{norm}.weight", "layers.{i}.{norm}.weight")
        .rule("model.norm.weight", "norm.weight")
        .ignore_each(&[
            ("layers.{i}.self_attn.rotary_emb.inv_freq", ROTARY),
            ("mtp.**", "multi-token prediction heads, which draft tokens and change no text"),
        ]);
    names = gguf::with_names(meta::with_names(names, config), config);
    // Meta and GGUF have the same name for the output layer.
    match config.tie_word_embeddings {
        true => names.alias("output.weight", "embed_tokens.weight").ignore_each(&[("output.weight", TIED)]),
        false => names.alias("output.weight", "lm_head.weight").alias("output.weight", "lm_head.blocks"),
    }
}

/// Reason for which the output layer of a tied model is not loaded.
const TIED: &str = "the output layer is tied to the token embedding";

/// Reason for which rotary angles are not loaded.
pub(super) const ROTARY: &str = "rotary angles, which follow from the configuration";

/// The linear layers of a decoder layer.
pub(super) const LINEAR: [&str; 7] = [
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
];

/// Adds another name of a linear layer, without the suffix `.weight` or `.bias`. If `interleaved`, the file stores the
/// rows of queries and keys for interleaved rotary embeddings.
pub(super) fn with_linear(
    names: NameMap,
    name: &str,
    linear: &str,
    config: &LlamaConfig,
    interleaved: bool,
) -> NameMap {
    let heads = match linear {
        "self_attn.q_proj" if interleaved => Some(config.num_attention_heads),
        "self_attn.k_proj" if interleaved => Some(config.n_kv_head()),
        _ => None,
    };
    let half_split = |names: NameMap, rank: usize| match heads {
        Some(heads) => interleaved_to_half_split(names, heads, config.head_dim(), rank),
        None => names,
    };
    let (weight, path) = (format!("{name}.weight"), format!("layers.{{i}}.{linear}"));
    let names = half_split(names.alias(&weight, &format!("{path}.weight")), 2).then(Step::Transpose);
    let names = half_split(names.alias(&weight, &format!("{path}.blocks")), 2);
    half_split(names.alias(&format!("{name}.bias"), &format!("{path}.bias")), 1)
}

/// Permutes the rows of a matrix (rank 2), or the values of a bias (rank 1), from interleaved rotary pairs to the
/// half-split layout.
fn interleaved_to_half_split(names: NameMap, heads: usize, head_dim: usize, rank: usize) -> NameMap {
    let (heads, head_dim) = (heads as isize, head_dim as isize);
    // The row length is inferred: a quantized matrix counts it in bytes.
    let columns = if rank == 2 { &[-1][..] } else { &[] };
    let shape = |rows: &[isize]| [rows, columns].concat();
    let axes = if rank == 2 { vec![0, 2, 1, 3] } else { vec![0, 2, 1] };
    names
        .then(Step::Reshape { from: shape(&[heads * head_dim]), to: shape(&[heads, head_dim / 2, 2]) })
        .then(Step::Permute(axes))
        .then(Step::Reshape { from: shape(&[heads, 2, head_dim / 2]), to: shape(&[heads * head_dim]) })
}
