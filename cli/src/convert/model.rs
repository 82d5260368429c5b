//! Conversion of a checkpoint in any supported format to a directory that transformers and grove load.

use grove::{
    models::{ModelKind, copy_generation_config, resnet, vit},
    tensor::{DType, FloatDType},
    text::TextError,
    tree::{cast, format_bytes},
    weights::{StoredDtype, TensorFiles},
};

use crate::{memory::shortage, prelude::*};

/// Result of [`convert_files`].
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

/// Converts a model's checkpoint. Writes to `target` its `config.json`, safetensors under transformers' names, and the files
/// of the tokenizer, the chat template and the generation configuration. If the model has an adapter, the adapter is merged
/// into the weights.
///
/// Image models of an architecture that transformers does not have keep their original names. Preprocessing is not
/// converted.
///
/// - `dtype`: dtype of the weights; `None` for the dtype of most of the checkpoint's parameters, where quantized ones count as
///   f16
/// - `max_shard_bytes`: maximum size of a file; `None` for one file
///
/// # Errors
/// The checkpoint cannot be read, or its weights do not fit into memory; the target cannot be written. The tokenizer is
/// read before anything is written.
pub fn convert_files<B: Backend>(
    files: &ModelFiles,
    target: &Path,
    dtype: Option<FloatDType>,
    max_shard_bytes: Option<usize>,
    device: &B::Device,
) -> Result<Converted, Exit> {
    let source = files.path();
    let (kind, mut remarks) = (ModelKind::of(source)?, vec![]);
    let dtype = dtype_of(&files.weights()?, dtype)?;
    let tokenizer = match kind.is_image_classifier() {
        true => None,
        false => match Tokenizer::beside(files.tokenizer()) {
            Err(error @ TextError::NoTokenizer { .. }) => {
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
        remarks.push(format!(
            "the parameters keep their names, because transformers does not have this architecture: {error}"
        ));
    }
    let model = cast(model, dtype);
    model.save_sharded(target, max_shard_bytes)?;
    if let Some(tokenizer) = tokenizer {
        tokenizer.save(target)?;
    }
    copy_generation_config(source, target)?;
    Ok(Converted { kind, dtype, parameters: model.num_parameters(), remarks })
}

/// Returns the dtype of the weights, or an error if they do not fit into memory.
fn dtype_of(files: &TensorFiles, dtype: Option<FloatDType>) -> Result<FloatDType, Exit> {
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
    let dtype = dtype.unwrap_or(most);
    let needed = sizes.iter().map(|(_, size)| size).sum::<usize>().saturating_mul(DType::from(dtype).size());
    let Some(available) = shortage(needed) else { return Ok(dtype) };
    let [needed, available] = [needed, available].map(format_bytes);
    Err(failure(format!(
        "the weights need {needed} of memory, but only {available} is available: a 16-bit type needs half of f32 \
         (--dtype bf16)"
    )))
}

/// Switches an image model to transformers' names, unless transformers does not have its architecture.
fn name_as_transformers<B: Backend>(model: &mut AutoModel<B>) -> Result<(), ModelError> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use grove::tree::leaves;

    /// The adapter is merged in f32, whatever the dtype of the target.
    #[test]
    fn merges_the_adapter() {
        let device = Default::default();
        let fixtures = Path::new("../models/tests/fixtures");
        let files = ModelFiles::at(fixtures.join("gpt2/tiny_a")).unwrap();
        let files = files.with_adapter(fixtures.join("adapters/gpt2").to_str().unwrap()).unwrap();
        let (merged, _) = files.load::<Flex, Gpt2<Flex>>(&device, None).unwrap();
        for (dtype, tolerance) in [(FloatDType::F32, 0.0), (FloatDType::BF16, 1.0 / 256.0)] {
            let target = tempfile::tempdir().unwrap();
            let converted = convert_files::<Flex>(&files, target.path(), Some(dtype), None, &device);
            assert!(converted.is_ok_and(|converted| converted.dtype == dtype));
            let (converted, _) = Gpt2::<Flex>::from_path(target.path(), &device, None).unwrap();
            let numbers = |model: &Gpt2<Flex>| -> Vec<f64> {
                let leaves = leaves(model).into_iter().filter_map(|(_, leaf)| leaf.into_data());
                leaves.flat_map(|data| data.convert::<f64>().to_vec::<f64>().unwrap()).collect()
            };
            let pairs = numbers(&converted).into_iter().zip(numbers(&merged));
            assert_eq!(numbers(&converted).len(), numbers(&merged).len());
            assert!(pairs.into_iter().all(|(x, y)| (x - y).abs() <= tolerance * y.abs() + 1e-6), "{dtype:?}");
        }
    }
}
