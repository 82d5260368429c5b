//! Strided views of stored tensors.

use std::borrow::Cow;
use std::ops::Range;

mod read;

pub(crate) use read::materialise;

use burn::tensor::{Bytes, DType, TensorData};

use crate::entry::{Entry, Form, burn_dtype, element_count, row_major};
use crate::error::{Result, WeightsError};
use crate::gguf::{BlockType, Blocks};
use crate::mapped::MappedFile;
use crate::step::Step;

/// A strided view of a tensor in a file. Transposes, slices and most reshapes move no data.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    name: &'a str,
    bytes: Storage<'a>,
    dtype: DType,
    shape: Vec<usize>,
    /// Distance between neighbours along each axis, in elements.
    strides: Vec<usize>,
    /// Position of the first element, in bytes.
    offset: usize,
}

#[derive(Clone, Debug)]
enum Storage<'a> {
    Mapped(&'a MappedFile),
    Memory(Cow<'a, Bytes>),
    /// Blocks that are decoded while reading. Shape, strides and dtype of the view are those of the decoded values.
    Blocks(Blocks<'a>),
}

impl Storage<'_> {
    /// Returns the bytes of the elements; `None` if the elements must be decoded.
    fn plain(&self) -> Option<&[u8]> {
        match self {
            Self::Mapped(file) => Some(file.bytes()),
            Self::Memory(bytes) => Some(bytes),
            Self::Blocks(_) => None,
        }
    }
}

impl<'a> View<'a> {
    /// Creates a view of the tensor `name` at `entry` that is read as values of dtype `to`. Packed data is unpacked
    /// into memory.
    ///
    /// # Errors
    /// If Burn has no counterpart of the stored type, if the entry extends beyond the file, or if it cannot be unpacked
    /// or decoded.
    pub(crate) fn of_file(name: &'a str, file: &'a MappedFile, entry: &Entry, to: DType) -> Result<Self> {
        let wrong = |reason: String| WeightsError::malformed_tensor(file.path(), name, reason);
        let outside = || wrong("its elements lie outside the file".into());
        let dtype = burn_dtype(entry.dtype).ok_or_else(|| WeightsError::Conversion {
            tensor: name.into(),
            from: entry.dtype.to_string(),
            to: "values".into(),
            reason: "this type is not supported".into(),
        })?;
        let (shape, strides) = (entry.shape.clone(), entry.strides.clone());
        let bytes = match &entry.form {
            Form::Plain => Storage::Mapped(file),
            Form::Packed(packed) => {
                let unpacked = packed.unpack(file, entry.offset).map_err(wrong)?;
                Storage::Memory(Cow::Owned(Bytes::from_bytes_vec(unpacked)))
            }
            Form::Blocks(kind) => {
                check_decodable(name, file, *kind)?;
                let bytes = Storage::Blocks(Blocks::new(file, entry, *kind).ok_or_else(outside)?);
                // Intermediate values do not need a wider dtype than requested.
                let dtype = if matches!(to, DType::F16 | DType::BF16) { to } else { dtype };
                return Ok(Self { name, bytes, dtype, shape, strides, offset: 0 });
            }
        };
        let len = bytes.plain().map_or(0, <[u8]>::len);
        if !reaches_inside(entry, dtype.size(), len) {
            return Err(outside());
        }
        Ok(Self { name, bytes, dtype, shape, strides, offset: entry.offset })
    }

    /// Creates a view of the quantized tensor `name` without decoding: its rows as bytes.
    ///
    /// # Errors
    /// If the tensor is not quantized, or is outside the file.
    pub(crate) fn of_rows(name: &'a str, file: &'a MappedFile, entry: &Entry) -> Result<Self> {
        let wrong = |reason: &str| WeightsError::malformed_tensor(file.path(), name, reason);
        let kind = entry.quantized().ok_or_else(|| wrong("it is not quantized"))?;
        let mut shape = entry.shape.clone();
        if Blocks::new(file, entry, kind).is_none() {
            return Err(wrong("its blocks lie outside the file"));
        }
        if let Some(row) = shape.last_mut() {
            *row = kind.row_bytes(*row).ok_or_else(|| wrong("its rows are not whole blocks"))?;
        }
        let strides = row_major(&shape);
        Ok(Self { name, bytes: Storage::Mapped(file), dtype: DType::U8, shape, strides, offset: entry.offset })
    }

    /// Creates a view of row-major values in memory.
    pub(crate) fn of_data(name: &'a str, data: &'a TensorData) -> Self {
        let shape = data.shape.to_vec();
        let strides = row_major(&shape);
        Self { name, bytes: Storage::Memory(Cow::Borrowed(&data.bytes)), dtype: data.dtype, shape, strides, offset: 0 }
    }

    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the name of the stored type, for messages.
    fn stored_name(&self) -> &'static str {
        if let Storage::Blocks(blocks) = &self.bytes { blocks.kind().name() } else { self.dtype.name() }
    }

    fn misfit(&self, step: &str, reason: String) -> WeightsError {
        WeightsError::Transform { tensor: self.name.into(), step: step.into(), reason }
    }

    /// Returns the slice `part` along `axis`, or the whole view if `None`, rearranged by `steps`.
    pub(crate) fn piece(self, axis: usize, part: Option<&Range<usize>>, steps: &[Step]) -> Result<Self> {
        let view = match part {
            Some(part) => self.slice(axis, part.clone())?,
            None => self,
        };
        steps.iter().try_fold(view, |view, step| step.apply(view))
    }

    /// Permutes the axes: axis `i` of the result is axis `axes[i]` of this view. [`Step::apply`] has checked that `axes`
    /// is a permutation.
    pub(crate) fn permute(mut self, axes: &[usize]) -> Self {
        self.shape = axes.iter().map(|&axis| self.shape[axis]).collect();
        self.strides = axes.iter().map(|&axis| self.strides[axis]).collect();
        self
    }

    /// Returns the slice `range` along `axis`.
    pub(crate) fn slice(mut self, axis: usize, range: Range<usize>) -> Result<Self> {
        if self.shape.get(axis).is_none_or(|&size| range.end > size || range.start > range.end) {
            return Err(self.misfit("split", format!("no part {range:?} along axis {axis} of {:?}", self.shape)));
        }
        self.offset += range.start * self.strides[axis] * self.dtype.size();
        self.shape[axis] = range.len();
        Ok(self)
    }

    /// Reshapes in row-major order to a shape of as many elements, which [`Step::apply`] has checked. Copies the values if
    /// the view is not contiguous.
    pub(crate) fn reshape(mut self, shape: &[usize]) -> Result<Self> {
        if self.strides != row_major(&self.shape) {
            let data = materialise(std::slice::from_ref(&self), 0, self.dtype)?;
            self.bytes = Storage::Memory(Cow::Owned(data.bytes));
            self.offset = 0;
        }
        self.shape = shape.to_vec();
        self.strides = row_major(shape);
        Ok(self)
    }
}

