//! Conversion of a checkpoint in any supported format to a directory that transformers and grove load.

use std::path::Component;

use grove::{
    files::write_atomically,
    models::{ModelKind, copy_generation_config, read_json, resnet, vit},
    tensor::{DType, FloatDType},
    tree::cast,
    weights::{StoredDtype, TensorFiles},
};

use crate::{
    memory::{format_bytes, shortage},
    prelude::*,
};

/// Options of [`convert_files`]. [`Default`] keeps the dtype and writes one file.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ConvertOptions {
    /// Dtype of the weights. `None`: the dtype of most of the checkpoint's parameters; quantized parameters count as
    /// f16.
    pub dtype: Option<FloatDType>,
    /// Maximum size of a file, in bytes; `None` for one file.
    pub max_shard_bytes: Option<usize>,
}

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
/// # Errors
/// The checkpoint cannot be read, or its weights do not fit into memory; the target cannot be written. The tokenizer is
/// read before anything is written.
pub fn convert_files<B: Backend>(
    files: &ModelFiles,
    target: &Path,
    options: &ConvertOptions,
    device: &B::Device,
) -> Result<Converted, Exit> {
    let source = files.path();
    let (kind, mut remarks) = (ModelKind::of(source)?, vec![]);
    let dtype = dtype_of(&files.weights()?, options.dtype)?;
    let tokenizer = match kind.is_image_classifier() {
        true => None,
        false => match Tokenizer::beside(files.tokenizer()) {
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

/// Copies the modules of a sentence encoder, such as its pooling: `modules.json` and the files of the directories that it names.
///
/// # Errors
/// `modules.json` is not valid, or a file cannot be read or written.
pub fn copy_modules(source: &Path, target: &Path) -> Result<(), Exit> {
    let list = source.join("modules.json");
    if !list.is_file() {
        return Ok(());
    }
    let modules: Vec<Value> = read_json(&list)?;
    let folders = modules.iter().filter_map(|module| module["path"].as_str()).filter(|folder| !folder.is_empty());
    let mut files = vec![PathBuf::from("modules.json")];
    for folder in folders.map(Path::new) {
        if !folder.components().all(|part| matches!(part, Component::Normal(_))) {
            let (list, folder) = (list.display(), folder.display());
            return Err(failure(format!("{list}: the path '{folder}' is not one of a directory below it")));
        }
        let parts = MODULE_FILES.iter().map(|name| folder.join(name));
        files.extend(parts.filter(|file| source.join(file).is_file()));
    }
    for file in files {
        let (from, to) = (source.join(&file), target.join(&file));
        let cannot = |error| failure(format!("cannot copy {}: {error}", from.display()));
        if let Some(directory) = to.parent() {
            std::fs::create_dir_all(directory).map_err(cannot)?;
        }
        let mut content = std::fs::File::open(&from).map_err(cannot)?;
        write_atomically(&to, |writer| std::io::copy(&mut content, writer).map(|_| ()))?;
    }
    Ok(())
}

/// Files of a module of a sentence encoder.
const MODULE_FILES: [&str; 3] = ["config.json", "model.safetensors", "pytorch_model.bin"];

/// Returns the dtype of the weights, or an error if they do not fit into memory.
fn dtype_of(files: &TensorFiles, asked: Option<FloatDType>) -> Result<FloatDType, Exit> {
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
    let Some(available) = shortage(needed) else { return Ok(dtype) };
    let [needed, available] = [needed, available].map(format_bytes);
    Err(failure(format!(
        "the weights need {needed} of memory, and this machine has {available} to give: a type of 16 bits needs half of f32 \
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

    #[test]
    fn a_sentence_encoder_keeps_its_modules() {
        let [source, target] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary directory"));
        let write = |name: &str, text: &str| {
            let file = source.path().join(name);
            std::fs::create_dir_all(file.parent().expect("a directory")).expect("made");
            std::fs::write(file, text).expect("written");
        };
        write("modules.json", r#"[{"path": "", "type": "Transformer"}, {"path": "1_Pooling", "type": "Pooling"}]"#);
        write("1_Pooling/config.json", r#"{"pooling_mode": "cls"}"#);
        write("2_Dense/config.json", "{}");
        copy_modules(source.path(), target.path()).expect("copied");
        let pooling = std::fs::read_to_string(target.path().join("1_Pooling/config.json")).expect("copied");
        assert_eq!(pooling, r#"{"pooling_mode": "cls"}"#);
        assert!(target.path().join("modules.json").is_file() && !target.path().join("2_Dense").exists());
        write("modules.json", r#"[{"path": "../elsewhere", "type": "Pooling"}]"#);
        let Err(Exit::Failure(message)) = copy_modules(source.path(), target.path()) else { panic!("refused") };
        assert!(message.contains("modules.json: the path '../elsewhere'"), "{message}");
    }

    /// The adapter is merged in f32, whatever the dtype of the target.
    #[test]
    fn a_converted_model_has_its_adapter_merged() {
        let device = Default::default();
        let fixtures = Path::new("../models/tests/fixtures");
        let files = ModelFiles::at(fixtures.join("gpt2/tiny_a")).unwrap();
        let files = files.with_adapter(fixtures.join("adapters/gpt2").to_str().unwrap()).unwrap();
        let (merged, _) = files.load::<Flex, Gpt2<Flex>>(&device, None).unwrap();
        for (dtype, tolerance) in [(FloatDType::F32, 0.0), (FloatDType::BF16, 1.0 / 256.0)] {
            let target = tempfile::tempdir().unwrap();
            let options = ConvertOptions { dtype: Some(dtype), ..ConvertOptions::default() };
            let converted = convert_files::<Flex>(&files, target.path(), &options, &device);
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
