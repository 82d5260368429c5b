//! Writing trees and models as safetensors.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use burn::tensor::{DType, FloatDType, TensorData};
use grove_backend::Backend;
use grove_files::{Draft, FileError};
use grove_tree::{Tree, leaves};
use serde_json::{Map, Value, json};

use crate::checkpoint::TensorFiles;
use crate::entry::{StoredDtype, burn_dtype, stored_dtype};
use crate::error::{Result, WeightsError};
use crate::names::NameMap;
use crate::outputs::{Output, outputs};
use crate::shards::{INDEX, SINGLE, crash_point, free_names, remove_stale};
use crate::view::materialise;

/// Metadata, sharding and additional tensors of a saved model.
#[derive(Clone, Debug)]
pub struct SaveOptions {
    /// Metadata in the files' headers. The default is `format: pt`, which transformers requires.
    pub metadata: BTreeMap<String, String>,
    /// Maximum size of one file, in bytes; a larger model is divided into several files with an index. `None`, the
    /// default, writes one file.
    pub max_shard_bytes: Option<usize>,
    /// Additional tensors by published name that belong to no leaf but are expected by the reading library, such as
    /// counters and masks. They are written unchanged.
    pub constants: BTreeMap<String, TensorData>,
}

impl Default for SaveOptions {
    fn default() -> Self {
        let metadata = BTreeMap::from([("format".into(), "pt".into())]);
        Self { metadata, max_shard_bytes: None, constants: BTreeMap::new() }
    }
}

/// Parses a size in bytes as transformers writes it, for [`SaveOptions::max_shard_bytes`]: 1 GB is 10^9 bytes, 1 GiB is
/// 2^30.
///
/// ```
/// # use grove_weights::parse_size;
/// assert_eq!(["5GB", "500 mb", "2GiB", "1000"].map(parse_size), [Some(5_000_000_000), Some(500_000_000), Some(1 << 31), Some(1000)]);
/// assert_eq!(parse_size("five GB"), None);
/// ```
pub fn parse_size(text: &str) -> Option<usize> {
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
    let bytes = number.trim().parse::<f64>().ok()? * unit as f64;
    (bytes >= 1.0 && bytes.is_finite()).then_some(bytes as usize)
}

/// Saves a tree, such as a model, an optimizer's state or a pair of them, in one file under its own paths, for
/// [`load_tree`](crate::load_tree). An existing file is replaced atomically.
///
/// ```
/// use grove_tree::{Init, Key, eq};
/// use grove_weights::{load_tree, save_tree};
/// # type B = burn_flex::Flex;
/// # let (device, directory) = (Default::default(), tempfile::tempdir()?);
/// # let file = directory.path().join("model.safetensors");
/// let model = |init: &Init<B>| vec![init.named("up").normal([2, 3], 1.0), init.named("down").normal([3, 1], 1.0)];
/// let trained = model(&Init::new(Key::new(0), &device));
/// save_tree(&trained, &file)?;
/// assert!(eq(&load_tree(model(&Init::skeleton()), &file, &device)?, &trained));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`WeightsError::AbsentLeaf`], [`WeightsError::CannotSave`] or [`WeightsError::File`].
pub fn save_tree<B: Backend, T: Tree<B>>(tree: &T, path: impl AsRef<Path>) -> Result<()> {
    let leaves = leaves(tree);
    let SaveOptions { metadata, constants, .. } = SaveOptions::default();
    write_file(path.as_ref(), outputs(&leaves, &NameMap::new(), &constants)?, &metadata)
}

/// Saves a model under its published names and layouts. If `path` ends in `.safetensors`, it is the file. Otherwise it
/// is a directory, which gets `model.safetensors`, or shards with an index if the model exceeds
/// `options.max_shard_bytes`.
///
/// All files are written completely before the first one gets its final name, new shards never have the names of
/// existing ones, and weights of an earlier save in the directory are removed at the end. If the process or the machine
/// stops at any time, the directory loads as the old model or as the new one, never as a mixture.
///
/// # Errors
/// [`WeightsError::AbsentLeaf`], [`WeightsError::CannotSave`] or [`WeightsError::File`].
pub fn save_model<B: Backend, T: Tree<B>>(
    model: &T,
    names: &NameMap,
    path: impl AsRef<Path>,
    options: &SaveOptions,
) -> Result<()> {
    let path = path.as_ref();
    let leaves = leaves(model);
    let outputs = outputs(&leaves, names, &options.constants)?;
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        return write_file(path, outputs, &options.metadata);
    }
    let total: usize = outputs.iter().map(Output::bytes).sum();
    let shards = shards(outputs, options.max_shard_bytes.unwrap_or(usize::MAX));
    let count = shards.len();
    let mut drafts = Vec::with_capacity(count);
    let mut kept = if count == 1 { vec![SINGLE.to_string()] } else { free_names(path, count) };
    let mut weight_map = Map::new();
    for (shard, name) in shards.into_iter().zip(&kept) {
        weight_map.extend(shard.iter().map(|output| (output.name.clone(), Value::from(name.as_str()))));
        drafts.push(Draft::write(&path.join(name), |writer| write_tensors(writer, shard, &options.metadata))?);
    }
    if count > 1 {
        let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
        let file = path.join(INDEX);
        drafts
            .push(Draft::write(&file, |writer| writeln!(writer, "{index:#}").map_err(FileError::io("write", &file)))?);
        kept.push(INDEX.into());
    }
    for draft in drafts {
        crash_point();
        draft.publish()?;
    }
    remove_stale(path, &kept)
}