/// Returns an error unless a quantized tensor can be read as floats.
pub(crate) fn check_decodable(name: &str, file: &MappedFile, kind: BlockType) -> Result<()> {
    if kind.is_decodable() {
        return Ok(());
    }
    let remedy = match cfg!(feature = "gguf") {
        true => "not decoded; take the model as Q8_0, or in one of the K-quants (Q4_K_M, for example)",
        false => "decoded by grove's feature `gguf`, which this program was built without; add it in Cargo.toml",
    };
    let reason = format!("its tensor `{name}` is quantized as {kind}, which is {remedy}");
    Err(WeightsError::unsupported(file.path(), reason))
}

/// Returns true if every element reached by the entry's shape and strides ends within `len` bytes.
pub(crate) fn reaches_inside(entry: &Entry, size: usize, len: usize) -> bool {
    let last = || -> Option<usize> {
        let mut last = 0usize;
        for (&count, &stride) in entry.shape.iter().zip(&entry.strides) {
            last = last.checked_add(count.checked_sub(1)?.checked_mul(stride)?)?;
        }
        last.checked_add(1)?.checked_mul(size)?.checked_add(entry.offset)
    };
    let empty = entry.shape.contains(&0);
    entry.shape.len() == entry.strides.len()
        && element_count(&entry.shape).is_some()
        && (empty && entry.offset <= len || last().is_some_and(|last| last <= len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_access_out_of_bounds() {
        let entry = |shape: &[usize], strides: &[usize], offset| Entry {
            dtype: crate::StoredDtype::F32,
            shape: shape.into(),
            strides: strides.into(),
            offset,
            form: Form::Plain,
        };
        for (shape, strides, offset, inside) in [
            (&[2, 3][..], &[3, 1][..], 16, true),
            (&[2, 3], &[3, 1], 17, false),
            (&[2, 3], &[4, 1], 16, false),
            (&[usize::MAX, 2], &[0, 0], 0, false),
            (&[2], &[usize::MAX], 0, false),
            (&[1], &[1], usize::MAX, false),
            (&[0, 5], &[5, 1], 40, true),
            (&[0, 5], &[5, 1], 41, false),
            (&[], &[], 36, true),
            (&[2], &[], 0, false),
        ] {
            assert_eq!(reaches_inside(&entry(shape, strides, offset), 4, 40), inside, "{shape:?} {strides:?} {offset}");
        }
    }
}
