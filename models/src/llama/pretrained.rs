//! Loading and saving of LLaMA models.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_layers::RopeScaling;
use grove_weights::TensorFiles;
use serde_json::{Map, Value};

use super::{Llama, LlamaConfig, published_names};
use crate::{
    Pretrained,
    error::{ModelError, Result},
    pretrained::{computing_in, fields_of},
};

/// Returns the model without weights, with quantized blocks for matrices that are quantized in the file.
pub(super) fn skeleton_for<B: Backend>(
    checkpoint: &TensorFiles,
    config: &LlamaConfig,
    dtype: Option<DType>,
) -> Result<Llama<B>> {
    let names = published_names(config);
    let skeleton = Llama::<B>::skeleton(config)?;
    let skeleton = if dtype.is_none() { skeleton.quantized_as(checkpoint, &names) } else { skeleton };
    Ok(computing_in::<B, _>(skeleton, checkpoint, &names, dtype))
}

/// Returns the fields of the model's `config.json`, or an error if a `config.json` cannot describe the model.
pub(super) fn published_config<B: Backend>(model: &Llama<B>) -> Result<Map<String, Value>> {
    let refused = |reason: &str| Err(ModelError::Config { reason: reason.into() });
    if model.is_quantized() {
        return refused(
            "it is quantized, which a safetensors file cannot say; load it with a dtype (f16, say) and save that",
        );
    }
    if matches!(model.rope.scaling, RopeScaling::Factors(_)) {
        return refused("its rotary angles have scaling factors that a config.json cannot express");
    }
    fields_of(&model.config)
}
