//! Published names: transformers', Meta's and GGUF's.

use grove_weights::{NameMap, Step};

use super::{Architecture, LlamaConfig};

/// Names of a layer's linear layers: here and in transformers, in Meta's files, in GGUF files.
const MAPS: [(&str, &str, &str); 7] = [
    ("self_attn.q_proj", "attention.wq", "attn_q"),
    ("self_attn.k_proj", "attention.wk", "attn_k"),
    ("self_attn.v_proj", "attention.wv", "attn_v"),
    ("self_attn.o_proj", "attention.wo", "attn_output"),
    ("mlp.gate_proj", "feed_forward.w1", "ffn_gate"),
    ("mlp.up_proj", "feed_forward.w3", "ffn_up"),
    ("mlp.down_proj", "feed_forward.w2", "ffn_down"),
];

/// Names of a layer's norms, in the same order.
const NORMS: [(&str, &str, &str); 2] =
    [("input_layernorm", "attention_norm", "attn_norm"), ("post_attention_layernorm", "ffn_norm", "ffn_norm")];

/// Returns the names of published files: transformers' (with or without the prefix `model.`), Meta's and GGUF's. Meta's
/// files, and GGUF files of LLaMA itself, store query and key rows for interleaved rotary embeddings.
pub fn published_names(config: &LlamaConfig) -> NameMap {
    let mut names = NameMap::new().prefix("model.");
    let tables = [
        ("embed_tokens", ["model.embed_tokens", "tok_embeddings", "token_embd"]),
        ("lm_head", ["lm_head", "output", "output"]),
    ];
    for (ours, [transformers, meta, gguf]) in tables {
        for leaf in ["weight", "blocks"] {
            let path = format!("{ours}.{leaf}");
            names = names.rule(&format!("{transformers}.weight"), &path).alias(&format!("{meta}.weight"), &path);
            names = names.alias(&format!("{gguf}.weight"), &path);
        }
    }
    if config.tie_word_embeddings {
        // Some files contain only the output layer.
        names = names.alias("lm_head.weight", "embed_tokens.weight").alias("output.weight", "embed_tokens.weight");
        names = names.ignore("lm_head.weight").ignore("output.weight");
    }
    for (part, [ours, meta, gguf]) in maps() {
        // Number and width of the heads whose rows are interleaved in Meta's files, if any.
        let heads = match part {
            "self_attn.q_proj" => Some([config.num_attention_heads, config.head_dim()]),
            "self_attn.k_proj" => Some([config.n_kv_head(), config.head_dim()]),
            _ => None,
        };
        let heads = heads.map(|sizes| sizes.map(|size| size as isize));
        let of_gguf = heads.filter(|_| config.model_type != Architecture::Qwen2);
        for leaf in ["weight", "blocks"] {
            let turned = leaf == "weight";
            let path = format!("{ours}.{leaf}");
            let weight = |name: &str| format!("{name}.weight");
            names = transposed(names.rule(&weight(&format!("model.{ours}")), &path), turned);
            names = transposed(split_halves(names.alias(&weight(&meta), &path), heads, 2), turned);
            names = transposed(split_halves(names.alias(&weight(&gguf), &path), of_gguf, 2), turned);
        }
        let path = format!("{ours}.bias");
        names = names.rule(&format!("model.{path}"), &path);
        names = split_halves(names.alias(&format!("{meta}.bias"), &path), heads, 1);
        names = split_halves(names.alias(&format!("{gguf}.bias"), &path), of_gguf, 1);
    }
    for (ours, meta, gguf) in NORMS {
        let path = format!("layers.{{i}}.{ours}.weight");
        names = names.rule(&format!("model.{path}"), &path).alias(&format!("layers.{{i}}.{meta}.weight"), &path);
        names = names.alias(&format!("blk.{{i}}.{gguf}.weight"), &path);
    }
    names
        .rule("model.norm.weight", "norm.weight")
        .alias("output_norm.weight", "norm.weight")
        // Rotary angles follow from the configuration. GGUF's scaled angles are read with the configuration.
        .ignore("layers.{i}.self_attn.rotary_emb.inv_freq")
        .ignore("rope.freqs")
        .ignore("rope_freqs.weight")
        // Multi-token prediction heads, which are only used for drafting and do not change the output.
        .ignore("mtp.**")
}

/// Iterates over the linear layers' names: here, in Meta's files, in GGUF files.
fn maps() -> impl Iterator<Item = (&'static str, [String; 3])> {
    MAPS.iter().map(|&(ours, meta, gguf)| {
        (ours, [format!("layers.{{i}}.{ours}"), format!("layers.{{i}}.{meta}"), format!("blk.{{i}}.{gguf}")])
    })
}

/// Transposes `[out, in]` to `[in, out]` if `turned`.
fn transposed(names: NameMap, turned: bool) -> NameMap {
    if turned { names.then(Step::Transpose) } else { names }
}

/// Permutes the rows of a matrix, or the values of a bias, from interleaved rotary pairs to the half-split layout.
fn split_halves(names: NameMap, heads: Option<[isize; 2]>, rank: usize) -> NameMap {
    let Some([heads, head_dim]) = heads else { return names };
    let half = head_dim / 2;
    let with_rows = |shape: &[isize]| -> Vec<isize> {
        // The row length is inferred: a quantized matrix counts it in bytes.
        let columns = if rank == 2 { &[-1][..] } else { &[] };
        shape.iter().chain(columns).copied().collect()
    };
    let axes = if rank == 2 { vec![0, 2, 1, 3] } else { vec![0, 2, 1] };
    names
        .then(Step::Reshape { from: with_rows(&[heads * head_dim]), to: with_rows(&[heads, half, 2]) })
        .then(Step::Permute(axes))
        .then(Step::Reshape { from: with_rows(&[heads, 2, half]), to: with_rows(&[heads * head_dim]) })
}
