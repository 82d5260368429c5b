//! The tokenizer class that a model's files name, and its settings.
//!
//! transformers reads a tokenizer by a class: that of `tokenizer_config.json`, else that of `config.json`, else the
//! model's own. The class determines the meaning of files without a `tokenizer.json`, and the settings of
//! `tokenizer_config.json` that override a `tokenizer.json`.

use grove_files::{KnownKeys, RefusedKey, check_keys, read_json};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    error::{Result, TextError},
    files,
    printable::excerpt,
    special::{named_tokens, settings_of},
};

/// Tokenizer class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// BERT's WordPiece. `types` is true if it has token types, which DistilBERT's lacks.
    Bert { types: bool },
    /// RoBERTa's byte-level BPE, with `<s>` and `</s>`.
    Roberta,
    /// GPT-2's byte-level BPE.
    Gpt2,
    /// LLaMA's SentencePiece model.
    Llama,
    /// Qwen2's byte-level BPE.
    Qwen2,
    /// A `tokenizer.json` that is used unchanged. `types` is true if the class has token types.
    Whole { types: bool },
    /// Another class, by name.
    Other(String),
}

/// Keys of `tokenizer_config.json` and `special_tokens_map.json`. Any other key that ends with `_token` names a special
/// token.
const KEYS: KnownKeys = KnownKeys {
    followed: &[
        "tokenizer_class",
        "do_lower_case",
        "strip_accents",
        "tokenize_chinese_chars",
        "add_prefix_space",
        "trim_offsets",
        "added_tokens_decoder",
        "additional_special_tokens",
        "extra_special_tokens",
        "model_specific_special_tokens",
        "add_bos_token",
        "add_eos_token",
        "legacy",
        "model_max_length",
        "max_len",
        "truncation_side",
        "model_input_names",
        "chat_template",
    ],
    without_effect: &[
        ("_commit_hash", "a note of the version that saved the file"),
        ("auto_map", "no remote code is run; the class decides"),
        ("backend", "a note of the version that saved the file"),
        ("chat_control_tokens", "for chats with untrusted text in transformers"),
        (
            "clean_up_tokenization_spaces",
            "version 5 ignores it for byte pairs, and word pieces are cleaned by their decoder",
        ),
        ("device_map", "for loading models"),
        ("do_basic_tokenize", "for the slow tokenizer of version 4 alone"),
        ("files_loaded", "a note of the version that saved the file"),
        ("from_slow", "the class decides"),
        ("full_tokenizer_file", "the files beside it are read"),
        ("init_inputs", "positional arguments, which no class of these has"),
        ("is_local", "a note of the version that saved the file"),
        ("local_files_only", "a note of the version that saved the file"),
        ("max_length", "each call sets its own length"),
        ("merges_file", "the files beside it are read"),
        ("name_or_path", "a note of where the tokenizer came from"),
        ("never_split", "for the slow tokenizer of version 4 alone"),
        ("pad_to_multiple_of", "padding changes no result"),
        ("pad_token_type_id", "padding changes no result"),
        ("padding_side", "padding changes no result"),
        ("processor_class", "for images and sound"),
        ("response_schema", "for the reading of answers in transformers"),
        ("response_template", "for the reading of answers in transformers"),
        ("return_token_type_ids", "model_input_names decides"),
        ("sep_token_extra", "a note"),
        ("slow_tokenizer_class", "a note of the class that saved the file"),
        ("spaces_between_special_tokens", "for slow tokenizers alone"),
        ("special_tokens_map_file", "the files beside it are read"),
        ("stride", "each call sets its own stride"),
        ("tokenizer_file", "the files beside it are read"),
        ("tokenizer_type", "an older name of tokenizer_class that transformers does not read"),
        ("transformers_version", "a note of the version that saved the file"),
        ("truncation", "each call sets its own length"),
        ("truncation_strategy", "each call sets its own strategy"),
        ("unk_id", "the model's own"),
        ("use_default_system_prompt", "for chats without a template in version 4"),
        ("use_fast", "both kinds give the same tokens"),
        ("verbose", "about messages"),
        ("vocab_file", "the files beside it are read"),
    ],
    refused: &[
        RefusedKey { key: "split_special_tokens", neutral: &["false"], instead: "set it to false" },
        RefusedKey {
            key: "fix_mistral_regex",
            neutral: &["false"],
            instead: "save the tokenizer.json with the right expression",
        },
        RefusedKey {
            key: "fast_tokenizer_files",
            neutral: &["[]", "[\"tokenizer.json\"]"],
            instead: "copy the file of the newest version to tokenizer.json and remove the key",
        },
        RefusedKey { key: "errors", neutral: &["\"replace\""], instead: "bytes that are no UTF-8 become U+FFFD" },
        RefusedKey {
            key: "wordpieces_prefix",
            neutral: &["\"##\""],
            instead: "pieces within words must start with ##",
        },
        RefusedKey { key: "clean_text", neutral: &["true"], instead: "control characters are always removed" },
        RefusedKey { key: "sp_model_kwargs", neutral: &["{}"], instead: "set it to {}" },
        RefusedKey {
            key: "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
            neutral: &["false"],
            instead: "set it to false",
        },
    ],
};

