//! LoRA adapters in the files of Hugging Face's peft: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Any model with a map of published names supports adapters. peft stores `A` as `[rank, in]` and `B` as `[out, rank]`,
//! also for transformers' `Conv1D` (GPT-2), so that the option `fan_in_fan_out` does not matter for reading.
//!
//! ```no_run
//! use grove_layers::lora;
//! use grove_models::{Gpt2, Gpt2Config, Pretrained, gpt2, peft};
//! # type B = burn_flex::Flex;
//! let model = Gpt2::<B>::from_pretrained("openai-community/gpt2", &Default::default())?;
//! let names = gpt2::published_names(&Gpt2Config::default());
//! let model = peft::load_adapters(model, &names, "adapters")?;
//! peft::save_adapters(&model, &names, "transformer.", Some("openai-community/gpt2"), "copy")?;
//! let model = lora::merge(model);
//! # Ok::<(), grove_models::ModelError>(())
//! ```

use burn::tensor::{DType, Tensor};
use grove_backend::Backend;
use grove_files::{FileError, write_json};
use grove_layers::{Linear, Lora, lora::LoraError};
use grove_tree::{Array, NamedLeaves, Tree, layers_mut};
use grove_weights::{ADAPTER_FILE, AdapterConfig, NameMap, Step, TensorFiles, save_tree};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::error::{ModelError, Result};

const WEIGHTS: &str = "adapter_model.safetensors";
/// PyTorch format, of older versions of peft.
const PYTORCH_WEIGHTS: &str = "adapter_model.bin";
/// Prefix of all module names, from peft's wrapper classes.
const ROOT: &str = "base_model.model.";
const PARTS: [&str; 2] = [".lora_A.weight", ".lora_B.weight"];

/// Returns true if a peft pattern matches a module: its full name or its last segments. The only regular-expression
/// syntax supported is a leading `^` and escaped dots.
fn fits(file: &Path, pattern: &str, module: &str) -> Result<bool> {
    let (whole, name) = match pattern.strip_prefix('^') {
        Some(name) => (true, name),
        None => (false, pattern),
    };
    let name = name.replace("\\.", ".");
    if name.contains(|c| "\\^$*+?()[]{}|".contains(c)) {
        let reason =
            format!("the pattern {pattern} of alpha_pattern is a regular expression; write the modules' names");
        return Err(ModelError::Adapter { file: file.into(), reason });
    }
    let ends = || module.strip_suffix(&name).is_some_and(|before| before.ends_with('.'));
    Ok(module == name || !whole && ends())
}

/// Returns the path of a linear layer's weight.
fn weight_of(layer: &str) -> String {
    if layer.is_empty() { "weight".to_owned() } else { format!("{layer}.weight") }
}

/// Returns the published module name of a linear layer, and true if its weight is stored as `[in, out]`.
fn module(names: &NameMap, path: &str) -> Option<(String, bool)> {
    let (name, steps) = names.saved(&weight_of(path))?;
    Some((name.strip_suffix(".weight")?.to_owned(), !steps.contains(&Step::Transpose)))
}

/// Adds the adapters in a directory to a model, which must not have any. `names` are the model's published names, as
/// for loading its weights.
///
/// # Errors
/// The error names the file: it cannot be read; its adapters are of another kind, have another shape, or belong to
/// layers that the model does not have.
pub fn load_adapters<B: Backend, M: Tree<B>>(model: M, names: &NameMap, directory: impl AsRef<Path>) -> Result<M> {
    let directory = directory.as_ref();
    let adapters = Adapters::open(directory)?;
    if let Some(name) = adapters.own_tensors().next() {
        return Err(adapters.error(format!(
            "it has the tensor {name} in place of the model's own: load model and adapter together, by `ModelFiles`"
        )));
    }
    added(model, names, &adapters, None)
}

/// Adds the adapters of linear layers in `dtype` or, if `None`, in the dtype of each layer's weight. Skips the other
/// tensors of the file.
pub(crate) fn added<B: Backend, M: Tree<B>>(
    mut model: M,
    names: &NameMap,
    adapters: &Adapters,
    dtype: Option<DType>,
) -> Result<M> {
    let mut modules = adapters.modules(names)?;
    let mut result = Ok(());
    layers_mut::<B, _, Linear<B>>(&mut model, |path, linear| {
        if result.is_err() {
            return;
        }
        let known = names.known(&weight_of(path.as_str()));
        let known = known.iter().filter_map(|(name, _)| name.strip_suffix(".weight"));
        let Some(name) = known.filter_map(|name| modules.remove(names.bare(name))).next() else { return };
        let lora = |linear: &Linear<B>| {
            if linear.low_rank.is_some() {
                return Err(LoraError::Adapted { path: path.to_string() }.into());
            }
            adapters.lora(&name, linear, dtype, |rank| adapters.scale(&name, rank))
        };
        match lora(linear) {
            Ok(lora) => linear.low_rank = Some(lora),
            Err(error) => result = Err(error),
        }
    });
    result?;
    match modules.into_values().next() {
        Some(name) => Err(adapters.error(format!(
            "it has adapters of {name}, but the model has no such linear layer, or its weights are quantized: load the \
             adapters into the model that they were trained on"
        ))),
        None => Ok(model),
    }
}

