//! Conversion of checkpoints to transformers' names and safetensors.

use clap::{Parser, ValueEnum};
use grove::{
    files::directory_of,
    models::{AutoModel, ModelError, ModelKind, Tokenizer, copy_generation_config, resnet, vit},
    prelude::*,
    tensor::{DType, FloatDType},
    train::Ended,
    weights::{FilePatterns, StoredDtype, TensorFiles},
};
use serde_json::json;
use std::path::{Path, PathBuf};

use crate::{
    Exit, failure,
    memory::{available, gib},
    program::Command,
    resolve_named,
    vision::preprocessor_beside,
    write_json, write_line,
};

/// Converts a checkpoint to a directory that transformers and grove load.
///
/// It reads whatever grove reads: safetensors, sharded or not, PyTorch's .bin, .pt and .pth, GGUF; with the names of
/// transformers, timm, torchvision or Meta. It writes config.json, safetensors under transformers' names, and the files of the
/// tokenizer, the chat template, the generation or the preprocessing. An architecture that transformers does not have keeps the
/// names that it came with.
#[derive(Parser, Debug)]
#[command(name = "convert")]
pub struct Options {
    /// Directory, weights file, or hub id of the checkpoint
    source: String,

    /// Directory to write, which is made
    target: PathBuf,

    /// Type of the weights [default: that of the checkpoint; of quantized blocks f16]
    #[arg(long, value_enum, value_name = "TYPE")]
    dtype: Option<Saved>,

    /// Largest size of a file, such as 5GB or 500MB; larger models get several, with an index [default: one file]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    max_shard_size: Option<usize>,

    /// Write to a directory that has files already, and replace those of the same names
    #[arg(long)]
    overwrite: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A type of weights in a file.
#[derive(ValueEnum, Debug, Clone, Copy)]
#[allow(missing_docs)] // Docs of variants would be shown by --help.
pub enum Saved {
    F32,
    F16,
    Bf16,
}

/// For clap: a size as people say it; 1 GB is 10^9 bytes, as transformers has it, and 1 GiB 2^30.
fn bytes(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, usize); 7] = [
        ("GIB", 1 << 30),
        ("MIB", 1 << 20),
        ("KIB", 1 << 10),
        ("GB", 1_000_000_000),
        ("MB", 1_000_000),
        ("KB", 1000),
        ("B", 1),
    ];
    let upper = text.trim().to_uppercase();
    let unit = UNITS.iter().find_map(|(name, unit)| Some((upper.strip_suffix(name)?, *unit)));
    let (number, unit) = unit.unwrap_or((&upper, 1));
    match number.trim().parse::<f64>() {
        Ok(number) if number * unit as f64 >= 1.0 && number.is_finite() => Ok((number * unit as f64) as usize),
        _ => Err("give a number of bytes, such as 5GB, 500MB or 2GiB".into()),
    }
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        // Nothing is computed but types.
        Ok(DeviceSpec::default())
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        self.check_target()?;
        let path = resolve_named(&self.source, &FilePatterns::model())?;
        let directory = if path.is_dir() { &*path } else { directory_of(&path) };
        if self.target.canonicalize().is_ok_and(|target| directory.canonicalize().is_ok_and(|source| source == target))
        {
            return Err(failure(format!("{} is the checkpoint itself: name another directory", self.target.display())));
        }
        let kind = ModelKind::of(&path).map_err(failure)?;
        let dtype = self.dtype(&TensorFiles::open(&path).map_err(failure)?)?;
        // Read before anything is written, since they may be broken.
        let tokenizer = tokenizer(kind, &path)?;
        let preprocessor = match kind {
            ModelKind::ResNet | ModelKind::Vit => preprocessor_beside(directory)?,
            _ => None,
        };
        let model = AutoModel::<B>::from_path(&path, device, Some(dtype.into())).map_err(failure)?;
        let model = tree::cast(transformers_names(model), dtype);
        model.save_sharded(&self.target, self.max_shard_size).map_err(failure)?;
        if let Some(tokenizer) = tokenizer {
            tokenizer.save(&self.target).map_err(failure)?;
        }
        copy_generation_config(&path, &self.target).map_err(failure)?;
        if let Some(preprocessor) = preprocessor {
            preprocessor.save(self.target.join("preprocessor_config.json")).map_err(failure)?;
        }
        self.tell(kind, dtype, model.num_parameters())?;
        Ok(Ended::Finished)
    }
}