/// Settings beside a tokenizer.
pub(super) struct Settings {
    /// Tokenizer class.
    pub class: Class,
    /// The entry that determines the class, for messages.
    named: String,
    /// Fields of `tokenizer_config.json`, with those of `special_tokens_map.json` if transformers reads it.
    pub fields: Map<String, Value>,
    /// Path of the `tokenizer_config.json`, for messages.
    pub file: PathBuf,
    /// Directory of the tokenizer.
    pub directory: PathBuf,
}

impl Settings {
    /// Reads the settings of a directory. A directory without these files has default settings.
    pub fn read(directory: &Path) -> Result<Self> {
        let file = directory.join("tokenizer_config.json");
        let fields = settings_of(directory)?;
        let tokens = |key: &str| key.ends_with("_token");
        let others = fields.iter().filter(|(key, _)| !tokens(key)).map(|(key, value)| (key.clone(), value.clone()));
        check_keys(&KEYS, &file, &others.collect())?;
        // Only names are read from this file; if it is invalid, the model's own reader reports the error.
        let model: Map<String, Value> = read_json(&directory.join("config.json")).unwrap_or_default();
        let text = |fields: &Map<String, Value>, key: &str| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        let named = text(&fields, "tokenizer_class").or_else(|| text(&model, "tokenizer_class"));
        let model_type = text(&model, "model_type");
        let class = class_of(named.as_deref(), model_type.as_deref()).unwrap_or(Class::Whole { types: true });
        let named = match (named, model_type) {
            (Some(class), _) => format!("tokenizer_class is {}", excerpt(&class, 100)),
            (None, Some(kind)) => format!("model_type is {}", excerpt(&kind, 100)),
            (None, None) => "no file names a tokenizer_class".into(),
        };
        Ok(Self { class, named, fields, file, directory: directory.into() })
    }

    /// Returns a boolean field.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        files::flag(&self.file, &self.fields, name)
    }

    /// Returns true if the tokenizer produces token types.
    pub fn types(&self) -> bool {
        match self.fields.get("model_input_names").and_then(Value::as_array) {
            Some(names) => names.iter().any(|name| name == "token_type_ids"),
            None => match self.class {
                Class::Bert { types } | Class::Whole { types } => types,
                Class::Other(_) => true,
                Class::Roberta | Class::Gpt2 | Class::Llama | Class::Qwen2 => false,
            },
        }
    }

    /// Returns true if long texts are truncated at their beginning.
    pub fn truncates_left(&self) -> Result<bool> {
        match self.fields.get("truncation_side") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::String(side)) if side == "right" || side == "left" => Ok(side == "left"),
            Some(other) => Err(files::out_of_range(&self.file, "truncation_side", other, "`left` or `right`")),
        }
    }

    /// Returns the maximum length of a text in tokens, `model_max_length`; `None` if there is no limit. As in
    /// transformers, a number below 1 is none.
    pub fn max_length(&self) -> Result<Option<usize>> {
        let key = max_length_key(&self.fields);
        let Some(value) = self.fields.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        match value.as_f64() {
            // The fraction is dropped; numbers beyond `usize`, which transformers writes for "no limit", saturate.
            Some(number) => Ok(Some(number as usize).filter(|length| (1..usize::MAX).contains(length))),
            None => Err(files::out_of_range(&self.file, key, value, "a number of tokens")),
        }
    }

    /// Returns the special tokens by role.
    pub fn roles(&self) -> BTreeMap<String, String> {
        named_tokens(&self.fields)
    }

    /// Returns the error for a file that the class does not read, or from which grove does not build its tokenizer.
    pub fn not_from(&self, files: &str, path: &Path) -> TextError {
        let reason = format!(
            "{}, and such a tokenizer is not read from {files}; save a tokenizer.json beside it, in Python by \
             AutoTokenizer.from_pretrained(…).save_pretrained(…)",
            self.named
        );
        TextError::tokenizer(path, reason)
    }
}