/// Writes all tensors to one file, atomically.
fn write_file(path: &Path, tensors: Vec<Output>, metadata: &BTreeMap<String, String>) -> Result<()> {
    Ok(Draft::write(path, |writer| write_tensors(writer, tensors, metadata))?.publish()?)
}

/// Writes all tensors of files to one safetensors file, under their names. Returns their number and the number of their
/// elements. An existing file is replaced atomically.
///
/// - `dtype`: type of tensors of floating-point numbers. `None` keeps each type; quantized blocks become f16
///
/// # Errors
/// A tensor has a type that cannot be decoded, or a file cannot be read or written.
pub fn convert_tensors(
    files: &TensorFiles,
    path: impl AsRef<Path>,
    dtype: Option<FloatDType>,
) -> Result<(usize, usize)> {
    let mut infos = Vec::new();
    for name in files.names() {
        let info = files.info(name)?;
        let kept = match (info.quantized, burn_dtype(info.dtype)) {
            (Some(_), _) => DType::F16,
            (None, Some(dtype)) => dtype,
            (None, None) => {
                let reason = format!("`{name}` is of type {}, which cannot be converted", info.dtype);
                return Err(WeightsError::unsupported(&info.file, reason));
            }
        };
        let is_float = info.quantized.is_some() || kept.is_float();
        let target = dtype.filter(|_| is_float).map_or(kept, DType::from);
        infos.push((name, target, info.shape));
    }
    let tensors = infos.iter().map(|(name, dtype, shape)| Output {
        name: name.to_string(),
        dtype: stored_dtype(*dtype).unwrap_or(StoredDtype::F32),
        shape: shape.clone(),
        read: Box::new(|| materialise(&[files.view(name, *dtype)?], 0, *dtype)),
    });
    write_file(path.as_ref(), tensors.collect(), &SaveOptions::default().metadata)?;
    Ok((infos.len(), infos.iter().map(|(.., shape)| shape.iter().product::<usize>()).sum()))
}

/// Divides tensors, in order, into groups of at most `limit` bytes; a larger tensor has a group of its own.
fn shards(outputs: Vec<Output>, limit: usize) -> Vec<Vec<Output>> {
    let mut shards: Vec<Vec<Output>> = vec![Vec::new()];
    let mut filled = 0usize;
    for output in outputs {
        let bytes = output.bytes();
        let full = filled.saturating_add(bytes) > limit;
        match shards.last_mut() {
            Some(last) if !full || last.is_empty() => last.push(output),
            _ => {
                filled = 0;
                shards.push(vec![output]);
            }
        }
        filled += bytes;
    }
    shards
}

/// Writes the format: header length, header, values. Tensors are sorted by decreasing element size, which aligns them,
/// then by name. The values of one tensor are in memory at a time.
fn write_tensors(writer: &mut dyn Write, mut tensors: Vec<Output>, metadata: &BTreeMap<String, String>) -> Result<()> {
    tensors.sort_by(|a, b| b.dtype.bitsize().cmp(&a.dtype.bitsize()).then_with(|| a.name.cmp(&b.name)));
    let mut header = Map::new();
    if !metadata.is_empty() {
        header.insert("__metadata__".into(), json!(metadata));
    }
    let mut start = 0;
    for tensor in &tensors {
        let end = start + tensor.bytes();
        let dtype = tensor.dtype.to_string();
        let about = json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end] });
        header.insert(tensor.name.clone(), about);
        start = end;
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let failed = |error| FileError::io("write", "the temporary file of the weights")(error);
    writer.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
    writer.write_all(&header).map_err(failed)?;
    for tensor in tensors {
        let data = (tensor.read)()?;
        if data.bytes.len() != tensor.bytes() {
            let reason = format!("the device returned {} bytes instead of {}", data.bytes.len(), tensor.bytes());
            return Err(WeightsError::CannotSave { path: tensor.name, reason });
        }
        writer.write_all(&data.bytes).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_tensors_of_any_names() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [array, target] = ["w.npy", "out.safetensors"].map(|name| directory.path().join(name));
        crate::write_npy(&array, &[2, 2], &[1.0, -2.5, 0.1, 3.0]).expect("written");
        let files = TensorFiles::open(&array).expect("an array");
        for (dtype, values) in [(None, [1.0, -2.5, 0.1, 3.0]), (Some(FloatDType::F16), [1.0, -2.5, 0.099_975_586, 3.0])]
        {
            assert_eq!(convert_tensors(&files, &target, dtype).expect("converted"), (1, 4));
            let data = TensorFiles::open(&target).expect("weights").tensor("w").expect("readable");
            assert_eq!(data.shape.as_slice(), [2, 2]);
            assert_eq!(data.convert::<f32>().iter::<f32>().collect::<Vec<_>>(), values);
        }
    }

    #[test]
    fn sizes_of_files() {
        let sizes = ["5GB", "500 mb", "2GiB", "1000", "1.5kB"].map(|text| parse_size(text).expect("a size"));
        assert_eq!(sizes, [5_000_000_000, 500_000_000, 1 << 31, 1000, 1500]);
        for wrong in ["", "GB", "0", "-1GB", "five GB", "infGB", "NaN"] {
            assert!(parse_size(wrong).is_none(), "{wrong}");
        }
    }
}
