//! LoRA adapters in the files of Hugging Face's peft: `adapter_config.json` and `adapter_model.safetensors`.
//!
//! Any model with a map of published names supports adapters.
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

use burn::tensor::DType;
use grove_backend::Backend;
use grove_layers::{Linear, Lora, lora::LoraError};
use grove_tree::{Path as TreePath, Tree, layers_mut};
use grove_weights::{AdapterFiles, LowRankUpdate, NameMap, Step, WeightsError, save_adapter};
use std::{collections::BTreeMap, path::Path};

use crate::error::Result;

/// Adds the adapters in a directory to a model, which must not have any. `names` are the model's published names, as
/// for loading its weights.
///
/// # Errors
/// The error names the file: it cannot be read; its adapters are of another kind, have another shape, or belong to
/// layers that the model does not have.
pub fn load_adapters<B: Backend, M: Tree<B>>(model: M, names: &NameMap, directory: impl AsRef<Path>) -> Result<M> {
    let adapter = AdapterFiles::open(directory.as_ref())?;
    if let Some((name, _)) = adapter.replacements().next() {
        Err(adapter.error(format!(
            "it has the tensor {name} in place of the model's own: load model and adapter together, by `ModelFiles`"
        )))?;
    }
    with_updates(model, names, &adapter, None)
}

/// Adds the updates of linear layers in `dtype` or, if `None`, in the dtype of each layer's weight. Skips the other
/// tensors of the adapter.
pub(crate) fn with_updates<B: Backend, M: Tree<B>>(
    mut model: M,
    names: &NameMap,
    adapter: &AdapterFiles,
    dtype: Option<DType>,
) -> Result<M> {
    let mut modules = adapter.modules(names)?;
    let mut result: Result<()> = Ok(());
    layers_mut::<B, _, Linear<B>>(&mut model, |path, linear| {
        if result.is_err() {
            return;
        }
        let known = names.known(&weight_of(path));
        let known = known.iter().filter_map(|(name, _)| name.strip_suffix(".weight"));
        let Some(name) = known.filter_map(|name| modules.remove(names.bare(name))).next() else { return };
        if linear.low_rank.is_some() {
            result = Err(LoraError::Adapted { path: path.to_string() }.into());
            return;
        }
        let (weight, device) = (&linear.weight, linear.weight.val().device());
        match adapter.update(&name, weight.shape(), dtype.unwrap_or(weight.dtype()), &device) {
            Ok(LowRankUpdate { a, b, scale }) => linear.low_rank = Some(Lora { a, b, scale }),
            Err(error) => result = Err(error.into()),
        }
    });
    result?;
    match modules.into_values().next() {
        Some(name) => Err(adapter.error(format!(
            "it has adapters of {name}, but the model has no such linear layer, or its weights are quantized: load the \
             adapters into the model that they were trained on"
        )))?,
        None => Ok(model),
    }
}

/// Returns the path of a linear layer's weight.
fn weight_of(layer: &TreePath) -> String {
    if layer.as_str().is_empty() { "weight".to_owned() } else { format!("{layer}.weight") }
}

/// Returns the published module name of a linear layer, and true if its weight is stored as `[in, out]`.
fn module(names: &NameMap, path: &TreePath) -> Option<(String, bool)> {
    let (name, steps) = names.saved(&weight_of(path))?;
    Some((name.strip_suffix(".weight")?.to_owned(), !steps.contains(&Step::Transpose)))
}

/// Saves the adapters of a model in peft's format. `names` are the model's published names. `prefix` is prepended to
/// names that do not begin with it, to match the transformers class that peft adapts: `"transformer."` for
/// `GPT2LMHeadModel`, empty if the published names are complete. `base` is the directory or hub id of the base model.
///
/// # Errors
/// [`WeightsError::Adapter`] if the model has no adapters, or if the layer of an adapter has no published name; a file
/// cannot be written.
pub fn save_adapters<B: Backend, M: Tree<B>>(
    model: &M,
    names: &NameMap,
    prefix: &str,
    base: Option<&str>,
    directory: impl AsRef<Path>,
) -> Result<()> {
    let directory = directory.as_ref();
    let (mut updates, mut conv1d, mut nameless) = (BTreeMap::new(), false, None);
    layers_mut::<B, _, Linear<B>>(&mut model.clone(), |path, linear| {
        let Some(Lora { a, b, scale }) = linear.low_rank.clone() else { return };
        let Some((name, is_conv1d)) = module(names, path) else {
            nameless.get_or_insert_with(|| path.to_string());
            return;
        };
        let name = if name.starts_with(prefix) { name } else { format!("{prefix}{name}") };
        updates.insert(name, LowRankUpdate { a, b, scale });
        conv1d |= is_conv1d;
    });
    if let Some(path) = nameless {
        let reason = format!("the adapter of `{path}` has no published name, so that peft cannot read it");
        return Err(WeightsError::Adapter { file: directory.into(), reason }.into());
    }
    Ok(save_adapter(&updates, conv1d, base, directory)?)
}
