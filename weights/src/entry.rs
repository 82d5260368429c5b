//! The position of one tensor in a file, common to all formats.

use std::path::PathBuf;

pub use safetensors::Dtype as StoredDtype;

use burn::tensor::{BoolStore, DType};

use crate::gguf::block_type::BlockType;
use crate::packed::Packed;

/// Description of a tensor, available without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// Sizes of the axes, outermost first, counted in values, quantized or not; empty for a scalar.
    pub shape: Vec<usize>,
    /// Type of the stored values. `F32` for a quantized tensor, which is read as `f32`.
    pub dtype: StoredDtype,
    /// Block type of a quantized tensor; `None` if the tensor is not quantized.
    pub quantized: Option<BlockType>,
    /// The file that contains the tensor.
    pub file: PathBuf,
}

impl TensorInfo {
    /// Returns the shape of a leaf of bytes (u8) that contains this quantized tensor without decoding: its rows, with
    /// the bytes of each row as the last axis. `None` if the tensor is not quantized.
    pub fn raw_shape(&self) -> Option<Vec<usize>> {
        let (&row, rows) = self.shape.split_last()?;
        Some([rows, &[self.quantized?.row_bytes(row)?]].concat())
    }
}

/// Position of a tensor's values. The reader of each format creates it, and has checked that every element reached by
/// `shape` and `strides` is inside the file, or inside the unpacked content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) dtype: StoredDtype,
    pub(crate) shape: Vec<usize>,
    /// Distance between neighbours along each axis, in elements.
    pub(crate) strides: Vec<usize>,
    /// Position of the first element in the file, or in the unpacked content, in bytes.
    pub(crate) offset: usize,
    pub(crate) form: Form,
}

/// Encoding of the values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The same bytes as in memory.
    Plain,
    /// Packed values: the whole tensor must be unpacked before an element can be located.
    Packed(Packed),
    /// Quantized, in blocks along the last axis. The tensor is row-major and its dtype `F32`.
    Blocks(BlockType),
}

impl Entry {
    /// Returns the block type; `None` if the values are not quantized.
    pub(crate) fn quantized(&self) -> Option<BlockType> {
        if let Form::Blocks(kind) = self.form { Some(kind) } else { None }
    }

    /// Returns the name of the type of the stored values, for messages.
    pub(crate) fn type_name(&self) -> String {
        self.quantized().map_or_else(|| self.dtype.to_string(), |kind| kind.to_string())
    }
}

/// Returns the strides of a row-major array of this shape, in elements.
pub(crate) fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

/// Returns the strides of a column-major (Fortran-order) array of this shape, in elements.
pub(crate) fn column_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in 1..shape.len() {
        strides[axis] = strides[axis - 1].saturating_mul(shape[axis - 1]);
    }
    strides
}

/// Returns the shape of pieces concatenated along `axis`; `None` if other axes differ.
pub(crate) fn joined(pieces: &[Vec<usize>], axis: usize) -> Option<Vec<usize>> {
    let (first, others) = pieces.split_first()?;
    let mut shape = first.clone();
    for piece in others {
        let fits = piece.len() == shape.len() && (0..shape.len()).all(|i| i == axis || piece[i] == shape[i]);
        if !fits || axis >= shape.len() {
            return None;
        }
        shape[axis] = shape[axis].checked_add(piece[axis])?;
    }
    Some(shape)
}

/// Returns the number of elements; `None` if it overflows.
pub(crate) fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size))
}

/// Returns an error unless values of this shape and type take exactly `bytes` bytes.
pub(crate) fn check_size(dtype: StoredDtype, shape: &[usize], bytes: usize) -> std::result::Result<(), String> {
    match element_count(shape).and_then(|count| count.checked_mul(dtype.bitsize())) {
        None => Err(format!("its shape {shape:?} has more elements than can be counted")),
        Some(bits) if bits % 8 != 0 || bits / 8 != bytes => {
            Err(format!("shape {shape:?} of {dtype} needs {} bytes, but its data has {bytes}", bits.div_ceil(8)))
        }
        Some(_) => Ok(()),
    }
}

/// Stored types that Burn has too. It lacks 8-bit and smaller floats, and complex numbers.
const TYPES: [(StoredDtype, DType); 13] = [
    (StoredDtype::F64, DType::F64),
    (StoredDtype::F32, DType::F32),
    (StoredDtype::F16, DType::F16),
    (StoredDtype::BF16, DType::BF16),
    (StoredDtype::I64, DType::I64),
    (StoredDtype::I32, DType::I32),
    (StoredDtype::I16, DType::I16),
    (StoredDtype::I8, DType::I8),
    (StoredDtype::U64, DType::U64),
    (StoredDtype::U32, DType::U32),
    (StoredDtype::U16, DType::U16),
    (StoredDtype::U8, DType::U8),
    (StoredDtype::BOOL, DType::Bool(BoolStore::Native)),
];

/// Returns Burn's type for a stored type; `None` if Burn has none.
pub(crate) fn burn_dtype(dtype: StoredDtype) -> Option<DType> {
    TYPES.iter().find(|(stored, _)| *stored == dtype).map(|(_, burn)| *burn)
}

/// Returns the stored type that represents a Burn type exactly; `None` for quantized values.
pub(crate) fn stored_dtype(dtype: DType) -> Option<StoredDtype> {
    let dtype = match dtype {
        DType::Flex32 => DType::F32,
        DType::Bool(_) => DType::Bool(BoolStore::Native),
        other => other,
    };
    TYPES.iter().find(|(_, burn)| *burn == dtype).map(|(stored, _)| *stored)
}
