//! Access to tensors with padded rows or permuted axes.

use burn::tensor::{DType, Shape};
use burn_cubecl::{CubeRuntime, kernel, tensor::CubeTensor};
use cubecl::{calculate_cube_count_elemwise, client::ComputeClient, prelude::*};
use std::ops::Range;

/// Returns all of a tensor's memory from its first element on. Kernels index it by strides.
pub(super) fn array<R: CubeRuntime>(x: &CubeTensor<R>) -> ArrayArg<R> {
    let len = x.handle.size_in_used() as usize / x.dtype.size();
    // SAFETY: the length is that of the handle's allocation.
    unsafe { ArrayArg::from_raw_parts(x.handle.clone(), len) }
}

/// Strides of a tensor `[b, n_head, t, head_dim]`.
#[derive(CubeType, CubeLaunch)]
pub(super) struct Strides {
    pub batch: usize,
    pub head: usize,
    pub position: usize,
    pub number: usize,
}

impl<R: Runtime> StridesLaunch<R> {
    /// Returns the strides of a tensor.
    pub(super) fn of(x: &CubeTensor<R>) -> Self
    where
        R: CubeRuntime,
    {
        let strides = x.meta.strides();
        Self::new(strides[0], strides[1], strides[2], strides[3])
    }
}

/// Returns the index type that can address the last element of each tensor.
pub(super) fn addresses<R: CubeRuntime>(tensors: &[&CubeTensor<R>]) -> AddressType {
    tensors.iter().map(|x| x.required_address_type()).max().unwrap_or_default()
}

/// Returns a contiguous tensor that may be written in place: the tensor itself, or a copy.
///
/// `CubeTensor::copy` is not suitable for a shared tensor, because it pads the rows of the copy on CUDA.
pub(super) fn owned<R: CubeRuntime>(x: CubeTensor<R>) -> CubeTensor<R> {
    if x.can_mut() {
        return kernel::into_contiguous(x);
    }
    let (client, device, dtype) = (x.client.clone(), x.device.clone(), x.dtype);
    let copy = cubecl::std::tensor::into_contiguous(&client, x.binding(), dtype.into());
    CubeTensor::new(client, copy.handle, *copy.metadata, device, dtype)
}

/// Returns an uninitialised, contiguous tensor on the device of another.
pub(super) fn empty<R: CubeRuntime>(like: &CubeTensor<R>, shape: impl Into<Shape>, dtype: DType) -> CubeTensor<R> {
    let shape = shape.into();
    let handle = like.client.empty(shape.num_elements() * dtype.size());
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// Joins adjacent axes. Returns the size and stride of the joined axis; `None` if the axes cannot be joined without a copy.
pub(super) fn joined(shape: &[usize], strides: &[usize]) -> Option<(usize, usize)> {
    let mut axes = shape.iter().zip(strides).rev().filter(|(size, _)| **size != 1);
    let Some((&size, &stride)) = axes.next() else { return Some((1, 0)) };
    axes.try_fold((size, size * stride), |(all, extent), (&size, &stride)| {
        (stride == extent).then_some((all * size, extent * size))
    })
    .map(|(all, _)| (all, stride))
}

/// Returns a slice of an axis, as a view if the device supports the offset, otherwise as a copy.
pub(super) fn view<R: CubeRuntime>(mut x: CubeTensor<R>, axis: usize, part: Range<usize>) -> CubeTensor<R> {
    let offset = (part.start * x.meta.strides()[axis] * x.dtype.size()) as u64;
    if offset.is_multiple_of(x.client.properties().memory.alignment) {
        x.meta.shape_mut()[axis] = part.len();
        x.handle = x.handle.offset_start(offset);
        return x;
    }
    let mut parts: Vec<_> = x.meta.shape().iter().map(|&size| 0..size).collect();
    parts[axis] = part;
    kernel::slice(x, &parts)
}

/// Returns a cube count, in as many axes as the device needs. Kernels must check [`CUBE_POS`](cubecl::prelude::CUBE_POS),
/// because the count may be rounded up.
pub(super) fn cubes<R: CubeRuntime>(client: &ComputeClient<R>, count: usize) -> CubeCount {
    calculate_cube_count_elemwise(client, count, CubeDim::new_single())
}

/// Returns the number of units of a cube that process a row together.
pub(super) fn units_for(row: usize) -> usize {
    row.next_power_of_two().clamp(32, 256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_axes_that_follow_each_other() {
        assert_eq!(joined(&[2, 3], &[3, 1]), Some((6, 1)));
        assert_eq!(joined(&[2, 1, 3], &[30, 7, 10]), Some((6, 10)));
        assert_eq!(joined(&[2, 3], &[4, 1]), None);
        assert_eq!(joined(&[2, 3], &[0, 1]), None);
        assert_eq!(joined(&[], &[]), Some((1, 0)));
    }
}
