//! Metadata keys of GGUF files outside the architecture's prefix: those of the whole file, of sampling and of the
//! tokenizer. The keys are those of the GGUF specification, gguf-py and llama.cpp.

use grove_files::{KnownKeys, RefusedKey};
use grove_weights::{GgufMetadata, GgufValue, TensorFiles};
use serde_json::{Map, Value, json};
use std::{ffi::OsStr, path::Path};

use crate::{keys::JsonFields, model_files::ModelFiles};

/// Reason of keys that describe the model's authors, licence, sources and training data.
const ORIGIN: &str = "the origin of the model";

/// Reason of the keys of an importance matrix.
const IMPORTANCE: &str = "how the weights were quantized";

/// Keys of a file outside the prefixes of the architecture and the tokenizer. The number of a base model or of a data
/// set is written `{id}`.
const FILE: KnownKeys = KnownKeys {
    followed: &[
        "general.architecture",
        "general.alignment",
        "split.no",
        "split.count",
        "split.tensors.count",
        // `GenerateOptions::published` of the crate `grove-tasks` follows these or names them.
        "general.sampling.sequence",
        "general.sampling.top_k",
        "general.sampling.top_p",
        "general.sampling.min_p",
        "general.sampling.xtc_probability",
        "general.sampling.temp",
        "general.sampling.penalty_last_n",
        "general.sampling.penalty_repeat",
        "general.sampling.mirostat",
    ],
    without_effect: &[
        ("general.file_type", "the type of most tensors; each tensor has its own"),
        ("general.parameter_count", "the weights have it"),
        ("general.name", ORIGIN),
        ("general.author", ORIGIN),
        ("general.version", ORIGIN),
        ("general.organization", ORIGIN),
        ("general.finetune", ORIGIN),
        ("general.basename", ORIGIN),
        ("general.description", ORIGIN),
        ("general.quantized_by", ORIGIN),
        ("general.size_label", ORIGIN),
        ("general.license", ORIGIN),
        ("general.license.name", ORIGIN),
        ("general.license.link", ORIGIN),
        ("general.url", ORIGIN),
        ("general.doi", ORIGIN),
        ("general.uuid", ORIGIN),
        ("general.repo_url", ORIGIN),
        ("general.source.url", ORIGIN),
        ("general.source.doi", ORIGIN),
        ("general.source.uuid", ORIGIN),
        ("general.source.repo_url", ORIGIN),
        ("general.source.huggingface.repository", ORIGIN),
        ("general.base_model.count", ORIGIN),
        ("general.base_model.{id}.name", ORIGIN),
        ("general.base_model.{id}.author", ORIGIN),
        ("general.base_model.{id}.version", ORIGIN),
        ("general.base_model.{id}.organization", ORIGIN),
        ("general.base_model.{id}.description", ORIGIN),
        ("general.base_model.{id}.url", ORIGIN),
        ("general.base_model.{id}.doi", ORIGIN),
        ("general.base_model.{id}.uuid", ORIGIN),
        ("general.base_model.{id}.repo_url", ORIGIN),
        ("general.dataset.count", ORIGIN),
        ("general.dataset.{id}.name", ORIGIN),
        ("general.dataset.{id}.author", ORIGIN),
        ("general.dataset.{id}.version", ORIGIN),
        ("general.dataset.{id}.organization", ORIGIN),
        ("general.dataset.{id}.description", ORIGIN),
        ("general.dataset.{id}.url", ORIGIN),
        ("general.dataset.{id}.doi", ORIGIN),
        ("general.dataset.{id}.uuid", ORIGIN),
        ("general.dataset.{id}.repo_url", ORIGIN),
        ("general.datasets", ORIGIN),
        ("general.tags", ORIGIN),
        ("general.languages", ORIGIN),
        ("general.sampling.xtc_threshold", "of xtc_probability, which has its own key"),
        ("general.sampling.mirostat_tau", "of mirostat, which has its own key"),
        ("general.sampling.mirostat_eta", "of mirostat, which has its own key"),
        ("quantize.imatrix.file", IMPORTANCE),
        ("quantize.imatrix.dataset", IMPORTANCE),
        ("quantize.imatrix.entries_count", IMPORTANCE),
        ("quantize.imatrix.chunks_count", IMPORTANCE),
    ],
    refused: &[
        RefusedKey { key: "general.type", neutral: &["\"model\""], instead: "take the file of a whole model" },
        RefusedKey {
            key: "general.quantization_version",
            neutral: &["2"],
            instead: "quantize the original model again with a llama.cpp of June 2023 or later",
        },
        RefusedKey { key: "adapter.type", neutral: &[], instead: ADAPTER },
        RefusedKey { key: "adapter.lora.alpha", neutral: &[], instead: ADAPTER },
        RefusedKey { key: "adapter.lora.task_name", neutral: &[], instead: ADAPTER },
        RefusedKey { key: "adapter.lora.prompt_prefix", neutral: &[], instead: ADAPTER },
        RefusedKey { key: "adapter.alora.invocation_tokens", neutral: &[], instead: ADAPTER },
    ],
};

/// Workaround for adapters.
const ADAPTER: &str = "take the file of a whole model, and an adapter in peft's format";

/// Reason of the tokens between which a model inserts code.
const INFILLING: &str = "of infilling, which is not supported";

/// Reason of the tokens of encoders.
const ENCODERS: &str = "of encoders, which are not read from GGUF files";

/// Workaround for a tokenizer that is not supported.
const OWN_TOKENIZER: &str = "use the model's tokenizer.json";

