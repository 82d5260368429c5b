//! Tensors of LoRA adapters in peft's format: `adapter_model.safetensors` beside `adapter_config.json`.
//!
//! peft stores `A` as `[rank, in]` and `B` as `[out, rank]`, also for transformers' `Conv1D` (GPT-2), so that the option
//! `fan_in_fan_out` does not matter for reading.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Tensor};
use grove_backend::Backend;
use grove_files::{FileError, write_json};
use grove_tree::{Array, NamedLeaves};
use serde_json::{Value, json};

use crate::adapter::AdapterConfig;
use crate::checkpoint::TensorFiles;
use crate::error::{Result, WeightsError};
use crate::names::NameMap;
use crate::names_of_files::ADAPTER_FILE;
use crate::save::save_tree;

const WEIGHTS: &str = "adapter_model.safetensors";
/// PyTorch format, of older versions of peft.
const PYTORCH_WEIGHTS: &str = "adapter_model.bin";
/// Prefix of all module names, from peft's wrapper classes.
const ROOT: &str = "base_model.model.";
const PARTS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];

/// Low-rank update of a linear layer, `scale * a b`.
#[derive(Clone, Debug)]
pub struct LowRankUpdate<B: Backend> {
    /// Down-projection `A`, `[in, rank]`.
    pub a: Array<B, 2>,
    /// Up-projection `B`, `[rank, out]`.
    pub b: Array<B, 2>,
    /// Scale of the product.
    pub scale: f64,
}

/// Open files of a LoRA adapter of peft.
#[derive(Debug)]
pub struct AdapterFiles {
    config: AdapterConfig,
    config_file: PathBuf,
    tensors: TensorFiles,
    file: PathBuf,
}

impl AdapterFiles {
    /// Opens the adapter in a directory.
    ///
    /// # Errors
    /// A file cannot be read; the settings are not those of a LoRA adapter, or have a key whose effect is not supported.
    pub fn open(directory: &Path) -> Result<Self> {
        let config_file = directory.join(ADAPTER_FILE);
        let config = AdapterConfig::read(&config_file)?;
        let [file, older] = [WEIGHTS, PYTORCH_WEIGHTS].map(|name| directory.join(name));
        let file = if !file.exists() && older.exists() { older } else { file };
        Ok(Self { config, config_file, tensors: TensorFiles::open(&file)?, file })
    }

    /// Returns an error about the adapter's tensors.
    pub fn error(&self, reason: impl Into<String>) -> WeightsError {
        WeightsError::Adapter { file: self.file.clone(), reason: reason.into() }
    }

    /// Iterates over the full tensors that replace the model's own: heads and embeddings that were trained with the
    /// adapter. Each has its name in the adapter and the model's name.
    pub fn replacements(&self) -> impl Iterator<Item = (&str, String)> {
        self.tensors.names().filter_map(|name| Some((name, replaced_name(name)?)))
    }

    /// Returns a model's tensors with the adapter's [`replacements`](Self::replacements).
    ///
    /// # Errors
    /// A tensor cannot be read.
    pub fn replace_tensors(&self, model: TensorFiles) -> Result<TensorFiles> {
        model.with_tensors_of(&self.tensors, replaced_name)
    }

    /// Returns an error if the adapter updates an embedding, which is not supported.
    pub fn embedding_error(&self) -> Option<WeightsError> {
        self.tensors.names().find(|name| name.contains(".lora_embedding_")).map(|name| self.not_linear(name))
    }

    /// Returns the error for a tensor that is not part of a linear layer's update.
    fn not_linear(&self, tensor: &str) -> WeightsError {
        self.error(format!("the tensor {tensor} belongs to no LoRA adapter of a linear layer: merge it with peft"))
    }

    /// Returns the modules that have updates: from the name without the model's optional prefixes to the full name.
    ///
    /// # Errors
    /// A tensor belongs to no linear layer.
    pub fn modules(&self, names: &NameMap) -> Result<BTreeMap<String, String>> {
        let module = |tensor: &&str| {
            let name = tensor.strip_prefix(ROOT)?;
            let module = PARTS.iter().find_map(|part| name.strip_suffix(part))?;
            Some((names.bare(module).to_owned(), module.to_owned()))
        };
        let of_layers = self.tensors.names().filter(|name| replaced_name(name).is_none());
        of_layers.map(|tensor| module(&tensor).ok_or_else(|| self.not_linear(tensor))).collect()
    }

    /// Reads the update of a module, a linear layer of shape `[in, out]`.
    ///
    /// # Errors
    /// A tensor cannot be read or has another shape; the patterns of `alpha_pattern` are not supported.
    pub fn update<B: Backend>(
        &self,
        module: &str,
        [inputs, outputs]: [usize; 2],
        dtype: DType,
        device: &B::Device,
    ) -> Result<LowRankUpdate<B>> {
        let read = |part: &str| -> Result<_> {
            Ok(self.tensors.tensor(&format!("{ROOT}{module}{part}"))?.convert_dtype(dtype))
        };
        let (a, b) = (read(PARTS[0])?, read(PARTS[1])?);
        let rank = a.shape.first().copied().unwrap_or_default();
        if rank == 0 || a.shape[..] != [rank, inputs] || b.shape[..] != [outputs, rank] {
            let (a, b) = (&a.shape[..], &b.shape[..]);
            return Err(self.error(format!(
                "lora_A and lora_B of {module} have the shapes {a:?} and {b:?}; the layer needs [rank, {inputs}] and \
                 [{outputs}, rank]"
            )));
        }
        let [a, b] = [a, b].map(|data| Array::new(Tensor::<B, 2>::from_data(data, (device, dtype)).transpose()));
        Ok(LowRankUpdate { a, b, scale: self.scale(module, rank)? })
    }

