//! Files of sentence-transformers: the configurations of the modules, and two files of settings.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_files::{FileError, KnownKeys, RefusedKey, check_keys, directory_at, read_json};
use grove_text::max_length_key;
use grove_weights::{ModuleEntry, Report, SENTENCE_FILES, transformer_directory};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::Path};

use super::{Pooling, SentenceEncoder, SentenceModule, Similarity};
use crate::{
    Pretrained,
    bert::Bert,
    error::{ModelError, Result},
};

/// Pooling methods with their names and their older flags.
const POOLING_MODES: [(&str, &str, Pooling); 6] = [
    ("cls", "pooling_mode_cls_token", Pooling::Cls),
    ("max", "pooling_mode_max_tokens", Pooling::Max),
    ("mean", "pooling_mode_mean_tokens", Pooling::Mean),
    ("mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
    ("weightedmean", "pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
    ("lasttoken", "pooling_mode_lasttoken", Pooling::LastToken),
];

/// Keys of `1_Pooling/config.json`.
const POOLING: KnownKeys = KnownKeys {
    followed: &[
        "pooling_mode",
        "include_prompt",
        "pooling_mode_cls_token",
        "pooling_mode_max_tokens",
        "pooling_mode_mean_tokens",
        "pooling_mode_mean_sqrt_len_tokens",
        "pooling_mode_weightedmean_tokens",
        "pooling_mode_lasttoken",
    ],
    without_effect: &[
        ("embedding_dimension", "the width is the encoder's"),
        ("word_embedding_dimension", "the older name of embedding_dimension"),
    ],
    refused: &[],
};

/// Keys of `sentence_bert_config.json`.
const TRANSFORMER: KnownKeys = KnownKeys {
    followed: &[
        "max_seq_length",
        "do_lower_case",
        "processing_kwargs",
        "model_args",
        "model_kwargs",
        "tokenizer_args",
        "processor_kwargs",
        "config_args",
        "config_kwargs",
    ],
    without_effect: &[
        ("unpad_inputs", "padding changes no result"),
        ("query_length", "for encode_query alone; texts are embedded as by encode"),
        ("document_length", "for encode_document alone"),
        ("query_expansion", "for encode_query alone"),
    ],
    refused: &[
        RefusedKey {
            key: "transformer_task",
            neutral: &["\"feature-extraction\""],
            instead: "use the task of this model instead of embed",
        },
        RefusedKey {
            key: "modality_config",
            neutral: &[
                r#"{"text":{"method":"forward","method_output_name":"last_hidden_state"}}"#,
                r#"{"text":{"method_output_name":"last_hidden_state","method":"forward"}}"#,
            ],
            instead: "only texts are embedded, by the encoder's last states",
        },
        RefusedKey {
            key: "module_output_name",
            neutral: &["\"token_embeddings\""],
            instead: "the encoder's output must be token_embeddings",
        },
        RefusedKey {
            key: "tokenizer_name_or_path",
            neutral: &[],
            instead: "put the tokenizer's files beside the model and remove the key",
        },
    ],
};

/// Keys of `model_args` and `model_kwargs`.
const MODEL_KWARGS: KnownKeys = KnownKeys {
    followed: &[],
    without_effect: &[
        ("add_pooling_layer", "the pooler's output is not used"),
        ("attn_implementation", "all implementations compute the same"),
        ("torch_dtype", "the dtype is chosen when the model is loaded"),
        ("dtype", "the dtype is chosen when the model is loaded"),
        ("trust_remote_code", "no remote code is run"),
        ("use_safetensors", "whatever format there is is read"),
        ("low_cpu_mem_usage", "about memory alone"),
        ("device_map", "the device is chosen when the model is loaded"),
    ],
    refused: &[],
};

/// Keys of `tokenizer_args` and `processor_kwargs`.
const PROCESSOR_KWARGS: KnownKeys = KnownKeys {
    followed: &["model_max_length"],
    without_effect: &[
        ("use_fast", "both kinds of tokenizer give the same tokens"),
        ("trust_remote_code", "no remote code is run"),
        ("padding_side", "padding changes no result"),
    ],
    refused: &[],
};

const CONFIG_KWARGS: KnownKeys = KnownKeys {
    followed: &[],
    without_effect: &[("trust_remote_code", "no remote code is run"), ("use_cache", "an encoder has no cache")],
    refused: &[],
};

/// Keys of `config_sentence_transformers.json`.
const ENCODER: KnownKeys = KnownKeys {
    followed: &["prompts", "default_prompt_name", "similarity_fn_name", "truncate_dim"],
    without_effect: &[
        ("__version__", "the versions that saved the model"),
        ("requirements", "versions of Python packages"),
    ],
    refused: &[RefusedKey {
        key: "model_type",
        neutral: &["\"SentenceTransformer\""],
        instead: "only sentence encoders with one vector for each text are supported",
    }],
};

/// Classes of the modules in `modules.json`.
const CLASSES: [&str; 6] = ["Transformer", "Pooling", "Normalize", "Dense", "LayerNorm", "Dropout"];

fn file_error(file: &Path, reason: String) -> ModelError {
    FileError::json(file, reason).into()
}

/// Reads an encoder; see [`SentenceEncoder::from_path`].
pub(super) fn read<B: Backend>(
    path: &Path,
    device: &B::Device,
    dtype: Option<DType>,
) -> Result<(SentenceEncoder<B>, Report)> {
    let directory = directory_at(path);
    let inner = transformer_directory(directory)?;
    let (bert, report) = Bert::from_path(if inner == directory { path } else { &inner }, device, dtype)?;
    let positions = bert.config.positions();
    let mut encoder = SentenceEncoder {
        bert,
        pooling: vec![Pooling::Mean],
        include_prompt: true,
        modules: vec![],
        truncate_dim: None,
        max_len: positions,
        lowercase: false,
        prompts: BTreeMap::new(),
        default_prompt: None,
        similarity: Similarity::default(),
    };
    let most = encoder.read_settings(&inner)?;
    encoder.max_len = positions.min(most.unwrap_or(positions)).max(1);
    encoder.read_prompts(&directory.join("config_sentence_transformers.json"))?;
    let list = directory.join("modules.json");
    if list.is_file() {
        encoder.read_modules(directory, &list, device, dtype)?;
    }
    Ok((encoder, report))
}

impl<B: Backend> SentenceEncoder<B> {
    /// Reads `sentence_bert_config.json`, under the first of its names that exists. Returns the maximum length, from the
    /// first setting that has one.
    fn read_settings(&mut self, directory: &Path) -> Result<Option<usize>> {
        let file = SENTENCE_FILES.iter().map(|name| directory.join(name)).find(|file| file.is_file());
        let fields: Map<String, Value> = file.as_deref().map_or(Ok(Map::new()), read_json)?;
        let file = file.unwrap_or_else(|| directory.join(SENTENCE_FILES[0]));
        check_keys(&TRANSFORMER, &file, &fields)?;
        self.lowercase = flag(&file, &fields, "do_lower_case")?.unwrap_or(false);
        let part = |names: &[&str], keys: &KnownKeys| -> Result<Map<String, Value>> {
            let value = names.iter().find_map(|name| fields.get(*name).filter(|value| !value.is_null()));
            let Some(value) = value else { return Ok(Map::new()) };
            let Some(part) = value.as_object() else {
                return Err(file_error(&file, format!("{} is {value}; it must be an object", names[0])));
            };
            let unknown = part.iter().find(|(key, value)| !value.is_null() && !keys.knows(key));
            match unknown {
                Some((key, value)) => Err(file_error(
                    &file,
                    format!("{}.{key} is {value}, which is not supported; remove it if it changes no result", names[0]),
                )),
                None => Ok(part.clone()),
            }
        };
        part(&["model_kwargs", "model_args"], &MODEL_KWARGS)?;
        part(&["config_kwargs", "config_args"], &CONFIG_KWARGS)?;
        let processor = part(&["processor_kwargs", "tokenizer_args"], &PROCESSOR_KWARGS)?;
        let called = self.read_calls(&file, &fields)?;
        let own = size(&file, &fields, "max_seq_length")?;
        let kwarg = size(&file, &processor, "model_max_length")?;
        let config = directory.join("tokenizer_config.json");
        let tokenizer: Map<String, Value> = if config.is_file() { read_json(&config)? } else { Map::new() };
        Ok(called.or(kwarg).or(own).or(size(&config, &tokenizer, max_length_key(&tokenizer))?))
    }

    /// Returns the `max_length` of `processing_kwargs`, the tokenizer's arguments.
    fn read_calls(&self, file: &Path, fields: &Map<String, Value>) -> Result<Option<usize>> {
        let mut most = None;
        let parts = fields.get("processing_kwargs").and_then(Value::as_object);
        for (part, value) in parts.into_iter().flatten() {
            let entries = value.as_object();
            for (key, value) in entries.into_iter().flatten().filter(|(_, value)| !value.is_null()) {
                match (part.as_str(), key.as_str()) {
                    // Other modalities.
                    ("audio" | "image" | "video" | "chat_template", _) => {}
                    ("text" | "common", "max_length") => most = as_size(value),
                    ("text" | "common", "padding" | "return_tensors") => {}
                    ("text" | "common", "truncation") if *value == true || *value == "longest_first" => {}
                    _ => {
                        let reason =
                            format!("processing_kwargs.{part}.{key} is {value}, which is not supported; remove it");
                        return Err(file_error(file, reason));
                    }
                }
            }
        }
        Ok(most)
    }

    /// Reads `config_sentence_transformers.json`, if there is one.
    fn read_prompts(&mut self, file: &Path) -> Result<()> {
        if !file.is_file() {
            return Ok(());
        }
        let fields: Map<String, Value> = read_json(file)?;
        check_keys(&ENCODER, file, &fields)?;
        for (name, prompt) in fields.get("prompts").and_then(Value::as_object).into_iter().flatten() {
            let text = match prompt {
                Value::Null => "",
                Value::String(text) => text,
                other => return Err(file_error(file, format!("the prompt '{name}' is {other}; it must be a text"))),
            };
            self.prompts.insert(name.clone(), text.into());
        }
        if let Some(name) = fields.get("default_prompt_name").and_then(Value::as_str) {
            // sentence-transformers always has these two names.
            if !self.prompts.contains_key(name) && !["query", "document"].contains(&name) {
                return Err(file_error(
                    file,
                    format!("default_prompt_name is '{name}', and prompts has no such entry"),
                ));
            }
            self.default_prompt = Some(name.into());
        }
        for name in ["query", "document"] {
            self.prompts.entry(name.into()).or_default();
        }
        self.truncate_dim = size(file, &fields, "truncate_dim")?;
        if let Some(name) = fields.get("similarity_fn_name").and_then(Value::as_str) {
            self.similarity = match name {
                "cosine" => Similarity::Cosine,
                "dot" | "dot_product" => Similarity::Dot,
                "euclidean" => Similarity::Euclidean,
                "manhattan" => Similarity::Manhattan,
                other => {
                    let known = "cosine, dot, euclidean and manhattan";
                    return Err(file_error(file, format!("similarity_fn_name is '{other}'; known are {known}")));
                }
            };
        }
        Ok(())
    }

    /// Reads `modules.json` and the modules after the encoder.
    fn read_modules(&mut self, directory: &Path, list: &Path, device: &B::Device, dtype: Option<DType>) -> Result<()> {
        let modules: Vec<ModuleEntry> = read_json(list)?;
        if let Some(ModuleEntry { kind, path, .. }) = modules.iter().find(|module| !CLASSES.contains(&module.class())) {
            return Err(file_error(
                list,
                format!(
                    "the module '{kind}' in '{path}' is not known; known are Transformer, Pooling, Normalize, Dense, \
                     LayerNorm and Dropout"
                ),
            ));
        }
        let classes: Vec<&str> = modules.iter().map(ModuleEntry::class).collect();
        let count = |class: &str| classes.iter().filter(|other| **other == class).count();
        if !(classes.starts_with(&["Transformer", "Pooling"]) && count("Transformer") == 1 && count("Pooling") == 1) {
            let order = "the first must be a Transformer, the second a Pooling, and each kind may occur once";
            return Err(file_error(list, format!("its modules are {}; {order}", classes.join(", "))));
        }
        for module in &modules {
            let folder = module.folder(directory)?;
            match module.class() {
                "Transformer" => {}
                "Pooling" => self.read_pooling(&folder.join("config.json"))?,
                class => self.modules.extend(SentenceModule::read(class, &folder, device, dtype)?),
            }
        }
        Ok(())
    }

    /// Reads the pooling configuration: `pooling_mode`, a name or a list of names, or the older flags.
    fn read_pooling(&mut self, file: &Path) -> Result<()> {
        let fields: Map<String, Value> = read_json(file)?;
        check_keys(&POOLING, file, &fields)?;
        if let Some(name) = fields.iter().find_map(|(name, value)| {
            let flag = name.starts_with("pooling_mode_") && *value != false && !POOLING.knows(name);
            flag.then_some(name)
        }) {
            return Err(file_error(file, format!("{name} is not known")));
        }
        self.include_prompt = flag(file, &fields, "include_prompt")?.unwrap_or(true);
        let named = |name: &Value| {
            let mode = POOLING_MODES.iter().find(|(mode, _, _)| name == mode).map(|(_, _, pooling)| *pooling);
            let known = || POOLING_MODES.map(|(mode, _, _)| mode).join(", ");
            mode.ok_or_else(|| file_error(file, format!("pooling_mode is {name}; known are {}", known())))
        };
        self.pooling = match fields.get("pooling_mode").filter(|value| !value.is_null()) {
            Some(Value::Array(names)) => names.iter().map(named).collect::<Result<_>>()?,
            Some(name) => vec![named(name)?],
            None => {
                let on = |name: &str| fields.get(name).and_then(Value::as_bool) == Some(true);
                POOLING_MODES.iter().filter(|(_, flag, _)| on(flag)).map(|(_, _, pooling)| *pooling).collect()
            }
        };
        if self.pooling.is_empty() {
            self.pooling.push(Pooling::Mean);
        }
        Ok(())
    }
}

/// Returns a boolean field of a file.
fn flag(file: &Path, fields: &Map<String, Value>, name: &str) -> Result<Option<bool>> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(file_error(file, format!("{name} is {other}; it must be true or false"))),
    }
}

