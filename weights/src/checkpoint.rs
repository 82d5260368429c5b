//! A checkpoint: named tensors in one file or several, read when they are asked for.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{DType, TensorData};

use crate::entry::{Contents, Entry, TensorInfo};
use crate::error::{Result, WeightsError};
use crate::format::read_contents;
use crate::gguf::{GgufMetadata, Split};
use crate::locate::{ShardIndex, file_name, find};
use crate::mapped::MappedFile;
use crate::suggest::suggest;
use crate::view::{View, check_decodable, materialise};

/// Named tensors on disk: safetensors or PyTorch files, single or sharded, numpy's `.npz` and `.npy`, or llama.cpp's
/// GGUF, whole or split. PyTorch's are read in both of their containers: the zip archive, and the stream of before
/// version 1.6.
///
/// Opening reads tables of contents only and maps the files into memory; a tensor's values are read when it is
/// asked for. Files are not trusted: everything that [`open`](Self::open) accepts has been checked, so that
/// every tensor listed can be read. Two things are found out later. A compressed array (of `numpy.savez_compressed`)
/// is only unpacked, and its check sum compared, when it is asked for. And a type that is known but not computed
/// with, such as 8-bit floats or GGUF's `IQ4_XS`, is listed, so that what lies beside it can be used, and refused
/// when it is asked for.
#[derive(Debug)]
pub struct Checkpoint {
    directory: PathBuf,
    files: Vec<Arc<MappedFile>>,
    /// Tensor names to the file's number and the place in it.
    tensors: BTreeMap<String, (usize, Entry)>,
    metadata: BTreeMap<String, String>,
    gguf: Option<GgufMetadata>,
}

impl Checkpoint {
    /// Opens a directory or a file.
    ///
    /// In a directory these are looked for, in this order: `model.safetensors`, `model.safetensors.index.json`,
    /// `pytorch_model.bin`, `pytorch_model.bin.index.json`, a single `*.safetensors`, `*.bin`, `*.pt`, `*.pth`,
    /// `*.npz` or `*.gguf`. A file may be any of these, or an `.npy`: one array, which goes by the name of its file.
    /// Names in an `.npz` are those of its entries without `.npy`, and may contain slashes. Of a split GGUF
    /// (`…-00001-of-00003.gguf`) give the first part; the others lie beside it. What a file is, is decided by its
    /// content, not by its name.
    ///
    /// In a PyTorch file the state dict may be all there is, or lie in a training checkpoint under `state_dict`,
    /// `model_state_dict`, `model_state`, `model` and the like; then the names are those inside it.
    ///
    /// # Errors
    /// One of the variants of [`WeightsError`] that name a file; nothing is read by a length that a file only
    /// claims, and no malformed file panics.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let about = std::fs::metadata(path).map_err(WeightsError::io("open", path))?;
        let file = if about.is_dir() { find(path)? } else { path.to_path_buf() };
        if file.extension().is_some_and(|extension| extension == "json") {
            return Self::open_sharded(&file);
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
        Ok(checkpoint)
    }

    fn empty(file: &Path) -> Self {
        let directory = file.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        Self { directory, files: Vec::new(), tensors: BTreeMap::new(), metadata: BTreeMap::new(), gguf: None }
    }

    fn open_sharded(path: &Path) -> Result<Self> {
        let index = ShardIndex::read(path)?;
        let mut checkpoint = Self::empty(path);
        let homes: HashMap<&str, &str> = index.weight_map.iter().map(|(name, shard)| (&**name, &**shard)).collect();
        for shard in index.shards() {
            let file = checkpoint.directory.join(shard);
            if !file.exists() {
                let reason = format!("its shard {shard} is missing from {}", checkpoint.directory.display());
                return Err(WeightsError::Malformed { file: path.into(), reason });
            }
            checkpoint.add(&file, Some(&homes))?;
        }
        for (tensor, shard) in &index.weight_map {
            if !checkpoint.tensors.contains_key(tensor) {
                let reason = format!("the index says that it lies in {shard}, which does not hold it");
                return Err(WeightsError::MalformedTensor { file: path.into(), tensor: tensor.clone(), reason });
            }
        }
        Ok(checkpoint)
    }

