//! Adapters of peft: their settings, and the model that they belong to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use grove_files::{KnownKeys, RefusedKey, check_keys, read_json};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Result, WeightsError};
use crate::names_of_files::{ADAPTER_FILE, VOCABULARY_FILES};
use crate::source::resolve_model;

/// Fields of `adapter_config.json` that affect values.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AdapterConfig {
    /// Numerator of the factor of an update.
    #[serde(default = "default_alpha")]
    pub lora_alpha: f64,
    /// True if the denominator of the factor is the square root of the rank instead of the rank.
    #[serde(default)]
    pub use_rslora: Option<bool>,
    /// Numerators of modules, by the patterns of their names.
    #[serde(default)]
    pub alpha_pattern: Option<BTreeMap<String, f64>>,
    #[serde(default)]
    init_lora_weights: Value,
    /// Directory or hub id of the base model.
    #[serde(default)]
    pub base_model_name_or_path: Option<String>,
    /// Branch, tag or commit of the base model.
    #[serde(default)]
    pub revision: Option<String>,
}

/// Returns peft's default of `lora_alpha`.
fn default_alpha() -> f64 {
    8.0
}

/// Remedy for keys whose effect is not supported.
const MERGE: &str = "merge the adapter with peft";

/// Returns a key that is refused unless its value is empty.
const fn unsupported(key: &'static str) -> RefusedKey {
    RefusedKey { key, neutral: &["false", "[]", "{}"], instead: MERGE }
}

/// Keys of `adapter_config.json`: those of peft's `LoraConfig`.
const KEYS: KnownKeys = KnownKeys {
    followed: &[
        "peft_type",
        "lora_alpha",
        "use_rslora",
        "alpha_pattern",
        "init_lora_weights",
        "base_model_name_or_path",
        "revision",
    ],
    without_effect: &[
        ("task_type", "the program's task decides"),
        ("auto_mapping", "the model's files decide"),
        ("peft_version", "who wrote it"),
        ("inference_mode", "of training"),
        ("r", "the tensors have the rank"),
        ("rank_pattern", "the tensors have the rank"),
        ("target_modules", "the tensors have the names of the modules"),
        ("exclude_modules", "the tensors have the names of the modules"),
        ("layers_to_transform", "the tensors have the names of the modules"),
        ("layers_pattern", "the tensors have the names of the modules"),
        ("modules_to_save", "the tensors are in the file"),
        ("ensure_weight_tying", "the output layer is in the file too"),
        ("lora_dropout", "of training"),
        ("fan_in_fan_out", "the model's layers are known"),
        ("megatron_config", "of training on several devices"),
        ("megatron_core", "of training on several devices"),
        ("loftq_config", "of the start of training"),
        ("eva_config", "of the start of training"),
        ("corda_config", "only used at the start of training, with init_lora_weights"),
        ("lora_ga_config", "only used at the start of training, with init_lora_weights"),
        ("qalora_group_size", "of use_qalora"),
        ("runtime_config", "memory"),
    ],
    refused: &[
        RefusedKey { key: "bias", neutral: &["\"none\""], instead: MERGE },
        unsupported("alora_invocation_tokens"),
        unsupported("arrow_config"),
        unsupported("kasa_config"),
        unsupported("layer_replication"),
        unsupported("lora_bias"),
        unsupported("monteclora_config"),
        unsupported("target_parameters"),
        unsupported("trainable_token_indices"),
        unsupported("use_bdlora"),
        unsupported("use_dora"),
        unsupported("use_qalora"),
        unsupported("velora_config"),
    ],
};

/// Initialisations that leave the base model's weights unchanged; so do `true` and `false`.
const INITIALISATIONS: [&str; 4] = ["eva", "gaussian", "mica", "orthogonal"];

impl AdapterConfig {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// The file cannot be read, is not that of a LoRA adapter, or has a key whose effect is not supported.
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let fields: Map<String, Value> = read_json(file)?;
        let wrong = |reason: String| Err(WeightsError::Adapter { file: file.into(), reason });
        match fields.get("peft_type").unwrap_or(&Value::Null) {
            Value::String(kind) if kind == "LORA" => {}
            other => return wrong(format!("peft_type is {other}; only LORA is supported: {MERGE}")),
        }
        check_keys(&KEYS, file, &fields)?;
        let config: Self = read_json(file)?;
        match &config.init_lora_weights {
            Value::String(name) if !INITIALISATIONS.contains(&&**name) => wrong(format!(
                "init_lora_weights is {name}, which changes the model's own weights: convert the adapters with peft's \
                 path_initial_model_for_weight_conversion"
            )),
            _ => Ok(config),
        }
    }
}

/// Returns the directory of a model's tokenizer and chat template, or its weights file. For an adapter without a
/// tokenizer this is the base model's.
///
/// # Errors
/// As [`base_model`].
pub fn tokenizer_place(model: &Path) -> Result<PathBuf> {
    match is_adapter(model) && !has_tokenizer(model) {
        true => base_model(model),
        false => Ok(model.to_owned()),
    }
}

/// Returns true if a directory contains tokenizer files.
pub fn has_tokenizer(directory: &Path) -> bool {
    VOCABULARY_FILES.iter().any(|name| directory.join(name).is_file())
}

/// Returns true for the directory of an adapter.
pub fn is_adapter(path: &Path) -> bool {
    path.join(ADAPTER_FILE).is_file()
}

/// Returns the directory or weights file of the base model that an adapter names, which is downloaded unless it is cached.
///
/// # Errors
/// The adapter's settings cannot be used; they name no model, or an adapter; the model cannot be found or downloaded.
pub fn base_model(adapter: &Path) -> Result<PathBuf> {
    let file = adapter.join(ADAPTER_FILE);
    let AdapterConfig { base_model_name_or_path, revision, .. } = AdapterConfig::read(&file)?;
    let wrong = |reason: String| WeightsError::Adapter { file: file.clone(), reason };
    let Some(base) = base_model_name_or_path.filter(|base| !base.is_empty()) else {
        return Err(wrong("base_model_name_or_path names no model: load the model, and add the adapter to it".into()));
    };
    let beside = adapter.join(&base);
    if !Path::new(&base).exists() && beside.exists() {
        return Ok(beside);
    }
    let base = match revision {
        Some(revision) if !Path::new(&base).exists() && !base.contains('@') => format!("{base}@{revision}"),
        _ => base,
    };
    let path = resolve_model(&base).map_err(|error| {
        wrong(format!(
            "base_model_name_or_path is `{base}`: {error}; or load a model of yours, and add the adapter to it"
        ))
    })?;
    match is_adapter(&path) {
        true => Err(wrong(format!("base_model_name_or_path is `{base}`, which is an adapter too: {MERGE}"))),
        false => Ok(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fixture: tools/fixtures/config_keys.py.
    #[test]
    fn every_key_of_peft_is_accounted_for() {
        let text = include_str!("../../models/tests/fixtures/config_keys.json");
        let keys: BTreeMap<String, Vec<String>> = serde_json::from_str(text).unwrap();
        for key in &keys["LoraConfig"] {
            assert!(KEYS.knows(key), "nothing is said of {key}");
        }
    }
}
