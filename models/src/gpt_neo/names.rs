use grove_weights::{NameMap, Step};

use super::GptNeoConfig;

/// Reason for which the masks of older files are not loaded.
const MASK: &str = "attention masks, which are computed";

/// Returns the names of published GPT-Neo files. Linear weights are `[out, in]` in these files, unlike in GPT-2's.
pub fn published_names(config: &GptNeoConfig) -> NameMap {
    let names = NameMap::new();
    let names = if config.tie_word_embeddings {
        names.alias("lm_head.weight", "wte.weight")
    } else {
        names.rule("lm_head.weight", "lm_head.weight")
    };
    names
        .prefix("transformer.")
        .prefix("model.")
        .rule("transformer.wte.weight", "wte.weight")
        .rule("transformer.wpe.weight", "wpe.weight")
        .rule("transformer.h.{i}.attn.attention.{layer}.weight", "h.{i}.attn.{layer}.weight")
        .then(Step::Transpose)
        .rule("transformer.h.{i}.attn.attention.{layer}.bias", "h.{i}.attn.{layer}.bias")
        .rule("transformer.h.{i}.mlp.{layer}.weight", "h.{i}.mlp.{layer}.weight")
        .then(Step::Transpose)
        .rule("transformer.h.{i}.mlp.{layer}.bias", "h.{i}.mlp.{layer}.bias")
        .rule("transformer.h.{i}.{norm}.weight", "h.{i}.{norm}.weight")
        .rule("transformer.h.{i}.{norm}.bias", "h.{i}.{norm}.bias")
        .rule("transformer.ln_f.weight", "ln_f.weight")
        .rule("transformer.ln_f.bias", "ln_f.bias")
        .ignore_each(&[("h.{i}.attn.attention.bias", MASK), ("h.{i}.attn.attention.masked_bias", MASK)])
}
