//! The position of a leaf's values in a checkpoint, and how to read them.

use std::ops::Range;
use std::path::PathBuf;

use burn::tensor::{DType, TensorData};

use crate::checkpoint::TensorFiles;
use crate::entry::burn_dtype;
use crate::error::Result;
use crate::step::Step;
use crate::view::materialise;

/// A leaf to be filled.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) path: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    /// True if the leaf is a buffer, not a parameter.
    pub(crate) is_buffer: bool,
}

/// Position of a leaf's values, and the steps applied to them.
#[derive(Debug)]
pub(crate) struct Placement {
    /// Names in the checkpoint; several are concatenated.
    pub(crate) names: Vec<String>,
    /// Range of the leaf in a tensor that contains several leaves; `None` for the whole tensor.
    pub(crate) part: Option<Range<usize>>,
    /// Axis of the parts.
    pub(crate) axis: usize,
    pub(crate) steps: Vec<Step>,
    /// True if the leaf gets quantized tensors without decoding.
    pub(crate) is_quantized: bool,
}

impl Placement {
    /// Reads the leaf as values of dtype `to`.
    pub(crate) fn read(&self, checkpoint: &TensorFiles, to: DType) -> Result<TensorData> {
        let mut views = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let view = if self.is_quantized { checkpoint.quantized_view(name)? } else { checkpoint.view(name, to)? };
            views.push(view.piece(self.axis, self.part.as_ref(), &self.steps)?);
        }
        materialise(&views, self.axis, to)
    }

    /// Returns an error if a tensor of the leaf must be decoded and cannot be.
    pub(crate) fn check_decodable(&self, checkpoint: &TensorFiles) -> Result<()> {
        if self.is_quantized { Ok(()) } else { self.names.iter().try_for_each(|name| checkpoint.check_decodable(name)) }
    }

    /// Returns the file of the leaf's tensor; of several, that of the first one.
    pub(crate) fn file(&self, checkpoint: &TensorFiles) -> Result<PathBuf> {
        match self.names.first() {
            Some(name) => Ok(checkpoint.info(name)?.file),
            None => Ok(checkpoint.directory().into()),
        }
    }

    /// Returns the floating-point dtype of the leaf's tensors in the checkpoint: f32, f16 or bf16, or f32 for f64 and
    /// for a mixture of dtypes. `None` if a tensor is quantized or not floating-point.
    pub(crate) fn stored_float(&self, checkpoint: &TensorFiles) -> Option<DType> {
        let stored = |name: &String| {
            let info = checkpoint.info(name).ok().filter(|info| info.quantized.is_none())?;
            match burn_dtype(info.dtype)? {
                dtype @ (DType::F32 | DType::F16 | DType::BF16) => Some(dtype),
                DType::F64 => Some(DType::F32),
                _ => None,
            }
        };
        let types: Vec<DType> = self.names.iter().map(stored).collect::<Option<_>>()?;
        let (first, others) = types.split_first()?;
        Some(if others.iter().all(|other| other == first) { *first } else { DType::F32 })
    }
}
