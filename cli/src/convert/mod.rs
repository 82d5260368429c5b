//! Conversion of checkpoints to safetensors with transformers' names.

mod model;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use grove::{
    files::{FileError, directory_at},
    images::Preprocessor,
    models::ModelKind,
    weights::{TensorFiles, convert_tensors, copy_modules, parse_size},
};

use crate::{prelude::*, program::is_free};
use model::{Converted, convert_files};

/// Converts a checkpoint to a directory that transformers and grove load, or any tensors to one safetensors file.
///
/// Reads safetensors (sharded or not), PyTorch's .bin, .pt and .pth, and GGUF, with the parameter names of transformers, timm,
/// torchvision or Meta. Writes config.json, safetensors with transformers' names, and the model's files for tokenizer, chat
/// template, generation and preprocessing. An architecture that transformers does not have keeps its original names. If the
/// target ends in .safetensors, tensors of any model are converted and keep their names.
#[derive(Parser, Debug)]
#[command(
    name = "convert",
    after_help = "Examples:
  grove convert HuggingFaceTB/SmolLM2-135M smol --dtype bf16
  grove convert pytorch_model.bin model.safetensors"
)]
pub struct Options {
    /// Directory, weights file, or hub id of the checkpoint
    source: String,

    /// Directory to create, or a file that ends in .safetensors
    target: PathBuf,

    /// LoRA adapter (peft) to merge into the weights: directory or hub id
    #[arg(long, value_name = "DIR|ID")]
    adapter: Option<String>,

    /// Type of the weights [default: that of the checkpoint; f16 for quantized weights]
    #[arg(long, value_name = "TYPE", value_parser = dtypes())]
    dtype: Option<Dtype>,

    /// Maximum size of a file, such as 5GB or 500MB; larger models are split into shards with an index [default: one file]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_shard_size: Option<usize>,

    /// Write to a directory that is not empty, or over an existing file; files of the same names are replaced
    #[arg(long)]
    overwrite: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Parses the type of the weights in a file, for clap.
fn dtypes() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(["f32", "f16", "bf16"]).try_map(|name| Dtype::from_str(&name, false))
}

/// Parses a size in bytes, with a unit such as GB or GiB, for clap.
fn bytes(text: &str) -> Result<usize, String> {
    parse_size(text).ok_or_else(|| "give a number of bytes, such as 5GB, 500MB or 2GiB".into())
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        // The conversion only changes names and types, for which the default device is enough.
        Ok(DeviceSpec::default())
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        if self.target.extension().is_some_and(|extension| extension == "safetensors") {
            return self.convert_tensors();
        }
        if !is_free(&self.target)? && !self.overwrite {
            let named = self.target.display();
            return Err(failure(format!("{named} is not empty: name another directory, or give --overwrite")));
        }
        let found = resolve_named(&self.source)?;
        let model_files = with_adapter(&found, self.adapter.as_deref())?;
        let directory = directory_at(model_files.path());
        let [target, source] = [&*self.target, directory].map(|place| place.canonicalize().ok());
        if target.is_some() && target == source {
            return Err(failure(format!("{} is the checkpoint itself: name another directory", self.target.display())));
        }
        // Read before anything is written, because the file may be broken.
        let kind = ModelKind::of(model_files.path()).map_err(|error| self.name_a_file(error))?;
        let preprocessor = match kind.is_image_classifier() {
            true => Preprocessor::beside(directory)?,
            false => None,
        };
        let dtype = self.dtype.map(Dtype::into);
        let converted = convert_files::<B>(&model_files, &self.target, dtype, self.max_shard_size, device)?;
        converted.remarks.iter().for_each(|remark| eprintln!("{remark}"));
        copy_modules(directory, &self.target)?;
        if let Some(preprocessor) = preprocessor {
            preprocessor.save(self.target.join("preprocessor_config.json"))?;
        }
        self.tell(&converted)
    }
}

impl Options {
    /// Adds to the error about an unknown model that tensors of any names can be converted to a file.
    fn name_a_file(&self, error: ModelError) -> Exit {
        match error {
            ModelError::Config { .. } | ModelError::File(FileError::Json { .. }) => {
                let target = self.target.display();
                failure(format!(
                    "{error}; {target}.safetensors as the target converts the tensors and keeps their names"
                ))
            }
            other => other.into(),
        }
    }

    /// Converts tensors to one file, without renaming them.
    fn convert_tensors(&self) -> Result<Ended, Exit> {
        let target = self.target.display();
        if self.adapter.is_some() || self.max_shard_size.is_some() {
            return Err(usage(format!(
                "--adapter and --max-shard-size need a directory as the target, but {target} is a file"
            )));
        }
        if self.target.exists() && !self.overwrite {
            return Err(failure(format!("{target} exists already: name another file, or give --overwrite")));
        }
        let files = TensorFiles::open(resolve_named(&self.source)?)?;
        let (tensors, elements) = convert_tensors(&files, &self.target, self.dtype.map(Dtype::into))?;
        let text = format!("{target}: {}, {}", counted(tensors, "tensor"), counted(elements, "element"));
        let object = json!({ "tensors": tensors, "elements": elements, "file": self.target });
        report(self.json, &object, &text)
    }

    fn tell(&self, Converted { kind, dtype, parameters, .. }: &Converted) -> Result<Ended, Exit> {
        let target = self.target.display();
        let mut files: Vec<String> = std::fs::read_dir(&self.target)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect())
            .map_err(|error| failure(format!("cannot list {target}: {error}")))?;
        files.sort();
        let (kind, dtype) = (format!("{kind:?}"), format!("{dtype:?}").to_lowercase());
        let count = counted(*parameters, "parameter");
        let text = format!("{target}: {kind}, {count} in {dtype}\n  {}", files.join("\n  "));
        let object =
            json!({ "kind": kind, "dtype": dtype, "parameters": parameters, "model": self.target, "files": files });
        report(self.json, &object, &text)
    }
}
