//! Metadata keys of GGUF files outside the prefixes of the architecture and the tokenizer: those of the whole file and of
//! sampling. The keys are those of the GGUF specification, gguf-py and llama.cpp.

use grove_files::{JsonFields, KnownKeys, RefusedKey};
use grove_weights::{GgufMetadata, TensorFiles, is_gguf};
use std::path::Path;

use crate::model_files::ModelFiles;

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

/// Checks the metadata outside the prefixes of the architecture and the tokenizer.
///
/// # Errors
/// A sentence with the refused key, its value and the workaround.
pub(crate) fn check_file(metadata: &GgufMetadata, architecture: &str, file: &Path) -> Result<(), String> {
    let fields = metadata.as_json(|key| {
        let prefix = key.split('.').next().unwrap_or_default();
        (prefix != architecture && prefix != "tokenizer").then(|| listed(key))
    });
    FILE.check(file, &fields)
}

impl ModelFiles {
    /// Returns the sampling settings that a GGUF file recommends, under their keys in the file, such as
    /// `general.sampling.temp`. Returns `None` if the weights have another format or cannot be read; loading reports the
    /// error.
    pub fn gguf_sampling(&self) -> Option<JsonFields> {
        let path = self.path();
        let mut entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        if !is_gguf(path) && !entries.any(|entry| is_gguf(entry.path())) {
            return None;
        }
        let weights = TensorFiles::open(path).ok()?;
        let own = |key: &str| key.starts_with("general.sampling.").then(|| key.to_owned());
        Some(JsonFields::new(path, weights.gguf()?.as_json(own)))
    }
}

/// Returns a key as gguf-py lists it, with `{id}` for the number of a base model or data set.
fn listed(key: &str) -> String {
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
    fn keys_of_files_are_accounted_for() {
        let keys = crate::keys::of_transformers("GGUF_file");
        assert!(keys.len() > 80);
        for key in keys {
            assert_eq!(FILE.knows(&key), !key.starts_with("tokenizer."), "{key}");
        }
        assert!(!FILE.knows("general.of_tomorrow"));
    }

    #[test]
    fn numbers_in_keys_do_not_matter() {
        assert_eq!(listed("general.base_model.12.repo_url"), "general.base_model.{id}.repo_url");
        assert_eq!(listed("general.dataset.0.name"), "general.dataset.{id}.name");
        assert_eq!(listed("general.base_model.count"), "general.base_model.count");
        assert_eq!(listed("general.base_model.first.name"), "general.base_model.first.name");
    }
}
