//! Tensors of 16-bit floats: their bits, and casts.

use burn::tensor::{Bytes, DType, Shape, TensorMetadata, ops::FloatTensorOps};
use burn_flex::{Flex, FlexTensor, Layout};
use grove_kernels::{self as kernels, HalfFormat};
use half::{bf16, f16, slice::HalfFloatSliceExt};

use super::contiguous;

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

/// Returns the elements of a contiguous tensor of 16-bit floats.
pub(super) fn elements(x: &FlexTensor) -> &[u16] {
    let elements = match x.dtype() {
        DType::F16 => x.as_slice::<f16>().map(HalfFloatSliceExt::reinterpret_cast),
        _ => x.as_slice::<bf16>().map(HalfFloatSliceExt::reinterpret_cast),
    };
    elements.expect("a contiguous tensor of 16-bit floats")
}

/// Returns a new tensor from the bits of its elements.
pub(super) fn tensor(bits: Vec<u16>, shape: Shape, dtype: DType) -> FlexTensor {
    FlexTensor::new(Bytes::from_elems(bits), Layout::contiguous(shape), dtype)
}

/// Modifies the elements of a tensor of 16-bit floats in place, or in a copy if the tensor is shared or not contiguous.
pub(super) fn map_in_place(x: FlexTensor, f: impl FnOnce(&mut [u16])) -> FlexTensor {
    let mut x = contiguous(x);
    if x.bytes().len() > size_of_val(elements(&x)) {
        x = tensor(elements(&x).to_vec(), x.shape(), x.dtype());
    }
    match x.dtype() {
        DType::F16 => f(x.storage_mut::<f16>().reinterpret_cast_mut()),
        _ => f(x.storage_mut::<bf16>().reinterpret_cast_mut()),
    }
    x
}

/// Returns where the rows of a view's last axis start, and their length; `None` if a row is not contiguous.
fn rows(x: &FlexTensor) -> Option<(Vec<usize>, usize)> {
    let (shape, strides) = (x.layout().shape(), x.layout().strides());
    let last = shape.num_dims() - 1;
    if strides[last] != 1 && shape[last] != 1 {
        return None;
    }
    let mut starts = vec![x.layout().start_offset()];
    for axis in 0..last {
        let places = (0..shape[axis] as isize).map(|i| i * strides[axis]);
        starts = starts.iter().flat_map(|start| places.clone().map(|place| start.wrapping_add_signed(place))).collect();
    }
    Some((starts, shape[last]))
}

/// Casts a tensor, in parallel between f32 and 16-bit floats. A view of all stored elements keeps its layout.
pub(super) fn cast(x: FlexTensor, dtype: DType) -> FlexTensor {
    let stored = x.bytes().len() / x.dtype().size();
    let is_part = stored > x.shape().num_elements();
    if is_part
        && dtype == DType::F32
        && let (Some(format), Some((starts, len))) = (format(x.dtype()), rows(&x))
    {
        return super::tensor(kernels::widened_rows(format, bits(&x), &starts, len), x.shape());
    }
    let x = if is_part { x.to_contiguous() } else { x };
    let data = match (format(x.dtype()), format(dtype)) {
        (Some(format), None) if dtype == DType::F32 => Bytes::from_elems(kernels::widened(format, bits(&x))),
        (None, Some(format)) if x.dtype() == DType::F32 => {
            Bytes::from_elems(kernels::narrowed(format, x.storage::<f32>()))
        }
        _ => return Flex::float_cast(x, dtype.into()),
    };
    FlexTensor::new(data, x.layout().clone(), dtype)
}