/// Returns the key of the maximum length of texts. As in transformers, `max_len` is an older name of `model_max_length`.
pub fn max_length_key(fields: &Map<String, Value>) -> &'static str {
    if fields.contains_key("model_max_length") { "model_max_length" } else { "max_len" }
}

/// Returns the tokenizer class, given the name in the files and the model type.
fn class_of(named: Option<&str>, model_type: Option<&str>) -> Option<Class> {
    let of_model = match model_type {
        Some("bert" | "distilbert") => Some(Class::Bert { types: true }),
        Some("roberta") => Some(Class::Roberta),
        Some("gpt2" | "gpt_neo") => Some(Class::Gpt2),
        Some("xlm-roberta") => Some(Class::Other("XLMRobertaTokenizer".into())),
        Some("camembert") => Some(Class::Other("CamembertTokenizer".into())),
        Some("qwen3") => Some(Class::Qwen2),
        // Files of these models often name a wrong class, so transformers uses the model's own class.
        Some("qwen2") => return Some(Class::Qwen2),
        Some("mistral") => return Some(Class::Whole { types: false }),
        _ => None,
    };
    let Some(named) = named else { return of_model };
    Some(match named.strip_suffix("Fast").unwrap_or(named) {
        "BertTokenizer" | "ElectraTokenizer" | "MobileBertTokenizer" | "ConvBertTokenizer" | "SqueezeBertTokenizer" => {
            Class::Bert { types: true }
        }
        "DistilBertTokenizer" => Class::Bert { types: false },
        "RobertaTokenizer" | "BartTokenizer" | "LongformerTokenizer" | "LEDTokenizer" => Class::Roberta,
        "GPT2Tokenizer" | "CodeGenTokenizer" => Class::Gpt2,
        "LlamaTokenizer" | "CodeLlamaTokenizer" => Class::Llama,
        "Qwen2Tokenizer" => Class::Qwen2,
        "TokenizersBackend" => Class::Whole { types: false },
        "PreTrainedTokenizer" => Class::Whole { types: true },
        other => Class::Other(other.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each key that transformers' classes read is in one of the sets. Fixture: tools/fixtures/keys.py.
    #[test]
    fn every_key_of_the_classes_is_known() {
        let keys: BTreeMap<String, Vec<String>> =
            serde_json::from_str(include_str!("../../../../models/tests/fixtures/keys.json")).unwrap();
        assert!(keys["tokenizer"].len() > 30);
        let unknown: Vec<&String> =
            keys["tokenizer"].iter().filter(|key| !key.ends_with("_token") && !KEYS.knows(key)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn no_key_is_in_two_sets() {
        let all: Vec<&str> = KEYS.all().collect();
        let mut once = all.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), all.len());
    }

    #[test]
    fn classes_match_the_files() {
        let whole = |types| Some(Class::Whole { types });
        assert_eq!(class_of(None, Some("bert")), Some(Class::Bert { types: true }));
        assert_eq!(class_of(Some("DistilBertTokenizerFast"), Some("distilbert")), Some(Class::Bert { types: false }));
        assert_eq!(class_of(Some("TokenizersBackend"), Some("bert")), whole(false));
        assert_eq!(class_of(Some("PreTrainedTokenizerFast"), Some("bert")), whole(true));
        assert_eq!(class_of(Some("LlamaTokenizer"), Some("qwen2")), Some(Class::Qwen2));
        assert_eq!(class_of(Some("LlamaTokenizer"), Some("mistral")), whole(false));
        assert_eq!(class_of(Some("T5Tokenizer"), None), Some(Class::Other("T5Tokenizer".into())));
        assert_eq!(class_of(None, Some("t5")), None);
        assert_eq!(class_of(None, Some("camembert")), Some(Class::Other("CamembertTokenizer".into())));
        assert_eq!(class_of(Some("BertTokenizer"), Some("xlm-roberta")), Some(Class::Bert { types: true }));
    }
}