/// Keys of the tokenizer. The name of a chat template is written `{name}`.
const TOKENIZER: KnownKeys = KnownKeys {
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

/// Checks the metadata outside the prefixes of the architecture and the tokenizer.
///
/// # Errors
/// A sentence with the refused key, its value and the workaround.
pub(crate) fn check_file(metadata: &GgufMetadata, architecture: &str, file: &Path) -> Result<(), String> {
    let fields = fields(metadata, |key| {
        let prefix = key.split('.').next().unwrap_or_default();
        (prefix != architecture && prefix != "tokenizer").then(|| listed(key))
    });
    FILE.check(file, &fields)
}

/// Returns true if a file has the extension `gguf` (llama.cpp).
pub(crate) fn is_gguf(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("gguf"))
}

impl ModelFiles {
    /// Returns the sampling settings that a GGUF file recommends, under their keys in the file, such as
    /// `general.sampling.temp`. Returns `None` if the weights have another format or cannot be read; loading reports the
    /// error.
    pub fn gguf_sampling(&self) -> Option<JsonFields> {
        let path = self.path();
        let mut entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        if !is_gguf(path) && !entries.any(|entry| is_gguf(&entry.path())) {
            return None;
        }
        let weights = TensorFiles::open(path).ok()?;
        let own = |key: &str| key.starts_with("general.sampling.").then(|| key.to_owned());
        Some(JsonFields::new(path, fields(weights.gguf()?, own)))
    }
}

/// Checks the metadata of the tokenizer.
///
/// # Errors
/// A sentence with the refused key, its value and the workaround.
pub(crate) fn check_tokenizer(metadata: &GgufMetadata, file: &Path) -> Result<(), String> {
    let fields = fields(metadata, |key| key.starts_with("tokenizer.").then(|| listed(key)));
    for key in FLAGS {
        if let Some(value) = fields.get(key).filter(|value| !value.is_boolean()) {
            return Err(format!("{key} is {value}; it must be true or false"));
        }
    }
    TOKENIZER.check(file, &fields)
}

/// Returns metadata as JSON. `own` returns the name of a key, or `None` for keys that do not belong to it.
pub(crate) fn fields(metadata: &GgufMetadata, own: impl Fn(&str) -> Option<String>) -> Map<String, Value> {
    metadata.iter().filter_map(|(key, value)| Some((own(key)?, as_json(&value)))).collect()
}

/// Returns a value as JSON, for comparison and for messages. The content of lists is not read.
pub(crate) fn as_json(value: &GgufValue<'_>) -> Value {
    match value {
        GgufValue::Unsigned(number) => (*number).into(),
        GgufValue::Signed(number) => (*number).into(),
        GgufValue::Float(number) => match shortest(*number) {
            number if number.is_finite() => number.into(),
            number => number.to_string().into(),
        },
        GgufValue::Boolean(flag) => (*flag).into(),
        GgufValue::String(text) => (*text).into(),
        GgufValue::Array(list) if list.is_empty() => json!([]),
        _ => "a list".into(),
    }
}

/// Returns the shortest decimal of a number that was a 32-bit float: 0.1 instead of 0.10000000149011612.
fn shortest(number: f64) -> f64 {
    match f64::from(number as f32) == number {
        true => (number as f32).to_string().parse().unwrap_or(number),
        false => number,
    }
}

/// Returns a key as gguf-py lists it, with `{id}` for the number of a base model or data set, and `{name}` for the name
/// of a chat template.
fn listed(key: &str) -> String {
    if key.starts_with("tokenizer.chat_template.") {
        return "tokenizer.chat_template.{name}".into();
    }
    for list in ["general.base_model.", "general.dataset."] {
        if let Some((id, rest)) = key.strip_prefix(list).and_then(|rest| rest.split_once('.'))
            && id.bytes().all(|digit| digit.is_ascii_digit())
        {
            return format!("{list}{{id}}.{rest}");
        }
    }
    key.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All keys that gguf-py knows outside an architecture's prefix. Fixture: tools/fixtures/config_keys.py.
    #[test]
    fn keys_of_files_and_tokenizers_are_accounted_for() {
        let keys = crate::keys::of_transformers("GGUF_file");
        assert!(keys.len() > 80);
        for key in keys {
            let sets = [FILE.knows(&key), TOKENIZER.knows(&key)];
            assert_eq!(sets.iter().filter(|known| **known).count(), 1, "{key}: {sets:?}");
        }
        assert!(!TOKENIZER.knows("tokenizer.ggml.of_tomorrow") && !FILE.knows("general.of_tomorrow"));
    }

    #[test]
    fn numbers_and_names_in_keys_do_not_matter() {
        assert_eq!(listed("general.base_model.12.repo_url"), "general.base_model.{id}.repo_url");
        assert_eq!(listed("general.dataset.0.name"), "general.dataset.{id}.name");
        assert_eq!(listed("general.base_model.count"), "general.base_model.count");
        assert_eq!(listed("general.base_model.first.name"), "general.base_model.first.name");
        assert_eq!(listed("tokenizer.chat_template.tool_use"), "tokenizer.chat_template.{name}");
        assert_eq!(listed("tokenizer.chat_template"), "tokenizer.chat_template");
    }

    #[test]
    fn values_are_compared_as_they_are_written() {
        assert_eq!(as_json(&GgufValue::Float(f64::from(0.1_f32))).to_string(), "0.1");
        assert_eq!(as_json(&GgufValue::Float(1.0)).to_string(), "1.0");
        assert_eq!(as_json(&GgufValue::Float(f64::NAN)).to_string(), "\"NaN\"");
        assert_eq!(as_json(&GgufValue::Signed(-1)).to_string(), "-1");
    }
}
