use grove_weights::NameMap;

use super::Gpt2Config;
use crate::names::output_names;

/// Reason for which the masks of older files are not loaded.
const MASK: &str = "causal masks, which are computed";

/// Returns the names of published GPT-2 files, which equal this model's paths up to a prefix.
///
/// Linear weights are `[in, out]` in the files (transformers' `Conv1D`), as they are here.
pub fn published_names(config: &Gpt2Config) -> NameMap {
    let tied = config.tie_word_embeddings;
    output_names(NameMap::new(), "lm_head.weight", "lm_head.weight", tied, "wte.weight")
        .prefix("transformer.")
        .prefix("model.")
        .rule("wte.weight", "wte.weight")
        .rule("wpe.weight", "wpe.weight")
        .rule("h.{i}.{norm}.{p}", "h.{i}.{norm}.{p}")
        .rule("h.{i}.{part}.{layer}.{p}", "h.{i}.{part}.{layer}.{p}")
        .rule("ln_f.{p}", "ln_f.{p}")
        .ignore_each(&[("h.{i}.attn.bias", MASK), ("h.{i}.attn.masked_bias", MASK)])
}