/// Open files of an adapter.
pub(crate) struct Adapters {
    config: AdapterConfig,
    config_file: PathBuf,
    pub checkpoint: TensorFiles,
    file: PathBuf,
}

impl Adapters {
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let config_file = directory.join(ADAPTER_FILE);
        let config = AdapterConfig::read(&config_file)?;
        let [file, older] = [WEIGHTS, PYTORCH_WEIGHTS].map(|name| directory.join(name));
        let file = if !file.exists() && older.exists() { older } else { file };
        Ok(Self { config, config_file, checkpoint: TensorFiles::open(&file)?, file })
    }

    /// Returns the names of full tensors that replace the model's own: heads and embeddings that were trained with the
    /// adapter.
    pub(crate) fn own_tensors(&self) -> impl Iterator<Item = &str> {
        self.checkpoint.names().filter(|name| own_name(name).is_some())
    }

    pub(crate) fn error(&self, reason: String) -> ModelError {
        ModelError::Adapter { file: self.file.clone(), reason }
    }

    /// Returns the error for a tensor that is not part of a linear layer's adapter.
    pub(crate) fn no_layer(&self, tensor: &str) -> ModelError {
        self.error(format!("the tensor {tensor} belongs to no LoRA adapter of a linear layer: merge it with peft"))
    }

    /// Returns a tensor of the update of an embedding.
    pub(crate) fn update_of_embedding(&self) -> Option<&str> {
        self.checkpoint.names().find(|name| name.contains(".lora_embedding_"))
    }

    /// Returns the modules that have adapters: from the name without the model's optional prefixes to the full name.
    fn modules(&self, names: &NameMap) -> Result<BTreeMap<String, String>> {
        let module = |tensor: &&str| {
            let name = tensor.strip_prefix(ROOT)?;
            let module = PARTS.iter().find_map(|part| name.strip_suffix(part))?;
            Some((names.bare(module).to_owned(), module.to_owned()))
        };
        let of_layers = self.checkpoint.names().filter(|name| own_name(name).is_none());
        of_layers.map(|tensor| module(&tensor).ok_or_else(|| self.no_layer(tensor))).collect()
    }

    /// Returns the factor of a module's update with this rank.
    fn scale(&self, module: &str, rank: usize) -> Result<f64> {
        let (config, file, mut alpha) = (&self.config, &self.config_file, None);
        for (pattern, value) in config.alpha_pattern.iter().flatten() {
            if !fits(file, pattern, module)? {
                continue;
            }
            if *alpha.get_or_insert(*value) != *value {
                let reason = format!("several patterns of alpha_pattern fit {module}");
                return Err(ModelError::Adapter { file: file.into(), reason });
            }
        }
        let divisor = if config.use_rslora == Some(true) { (rank as f64).sqrt() } else { rank as f64 };
        Ok(alpha.unwrap_or(config.lora_alpha) / divisor)
    }

    /// Reads the adapter of a layer.
    fn lora<B: Backend>(
        &self,
        module: &str,
        linear: &Linear<B>,
        dtype: Option<DType>,
        scale: impl Fn(usize) -> Result<f64>,
    ) -> Result<Lora<B>> {
        let (device, dtype) = (linear.weight.val().device(), dtype.unwrap_or(linear.weight.dtype()));
        let [a, b] = PARTS.map(|part| {
            let data = self.checkpoint.tensor(&format!("{ROOT}{module}{part}"))?;
            Ok::<_, ModelError>(data.convert_dtype(dtype))
        });
        let (a, b) = (a?, b?);
        let [inputs, outputs] = linear.weight.shape();
        let rank = a.shape.first().copied().unwrap_or_default();
        if rank == 0 || a.shape[..] != [rank, inputs] || b.shape[..] != [outputs, rank] {
            let (a, b) = (&a.shape[..], &b.shape[..]);
            return Err(self.error(format!(
                "lora_A and lora_B of {module} have the shapes {a:?} and {b:?}; the layer needs [rank, {inputs}] and \
                 [{outputs}, rank]"
            )));
        }
        let [a, b] = [a, b].map(|data| Array::new(Tensor::<B, 2>::from_data(data, (&device, dtype)).transpose()));
        Ok(Lora { a, b, scale: scale(rank)? })
    }
}

