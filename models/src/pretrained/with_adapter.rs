//! Loading of models with adapters.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_layers::Linear;
use grove_tree::{Tree, layers_mut};
use grove_weights::{AdapterFiles, NameMap, Report, TensorFiles};

use super::{Pretrained, PretrainedConfig};
use crate::{error::Result, head::of_head, model_files::ModelFiles, peft::with_updates, tied::with_reason};

impl ModelFiles {
    /// Opens the weights: the model's tensors, of which some can be replaced by an adapter's full tensors
    /// (`modules_to_save`). LoRA updates are not included.
    ///
    /// # Errors
    /// As [`TensorFiles::open`], and as [`load_adapters`](crate::peft::load_adapters).
    pub fn weights(&self) -> Result<TensorFiles> {
        Ok(self.open()?.0)
    }

    /// Opens the [`weights`](Self::weights) and the adapter.
    pub(crate) fn open(&self) -> Result<(TensorFiles, Option<AdapterFiles>)> {
        let weights = TensorFiles::open(self.path())?;
        let Some(directory) = self.adapter() else { return Ok((weights, None)) };
        let adapter = AdapterFiles::open(directory)?;
        Ok((adapter.replace_tensors(weights)?, Some(adapter)))
    }

    /// Loads the model; see [`Pretrained::from_path`]. The adapter is merged into layers with f32 weights. It stays
    /// separate from weights of other dtypes, since merging would round it.
    ///
    /// # Errors
    /// As [`Pretrained::from_path`] and [`load_adapters`](crate::peft::load_adapters).
    pub fn load<B: Backend, M: Pretrained<B>>(&self, device: &B::Device, dtype: Option<DType>) -> Result<(M, Report)> {
        let (weights, adapter) = self.open()?;
        let config = M::Config::of(self.path(), &weights)?;
        let loaded = M::from_checkpoint(&weights, &config, device, dtype);
        let explained = |error| of_head(with_reason(error, adapter.as_ref()), self.path());
        let (model, report) = loaded.map_err(explained)?;
        Ok((adapted(model, &M::published_names(&config), adapter.as_ref(), dtype)?, report))
    }
}

/// Adds an adapter's LoRA updates, if there is an adapter, to a model that was loaded from [`ModelFiles::weights`].
pub(crate) fn adapted<B: Backend, M: Tree<B>>(
    model: M,
    names: &NameMap,
    adapter: Option<&AdapterFiles>,
    dtype: Option<DType>,
) -> Result<M> {
    let Some(adapter) = adapter else { return Ok(model) };
    let mut model = with_updates(model, names, adapter, Some(dtype.unwrap_or(DType::F32)))?;
    layers_mut::<B, _, Linear<B>>(&mut model, |_, linear| {
        if linear.weight.dtype() == DType::F32 {
            *linear = linear.clone().merge_lora();
        }
    });
    Ok(model)
}
