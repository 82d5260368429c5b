//! File names of published models.

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

/// Files of a tokenizer, its chat template and its settings.
pub const TOKENIZER_FILES: [&str; 16] = [
    "tokenizer.json",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "vocab.json",
    "merges.txt",
    "encoder.json",
    "vocab.bpe",
    "vocab.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
];

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

/// Returns true for a file in a subfolder that belongs to the model: a module of a sentence encoder, such as
/// `1_Pooling/config.json`, or an additional chat template.
#[cfg(feature = "hub")]
pub(crate) fn is_part(file: &str) -> bool {
    let Some((folder, name)) = file.split_once('/') else { return false };
    let module = folder.split_once('_').is_some_and(|(number, kind)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) && !kind.is_empty()
    });
    let of_module = ["config.json", "model.safetensors", "pytorch_model.bin"].contains(&name);
    module && of_module || folder == "additional_chat_templates" && name.ends_with(".jinja") && !name.contains('/')
}

#[cfg(all(test, feature = "hub"))]
mod tests {
    use super::*;

    #[test]
    fn parts_are_modules_and_templates() {
        for part in ["1_Pooling/config.json", "2_Dense/model.safetensors", "additional_chat_templates/tools.jinja"] {
            assert!(is_part(part), "{part}");
        }
        for other in
            ["onnx/config.json", "1_Pooling/onnx/config.json", "1_/config.json", "config.json", "1_Pooling/a.bin"]
        {
            assert!(!is_part(other), "{other}");
        }
        assert!(VOCABULARY_FILES.iter().all(|file| TOKENIZER_FILES.contains(file)));
    }
}