/// Returns the model's name of a full tensor that replaces its own; `None` for a part of a LoRA update.
pub(crate) fn own_name(tensor: &str) -> Option<String> {
    let name = tensor.strip_prefix(ROOT)?;
    let update = name.split('.').any(|part| part.starts_with("lora_"));
    let of_wrappers = ["modules_to_save.", "original_module.", "base_layer."];
    (!update).then(|| of_wrappers.iter().fold(name.to_owned(), |name, part| name.replace(part, "")))
}

/// Rank and alpha of an adapter.
type Size = (usize, f64);

/// Saves the adapters of a model in peft's format. `names` are the model's published names. `prefix` is prepended to
/// names that do not begin with it, to match the transformers class that peft adapts: `"transformer."` for
/// `GPT2LMHeadModel`, empty if the published names are complete. `base` is the directory or hub id of the base model.
///
/// # Errors
/// [`ModelError::Adapter`] if the model has no adapters, or if the layer of an adapter has no published name; a file
/// cannot be written.
pub fn save_adapters<B: Backend, M: Tree<B>>(
    model: &M,
    names: &NameMap,
    prefix: &str,
    base: Option<&str>,
    directory: impl AsRef<Path>,
) -> Result<()> {
    let directory = directory.as_ref();
    let wrong = |reason: String| ModelError::Adapter { file: directory.into(), reason };
    let (mut tensors, mut sizes, mut conv1d) = (NamedLeaves::new(), BTreeMap::new(), false);
    let mut nameless = None;
    layers_mut::<B, _, Linear<B>>(&mut model.clone(), |path, linear| {
        let Some(lora) = &linear.low_rank else { return };
        let Some((name, is_conv1d)) = module(names, path.as_str()) else {
            nameless.get_or_insert_with(|| path.to_string());
            return;
        };
        let name = if name.starts_with(prefix) { name } else { format!("{prefix}{name}") };
        for (part, array) in PARTS.iter().zip([&lora.a, &lora.b]) {
            tensors.insert(format!("{ROOT}{name}{part}"), Array::<B, 2>::new(array.val().transpose()).into_any());
        }
        let rank = lora.a.shape()[1];
        sizes.insert(name, (rank, lora.scale * rank as f64));
        conv1d |= is_conv1d;
    });
    if let Some(path) = nameless {
        return Err(wrong(format!("the adapter of `{path}` has no published name, so that peft cannot read it")));
    }
    let Some(&size) = sizes.values().next() else {
        return Err(wrong("the model has no adapters to save: add them with `lora::add`".into()));
    };
    std::fs::create_dir_all(directory).map_err(FileError::at(directory))?;
    save_tree(&tensors, directory.join(WEIGHTS))?;
    Ok(write_json(&directory.join(ADAPTER_FILE), &config(&sizes, size, conv1d, base))?)
}

/// Returns the content of `adapter_config.json`. Modules whose rank or alpha differs from the first module's have
/// patterns.
fn config(sizes: &BTreeMap<String, Size>, (rank, alpha): Size, conv1d: bool, base: Option<&str>) -> Value {
    let pattern = |name: &String| format!("^{}", name.replace('.', "\\."));
    let ranks: BTreeMap<String, usize> =
        sizes.iter().filter(|(_, size)| size.0 != rank).map(|(name, size)| (pattern(name), size.0)).collect();
    let alphas: BTreeMap<String, f64> =
        sizes.iter().filter(|(_, size)| size.1 != alpha).map(|(name, size)| (pattern(name), size.1)).collect();
    json!({
        "peft_type": "LORA",
        "task_type": null,
        "base_model_name_or_path": base,
        "inference_mode": true,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "use_rslora": false,
        "use_dora": false,
        "bias": "none",
        "fan_in_fan_out": conv1d,
        "init_lora_weights": true,
        "modules_to_save": null,
        "target_modules": sizes.keys().collect::<Vec<_>>(),
        "rank_pattern": ranks,
        "alpha_pattern": alphas,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tensors_in_place_of_the_models_own() {
        let own = |name: &str| own_name(&format!("base_model.model.{name}"));
        assert_eq!(own("classifier.weight").as_deref(), Some("classifier.weight"));
        assert_eq!(own("score.modules_to_save.weight").as_deref(), Some("score.weight"));
        assert_eq!(own("lm_head.base_layer.weight").as_deref(), Some("lm_head.weight"));
        assert_eq!(own("h.0.attn.c_attn.lora_A.weight"), None);
        assert_eq!(own("model.embed_tokens.lora_embedding_A"), None);
        assert_eq!(own_name("classifier.weight"), None);
    }
}
