//! One tensor's place in a file, the same for every format.

use std::path::PathBuf;

pub use safetensors::Dtype as StoredDtype;

use burn::tensor::{BoolStore, DType};

use crate::error::{Result, WeightsError};
use crate::gguf::{BlockType, GgufMetadata};
use crate::packed::Packed;

/// What is known of a tensor without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Sizes, outermost first; empty for a scalar. Values are counted, quantised or not.
    pub shape: Vec<usize>,
    /// Type of the stored values; of a quantised tensor `F32`, as which its values are read.
    pub dtype: StoredDtype,
    /// The kind of blocks in which the values are quantised; `None` for plain numbers.
    pub quantised: Option<BlockType>,
    /// The file that holds it.
    pub file: PathBuf,
}

impl TensorInfo {
    /// The shape of a leaf of bytes (u8) that takes a quantised tensor as it is: its rows, and the bytes of each.
    /// `None` for plain numbers.
    pub fn raw_shape(&self) -> Option<Vec<usize>> {
        let (&row, rows) = self.shape.split_last()?;
        Some([rows, &[self.quantised?.row_bytes(row)?]].concat())
    }
}

/// Where a tensor's values lie. Made by a format's reader, which has checked that every element that `shape`
/// and `strides` reach lies inside the file, or inside what is unpacked from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) dtype: StoredDtype,
    pub(crate) shape: Vec<usize>,
    /// Distance between neighbours along each axis, in elements.
    pub(crate) strides: Vec<usize>,
    /// Position of the first element in the file, or in what is unpacked, in bytes.
    pub(crate) offset: usize,
    pub(crate) form: Form,
}

/// How values are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are in memory.
    Plain,
    /// In a way that has to be undone for the whole tensor before its elements can be found.
    Packed(Packed),
    /// Quantised, in blocks of neighbours along the last axis; the tensor is row-major and its dtype `F32`.
    Blocks(BlockType),
}

impl Entry {
    /// The kind of blocks, if the values are quantised.
    pub(crate) fn quantised(&self) -> Option<BlockType> {
        if let Form::Blocks(kind) = self.form { Some(kind) } else { None }
    }

    /// How people call the type of the stored values.
    pub(crate) fn type_name(&self) -> String {
        self.quantised().map_or_else(|| self.dtype.to_string(), |kind| kind.to_string())
    }
}

/// A format's table of contents.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Names and places, in the order of the file.
    pub(crate) entries: Vec<(String, Entry)>,
    /// The file's own remarks, such as `format: pt`.
    pub(crate) metadata: Vec<(String, String)>,
    /// The typed remarks of a GGUF file.
    pub(crate) gguf: Option<GgufMetadata>,
}

/// Strides of a row-major array of this shape, in elements.
pub(crate) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

/// Strides of a column-major array of this shape (Fortran's order), in elements.
pub(crate) fn column_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in 1..shape.len() {
        strides[axis] = strides[axis - 1].saturating_mul(shape[axis - 1]);
    }
    strides
}

/// Number of elements, `None` if it does not fit.
pub(crate) fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))
}

/// Whether the values of this shape and type take exactly `bytes` bytes.
///
/// # Errors
/// A reason, with the numbers.
pub(crate) fn check_size(dtype: StoredDtype, shape: &[usize], bytes: usize) -> std::result::Result<(), String> {
    match element_count(shape).and_then(|count| count.checked_mul(dtype.bitsize())) {
        None => Err(format!("its shape {shape:?} has more elements than can be counted")),
        Some(bits) if bits % 8 != 0 || bits / 8 != bytes => {
            Err(format!("shape {shape:?} of {dtype} needs {} bytes and its data has {bytes}", bits.div_ceil(8)))
        }
        Some(_) => Ok(()),
    }
}

/// Burn's name for a stored type, `None` where Burn has none (8-bit and smaller floats, complex numbers).
pub(crate) fn burn_dtype(dtype: StoredDtype) -> Option<DType> {
    Some(match dtype {
        StoredDtype::F64 => DType::F64,
        StoredDtype::F32 => DType::F32,
        StoredDtype::F16 => DType::F16,
        StoredDtype::BF16 => DType::BF16,
        StoredDtype::I64 => DType::I64,
        StoredDtype::I32 => DType::I32,
        StoredDtype::I16 => DType::I16,
        StoredDtype::I8 => DType::I8,
        StoredDtype::U64 => DType::U64,
        StoredDtype::U32 => DType::U32,
        StoredDtype::U16 => DType::U16,
        StoredDtype::U8 => DType::U8,
        StoredDtype::BOOL => DType::Bool(BoolStore::Native),
        _ => return None,
    })
}

/// The stored type that holds values of a Burn type exactly, `None` for quantized values.
pub(crate) fn stored_dtype(dtype: DType) -> Option<StoredDtype> {
    Some(match dtype {
        DType::F64 => StoredDtype::F64,
        DType::F32 | DType::Flex32 => StoredDtype::F32,
        DType::F16 => StoredDtype::F16,
        DType::BF16 => StoredDtype::BF16,
        DType::I64 => StoredDtype::I64,
        DType::I32 => StoredDtype::I32,
        DType::I16 => StoredDtype::I16,
        DType::I8 => StoredDtype::I8,
        DType::U64 => StoredDtype::U64,
        DType::U32 => StoredDtype::U32,
        DType::U16 => StoredDtype::U16,
        DType::U8 => StoredDtype::U8,
        DType::Bool(_) => StoredDtype::BOOL,
        DType::QFloat(_) => return None,
    })
}

/// Size of one stored element in bytes.
///
/// # Errors
/// For types smaller than a byte, which cannot be read.
pub(crate) fn element_size(dtype: StoredDtype, tensor: &str) -> Result<usize> {
    match dtype.bitsize() {
        bits if bits % 8 == 0 && bits > 0 => Ok(bits / 8),
        _ => Err(WeightsError::Conversion {
            tensor: tensor.into(),
            from: dtype.to_string(),
            to: "values".into(),
            reason: "elements smaller than a byte are not read".into(),
        }),
    }
}
