//! A checkpoint: named tensors in one file or several, read on request.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{DType, TensorData};
use grove_files::FileError;
use grove_tree::similar;

use crate::contents::Contents;
use crate::entry::{Entry, TensorInfo};
use crate::error::{Result, WeightsError};
use crate::format::read_contents;
use crate::gguf::{GgufMetadata, Split};
use crate::locate::{ShardIndex, file_name, find};
use crate::mapped::MappedFile;
use crate::view::{View, check_decodable, materialise};

/// Named tensors on disk: safetensors or PyTorch files, single or sharded, numpy's `.npz` and `.npy`, or llama.cpp's
/// GGUF, whole or split. Both containers of PyTorch are read: the zip archive, and the stream of versions before 1.6.
///
/// Opening reads only tables of contents and maps the files into memory; the values of a tensor are read on request.
/// Files are not trusted: [`open`](Self::open) checks them, so that every listed tensor can be read, with two
/// exceptions. A compressed array (from `numpy.savez_compressed`) is unpacked, and its checksum compared, only when it
/// is read. A tensor of an unsupported type, such as 8-bit floats or GGUF's `IQ4_XS`, is listed, so that the file's
/// other tensors can be used; reading it is an error.
#[derive(Debug)]
pub struct TensorFiles {
    directory: PathBuf,
    files: Vec<Arc<MappedFile>>,
    /// Maps tensor names to the index of the file and the entry in it.
    tensors: BTreeMap<String, (usize, Entry)>,
    /// Maps tensors that an index names but their shard lacks to that shard: published indexes may list missing
    /// tensors.
    absent: BTreeMap<String, String>,
    /// Tensors that [`with_tensors_of`](Self::with_tensors_of) added.
    added: BTreeSet<String>,
    metadata: BTreeMap<String, String>,
    gguf: Option<GgufMetadata>,
}

/// Prefixes of the names of models that were wrapped in training: by torch.compile, in any segment, and by DataParallel
/// and similar wrappers, at the start of every name.
const COMPILED: &str = "_orig_mod.";
const PARALLEL: &str = "module.";

