use grove_weights::NameMap;

use super::Gpt2Config;

/// Reason for which the masks of older files are not loaded.
const MASK: &str = "causal masks, which are computed";

/// Returns the names of published GPT-2 files, which equal this model's paths up to a prefix.
///
/// Linear weights are `[in, out]` in the files (transformers' `Conv1D`), as they are here.
pub fn published_names(config: &Gpt2Config) -> NameMap {
    let names = NameMap::new();
    let names = if config.tie_word_embeddings {
        names.alias("lm_head.weight", "wte.weight")
    } else {
        names.rule("lm_head.weight", "lm_head.weight")
    };
    names
        .prefix("transformer.")
        .prefix("model.")
        .rule("wte.weight", "wte.weight")
        .rule("wpe.weight", "wpe.weight")
        .rule("h.{i}.{part}.weight", "h.{i}.{part}.weight")
        .rule("h.{i}.{part}.bias", "h.{i}.{part}.bias")
        .rule("h.{i}.{part}.{layer}.weight", "h.{i}.{part}.{layer}.weight")
        .rule("h.{i}.{part}.{layer}.bias", "h.{i}.{part}.{layer}.bias")
        .rule("ln_f.weight", "ln_f.weight")
        .rule("ln_f.bias", "ln_f.bias")
        .ignore_each(&[("h.{i}.attn.bias", MASK), ("h.{i}.attn.masked_bias", MASK)])
}
