//! Keys of a `generation_config.json`.

use grove_files::{KnownKeys, RefusedKey};

use crate::config_keys::REMOVE;

/// Returns a key that would change a text unless it has a neutral value.
const fn unless(key: &'static str, neutral: &'static [&'static str]) -> RefusedKey {
    RefusedKey { key, neutral, instead: REMOVE }
}

/// Neutral value of factors and probabilities.
const ONE: &[&str] = &["1"];

/// Neutral values of options that are off.
const OFF: &[&str] = &["0", "false"];

/// Reason of options of assistant models.
const DRAFTS: &str = "drafts change no text";

/// Keys of transformers' `GenerationConfig`, which files have as `generation_config.json` or, in older versions, as part
/// of `config.json`. The followed keys are read by `GenerateOptions::published` of the crate `grove-tasks`.
pub const GENERATION_KEYS: KnownKeys = KnownKeys {
    followed: &[
        "do_sample",
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "encoder_repetition_penalty",
        "no_repeat_ngram_size",
        "bad_words_ids",
        "min_length",
        "min_new_tokens",
        "forced_eos_token_id",
        "exponential_decay_length_penalty",
        "suppress_tokens",
        "begin_suppress_tokens",
        "max_new_tokens",
        "max_length",
        "stop_strings",
        "eos_token_id",
        "use_cache",
    ],
    without_effect: &[
        ("_from_model_config", "where the file came from"),
        ("transformers_version", "who wrote the file"),
        ("bos_token_id", "the tokenizer adds the first token"),
        ("pad_token_id", "padding is masked"),
        ("decoder_start_token_id", "of models with an encoder"),
        ("cache_implementation", "speed"),
        ("cache_config", "speed"),
        ("max_cache_len", "speed"),
        ("compile_config", "speed"),
        ("disable_compile", "speed"),
        ("continuous_batching_config", "speed"),
        ("low_memory", "memory"),
        ("prefill_chunk_size", "memory"),
        ("return_dict_in_generate", "the form of the result"),
        ("output_attentions", "the form of the result"),
        ("output_hidden_states", "the form of the result"),
        ("output_logits", "the form of the result"),
        ("output_scores", "the form of the result"),
        ("num_return_sequences", "the caller says how many texts it wants"),
        ("remove_invalid_values", "NaN logits are an error"),
        ("renormalize_logits", "drawing does not depend on a common term"),
        ("early_stopping", "of beam search"),
        ("length_penalty", "of beam search"),
        ("is_assistant", DRAFTS),
        ("num_assistant_tokens", DRAFTS),
        ("num_assistant_tokens_schedule", DRAFTS),
        ("assistant_confidence_threshold", DRAFTS),
        ("assistant_early_exit", DRAFTS),
        ("assistant_ensemble_weight", "used with a draft only, which the file does not have"),
        ("assistant_lookbehind", DRAFTS),
        ("target_lookbehind", DRAFTS),
        ("prompt_lookup_num_tokens", DRAFTS),
        ("max_matching_ngram_size", DRAFTS),
        ("speculation_type", DRAFTS),
        ("use_mtp", DRAFTS),
        ("force_words_ids", "of beam search, and refused with it"),
    ],
    refused: &[
        unless("num_beams", ONE),
        unless("num_beam_groups", ONE),
        unless("diversity_penalty", OFF),
        unless("penalty_alpha", OFF),
        unless("dola_layers", &[]),
        unless("sequence_bias", &[]),
        unless("guidance_scale", ONE),
        unless("watermarking_config", &[]),
        unless("encoder_no_repeat_ngram_size", OFF),
        unless("forced_bos_token_id", &[]),
        unless("forced_decoder_ids", &[]),
        unless("constraints", &[]),
        unless("token_healing", OFF),
        unless("max_time", &[]),
        unless("typical_p", ONE),
        unless("epsilon_cutoff", OFF),
        unless("eta_cutoff", OFF),
        unless("top_h", &[]),
    ],
};

/// Keys among the refused ones that have an effect only if tokens are sampled.
pub const SAMPLING_KEYS: [&str; 4] = ["typical_p", "epsilon_cutoff", "eta_cutoff", "top_h"];