impl TensorFiles {
    /// Opens a directory or a file.
    ///
    /// In a directory, `open` looks for these files in this order: `model.safetensors`, `model.safetensors.index.json`,
    /// `pytorch_model.bin`, `pytorch_model.bin.index.json`, a single `*.safetensors`, `*.bin`, `*.pt`, `*.pth`, `*.npz`
    /// or `*.gguf`. A file may be any of these, or an `.npy`, which is one array named after its file. Names in an
    /// `.npz` are the names of its entries without `.npy`, and may contain slashes. For a split GGUF
    /// (`…-00001-of-00003.gguf`), pass the first part; the others must be in the same directory. The format is detected
    /// from the content, not from the name.
    ///
    /// Averaged weights, `state_dict_ema` or `model_ema`, have precedence over plain ones; a note on standard error
    /// says so.
    ///
    /// Names are those of the model: the prefixes of torch.compile (`_orig_mod.`) and DataParallel (`module.`) are
    /// removed.
    ///
    /// In a PyTorch file, the state dict may be the whole content, or an entry of a training checkpoint: `state_dict`,
    /// `model_state_dict`, `model_state`, `model` and similar names. Names are then relative to that entry.
    ///
    /// # Errors
    /// A variant of [`WeightsError`] that names a file. No malformed file causes a panic, and no allocation has a size
    /// that a file merely claims.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let about = std::fs::metadata(path).map_err(FileError::io("open", path))?;
        let file = if about.is_dir() { find(path)? } else { path.to_path_buf() };
        if file.extension().is_some_and(|extension| extension == "json") {
            let mut checkpoint = Self::open_sharded(&file)?;
            checkpoint.unwrap_names();
            return Ok(checkpoint);
        }
        let mut checkpoint = Self::empty(&file);
        checkpoint.gguf = checkpoint.add(&file, None)?;
        if let Some(split) = checkpoint.gguf.as_ref().map(|gguf| Split::of(&file, gguf)).transpose()?.flatten() {
            for part in split.others() {
                let (number, path) = part?;
                let gguf = checkpoint.add(&path, None)?;
                split.check_part(number, &path, gguf.as_ref())?;
            }
            split.check_total(checkpoint.tensors.len())?;
        }
        checkpoint.unwrap_names();
        Ok(checkpoint)
    }

    /// Removes the prefixes of wrappers from names, unless two tensors would then have the same name.
    fn unwrap_names(&mut self) {
        let parallel = self.tensors.keys().all(|name| name.replace(COMPILED, "").starts_with(PARALLEL));
        let unwrapped = |name: &String| {
            let name = name.replace(COMPILED, "");
            if parallel { name[PARALLEL.len()..].to_owned() } else { name }
        };
        if !parallel && !self.tensors.keys().any(|name| name.contains(COMPILED)) {
            return;
        }
        let mut renamed = HashSet::new();
        if self.tensors.keys().all(|name| renamed.insert(unwrapped(name))) {
            self.tensors =
                std::mem::take(&mut self.tensors).into_iter().map(|(name, entry)| (unwrapped(&name), entry)).collect();
        }
    }

    fn empty(file: &Path) -> Self {
        let directory = file.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        Self {
            directory,
            files: Vec::new(),
            tensors: BTreeMap::new(),
            metadata: BTreeMap::new(),
            absent: BTreeMap::new(),
            added: BTreeSet::new(),
            gguf: None,
        }
    }

    fn open_sharded(path: &Path) -> Result<Self> {
        let index = ShardIndex::read(path)?;
        let mut checkpoint = Self::empty(path);
        let homes: HashMap<&str, &str> = index.weight_map.iter().map(|(name, shard)| (&**name, &**shard)).collect();
        for shard in index.shards() {
            let file = checkpoint.directory.join(shard);
            if !file.exists() {
                let reason = format!("its shard {shard} is missing from {}", checkpoint.directory.display());
                return Err(WeightsError::malformed(path, reason));
            }
            checkpoint.add(&file, Some(&homes))?;
        }
        for (tensor, shard) in &index.weight_map {
            if !checkpoint.tensors.contains_key(tensor) {
                checkpoint.absent.insert(tensor.clone(), shard.clone());
            }
        }
        Ok(checkpoint)
    }

    /// Adds the tensors of a file, except those that the index assigns to another file. Returns the metadata of a
    /// GGUF file.
    fn add(&mut self, path: &Path, homes: Option<&HashMap<&str, &str>>) -> Result<Option<GgufMetadata>> {
        let file = Arc::new(MappedFile::open(path)?);
        let shard = file_name(path);
        let Contents { entries, metadata, gguf } = read_contents(&file)?;
        for (name, entry) in entries {
            if homes.and_then(|homes| homes.get(&*name)).is_some_and(|home| *home != shard) {
                continue;
            }
            if let Some((other, _)) = self.tensors.get(&name) {
                let reason = format!("{} has it too", self.files[*other].path().display());
                return Err(WeightsError::malformed_tensor(path, &name, reason));
            }
            self.tensors.insert(name, (self.files.len(), entry));
        }
        self.metadata.extend(metadata);
        self.files.push(file);
        Ok(gguf)
    }

    /// Adds the tensors of another file, replacing those of the same name. `named` maps a name of the other file to its
    /// name here, or to `None` to skip the tensor. A tensor that is here already with the same values is skipped too.
    /// Loading prefers an added tensor to one whose name differs in a prefix that the model's
    /// [`NameMap`](crate::NameMap) has ([`NameMap::prefix`](crate::NameMap::prefix)).
    ///
    /// # Errors
    /// A tensor that both files have cannot be read.
    pub(crate) fn with_tensors_of(mut self, other: &Self, named: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let offset = self.files.len();
        self.files.extend(other.files.iter().cloned());
        for (name, (file, entry)) in &other.tensors {
            let Some(own) = named(name) else { continue };
            if self.contains(&own) && equal((&self, &own), (other, name))? {
                continue;
            }
            self.absent.remove(&own);
            self.added.insert(own.clone());
            self.tensors.insert(own, (file + offset, entry.clone()));
        }
        Ok(self)
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Returns true if there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns true if the tensor replaces one of the model's own; see
    /// [`AdapterFiles::replace_tensors`](crate::AdapterFiles::replace_tensors).
    pub fn is_added(&self, name: &str) -> bool {
        self.added.contains(name)
    }

    /// Returns shape, stored type and file of a tensor, without reading it.
    ///
    /// # Errors
    /// [`WeightsError::UnknownTensor`], with similar names.
    pub fn info(&self, name: &str) -> Result<TensorInfo> {
        let (file, entry) = self.entry(name)?;
        let (shape, dtype, quantized) = (entry.shape.clone(), entry.dtype, entry.quantized());
        Ok(TensorInfo { shape, dtype, quantized, file: file.path().into() })
    }

    /// Metadata of the files, such as `format: pt`. For a GGUF file, the strings under `general.`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Typed metadata of a GGUF file; `None` for other formats. For a split model, the metadata of the first part,
    /// which is complete.
    pub fn gguf(&self) -> Option<&GgufMetadata> {
        self.gguf.as_ref()
    }

    /// Directory of the weights, usually also of `config.json` and the tokenizer.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads a tensor in its stored type, or as `f32` if it is quantized.
    ///
    /// # Errors
    /// If there is no tensor of this name, if its type is not supported (8-bit floats, complex numbers, some block
    /// types), or if its compressed data is corrupted.
    pub fn tensor(&self, name: &str) -> Result<TensorData> {
        let view = self.view(name, DType::F32)?;
        let dtype = view.dtype();
        materialise(&[view], 0, dtype)
    }

    /// Returns true if two tensors have the same shape and the same values, whatever the stored types.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn have_equal_values(&self, one: &str, other: &str) -> Result<bool> {
        equal((self, one), (self, other))
    }

    /// Returns a view that reads a tensor as values of type `to`.
    pub(crate) fn view<'a>(&'a self, name: &'a str, to: DType) -> Result<View<'a>> {
        let (file, entry) = self.entry(name)?;
        View::of_file(name, file, entry, to)
    }

    /// Returns a view of a quantized tensor that reads its blocks without decoding them.
    pub(crate) fn quantized_view<'a>(&'a self, name: &'a str) -> Result<View<'a>> {
        let (file, entry) = self.entry(name)?;
        View::of_rows(name, file, entry)
    }

    /// Returns an error if the tensor is quantized in a block type that cannot be decoded.
    pub(crate) fn check_decodable(&self, name: &str) -> Result<()> {
        let (file, entry) = self.entry(name)?;
        entry.quantized().map_or(Ok(()), |kind| check_decodable(name, file, kind))
    }

    /// Returns the shard that an index names for a tensor but that lacks the tensor.
    pub(crate) fn promised(&self, name: &str) -> Option<&str> {
        self.absent.get(name).map(String::as_str)
    }

    fn entry(&self, name: &str) -> Result<(&MappedFile, &Entry)> {
        let (file, entry) = self.tensors.get(name).ok_or_else(|| WeightsError::UnknownTensor {
            name: name.into(),
            place: self.directory.clone(),
            suggestions: similar(name, self.names()).into_iter().map(str::to_owned).collect(),
        })?;
        Ok((&*self.files[*file], entry))
    }
}

/// One line for a log: files, number of tensors, number of values, stored types.
impl fmt::Display for TensorFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.files[..] {
            [single] => write!(f, "{}", single.path().display())?,
            several => write!(f, "{} files in {}", several.len(), self.directory.display())?,
        }
        let values: usize = self.tensors.values().map(|(_, entry)| entry.shape.iter().product::<usize>()).sum();
        let dtypes: BTreeSet<_> = self.tensors.values().map(|(_, entry)| entry.type_name()).collect();
        let dtypes: Vec<_> = dtypes.into_iter().collect();
        write!(f, ": {} tensors, {values} values ({})", self.tensors.len(), dtypes.join(", "))
    }
}

/// Returns true if two tensors have the same shape and the same values, whatever their types.
fn equal((here, one): (&TensorFiles, &str), (there, other): (&TensorFiles, &str)) -> Result<bool> {
    if here.info(one)?.shape != there.info(other)?.shape {
        return Ok(false);
    }
    let (one, other) = (here.tensor(one)?, there.tensor(other)?);
    Ok(match one.dtype == other.dtype {
        true => one.bytes == other.bytes,
        false => one.iter::<f64>().eq(other.iter::<f64>()),
    })
}