impl Options {
    /// Refuses a target that somebody may want to keep.
    fn check_target(&self) -> Result<(), Exit> {
        let named = self.target.display();
        let is_empty = std::fs::read_dir(&self.target).map(|mut entries| entries.next().is_none());
        match is_empty {
            Ok(false) if !self.overwrite => {
                Err(failure(format!("{named} is not empty: name another directory, or give --overwrite")))
            }
            Err(_) if self.target.exists() => Err(failure(format!("{named} is a file; give a directory"))),
            _ => Ok(()),
        }
    }

    /// The type of the weights: the one that is asked for, or the one that most bytes of the checkpoint have. Refuses a
    /// model that does not fit into memory.
    fn dtype(&self, files: &TensorFiles) -> Result<FloatDType, Exit> {
        let mut sizes = [(FloatDType::F32, 0), (FloatDType::F16, 0), (FloatDType::BF16, 0)];
        for name in files.names() {
            let info = files.info(name).map_err(failure)?;
            let stored = match info.dtype {
                _ if info.quantized.is_some() => 1,
                StoredDtype::F16 => 1,
                StoredDtype::BF16 => 2,
                _ => 0,
            };
            sizes[stored].1 += info.shape.iter().product::<usize>();
        }
        let dtype = match self.dtype {
            Some(Saved::F32) => FloatDType::F32,
            Some(Saved::F16) => FloatDType::F16,
            Some(Saved::Bf16) => FloatDType::BF16,
            None => sizes.iter().max_by_key(|(_, size)| *size).map_or(FloatDType::F32, |(dtype, _)| *dtype),
        };
        let needed = sizes.iter().map(|(_, size)| size).sum::<usize>().saturating_mul(DType::from(dtype).size());
        match available() {
            Some(available) if needed > available => Err(failure(format!(
                "the weights need {} of memory, and this machine has {} to give: a --dtype of 16 bits needs half of f32",
                gib(needed),
                gib(available)
            ))),
            _ => Ok(dtype),
        }
    }

    fn tell(&self, kind: ModelKind, dtype: FloatDType, parameters: usize) -> Result<(), Exit> {
        let mut files: Vec<String> = std::fs::read_dir(&self.target)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect())
            .map_err(|error| failure(format!("cannot list {}: {error}", self.target.display())))?;
        files.sort();
        let (kind, dtype) = (format!("{kind:?}"), format!("{dtype:?}").to_lowercase());
        if self.json {
            return write_json(&json!({
                "kind": kind, "dtype": dtype, "parameters": parameters, "model": self.target, "files": files,
            }));
        }
        write_line(&format!("{}: {kind}, {parameters} parameters in {dtype}", self.target.display()))?;
        files.iter().try_for_each(|file| write_line(&format!("  {file}")))
    }
}

/// The tokenizer of a text model; `None` if there is none, which a tokenizer of one's own may replace.
fn tokenizer(kind: ModelKind, path: &Path) -> Result<Option<Tokenizer>, Exit> {
    if matches!(kind, ModelKind::ResNet | ModelKind::Vit) {
        return Ok(None);
    }
    match Tokenizer::beside(path) {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(error @ ModelError::NoTokenizer { .. }) => {
            eprintln!("no tokenizer is written: {error}");
            Ok(None)
        }
        Err(error) => Err(failure(error)),
    }
}

/// An image model with the names of transformers, where transformers has its architecture.
fn transformers_names<B: Backend>(mut model: AutoModel<B>) -> AutoModel<B> {
    let kept = match &mut model {
        AutoModel::ResNet(model) => {
            let config = resnet::ResNetConfig { naming: resnet::Naming::Transformers, ..model.config.clone() };
            config.validate().map(|()| model.config = config)
        }
        AutoModel::Vit(model) => {
            let config = vit::VitConfig { naming: vit::Naming::Transformers, ..model.config.clone() };
            config.validate().map(|()| model.config = config)
        }
        _ => Ok(()),
    };
    if let Err(error) = kept {
        eprintln!("the names stay as they are, for transformers has no such architecture: {error}");
    }
    model
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_as_people_say_them() {
        let sizes = ["5GB", "500 mb", "2GiB", "1000", "1.5kB"].map(|text| bytes(text).expect("a size"));
        assert_eq!(sizes, [5_000_000_000, 500_000_000, 1 << 31, 1000, 1500]);
        for wrong in ["", "GB", "0", "-1GB", "five GB", "infGB", "NaN"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
