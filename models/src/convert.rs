//! Conversion of a checkpoint in any supported format to a directory that transformers and grove load.

use burn::tensor::{DType, FloatDType};
use grove_backend::Backend;
use grove_tree::cast;
use grove_weights::{StoredDtype, TensorFiles};
use std::path::Path;

use crate::{
    AutoModel, ModelKind, PretrainedConfig, Tokenizer, copy_generation_config,
    error::{ModelError, Result},
    memory,
    model_files::{ModelFiles, has_tokenizer},
    resnet, vit,
};

/// Options of [`convert`]. [`Default`] keeps the dtype and writes one file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConvertOptions {
    /// Dtype of the weights. `None`: the dtype of most of the checkpoint's parameters; quantized parameters count as
    /// f16.
    pub dtype: Option<FloatDType>,
    /// Maximum size of a file, in bytes; `None` for one file.
    pub max_shard_bytes: Option<usize>,
}

/// Result of [`convert`].
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// Model family.
    pub kind: ModelKind,
    /// Dtype of the weights.
    pub dtype: FloatDType,
    /// Number of parameters.
    pub parameters: usize,
    /// Remarks, one sentence each: a missing tokenizer, or names that transformers does not know.
    pub remarks: Vec<String>,
}

/// Converts the checkpoint `source`, a directory or a weights file. Writes to `target` its `config.json`, safetensors
/// under transformers' names, and the files of the tokenizer, the chat template and the generation configuration.
///
/// Image models of an architecture that transformers does not have keep their original names. Preprocessing is not
/// converted; use `grove_images::Preprocessor`.
///
/// # Errors
/// The checkpoint cannot be read, or its weights do not fit into memory; the target cannot be written. The tokenizer is
/// read before anything is written.
pub fn convert<B: Backend>(
    source: &Path,
    target: &Path,
    options: &ConvertOptions,
    device: &B::Device,
) -> Result<Converted> {
    convert_files::<B>(&ModelFiles::at(source)?, target, options, device)
}

/// Converts a model as [`convert`] does. If it has an adapter, the adapter is merged into the weights.
///
/// # Errors
/// As [`convert`].
pub fn convert_files<B: Backend>(
    files: &ModelFiles,
    target: &Path,
    options: &ConvertOptions,
    device: &B::Device,
) -> Result<Converted> {
    let source = files.path();
    let (kind, mut remarks) = (ModelKind::of(source)?, vec![]);
    let dtype = dtype_of(&files.weights()?, options.dtype)?;
    let tokenizer = match kind {
        ModelKind::ResNet | ModelKind::Vit => None,
        _ => match Tokenizer::beside(files.adapter().filter(|adapter| has_tokenizer(adapter)).unwrap_or(source)) {
            Err(error @ ModelError::NoTokenizer { .. }) => {
                remarks.push(format!("no tokenizer is written: {error}"));
                None
            }
            tokenizer => Some(tokenizer?),
        },
    };
    // An adapter is merged in f32 and rounded once.
    let merging = if files.adapter().is_some() { FloatDType::F32 } else { dtype };
    let mut model = AutoModel::<B>::from_files(files, device, Some(merging.into()))?;
    if let Err(error) = name_as_transformers(&mut model) {
        remarks.push(format!("the names stay as they are, for transformers has no such architecture: {error}"));
    }
    let model = cast(model, dtype);
    model.save_sharded(target, options.max_shard_bytes)?;
    if let Some(tokenizer) = tokenizer {
        tokenizer.save(target)?;
    }
    copy_generation_config(source, target)?;
    Ok(Converted { kind, dtype, parameters: model.num_parameters(), remarks })
}

/// Returns the dtype of the weights, or an error if they do not fit into memory.
fn dtype_of(files: &TensorFiles, asked: Option<FloatDType>) -> Result<FloatDType> {
    let mut sizes = [(FloatDType::F32, 0), (FloatDType::F16, 0), (FloatDType::BF16, 0)];
    for name in files.names() {
        let info = files.info(name)?;
        let stored = match info.dtype {
            _ if info.quantized.is_some() => 1,
            StoredDtype::F16 => 1,
            StoredDtype::BF16 => 2,
            _ => 0,
        };
        sizes[stored].1 += info.shape.iter().product::<usize>();
    }
    let most = sizes.iter().max_by_key(|(_, size)| *size).map_or(FloatDType::F32, |(dtype, _)| *dtype);
    let dtype = asked.unwrap_or(most);
    let needed = sizes.iter().map(|(_, size)| size).sum::<usize>().saturating_mul(DType::from(dtype).size());
    match memory::shortage(needed) {
        Some(available) => Err(ModelError::NotEnoughMemory { needed, available }),
        None => Ok(dtype),
    }
}

/// Switches an image model to transformers' names, unless transformers does not have its architecture.
fn name_as_transformers<B: Backend>(model: &mut AutoModel<B>) -> Result<()> {
    match model {
        AutoModel::ResNet(model) => {
            let config = resnet::ResNetConfig { naming: resnet::Naming::Transformers, ..model.config.clone() };
            config.validate().map(|()| model.config = config)
        }
        AutoModel::Vit(model) => {
            let config = vit::VitConfig { naming: vit::Naming::Transformers, ..model.config.clone() };
            config.validate().map(|()| model.config = config)
        }
        _ => Ok(()),
    }
}