    /// Returns the factor of a module's update with this rank.
    fn scale(&self, module: &str, rank: usize) -> Result<f64> {
        let wrong = |reason: String| Err(WeightsError::Adapter { file: self.config_file.clone(), reason });
        let (config, mut alpha) = (&self.config, None);
        for (pattern, value) in config.alpha_pattern.iter().flatten() {
            let Some(fits) = fits(pattern, module) else {
                return wrong(format!(
                    "the pattern {pattern} of alpha_pattern is a regular expression; write the modules' names"
                ));
            };
            if fits && *alpha.get_or_insert(*value) != *value {
                return wrong(format!("several patterns of alpha_pattern fit {module}"));
            }
        }
        let divisor = if config.use_rslora == Some(true) { (rank as f64).sqrt() } else { rank as f64 };
        Ok(alpha.unwrap_or(config.lora_alpha) / divisor)
    }
}

/// Returns true if a peft pattern matches a module: its full name or its last segments. The only regular-expression
/// syntax supported is a leading `^` and escaped dots; `None` for other syntax.
fn fits(pattern: &str, module: &str) -> Option<bool> {
    let (whole, name) = match pattern.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, pattern),
    };
    let name = name.replace("\\.", ".");
    let ends = || module.strip_suffix(&name).is_some_and(|before| before.ends_with('.'));
    (!name.contains(|c| "\\^$*+?()[]{}|".contains(c))).then(|| module == name || !whole && ends())
}

/// Returns the model's name of a full tensor that replaces its own; `None` for a part of a LoRA update.
fn replaced_name(tensor: &str) -> Option<String> {
    let name = tensor.strip_prefix(ROOT)?;
    let update = name.split('.').any(|part| part.starts_with("lora_"));
    let of_wrappers = ["modules_to_save.", "original_module.", "base_layer."];
    (!update).then(|| of_wrappers.iter().fold(name.to_owned(), |name, part| name.replace(part, "")))
}

/// Saves the updates of linear layers, by the names of their modules, as an adapter in peft's format. `base` is the
/// directory or hub id of the base model. `fan_in_fan_out` is true if the base model stores the layers' weights as
/// `[in, out]`.
///
/// # Errors
/// There are no updates; a file cannot be written.
pub fn save_adapter<B: Backend>(
    updates: &BTreeMap<String, LowRankUpdate<B>>,
    fan_in_fan_out: bool,
    base: Option<&str>,
    directory: &Path,
) -> Result<()> {
    let Some(first) = updates.values().next() else {
        let reason = "the model has no adapters to save: add them with `lora::add`".into();
        return Err(WeightsError::Adapter { file: directory.into(), reason });
    };
    let mut tensors = NamedLeaves::new();
    for (module, update) in updates {
        for (part, array) in PARTS.iter().zip([&update.a, &update.b]) {
            tensors.insert(format!("{ROOT}{module}{part}"), Array::<B, 2>::new(array.val().transpose()).into_any());
        }
    }
    let rank = |update: &LowRankUpdate<B>| update.a.shape()[1];
    let alpha = |update: &LowRankUpdate<B>| update.scale * rank(update) as f64;
    let config = json!({
        "peft_type": "LORA",
        "task_type": null,
        "base_model_name_or_path": base,
        "inference_mode": true,
        "r": rank(first),
        "lora_alpha": alpha(first),
        "lora_dropout": 0.0,
        "use_rslora": false,
        "use_dora": false,
        "bias": "none",
        "fan_in_fan_out": fan_in_fan_out,
        "init_lora_weights": true,
        "modules_to_save": null,
        "target_modules": updates.keys().collect::<Vec<_>>(),
        "rank_pattern": patterns(updates, rank),
        "alpha_pattern": patterns(updates, alpha),
    });
    std::fs::create_dir_all(directory).map_err(FileError::at(directory))?;
    save_tree(&tensors, directory.join(WEIGHTS))?;
    Ok(write_json(&directory.join(ADAPTER_FILE), &config)?)
}

/// Returns the patterns of modules whose value differs from the first module's.
fn patterns<U, V: PartialEq + Into<Value>>(
    updates: &BTreeMap<String, U>,
    value: impl Fn(&U) -> V,
) -> BTreeMap<String, Value> {
    let first = updates.values().next().map(&value);
    let others = updates.iter().map(|(name, update)| (name, value(update)));
    let others = others.filter(|(_, value)| first.as_ref() != Some(value));
    others.map(|(name, value)| (format!("^{}", name.replace('.', "\\.")), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tensors_in_place_of_the_models_own() {
        let own = |name: &str| replaced_name(&format!("base_model.model.{name}"));
        assert_eq!(own("classifier.weight").as_deref(), Some("classifier.weight"));
        assert_eq!(own("score.modules_to_save.weight").as_deref(), Some("score.weight"));
        assert_eq!(own("lm_head.base_layer.weight").as_deref(), Some("lm_head.weight"));
        assert_eq!(own("h.0.attn.c_attn.lora_A.weight"), None);
        assert_eq!(own("model.embed_tokens.lora_embedding_A"), None);
        assert_eq!(replaced_name("classifier.weight"), None);
    }
}
