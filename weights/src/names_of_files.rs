//! The files of published models, by name.

/// Files of which each is a tokenizer, or the first half of one.
pub const VOCABULARY_FILES: [&str; 7] = [
    "tokenizer.json",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "vocab.json",
    "encoder.json",
    "vocab.txt",
];

/// Files of a tokenizer and of its chat template, and files that say how they are used.
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

/// Other files beside the weights that change what a model does: its settings of generation, images and sentences.
pub const SETTINGS_FILES: [&str; 6] = [
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "modules.json",
    "params.json",
    ADAPTER_FILE,
];

/// The file of an adapter, which has no `config.json`: it names the model that it is added to.
pub const ADAPTER_FILE: &str = "adapter_config.json";

/// True for a file of a part of a model in a folder of its own: a module of a sentence encoder, such as `1_Pooling/config.json`, or a
/// chat template of another name.
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