/// Converts a length. Values beyond `usize`, which transformers writes for "no limit", saturate.
fn as_size(value: &Value) -> Option<usize> {
    let number = value.as_f64()?;
    (number >= 1.0).then(|| value.as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX))
}

/// Returns a length field of a file.
fn size(file: &Path, fields: &Map<String, Value>, name: &str) -> Result<Option<usize>> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match as_size(value) {
            Some(size) => Ok(Some(size)),
            None => Err(file_error(file, format!("{name} is {value}; it must be a positive number"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each key that sentence-transformers reads or writes is in one of the sets. Fixture: tools/fixtures/keys.py.
    #[test]
    fn every_key_of_the_files_is_known() {
        let keys: BTreeMap<String, Vec<String>> =
            serde_json::from_str(include_str!("../../../tests/fixtures/keys.json")).unwrap();
        for (file, known, least) in [
            ("config_sentence_transformers", &ENCODER, 7),
            ("sentence_bert_config", &TRANSFORMER, 17),
            ("Pooling", &POOLING, 10),
        ] {
            let unknown: Vec<&String> = keys[file].iter().filter(|key| !known.knows(key)).collect();
            assert!(unknown.is_empty() && keys[file].len() >= least, "{file}: {unknown:?}");
        }
    }

    #[test]
    fn no_key_is_in_two_sets() {
        for keys in [&POOLING, &TRANSFORMER, &MODEL_KWARGS, &PROCESSOR_KWARGS, &CONFIG_KWARGS, &ENCODER] {
            let all: Vec<&str> = keys.all().collect();
            let mut once = all.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), all.len(), "{all:?}");
        }
    }
}
