//! Where a leaf's values lie, and reading them from there.

use std::ops::Range;

use burn::tensor::{DType, TensorData};

use crate::checkpoint::Checkpoint;
use crate::entry::burn_dtype;
use crate::error::Result;
use crate::step::Step;
use crate::view::materialise;

/// A leaf that is to be filled.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) path: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    /// Whether it is state rather than a parameter.
    pub(crate) is_buffer: bool,
}

/// Where the values of one leaf lie and what is done to them.
#[derive(Debug)]
pub(crate) struct Placement {
    /// Names in the checkpoint; several are merged.
    pub(crate) names: Vec<String>,
    /// The part that is taken of a tensor that holds several leaves.
    pub(crate) part: Option<Range<usize>>,
    /// Along which parts lie.
    pub(crate) axis: usize,
    pub(crate) steps: Vec<Step>,
    /// Whether the leaf takes quantised tensors as they are.
    pub(crate) is_raw: bool,
}

impl Placement {
    /// Reads the leaf as values of type `to`.
    pub(crate) fn read(&self, checkpoint: &Checkpoint, to: DType) -> Result<TensorData> {
        let mut views = Vec::with_capacity(self.names.len());
        for name in &self.names {
            let mut view = if self.is_raw { checkpoint.raw_view(name)? } else { checkpoint.view(name, to)? };
            if let Some(part) = &self.part {
                view = view.slice(self.axis, part.clone())?;
            }
            views.push(self.steps.iter().try_fold(view, |view, step| step.apply(view))?);
        }
        materialise(&views, self.axis, to)
    }

    /// Whether what the leaf takes can be decoded, if that is needed.
    pub(crate) fn check_decodable(&self, checkpoint: &Checkpoint) -> Result<()> {
        if self.is_raw { Ok(()) } else { self.names.iter().try_for_each(|name| checkpoint.check_decodable(name)) }
    }

    /// The type of floats in which the checkpoint has all that the leaf takes: f32, f16 or bf16, and f32 for f64 and
    /// for a mixture. `None` if something is quantised or no float.
    pub(crate) fn stored_float(&self, checkpoint: &Checkpoint) -> Option<DType> {
        let stored = |name: &String| {
            let info = checkpoint.info(name).ok().filter(|info| info.quantised.is_none())?;
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
