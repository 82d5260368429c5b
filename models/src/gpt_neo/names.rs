use grove_weights::NameMap;

use super::GptNeoConfig;
use crate::names::{linear_names, output_names};

/// Reason for which the masks of older files are not loaded.
const MASK: &str = "attention masks, which are computed";

/// Returns the names of published GPT-Neo files. Linear weights are `[out, in]` in these files, unlike in GPT-2's.
pub fn published_names(config: &GptNeoConfig) -> NameMap {
    let tied = config.tie_word_embeddings;
    let names = output_names(NameMap::new(), "lm_head.weight", "lm_head.weight", tied, "wte.weight")
        .prefix("transformer.")
        .prefix("model.")
        .rule("transformer.wte.weight", "wte.weight")
        .rule("transformer.wpe.weight", "wpe.weight");
    let names = linear_names(names, "transformer.h.{i}.attn.attention.{layer}", "h.{i}.attn.{layer}");
    linear_names(names, "transformer.h.{i}.mlp.{layer}", "h.{i}.mlp.{layer}")
        .rule("transformer.h.{i}.{norm}.{p}", "h.{i}.{norm}.{p}")
        .rule("transformer.ln_f.{p}", "ln_f.{p}")
        .ignore_each(&[("h.{i}.attn.attention.bias", MASK), ("h.{i}.attn.attention.masked_bias", MASK)])
}
