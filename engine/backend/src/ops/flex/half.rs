//! 16-bit floats: casts, and operations that compute in f32.

use burn::tensor::{Bytes, DType, TensorMetadata, ops::FloatTensorOps};
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, HalfFormat};
use half::{bf16, f16, slice::HalfFloatSliceExt};

/// Returns the format of a 16-bit dtype.
pub(super) fn format(dtype: DType) -> Option<HalfFormat> {
    match dtype {
        DType::F16 => Some(HalfFormat::F16),
        DType::BF16 => Some(HalfFormat::Bf16),
        _ => None,
    }
}

/// Returns the stored elements of a tensor of 16-bit floats.
pub(super) fn bits(x: &FlexTensor) -> &[u16] {
    match x.dtype() {
        DType::F16 => x.storage::<f16>().reinterpret_cast(),
        _ => x.storage::<bf16>().reinterpret_cast(),
    }
}

/// Casts a tensor, in parallel between f32 and 16-bit floats. A view keeps its layout.
pub(super) fn cast(x: FlexTensor, dtype: DType) -> FlexTensor {
    let stored = x.bytes().len() / x.dtype().size();
    let x = if stored > x.shape().num_elements() { x.to_contiguous() } else { x };
    let data = match (format(x.dtype()), format(dtype)) {
        (Some(format), None) if dtype == DType::F32 => Bytes::from_elems(kernels::widened(format, bits(&x))),
        (None, Some(format)) if x.dtype() == DType::F32 => {
            Bytes::from_elems(kernels::narrowed(format, x.storage::<f32>()))
        }
        _ => return Flex::float_cast(x, dtype.into()),
    };
    FlexTensor::new(data, x.layout().clone(), dtype)
}