    /// Adds a file's tensors; with an index, those it places elsewhere are passed over. Returns a GGUF file's own
    /// remarks.
    fn add(&mut self, path: &Path, homes: Option<&HashMap<&str, &str>>) -> Result<Option<GgufMetadata>> {
        let file = Arc::new(MappedFile::open(path)?);
        let shard = file_name(path);
        let Contents { entries, metadata, gguf } = read_contents(&file)?;
        for (name, entry) in entries {
            if homes.and_then(|homes| homes.get(&*name)).is_some_and(|home| *home != shard) {
                continue;
            }
            if let Some((other, _)) = self.tensors.get(&name) {
                let reason = format!("{} holds it too", self.files[*other].path().display());
                return Err(WeightsError::MalformedTensor { file: path.into(), tensor: name, reason });
            }
            self.tensors.insert(name, (self.files.len(), entry));
        }
        self.metadata.extend(metadata);
        self.files.push(file);
        Ok(gguf)
    }

    /// Names of all tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// Whether there is a tensor of this name.
    pub fn contains(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Shape, stored type and file of a tensor, without reading it.
    ///
    /// # Errors
    /// [`WeightsError::UnknownTensor`], with similar names.
    pub fn info(&self, name: &str) -> Result<TensorInfo> {
        let (file, entry) = self.entry(name)?;
        let (shape, dtype, quantised) = (entry.shape.clone(), entry.dtype, entry.quantised());
        Ok(TensorInfo { shape, dtype, quantised, file: file.path().into() })
    }

    /// The files' remarks about themselves, such as `format: pt`; of a GGUF file the texts under `general.`.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// All that a GGUF file says of its model, with types; `None` for other formats. Of a split model the first
    /// part's, which says it all.
    pub fn gguf(&self) -> Option<&GgufMetadata> {
        self.gguf.as_ref()
    }

    /// The directory in which the weights lie, and with them, usually, `config.json` and the tokenizer.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads a tensor in its stored type; a quantised one as `f32`.
    ///
    /// # Errors
    /// If there is none of this name, its type is not supported (8-bit floats, complex numbers, some kinds of
    /// blocks), or it is compressed and its data is broken.
    pub fn tensor(&self, name: &str) -> Result<TensorData> {
        let view = self.view(name, DType::F32)?;
        let dtype = view.dtype();
        materialise(&[view], 0, dtype)
    }

    /// A tensor that is to be read as values of type `to`.
    pub(crate) fn view<'a>(&'a self, name: &'a str, to: DType) -> Result<View<'a>> {
        let (file, entry) = self.entry(name)?;
        View::of_file(name, file, entry, to)
    }

    /// A quantised tensor that is to be read as it is.
    pub(crate) fn raw_view<'a>(&'a self, name: &'a str) -> Result<View<'a>> {
        let (file, entry) = self.entry(name)?;
        View::of_rows(name, file, entry)
    }

    /// Whether the values of a tensor, if it is quantised, can be decoded.
    pub(crate) fn check_decodable(&self, name: &str) -> Result<()> {
        let (file, entry) = self.entry(name)?;
        entry.quantised().map_or(Ok(()), |kind| check_decodable(name, file, kind))
    }

    fn entry(&self, name: &str) -> Result<(&MappedFile, &Entry)> {
        let (file, entry) = self.tensors.get(name).ok_or_else(|| WeightsError::UnknownTensor {
            name: name.into(),
            place: self.directory.clone(),
            suggestions: suggest(name, self.names()),
        })?;
        Ok((&*self.files[*file], entry))
    }

    /// One line for a log: files, number of tensors and of values, stored types.
    pub fn describe(&self) -> String {
        let values: usize = self.tensors.values().map(|(_, entry)| entry.shape.iter().product::<usize>()).sum();
        let dtypes: std::collections::BTreeSet<_> = self.tensors.values().map(|(_, entry)| entry.type_name()).collect();
        let files = match &self.files[..] {
            [single] => single.path().display().to_string(),
            several => format!("{} files in {}", several.len(), self.directory.display()),
        };
        let dtypes: Vec<_> = dtypes.into_iter().collect();
        format!("{files}: {} tensors, {values} values ({})", self.tensors.len(), dtypes.join(", "))
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}
