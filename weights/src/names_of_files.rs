//! File names of published models.

use std::path::Path;

/// Vocabulary files: each is a whole tokenizer, or the first half of one.
pub const VOCABULARY_FILES: [&str; 7] = [
    "tokenizer.json",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "vocab.json",
    "encoder.json",
    "vocab.txt",
];

/// Settings of the transformer of a sentence encoder, in the order in which sentence-transformers looks for them.
pub const SENTENCE_FILES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// Files that complete a vocabulary, and settings of a tokenizer.
const TOKENIZER_SETTINGS: [&str; 8] = [
    "merges.txt",
    "vocab.bpe",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "config_sentence_transformers.json",
];

/// Returns the files of a tokenizer, its chat template and its settings.
pub fn tokenizer_files() -> impl Iterator<Item = &'static str> {
    VOCABULARY_FILES.into_iter().chain(TOKENIZER_SETTINGS).chain(SENTENCE_FILES)
}

/// Other settings files that change the behaviour of a model: for generation, images and sentences.
pub const SETTINGS_FILES: [&str; 6] = [
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "params.json",
    ADAPTER_FILE,
];

/// Settings of an adapter, which has no `config.json`: the file names the base model.
pub const ADAPTER_FILE: &str = "adapter_config.json";

/// Configuration and weights of a module of a sentence encoder.
pub const MODULE_FILES: [&str; 3] = ["config.json", "model.safetensors", "pytorch_model.bin"];

/// Returns true if a file has the extension `gguf` (llama.cpp).
pub fn is_gguf(path: impl AsRef<Path>) -> bool {
    path.as_ref().extension().is_some_and(|extension| extension == "gguf")
}

/// Returns true for a file in a subfolder that belongs to the model: of a module of a sentence encoder, such as
/// `1_Pooling/config.json` or, in older folders, `0_Transformer/tokenizer.json`, or an additional chat template.
#[cfg(feature = "hub")]
pub(crate) fn is_part(file: &str) -> bool {
    let Some((folder, name)) = file.split_once('/') else { return false };
    let module = folder.split_once('_').is_some_and(|(number, kind)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && !kind.is_empty()
    });
    module && (MODULE_FILES.contains(&name) || tokenizer_files().any(|known| known == name)) || is_template(file)
}

/// Returns true for an additional chat template.
#[cfg(feature = "hub")]
pub(crate) fn is_template(file: &str) -> bool {
    let name = file.strip_prefix("additional_chat_templates/");
    name.is_some_and(|name| name.ends_with(".jinja") && !name.contains('/'))
}

#[cfg(all(test, feature = "hub"))]
mod tests {
    use super::*;

    #[test]
    fn parts_are_modules_and_templates() {
        for part in [
            "1_Pooling/config.json",
            "2_Dense/model.safetensors",
            "0_Transformer/vocab.txt",
            "0_Transformer/tokenizer_config.json",
            "0_Transformer/sentence_xlm-roberta_config.json",
            "additional_chat_templates/tools.jinja",
        ] {
            assert!(is_part(part), "{part}");
            assert_eq!(is_template(part), part.ends_with(".jinja"), "{part}");
        }
        for other in
            ["onnx/vocab.txt", "1_Pooling/onnx/config.json", "1_/config.json", "config.json", "1_Pooling/a.bin"]
        {
            assert!(!is_part(other), "{other}");
        }
    }

    #[test]
    fn each_file_of_a_tokenizer_is_named_once() {
        let once: std::collections::BTreeSet<&str> = tokenizer_files().collect();
        assert_eq!(once.len(), tokenizer_files().count(), "{once:?}");
    }
}
