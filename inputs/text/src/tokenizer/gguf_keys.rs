//! Metadata keys of the tokenizer of a GGUF file. The keys are those of the GGUF specification, gguf-py and llama.cpp.

use grove_files::{KnownKeys, RefusedKey};
use grove_weights::GgufMetadata;
use std::path::Path;

/// Reason of the tokens between which a model inserts code.
const INFILLING: &str = "of infilling, which is not supported";

/// Reason of the tokens of encoders.
const ENCODERS: &str = "of encoders, which are not read from GGUF files";

/// Workaround for a tokenizer that is not supported.
const OWN_TOKENIZER: &str = "use the model's tokenizer.json";

/// Keys of the tokenizer. The name of a chat template is written `{name}`.
const KEYS: KnownKeys = KnownKeys {
    followed: &[
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.scores",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.bos_token_id",
        "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.eot_token_id",
        "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.unknown_token_id",
        "tokenizer.ggml.padding_token_id",
        "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token",
        "tokenizer.ggml.add_space_prefix",
        "tokenizer.chat_template",
    ],
    without_effect: &[
        (
            "tokenizer.chat_template.{name}",
            "of tools or documents, which conversations do not have; the default counts",
        ),
        ("tokenizer.chat_templates", "the names of these templates"),
        ("tokenizer.huggingface.json", "the same tokenizer in another format; the lists under tokenizer.ggml are read"),
        ("tokenizer.ggml.token_type_count", ENCODERS),
        ("tokenizer.ggml.seperator_token_id", ENCODERS),
        ("tokenizer.ggml.cls_token_id", ENCODERS),
        ("tokenizer.ggml.mask_token_id", ENCODERS),
        ("tokenizer.ggml.fim_pre_token_id", INFILLING),
        ("tokenizer.ggml.fim_suf_token_id", INFILLING),
        ("tokenizer.ggml.fim_mid_token_id", INFILLING),
        ("tokenizer.ggml.fim_pad_token_id", INFILLING),
        ("tokenizer.ggml.fim_rep_token_id", INFILLING),
        ("tokenizer.ggml.fim_sep_token_id", INFILLING),
        ("tokenizer.ggml.prefix_token_id", INFILLING),
        ("tokenizer.ggml.suffix_token_id", INFILLING),
        ("tokenizer.ggml.middle_token_id", INFILLING),
    ],
    refused: &[
        RefusedKey { key: "tokenizer.ggml.add_sep_token", neutral: &["false"], instead: OWN_TOKENIZER },
        RefusedKey { key: "tokenizer.ggml.remove_extra_whitespaces", neutral: &["false"], instead: OWN_TOKENIZER },
        RefusedKey { key: "tokenizer.ggml.precompiled_charsmap", neutral: &["[]"], instead: OWN_TOKENIZER },
        RefusedKey { key: "tokenizer.rwkv.world", neutral: &[], instead: OWN_TOKENIZER },
    ],
};

/// Keys of the tokenizer that are true or false.
const FLAGS: [&str; 3] =
    ["tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix"];

/// Checks the metadata of the tokenizer.
///
/// # Errors
/// A sentence with the refused key, its value and the workaround.
pub(super) fn check(metadata: &GgufMetadata, file: &Path) -> Result<(), String> {
    let fields = metadata.as_json(|key| key.starts_with("tokenizer.").then(|| listed(key).to_owned()));
    for key in FLAGS {
        if let Some(value) = fields.get(key).filter(|value| !value.is_boolean()) {
            return Err(format!("{key} is {value}; it must be true or false"));
        }
    }
    KEYS.check(file, &fields)
}

/// Returns a key as gguf-py lists it, with `{name}` for the name of a chat template.
fn listed(key: &str) -> &str {
    if key.starts_with("tokenizer.chat_template.") { "tokenizer.chat_template.{name}" } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// All keys that gguf-py knows outside an architecture's prefix. Fixture: tools/fixtures/config_keys.py.
    #[test]
    fn keys_of_tokenizers_are_accounted_for() {
        let text = include_str!("../../../../models/tests/fixtures/config_keys.json");
        let keys: BTreeMap<String, Vec<String>> = serde_json::from_str(text).unwrap();
        let keys = &keys["GGUF_file"];
        assert!(keys.iter().filter(|key| key.starts_with("tokenizer.")).count() > 20);
        for key in keys {
            assert_eq!(KEYS.knows(key), key.starts_with("tokenizer."), "{key}");
        }
        assert!(!KEYS.knows("tokenizer.ggml.of_tomorrow"));
    }

    #[test]
    fn names_in_keys_do_not_matter() {
        assert_eq!(listed("tokenizer.chat_template.tool_use"), "tokenizer.chat_template.{name}");
        assert_eq!(listed("tokenizer.chat_template"), "tokenizer.chat_template");
    }
}
